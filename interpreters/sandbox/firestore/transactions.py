"""Transactions: which are under way, what each has read, when each expires.

Owns their ids and their end. Must not know how locks are waited for.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from interpreters.sandbox.firestore.failures import FirestoreError, transaction_expired
from interpreters.sandbox.firestore.locks import Holder, Locks
from interpreters.sandbox.firestore.wire import Document

T = TypeVar("T")

Documents = Mapping[str, Document]
"""Documents by name."""

Selection = Callable[[Documents], list[Document]]
"""What a query selects, in its order."""

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take."""

    lock_wait_seconds: float = 0.3
    """A request that waits longer for a lock is answered ABORTED."""

    idle_seconds: float = 60.0
    """A transaction nobody asks anything of expires after this."""

    lifetime_seconds: float = 270.0
    """Any transaction expires after this."""


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction under way."""

    id: bytes
    database: str
    holder: Holder
    snapshot: Documents | None
    """All documents at the start, in a read-only transaction."""

    started: float
    used: float
    seen: dict[str, Document | None] = field(default_factory=dict)
    """Documents as they were when first read."""

    selected: list[tuple[Selection, list[Document]]] = field(default_factory=list)
    """Queries and what they selected."""

    def has_seen_the_present(self, documents: Documents) -> bool:
        """Return whether all it read is still as it was."""
        return all(documents.get(name) is seen for name, seen in self.seen.items()) and all(
            _are_same(select(documents), before) for select, before in self.selected
        )


class Transactions:
    """All transactions under way; every method wants the mutex held."""

    def __init__(self, locks: Locks, limits: Limits) -> None:
        """Start with none."""
        self._locks = locks
        self._limits = limits
        self._under_way: dict[bytes, Transaction] = {}
        self._may_be_rolled_back: OrderedDict[bytes, bool] = OrderedDict()
        self._ages: OrderedDict[bytes, int] = OrderedDict()
        self._next_age = 0

    def new_holder(self, retried: bytes = b"") -> Holder:
        """Return a holder of locks, as old as the transaction it retries."""
        self._next_age += 1
        return Holder(self._ages.get(retried, self._next_age))

    def begin(self, database: str, snapshot: Documents | None, retried: bytes = b"") -> Transaction:
        """Return a new transaction; with a snapshot it is read-only."""
        self.expire()
        now = time.monotonic()
        begun = Transaction(secrets.token_bytes(20), database, self.new_holder(retried), snapshot, now, now)
        self._under_way[begun.id] = begun
        _remember(self._ages, begun.id, begun.holder.age)
        return begun

    def get(self, identifier: bytes, database: str) -> Transaction:
        """Return a transaction that is under way."""
        self.expire()
        found = self._under_way.get(identifier)
        if found is None or found.database != database:
            raise transaction_expired()
        found.used = time.monotonic()
        return found

    def end(self, transaction: Transaction, why: FirestoreError, *, may_be_rolled_back: bool) -> None:
        """Let go of a transaction and its locks."""
        self._locks.release(transaction.holder, why)
        if self._under_way.pop(transaction.id, None) is not None:
            _remember(self._may_be_rolled_back, transaction.id, may_be_rolled_back)

    def roll_back(self, identifier: bytes, database: str) -> None:
        """End a transaction; one that failed or was rolled back may be rolled back again."""
        self.expire()
        if not self._may_be_rolled_back.get(identifier, False):
            self.end(self.get(identifier, database), transaction_expired(), may_be_rolled_back=True)

    def expire(self) -> None:
        """End the transactions whose time is over, and those that gave way to others."""
        for transaction in list(self._over()):
            self.end(transaction, transaction_expired(), may_be_rolled_back=True)

    def _over(self) -> Iterator[Transaction]:
        now = time.monotonic()
        for transaction in self._under_way.values():
            idle = now - transaction.used > self._limits.idle_seconds
            old = now - transaction.started > self._limits.lifetime_seconds
            if idle or old or transaction.holder.ended is not None:
                yield transaction


def _remember(memory: OrderedDict[bytes, T], key: bytes, value: T) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _are_same(now: list[Document], before: list[Document]) -> bool:
    return len(now) == len(before) and all(map(_is_same, now, before))


def _is_same(now: Document, before: Document) -> bool:
    return now is before
