"""Counters of calls, of documents and of bytes.

Owns counting from many threads. Must not know what the calls do.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Tally:
    """How often each call came, how many documents it read or wrote, and the size of what was said."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._lock = Lock()
        self.calls: Counter[str] = Counter()
        self.documents_read: Counter[str] = Counter()
        self.documents_written: Counter[str] = Counter()
        self.bytes_received: Counter[str] = Counter()
        self.bytes_sent: Counter[str] = Counter()

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

    def received(self, method: str, size: int) -> None:
        """Count the bytes of a request."""
        with self._lock:
            self.bytes_received[method] += size

    def sent(self, method: str, size: int) -> None:
        """Count the bytes of an answer, or of a part of it."""
        with self._lock:
            self.bytes_sent[method] += size

    def clear(self) -> None:
        """Start at nothing again."""
        with self._lock:
            for counter in (
                self.calls,
                self.documents_read,
                self.documents_written,
                self.bytes_received,
                self.bytes_sent,
            ):
                counter.clear()
