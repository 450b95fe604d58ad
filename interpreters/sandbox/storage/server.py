"""The Cloud Storage server.

Owns the way of a request: counted, delayed, made to fail, or answered. Must not know what its methods do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from threading import Lock

from interpreters.sandbox.http_server import HOST, Dropped, HttpServer, Reply, Request
from interpreters.sandbox.storage.contents import Contents, utc_now
from interpreters.sandbox.storage.faults import FaultPlan
from interpreters.sandbox.storage.methods import Methods
from interpreters.sandbox.storage.refusals import Refusal, unknown_method
from interpreters.sandbox.storage.routes import Route, find_route


class StorageServer(HttpServer):
    """Cloud Storage's JSON API in memory; `STORAGE_EMULATOR_HOST` is its address."""

    def __init__(
        self,
        buckets: Iterable[str] = (),
        port: int = 0,
        host: str = HOST,
        latency_seconds: float = 0.0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Begin with empty buckets of these names."""
        self.contents = Contents(buckets, now)
        self.faults = FaultPlan()
        self.latency_seconds = latency_seconds
        self._methods = Methods(self.contents)
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        super().__init__(self._answer, port, host)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many requests of each kind have come, those that failed too."""
        with self._lock:
            return Counter(self._counts)

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the bytes of all objects in a bucket by name."""
        return {one.name: one.content.data for one in self.contents.objects(bucket)}

    def expire_uploads(self) -> int:
        """End all resumable uploads that are not complete; return how many."""
        return self._methods.uploads.expire()

    def _answer(self, request: Request) -> Reply | Dropped:
        found = find_route(request)
        kind = found[0].kind if found else "unknown"
        with self._lock:
            self._counts[kind] += 1
        answers_at = time.monotonic() + self.latency_seconds
        reply = self._suffer(request, found, kind)
        self.pause(answers_at - time.monotonic())
        return reply

    def _suffer(self, request: Request, found: tuple[Route, list[str]] | None, kind: str) -> Reply | Dropped:
        fault = self.faults.take(kind, request.method, request.target)
        if fault is None:
            return self._apply(request, found)
        if fault.when == "before":
            self.pause(fault.delay_seconds)
            return fault.reply() or self._apply(request, found)
        reply = self._apply(request, found)
        self.pause(fault.delay_seconds)
        return fault.reply() or reply

    def _apply(self, request: Request, found: tuple[Route, list[str]] | None) -> Reply:
        try:
            if found is None:
                raise unknown_method(request.method, request.path)
            route, names = found
            return route.act(self._methods, request, *names)
        except Refusal as refusal:
            return refusal.reply()
