"""Accounts of the Chart-IMG server.

Owns their keys: who a key belongs to, and whether it still counts. Must not know what is asked for with it, and
shows no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hmac import compare_digest
from threading import Lock

from core.secrets import Secret
from interpreters.sandbox.chart_img.plans import PRO, Plan


@dataclass(frozen=True, slots=True)
class SandboxAccount:
    """A customer of Chart-IMG."""

    id: str
    key: Secret
    plan: Plan = PRO

    def limited(self, *, per_second: int | None = None, per_day: int | None = None) -> SandboxAccount:
        """Return the account with other limits than its plan's."""
        plan = replace(
            self.plan,
            requests_per_second=self.plan.requests_per_second if per_second is None else per_second,
            requests_per_day=self.plan.requests_per_day if per_day is None else per_day,
        )
        return replace(self, plan=plan)


class Accounts:
    """All accounts, and those whose keys were revoked."""

    def __init__(self, accounts: Iterable[SandboxAccount]) -> None:
        """Know these accounts."""
        self._lock = Lock()
        self._accounts: Mapping[str, SandboxAccount] = {one.id: one for one in accounts}
        self._revoked: set[str] = set()

    def find(self, key: str | None) -> SandboxAccount | None:
        """Return whose key it is, revoked or not."""
        given = (key or "").encode()
        for account in self._accounts.values():
            if compare_digest(account.key.reveal().encode(), given):
                return account
        return None

    def revoke(self, account_id: str) -> None:
        """Let an account's key count no longer."""
        with self._lock:
            self._revoked.add(self._accounts[account_id].id)

    def restore(self, account_id: str) -> None:
        """Let an account's key count again."""
        with self._lock:
            self._revoked.discard(account_id)

    def is_revoked(self, account_id: str) -> bool:
        """Return whether an account's key was revoked."""
        with self._lock:
            return account_id in self._revoked
