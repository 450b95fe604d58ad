"""Deliveries that wait for their moment.

Owns their order and number. Must not know what is delivered, nor what comes of it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Condition

from interpreters.sandbox.eventarc.subscriptions import Subscription


@dataclass(order=True)
class Delivery:
    """An event on its way to a service."""

    due: float
    """The moment of the next try, by the monotonic clock."""
    number: int
    subscription: Subscription = field(compare=False)
    headers: Mapping[str, str] = field(compare=False)
    body: bytes = field(compare=False)
    begun: float = field(compare=False)
    tries: int = field(default=0, compare=False)


class Deliveries:
    """A queue by due time that knows when all of it is done."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: list[Delivery] = []
        self._under_way = 0
        self._closed = False

    def add(self, delivery: Delivery) -> None:
        """Let a delivery wait until it is due."""
        with self._changed:
            heapq.heappush(self._waiting, delivery)
            self._changed.notify_all()

    def take(self) -> Delivery | None:
        """Wait for the next delivery that is due; it is under way until `done`. None once the queue is closed."""
        with self._changed:
            while not self._closed:
                left = self._waiting[0].due - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    self._under_way += 1
                    return heapq.heappop(self._waiting)
                self._changed.wait(left)
        return None

    def done(self, again: Delivery | None = None) -> None:
        """End a delivery that was taken, or let it wait for its next try."""
        with self._changed:
            self._under_way -= 1
            if again is not None:
                heapq.heappush(self._waiting, again)
            self._changed.notify_all()

    def forget(self, subscription: Subscription) -> None:
        """Drop what waits for a service."""
        with self._changed:
            self._waiting = [one for one in self._waiting if one.subscription is not subscription]
            heapq.heapify(self._waiting)
            self._changed.notify_all()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing waits or is under way; return whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._under_way, timeout)

    def close(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
