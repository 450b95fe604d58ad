"""What Chart-IMG says when it refuses.

Owns the statuses and words. Must not know when they are said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from interpreters.sandbox.http_server import Reply


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal."""

    status: int
    message: str

    def reply(self) -> Reply:
        """Return the refusal in JSON form."""
        return Reply(self.status, json.dumps({"message": self.message}).encode(), "application/json")


INVALID_REQUEST = Refused(400, "Invalid Request")
INVALID_SYMBOL = Refused(400, "Invalid Symbol")
INVALID_INTERVAL = Refused(400, "Invalid Interval")
UNAUTHORIZED = Refused(401, "Unauthorized")
NOT_FOUND = Refused(404, "Not Found")
TOO_MANY_REQUESTS = Refused(429, "Too Many Requests")
LIMIT_EXCEEDED = Refused(429, "Limit Exceeded")
SOMETHING_WENT_WRONG = Refused(500, "Something Went Wrong")

_WORDS = {
    400: INVALID_REQUEST.message,
    401: UNAUTHORIZED.message,
    403: "Forbidden",
    404: NOT_FOUND.message,
    429: TOO_MANY_REQUESTS.message,
    500: SOMETHING_WENT_WRONG.message,
    502: "Internal server error",
    503: "Service Unavailable",
    504: "Endpoint request timed out",
}


def refused_with(status: int) -> Refused:
    """Return a refusal of that status, in the words it usually comes with."""
    return Refused(status, _WORDS.get(status, "Invalid Request"))


def too_many_parameters(most: int) -> Refused:
    """Return the refusal of more studies and drawings than the plan has."""
    return Refused(403, f"Exceed Max Usage Parameter Limit ({most})")


def too_large(width: int, height: int) -> Refused:
    """Return the refusal of a larger image than the plan has."""
    return Refused(403, f"Exceed Max Usage Resolution Limit ({width}x{height})")
