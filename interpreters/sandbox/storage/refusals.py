"""What Cloud Storage says when it refuses.

Owns the statuses, reasons and words, and their JSON form. Must not know what was asked for.
"""

from __future__ import annotations

import json

from interpreters.sandbox.http_server import Reply

JSON = "application/json; charset=UTF-8"


class Refusal(Exception):  # noqa: N818 - it is an answer, not a failure of this server
    """An answer other than success."""

    def __init__(self, status: int, reason: str, message: str, location: str | None = None) -> None:
        """Keep what is said."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.location = location

    def reply(self) -> Reply:
        """Return the refusal in Google's form; what is not modified has no words."""
        if self.status == 304:  # noqa: PLR2004
            return Reply(self.status)
        entry = {"message": self.message, "domain": "global", "reason": self.reason}
        if self.location is not None:
            entry |= {"locationType": "header", "location": self.location}
        error = {"code": self.status, "message": self.message, "errors": [entry]}
        return Reply(self.status, json.dumps({"error": error}).encode(), JSON)


def invalid(message: str) -> Refusal:
    """Return the refusal of something malformed."""
    return Refusal(400, "invalid", message)


def required(message: str) -> Refusal:
    """Return the refusal of something incomplete."""
    return Refusal(400, "required", message)


def no_bucket() -> Refusal:
    """Return the refusal for a bucket that is not there."""
    return Refusal(404, "notFound", "The specified bucket does not exist.")


def no_object(bucket: str, name: str) -> Refusal:
    """Return the refusal for an object that is not there."""
    return Refusal(404, "notFound", f"No such object: {bucket}/{name}")


def no_upload() -> Refusal:
    """Return the refusal for an upload session that nobody began."""
    return Refusal(404, "notFound", "The upload session does not exist.")


def upload_expired() -> Refusal:
    """Return the refusal for an upload session that is over."""
    return Refusal(410, "gone", "The requested upload session is no longer available.")


def upload_cancelled() -> Refusal:
    """Return the refusal for an upload session that its client gave up."""
    return Refusal(499, "clientClosedRequest", "Client Closed Request")


def condition_not_met() -> Refusal:
    """Return the refusal for a precondition that does not hold."""
    words = "At least one of the pre-conditions you specified did not hold."
    return Refusal(412, "conditionNotMet", words, "If-Match")


def not_modified() -> Refusal:
    """Return the answer to a reader who has the newest already."""
    return Refusal(304, "notModified", "Not Modified", "If-None-Match")


def conflict(message: str) -> Refusal:
    """Return the refusal of something that is in the way of what is there."""
    return Refusal(409, "conflict", message)


def not_satisfiable() -> Refusal:
    """Return the refusal of a range that lies outside of the object."""
    return Refusal(416, "requestedRangeNotSatisfiable", "Request range not satisfiable", "Range")


def unknown_method(method: str, path: str) -> Refusal:
    """Return the refusal of what this server cannot do."""
    return Refusal(404, "notFound", f"The sandbox has no {method} {path}")


def fault(status: int) -> Refusal:
    """Return a refusal that a test has asked for."""
    return Refusal(status, "backendError", "A fault of the sandbox, as its FaultPlan says.")
