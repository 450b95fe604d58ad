"""Counters of calls and of documents.

Owns counting from many threads. Must not know what the calls do.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Tally:
    """How often each call came, and how many documents it read or wrote."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._lock = Lock()
        self.calls: Counter[str] = Counter()
        self.documents_read: Counter[str] = Counter()
        self.documents_written: Counter[str] = Counter()

    def called(self, method: str) -> None:
        """Count a call."""
        with self._lock:
            self.calls[method] += 1

    def read(self, method: str, documents: int) -> None:
        """Count documents that a call looked up, found or not."""
        with self._lock:
            self.documents_read[method] += documents

    def wrote(self, method: str, documents: int) -> None:
        """Count writes that a call applied, no-ops included."""
        with self._lock:
            self.documents_written[method] += documents

    def clear(self) -> None:
        """Start at nothing again."""
        with self._lock:
            for counter in (self.calls, self.documents_read, self.documents_written):
                counter.clear()
