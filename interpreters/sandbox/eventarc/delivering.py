"""Event delivery like Eventarc's: at least once, in no order, again until it is taken.

Owns who gets which event, when and how often. Must not know how documents change, nor what a service does with
an event.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from threading import Lock, Thread
from types import TracebackType
from typing import Self
from uuid import NAMESPACE_URL, uuid5

import requests

from interpreters.sandbox.eventarc.deliveries import Deliveries, Delivery
from interpreters.sandbox.eventarc.events import WRITTEN, Change, Source, payload_of
from interpreters.sandbox.eventarc.subscriptions import Subscription

_STOP_SECONDS = 5.0
_TAKEN = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """How far delivery is from exactly once and in order."""

    duplicate: float = 0.0
    """The probability that an event is sent twice."""
    reorder: float = 0.0
    """The probability that an event is held back, so that others pass it."""
    held_seconds: float = 0.3
    """For how long at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and for how long an event is tried."""

    first_seconds: float = 0.2
    most_seconds: float = 10.0
    tries: int = 50
    age_seconds: float = 3600.0

    def pause(self, tries: int) -> float:
        """Return how long to wait after that many tries."""
        return float(min(self.first_seconds * 2.0 ** min(tries - 1, 60), self.most_seconds))


class Eventarc:
    """Delivers changes through a few threads; `publish` is what a database's `subscribe` takes."""

    def __init__(
        self,
        project: str,
        database: str = "(default)",
        *,
        seed: int = 0,
        chances: Chances | None = None,
        retries: Retries | None = None,
        answer_seconds: float = 600.0,
        parallel: int = 4,
        location: str = "nam5",
    ) -> None:
        """Decide by the seed which events are duplicated and held back; wait so long for each answer."""
        self._source = Source(project, database, location)
        self._seed = seed
        self._random = Random(seed)  # noqa: S311 - repeatable, not secret
        self._chances, self._retries = chances or Chances(), retries or Retries()
        self._answer_seconds, self._parallel = answer_seconds, parallel
        self._lock = Lock()
        self._subscriptions: list[Subscription] = []
        self._changes = 0
        self._numbers = count()
        self._counts: Counter[str] = Counter()
        self._deliveries = Deliveries()
        self._threads: list[Thread] = []

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many events were published, duplicated, held_back, delivered, retried and given_up."""
        with self._lock:
            return Counter(self._counts)

    def subscribe(
        self, url: str, collection: str | None = "flow_runs", event_types: Collection[str] = (WRITTEN,)
    ) -> Subscription:
        """Send later changes to a service; its address may be changed in what is returned."""
        subscription = Subscription(url, collection, frozenset(event_types))
        with self._lock:
            self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Send no more to a service, not even what is waiting."""
        with self._lock:
            self._subscriptions.remove(subscription)
        self._deliveries.forget(subscription)

    def publish(self, change: Change) -> None:
        """Send a change, soon, to all who want to hear of it."""
        with self._lock:
            self._changes += 1
            for subscription in self._subscriptions:
                for event_type in subscription.wanted_types(change):
                    self._send(subscription, event_type, change)

    def drain(self, timeout: float = 30.0) -> bool:
        """Wait until nothing is waiting or on its way; return whether that came in time."""
        return self._deliveries.wait_until_empty(timeout)

    def start(self) -> Self:
        """Begin to deliver."""
        self._threads = [Thread(target=self._deliver, daemon=True) for _ in range(self._parallel)]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Deliver nothing more; what is on its way gets a moment to end."""
        self._deliveries.close()
        ends = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _send(self, subscription: Subscription, event_type: str, change: Change) -> None:
        event_id = str(uuid5(NAMESPACE_URL, f"{self._seed}/{self._changes}/{event_type}/{change.name}"))
        headers, body = self._source.headers(event_id, event_type, change), payload_of(change)
        is_twice = self._random.random() < self._chances.duplicate
        self._counts["published"] += 1
        self._counts["duplicated"] += is_twice
        for _ in range(1 + is_twice):
            now = time.monotonic()
            self._deliveries.add(
                Delivery(now + self._holding(), next(self._numbers), subscription, headers, body, now)
            )

    def _holding(self) -> float:
        is_held, share = self._random.random() < self._chances.reorder, self._random.random()
        self._counts["held_back"] += is_held
        return share * self._chances.held_seconds if is_held else 0.0

    def _deliver(self) -> None:
        while (delivery := self._deliveries.take()) is not None:
            is_taken = _post(delivery, self._answer_seconds)
            self._deliveries.done(self._settled(delivery, is_taken=is_taken))

    def _settled(self, delivery: Delivery, *, is_taken: bool) -> Delivery | None:
        """Return the delivery if it is to be tried again."""
        delivery.tries += 1
        delivery.due = time.monotonic() + self._retries.pause(delivery.tries)
        with self._lock:
            if is_taken:
                self._counts["delivered"] += 1
            elif self._is_hopeless(delivery):
                self._counts["given_up"] += 1
            else:
                self._counts["retried"] += 1
                return delivery
        return None

    def _is_hopeless(self, delivery: Delivery) -> bool:
        return (
            delivery.tries >= self._retries.tries
            or delivery.due - delivery.begun > self._retries.age_seconds
            or delivery.subscription not in self._subscriptions
        )


def _post(delivery: Delivery, seconds: float) -> bool:
    """Return whether the service took the event; no answer is a no."""
    with requests.Session() as session:
        session.trust_env = False
        try:
            with session.post(
                delivery.subscription.url,
                data=delivery.body,
                headers=delivery.headers,
                timeout=seconds,
                allow_redirects=False,
            ) as response:
                return response.status_code in _TAKEN
        except (requests.RequestException, OSError):
            return False
