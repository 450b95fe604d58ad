"""Documents in one SQLite file, shared by any number of processes on a machine.

Owns the table and its transactions. Must not know what the documents mean.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from core.documents import Documents, Rule, apply_change
from effects import Document

T = TypeVar("T")

BUSY_SECONDS = 60.0
_OPENING_TRIES = 200
_SCHEMA = "CREATE TABLE IF NOT EXISTS documents (path TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID"


class SqliteDocuments:
    """A document store that survives the end of the process at any moment."""

    def __init__(self, file: Path) -> None:
        """Open the file, or create it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._connection = _open(file)

    def read(self, paths: Sequence[str]) -> Documents:
        """Return the documents, None for those that are not there."""
        with self._lock:
            return self._read(paths)

    def transact(self, paths: Sequence[str], rule: Rule[T]) -> T:
        """Run the rule under the write lock and commit its changes."""
        with self._transaction():
            documents = self._read(paths)
            decision = rule(documents)
            for change in decision.changes:
                current = documents[change.path] if change.path in documents else self._one(change.path)
                self._write(change.path, apply_change(current, change))
            return decision.outcome

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        query = "SELECT path, body FROM documents WHERE path >= ? AND path < ? ORDER BY path"
        with self._lock:
            rows = self._connection.execute(query, (f"{name}/", f"{name}0")).fetchall()
        return {path: json.loads(body) for path, body in rows}

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _read(self, paths: Sequence[str]) -> dict[str, Document | None]:
        return {path: self._one(path) for path in paths}

    def _one(self, path: str) -> Document | None:
        row = self._connection.execute("SELECT body FROM documents WHERE path = ?", (path,)).fetchone()
        return None if row is None else json.loads(row[0])

    def _write(self, path: str, document: Mapping[str, Any]) -> None:
        row = (path, json.dumps(document))
        self._connection.execute("INSERT OR REPLACE INTO documents (path, body) VALUES (?, ?)", row)


def _open(file: Path) -> sqlite3.Connection:
    """Open in write-ahead mode; while another process switches to it, the file is briefly locked."""
    connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    for last in [*[False] * _OPENING_TRIES, True]:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(_SCHEMA)
        except sqlite3.OperationalError as error:
            if last or "locked" not in str(error):
                connection.close()
                raise
            time.sleep(0.02)
        else:
            break
    return connection
