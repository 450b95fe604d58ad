"""The provider's books: every request, and which of them count against a limit.

Owns the limits of a second and of a day. Must not know HTTP, keys or charts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from threading import Lock
from typing import Any

from interpreters.sandbox.chart_img.plans import Plan
from interpreters.sandbox.chart_img.refusals import LIMIT_EXCEEDED, TOO_MANY_REQUESTS, Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that came."""

    at: datetime
    account_id: str | None
    """Whose key it had; None for a key of nobody. The key itself is not kept."""
    body: Any
    """The JSON that was sent, or None if it was none."""
    refused: Refused | None
    """Why it does not count against the account's limits, or None if it does."""


class Ledger:
    """Every request since the server began."""

    def __init__(self, now: Callable[[], datetime], window_seconds: float) -> None:
        """Go by that clock; the limit of a second holds for any window of that length."""
        self._now = now
        self._window = timedelta(seconds=window_seconds)
        self._lock = Lock()
        self._asked: list[Asked] = []

    def enter(self, account_id: str | None, plan: Plan | None, body: Any, refused: Refused | None) -> Asked:
        """Write a request down; refuse it if it is above the plan's limits. What is refused does not count."""
        with self._lock:
            now = self._now()
            if refused is None and account_id is not None and plan is not None:
                refused = self._over(account_id, plan, now)
            asked = Asked(now, account_id, body, refused)
            self._asked.append(asked)
            return asked

    def asked(self, account_id: str | None = None) -> list[Asked]:
        """Return all requests, or those of one account, in the order they came."""
        with self._lock:
            return [one for one in self._asked if account_id in {None, one.account_id}]

    def per_day(self, *, counted_only: bool = False) -> Mapping[tuple[str, date], int]:
        """Return how many requests came by account and UTC day, those refused at the door included unless said."""
        return Counter(
            (one.account_id, one.at.astimezone(UTC).date())
            for one in self.asked()
            if one.account_id is not None and (one.refused is None or not counted_only)
        )

    def most_in_a_second(self, account_id: str) -> int:
        """Return the most requests of an account that came within any one second."""
        times = sorted(one.at for one in self.asked(account_id))
        second = timedelta(seconds=1)
        return max((sum(start <= at < start + second for at in times) for start in times), default=0)

    def over_limits(self) -> list[Asked]:
        """Return the requests that were above a limit."""
        return [one for one in self.asked() if one.refused in {TOO_MANY_REQUESTS, LIMIT_EXCEEDED}]

    def _over(self, account_id: str, plan: Plan, now: datetime) -> Refused | None:
        counted = [one.at for one in self._asked if one.account_id == account_id and one.refused is None]
        if sum(now - self._window < at <= now for at in counted) >= plan.requests_per_second:
            return TOO_MANY_REQUESTS
        today = now.astimezone(UTC).date()
        if sum(at.astimezone(UTC).date() == today for at in counted) >= plan.requests_per_day:
            return LIMIT_EXCEEDED
        return None
