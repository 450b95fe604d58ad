"""Faults on purpose: which calls are answered with an error, late, or with their answer lost.

Owns the plan. Must not know what the calls do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import grpc  # type: ignore[import-untyped]

from interpreters.sandbox.firestore.wire import Message

When = Literal["before", "after"]


@dataclass(slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    method: str
    """The name of the call, such as Commit; * for any."""

    when: When
    """before: nothing is applied; after: it is applied, and the answer lost."""

    code: Any
    """The grpc.StatusCode of the answer; None to answer well, after the delay."""

    times: int
    """How many calls it still meets."""

    matching: Callable[[Message], bool] | None
    """Which requests it meets; None for all."""

    delay_seconds: float
    """How long the call takes beforehand."""

    message: str
    """The words of the error."""


class FaultPlan:
    """The faults to come; safe to use from many threads."""

    def __init__(self) -> None:
        """Plan nothing."""
        self._lock = Lock()
        self._faults: list[Fault] = []

    def add(
        self,
        method: str,
        *,
        when: When = "before",
        code: Any = grpc.StatusCode.UNAVAILABLE,
        times: int = 1,
        matching: Callable[[Message], bool] | None = None,
        delay_seconds: float = 0.0,
        message: str = "a fault on purpose",
    ) -> None:
        """Plan a fault for the next calls of the method; `matching` gets the request's protobuf."""
        fault = Fault(
            method=method,
            when=when,
            code=code,
            times=times,
            matching=matching,
            delay_seconds=delay_seconds,
            message=message,
        )
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        """Plan nothing any more."""
        with self._lock:
            self._faults.clear()

    def remaining(self) -> int:
        """Return how many calls the planned faults still wait for."""
        with self._lock:
            return sum(fault.times for fault in self._faults)

    def take(self, method: str, request: Message) -> Fault | None:
        """Return the first fault that meets the call, and count it."""
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and _meets(fault, method, request):
                    fault.times -= 1
                    return fault
        return None


def _meets(fault: Fault, method: str, request: Message) -> bool:
    return fault.method in {method, "*"} and (fault.matching is None or fault.matching(request))
