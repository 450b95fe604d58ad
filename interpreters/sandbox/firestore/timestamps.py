"""Moments in microseconds, and the clock that never gives the same one twice.

Owns the order of commits in time. Must not know what was committed.
"""

from __future__ import annotations

import time

from interpreters.sandbox.firestore.wire import Timestamp, new_timestamp

_MICROSECONDS = 1_000_000


def timestamp(microseconds: int) -> Timestamp:
    """Return the protobuf message of a moment."""
    seconds, rest = divmod(microseconds, _MICROSECONDS)
    return new_timestamp(seconds=seconds, nanos=rest * 1000)


def microseconds(moment: Timestamp) -> int:
    """Return the moment of a protobuf message."""
    return int(moment.seconds) * _MICROSECONDS + int(moment.nanos) // 1000


class CommitClock:
    """The wall clock, made strictly monotonic for commits; not thread-safe."""

    def __init__(self) -> None:
        """Start with no moment given yet."""
        self._last = 0

    def commit_time(self) -> int:
        """Return a moment later than any given before."""
        self._last = max(_now(), self._last + 1)
        return self._last

    def read_time(self) -> int:
        """Return a moment not earlier than any commit."""
        return max(_now(), self._last)


def _now() -> int:
    return time.time_ns() // 1000
