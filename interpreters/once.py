"""A value that is made when it is first needed, and only once.

Owns the lock around the making. Must not know what is made.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A value that is made at its first use, by one thread, and then kept."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Make nothing yet."""
        self._make = make
        self._made: T | None = None
        self._lock = Lock()

    def __call__(self) -> T:
        """Return the value."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made
