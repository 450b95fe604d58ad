"""Faults of the chart server that tests ask for.

Owns the ways to go wrong, and the queue of those to come. Must not know accounts, limits or drawing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from interpreters.sandbox.chart_img.ledger import Asked
from interpreters.sandbox.chart_img.refusals import refused_with
from interpreters.sandbox.http_server import Dropped, Reply

Matching = Callable[[Asked], bool]
_GARBAGE = b"\x00\x01 this is no picture \xff\xfe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to go wrong; what is not said goes on as usual."""

    status: int | None = None
    """What is answered instead of the picture."""
    message: str | None = None
    """The words that go with the status, instead of the usual ones."""
    delay_seconds: float = 0.0
    """How long nothing is said at first: longer than the client waits, it is a timeout."""
    drip_seconds: float = 0.0
    """A pause after every 16 bytes of the answer."""
    body: bytes | None = None
    """Bytes in place of the answer's."""
    content_type: str | None = None
    """A content type in place of the answer's."""
    cut_at: int | None = None
    """After how many bytes of the answer the connection is closed."""
    reset: bool = False
    """Whether the connection is reset instead of an answer."""

    def bend(self, answer: Callable[[], Reply]) -> Reply | Dropped:
        """Return the answer as the fault makes it."""
        if self.reset:
            return Dropped(reset=True)
        reply = answer() if self.status is None else self._refusal(self.status)
        return replace(
            reply,
            body=reply.body if self.body is None else self.body,
            content_type=self.content_type or reply.content_type,
            drip_seconds=self.drip_seconds,
            cut_at=self.cut_at,
        )

    def _refusal(self, status: int) -> Reply:
        usual = refused_with(status)
        return (usual if self.message is None else replace(usual, message=self.message)).reply()


GARBAGE = Fault(body=_GARBAGE)
"""A 200 that calls itself a picture and is none."""
RESET = Fault(reset=True)
WRONG_TYPE = Fault(content_type="text/html", body=b"<html>down for maintenance</html>")


class FaultScript:
    """The faults still to come, the oldest first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: list[tuple[Fault, Matching | None, int | None]] = []

    def add(self, *faults: Fault, times: int | None = 1, matching: Matching | None = None) -> None:
        """Let the next requests meet these faults, each so many times; None stands for always."""
        with self._lock:
            self._left.extend((fault, matching, times) for fault in faults)

    def take(self, asked: Asked) -> Fault | None:
        """Return the fault that this request meets, and count it."""
        with self._lock:
            for place, (fault, matching, times) in enumerate(self._left):
                if matching is None or matching(asked):
                    self._left[place] = (fault, matching, None if times is None else times - 1)
                    self._left = [one for one in self._left if one[2] != 0]
                    return fault
        return None

    def clear(self) -> None:
        """Let nothing go wrong from now on."""
        with self._lock:
            self._left.clear()

    @property
    def is_spent(self) -> bool:
        """Return whether every fault that was asked for has happened."""
        with self._lock:
            return not self._left
