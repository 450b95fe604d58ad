"""Locks on documents: readers share them, a writer waits for all other readers to go.

Owns who waits for whom, for how long, and who gives way in a deadlock: the youngest. A waiting writer keeps new
readers out. Writers hold nothing: they write under the mutex. Must not know what transactions are for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Condition

from interpreters.sandbox.firestore.failures import FirestoreError, contention


@dataclass(eq=False, slots=True)
class Holder:
    """Someone who wants or has locks."""

    age: int
    """Greater for the younger."""

    reading: set[str] = field(default_factory=set)
    """The documents locked for reading."""

    ended: FirestoreError | None = None
    """Why this holder may go on no longer."""


@dataclass(eq=False, frozen=True, slots=True)
class _Request:
    holder: Holder
    reads: frozenset[str]
    writes: frozenset[str]


class Locks:
    """The locks of all documents; every method wants the mutex held."""

    def __init__(self, mutex: Condition, wait_seconds: float) -> None:
        """Wait on the mutex, at most so long."""
        self._mutex = mutex
        self._wait_seconds = wait_seconds
        self._readers: set[Holder] = set()
        self._waiting: list[_Request] = []

    def read(self, holder: Holder, names: Collection[str]) -> None:
        """Return once the holder has all these documents locked for reading."""
        self._wait(_Request(holder, frozenset(names) - holder.reading, frozenset()))
        holder.reading.update(names)
        self._readers.add(holder)

    def write(self, holder: Holder, names: Collection[str]) -> None:
        """Return once nobody else has any of these documents locked."""
        self._wait(_Request(holder, frozenset(), frozenset(names)))

    def release(self, holder: Holder, why: FirestoreError) -> None:
        """Let go of all a holder has, and of its waiting requests."""
        holder.ended = holder.ended or why
        holder.reading.clear()
        self._readers.discard(holder)
        self._mutex.notify_all()

    def _wait(self, request: _Request) -> None:
        self._waiting.append(request)
        try:
            self._wait_until_free(request, time.monotonic() + self._wait_seconds)
        except FirestoreError as error:
            self.release(request.holder, error)
            raise
        finally:
            self._waiting.remove(request)
            self._mutex.notify_all()

    def _wait_until_free(self, request: _Request, deadline: float) -> None:
        while True:
            if request.holder.ended is not None:
                raise request.holder.ended
            if not self._blockers(request):
                return
            if self._is_broken_a_deadlock_of(request.holder):
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise contention()
            self._mutex.wait(remaining)

    def _blockers(self, request: _Request) -> set[Holder]:
        readers = {reader for reader in self._readers if not reader.reading.isdisjoint(request.writes)}
        writers = {other.holder for other in self._waiting if _keeps_out(other, request)}
        return (readers | writers) - {request.holder}

    def _is_broken_a_deadlock_of(self, holder: Holder) -> bool:
        cycle = self._cycle(holder)
        if cycle:
            self.release(max(cycle, key=lambda one: one.age), contention())
        return bool(cycle)

    def _cycle(self, holder: Holder) -> list[Holder]:
        """Return holders that wait for one another in a ring with this one, nothing where there is no ring."""
        reached_from: dict[Holder, Holder] = {}
        frontier = [holder]
        while frontier:
            here = frontier.pop()
            for blocker in self._waited_for(here):
                if blocker is holder:
                    return _way_back(here, holder, reached_from)
                if blocker not in reached_from:
                    reached_from[blocker] = here
                    frontier.append(blocker)
        return []

    def _waited_for(self, holder: Holder) -> set[Holder]:
        requests = [request for request in self._waiting if request.holder is holder and holder.ended is None]
        return set[Holder]().union(*map(self._blockers, requests))


def _way_back(here: Holder, start: Holder, reached_from: Mapping[Holder, Holder]) -> list[Holder]:
    way = [here]
    while way[-1] is not start:
        way.append(reached_from[way[-1]])
    return way


def _keeps_out(writer: _Request, reader: _Request) -> bool:
    """Return whether a waiting writer goes first; one that gave up, or waits for this very reader, does not."""
    return (
        writer.holder.ended is None
        and not writer.writes.isdisjoint(reader.reads)
        and writer.writes.isdisjoint(reader.holder.reading)
    )
