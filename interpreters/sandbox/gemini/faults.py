"""Faults of the model that tests ask for.

Owns the ways to go wrong, and the queue of those to come. Must not know what was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFault:
    """One way to go wrong; what is not said goes on as usual."""

    status: int | None = None
    """The HTTP status of an error instead of an answer."""
    message: str = "as the test asked for"
    """The words that go with the status."""
    texts: tuple[str, ...] | None = None
    """Parts of text in place of the answer's; none at all where it is empty."""
    finish_reason: str = "STOP"
    """Why the model stopped."""
    block_reason: str | None = None
    """Why the prompt was blocked: there is no candidate then."""
    body: bytes | None = None
    """Bytes in place of the whole response, or of the error's."""
    location: str | None = None
    """Where a redirect leads, for a status that is one."""
    delay_seconds: float = 0.0
    """How long nothing is said at first."""
    drip_seconds: float = 0.0
    """A pause after every few bytes of the answer."""
    reset: bool = False
    """Whether the connection is reset instead of an answer."""

    @property
    def status_name(self) -> str:
        """Return what Google calls the status."""
        return _STATUSES.get(self.status or 0, "UNKNOWN")


RATE_LIMITED = ModelFault(status=429)
SERVER_ERROR = ModelFault(status=500)
SAFETY = ModelFault(texts=(), finish_reason="SAFETY")
CUT_OFF = ModelFault(texts=('{"summary": {"markdown": "the beginning of',), finish_reason="MAX_TOKENS")
NO_TEXT = ModelFault(texts=())
BROKEN_JSON = ModelFault(texts=("this is ", "no JSON"))
WRONG_SHAPE = ModelFault(texts=('{"summary": {}}',))


class ModelFaults:
    """The faults still to come, the oldest first."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = Lock()
        self._left: list[ModelFault] = []

    def add(self, *faults: ModelFault) -> None:
        """Let the next answers go wrong in these ways, one each."""
        with self._lock:
            self._left += faults

    def take(self) -> ModelFault:
        """Return the next fault; one that changes nothing where none is left."""
        with self._lock:
            return self._left.pop(0) if self._left else ModelFault()

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        with self._lock:
            self._left.clear()
