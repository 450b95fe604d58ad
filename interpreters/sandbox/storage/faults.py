"""Faults that tests ask for.

Owns which requests go wrong, and how often. Must not know what a request does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from interpreters.sandbox.http_server import Dropped, Reply
from interpreters.sandbox.storage.refusals import fault as a_fault

Matching = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to go wrong."""

    when: Literal["before", "after"]
    """Whether the request is not applied, or applied and then not answered as it should be."""
    status: int | None
    """What is answered; None lets the true answer pass, late."""
    matching: Matching | None
    """Which requests are meant, by method and target (path and query as sent)."""
    kind: str | None
    """Which kind of request is meant, as in `StorageServer.counts`."""
    delay_seconds: float
    drop_connection: bool
    """Whether the connection is closed instead of an answer."""

    def means(self, kind: str, method: str, target: str) -> bool:
        """Return whether the fault is meant for such a request."""
        return self.kind in {None, kind} and (self.matching is None or self.matching(method, target))

    def reply(self) -> Reply | Dropped | None:
        """Return what is said instead of the true answer."""
        if self.drop_connection:
            return Dropped()
        return None if self.status is None else a_fault(self.status).reply()


class FaultPlan:
    """The faults still to come, the oldest first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: list[tuple[Fault, int | None]] = []

    def add(
        self,
        when: Literal["before", "after"] = "before",
        status: int | None = 503,
        times: int | None = 1,
        matching: Matching | None = None,
        delay_seconds: float = 0.0,
        *,
        drop_connection: bool = False,
        kind: str | None = None,
    ) -> None:
        """Let the next requests that match go wrong so many times; None stands for always."""
        fault = Fault(
            when=when,
            status=status,
            matching=matching,
            kind=kind,
            delay_seconds=delay_seconds,
            drop_connection=drop_connection,
        )
        with self._lock:
            self._left.append((fault, times))

    def take(self, kind: str, method: str, target: str) -> Fault | None:
        """Return the fault that this request meets, and count it."""
        with self._lock:
            for place, (fault, times) in enumerate(self._left):
                if fault.means(kind, method, target):
                    self._left[place] = (fault, None if times is None else times - 1)
                    self._left = [one for one in self._left if one[1] != 0]
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
