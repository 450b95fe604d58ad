"""All documents of all databases, in memory, with Firestore's transactions.

Owns the mutex, atomicity and the order of commits. Must not know requests, queries or the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Condition

from interpreters.sandbox.firestore.changes import Change, change_between
from interpreters.sandbox.firestore.failures import (
    FirestoreError,
    contention,
    read_only_transaction,
    transaction_expired,
)
from interpreters.sandbox.firestore.listeners import Listener, Listeners
from interpreters.sandbox.firestore.locks import Locks
from interpreters.sandbox.firestore.timestamps import CommitClock
from interpreters.sandbox.firestore.transactions import Documents, Limits, Selection, Transaction, Transactions
from interpreters.sandbox.firestore.wire import Document, Write, WriteResult
from interpreters.sandbox.firestore.writes import apply_write, written_name


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit came to."""

    time: int
    """Its moment, in microseconds since 1970."""

    results: tuple[WriteResult, ...]
    """One for each write, in their order."""

    documents: tuple[Document | None, ...]
    """The document after each write."""


class Database:
    """Documents by full name; safe to use from many threads. What it gives out is shared: never change it."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Start empty."""
        self._limits = limits or Limits()
        self._mutex = Condition()
        self._documents: dict[str, Document] = {}
        self._clock = CommitClock()
        self._locks = Locks(self._mutex, self._limits.lock_wait_seconds)
        self._transactions = Transactions(self._locks, self._limits)
        self._listeners = Listeners()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell the listener of every change, after its commit; return the function that ends it."""
        return self._listeners.subscribe(listener)

    def documents(self) -> Documents:
        """Return all documents as they are now."""
        with self._mutex:
            return dict(self._documents)

    def begin(self, database: str, *, read_only: bool = False, retried: bytes = b"") -> bytes:
        """Return the id of a new transaction."""
        with self._mutex:
            snapshot = dict(self._documents) if read_only else None
            return self._transactions.begin(database, snapshot, retried).id

    def roll_back(self, database: str, transaction: bytes) -> None:
        """End a transaction without writing."""
        with self._mutex:
            self._transactions.roll_back(transaction, database)

    def read(
        self, database: str, names: Sequence[str], transaction: bytes = b""
    ) -> tuple[list[Document | None], int]:
        """Return the documents, None where there is none, and the moment of reading."""
        with self._mutex:
            documents: Documents = self._documents
            if transaction:
                documents = self._reading(self._transactions.get(transaction, database), names)
            return [documents.get(name) for name in names], self._clock.read_time()

    def select(self, database: str, selection: Selection, transaction: bytes = b"") -> tuple[list[Document], int]:
        """Return what the query selects, and the moment of reading."""
        with self._mutex:
            if transaction:
                selected = self._select(self._transactions.get(transaction, database), selection)
            else:
                selected = selection(self._documents)
            return selected, self._clock.read_time()

    def commit(self, database: str, writes: Sequence[Write], transaction: bytes = b"") -> Commit:
        """Apply all writes, or none."""
        with self._mutex:
            if transaction:
                committed = self._commit_transaction(self._transactions.get(transaction, database), writes)
            else:
                self._transactions.expire()
                self._locks.write(self._transactions.new_holder(), set(map(written_name, writes)))
                committed = self._apply(writes)
        self._listeners.tell()
        return committed

    def _reading(self, transaction: Transaction, names: Iterable[str]) -> Documents:
        if transaction.snapshot is not None:
            return transaction.snapshot
        wanted = set(names)
        self._locks.read(transaction.holder, wanted)
        for name in wanted:
            transaction.seen.setdefault(name, self._documents.get(name))
        return self._documents

    def _select(self, transaction: Transaction, selection: Selection) -> list[Document]:
        if transaction.snapshot is not None:
            return selection(transaction.snapshot)
        selected = selection(self._documents)
        while not transaction.holder.reading.issuperset(found := {document.name for document in selected}):
            self._reading(transaction, found)
            selected = selection(self._documents)
        transaction.selected.append((selection, selected))
        return selected

    def _commit_transaction(self, transaction: Transaction, writes: Sequence[Write]) -> Commit:
        try:
            committed = self._checked_commit(transaction, writes)
        except FirestoreError:
            self._transactions.end(transaction, transaction_expired(), may_be_rolled_back=True)
            raise
        self._transactions.end(transaction, transaction_expired(), may_be_rolled_back=False)
        return committed

    def _checked_commit(self, transaction: Transaction, writes: Sequence[Write]) -> Commit:
        if transaction.snapshot is not None and writes:
            raise read_only_transaction()
        self._locks.write(transaction.holder, set(map(written_name, writes)))
        if transaction.snapshot is None and not transaction.has_seen_the_present(self._documents):
            raise contention()
        return self._apply(writes)

    def _apply(self, writes: Sequence[Write]) -> Commit:
        time = self._clock.commit_time()
        staged: dict[str, Document | None] = {}
        results: list[WriteResult] = []
        after: list[Document | None] = []
        for write in writes:
            name = written_name(write)
            current = staged[name] if name in staged else self._documents.get(name)
            applied = apply_write(current, write, time)
            staged[name] = applied.document
            results.append(applied.result)
            after.append(applied.document)
        self._listeners.add(self._put(staged, time))
        return Commit(time, tuple(results), tuple(after))

    def _put(self, staged: dict[str, Document | None], time: int) -> list[Change]:
        changes = []
        for name, new in staged.items():
            old = self._documents.get(name)
            if old is not new:
                changes.append(change_between(name, old, new, time))
                self._store(name, new)
        return changes

    def _store(self, name: str, document: Document | None) -> None:
        if document is None:
            del self._documents[name]
        else:
            self._documents[name] = document
