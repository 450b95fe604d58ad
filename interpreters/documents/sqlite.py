"""Documents in one SQLite file, shared by any number of processes on a machine.

Owns the tables and their transactions: the documents, and the outbox, which holds the changes nobody has heard of yet. A change
and its row in the outbox are one commit, so that none is ever lost. Must not know what the documents mean.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TypeVar

from core.documents import Documents, Rule, apply_change
from effects import Document, FindFlowRuns

T = TypeVar("T")

BUSY_SECONDS = 60.0
_OPENING_TRIES = 200
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS documents (path TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE IF NOT EXISTS outbox
        (path TEXT PRIMARY KEY, changes INTEGER NOT NULL, delivered INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID
    """,
)
_IN_COLLECTION = """
    path > max(:collection || '/', :after) AND path < :collection || '0'
    AND instr(substr(path, length(:collection) + 2), '/') = 0
"""
"""What is in the collection itself: '0' comes after '/', and a further '/' is a collection below a document."""
_ANNOUNCE = """
    INSERT INTO outbox (path, changes) VALUES (?, 1)
    ON CONFLICT (path) DO UPDATE SET changes = changes + 1
"""


class SqliteDocuments:
    """A document store that survives the end of the process at any moment."""

    def __init__(self, file: Path, announced: str | None = None) -> None:
        """Open the file, or create it; changes of the documents of one collection go to the outbox."""
        self._announced = announced
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
            decision = rule(dict(documents))
            for change in decision.changes:
                before = documents[change.path] if change.path in documents else self._one(change.path)
                documents[change.path] = apply_change(before, change)
                self._write(change.path, before, documents[change.path])
            return decision.outcome

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        query = f"SELECT path, body FROM documents WHERE {_IN_COLLECTION} ORDER BY path"  # noqa: S608 - no one's text
        with self._lock:
            rows = self._connection.execute(query, {"collection": name, "after": ""}).fetchall()
        return {path: json.loads(body) for path, body in rows}

    def page(self, effect: FindFlowRuns) -> Mapping[str, Document]:
        """Return the documents of a collection that have the status, in order of their paths, after the last page."""
        query = f"""
            SELECT path, body FROM documents
            WHERE {_IN_COLLECTION} AND json_extract(body, '$.status') = :status ORDER BY path LIMIT :limit
        """  # noqa: S608 - no one's text
        wanted = {
            "collection": effect.collection,
            "after": effect.after or "",
            "status": effect.status,
            "limit": effect.limit,
        }
        with self._lock:
            rows = self._connection.execute(query, wanted).fetchall()
        return {path: json.loads(body) for path, body in rows}

    def undelivered(self, path: str) -> int | None:
        """Return the number of the document's last change, None if whoever wanted to hear of it has."""
        query = "SELECT changes FROM outbox WHERE path = ? AND changes > delivered"
        with self._lock:
            row = self._connection.execute(query, (path,)).fetchone()
        return None if row is None else int(row[0])

    def delivered(self, path: str, change: int) -> None:
        """Take note that the change, and all before it, were heard of."""
        update = "UPDATE outbox SET delivered = max(delivered, ?) WHERE path = ?"
        with self._lock:
            self._connection.execute(update, (change, path))

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

    def _write(self, path: str, before: Document | None, after: Document | None) -> None:
        """Store the document; as in Firestore, a write that changes nothing is no change."""
        if after == before and _canonical(after) == _canonical(before):
            return
        row = (path, json.dumps(after))
        self._connection.execute("INSERT OR REPLACE INTO documents (path, body) VALUES (?, ?)", row)
        if path.rpartition("/")[0] == self._announced:
            self._connection.execute(_ANNOUNCE, (path,))


def _canonical(document: Document | None) -> str:
    """Return the one text of all equal documents; to Python, 1 and True are equal, in a document they are not."""
    return json.dumps(document, sort_keys=True)


def _open(file: Path) -> sqlite3.Connection:
    """Open in write-ahead mode; while another process switches to it, the file is briefly locked."""
    connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    for last in [*[False] * _OPENING_TRIES, True]:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            for statement in _SCHEMA:
                connection.execute(statement)
        except sqlite3.OperationalError as error:
            if last or "locked" not in str(error):
                connection.close()
                raise
            time.sleep(0.02)
        else:
            break
    return connection
