"""A sandbox Firestore and the official client that talks to it, for the tests of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore

from interpreters.sandbox.firestore import Change, Database, FirestoreServer, Limits

DATABASE = "projects/sandbox/databases/(default)"


@dataclass
class World:
    """The server, and its client."""

    server: FirestoreServer
    client: firestore.Client
    changes: list[Change] = field(default_factory=list)

    @property
    def api(self) -> Any:
        """The client's lower half, which hides little of the calls."""
        return self.client._firestore_api

    def begin(self, **options: Any) -> bytes:
        """Return the id of a new transaction."""
        request = {"database": DATABASE, "options": options}
        begun: bytes = self.api.begin_transaction(request=request).transaction
        return begun

    def read(self, path: str, transaction: bytes) -> Any:
        """Read a document in a transaction."""
        request = {"database": DATABASE, "documents": [name(path)], "transaction": transaction}
        return list(self.api.batch_get_documents(request=request, retry=None))

    def commit(self, *writes: Any, transaction: bytes = b"") -> Any:
        """Commit without the client's retries."""
        request = {"database": DATABASE, "writes": list(writes), "transaction": transaction}
        return self.api.commit(request=request, retry=None)


def name(path: str) -> str:
    """Return the full name of a document."""
    return f"{DATABASE}/documents/{path}"


def update(path: str, **integers: int) -> dict[str, Any]:
    """Return a write that puts a whole document of integers."""
    fields = {key: {"integer_value": value} for key, value in integers.items()}
    return {"update": {"name": name(path), "fields": fields}}


@contextmanager
def firestore_world(monkeypatch: pytest.MonkeyPatch, limits: Limits | None = None) -> Iterator[World]:
    """Run a server and a client of it."""
    with FirestoreServer(database=Database(limits)) as server:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.address)
        client = firestore.Client(project="sandbox", credentials=AnonymousCredentials())
        world = World(server, client)
        server.database.subscribe(world.changes.append)
        yield world
        client.close()
