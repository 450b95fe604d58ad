"""Firestore and Cloud Storage for tests: servers of ours, with Google's own clients on them.

Where FIRESTORE_EMULATOR_HOST or STORAGE_EMULATOR_HOST is set when the tests start, that server is used instead; tests
that need faults or counters of ours are then skipped. Asserts nothing.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from google.cloud import firestore, storage

from core.cloud import CloudSettings, Concurrency
from interpreters.cloud import firestore_client, storage_client
from interpreters.sandbox.firestore import FirestoreServer
from interpreters.sandbox.storage import StorageServer

FIRESTORE_HOST = "FIRESTORE_EMULATOR_HOST"
STORAGE_HOST = "STORAGE_EMULATOR_HOST"
GIVEN_FIRESTORE = os.environ.get(FIRESTORE_HOST)
GIVEN_STORAGE = os.environ.get(STORAGE_HOST)
MODES: tuple[Concurrency, ...] = ("transaction", "precondition")

os.environ["DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"] = "true"


@contextmanager
def firestore_host() -> Iterator[str]:
    """Give the address of a Firestore: the one named by the environment, else one of ours."""
    if GIVEN_FIRESTORE:
        yield GIVEN_FIRESTORE
        return
    with FirestoreServer() as server:
        yield server.address


@contextmanager
def storage_host() -> Iterator[str]:
    """Give the address of a Cloud Storage: the one named by the environment, else one of ours."""
    if GIVEN_STORAGE:
        yield GIVEN_STORAGE
        return
    with StorageServer() as server:
        yield server.address


@contextmanager
def our_firestore() -> Iterator[FirestoreServer]:
    """Give a Firestore whose faults and counters a test can use."""
    if GIVEN_FIRESTORE:
        pytest.skip(f"{FIRESTORE_HOST} is set, and this test needs the faults or counters of our own server")
    with FirestoreServer() as server:
        yield server


@contextmanager
def our_storage(*buckets: str) -> Iterator[StorageServer]:
    """Give a Cloud Storage whose faults and counters a test can use."""
    if GIVEN_STORAGE:
        pytest.skip(f"{STORAGE_HOST} is set, and this test needs the faults or counters of our own server")
    with StorageServer(buckets=buckets) as server:
        yield server


def a_project() -> str:
    """Return the id of a project that nobody has used: its documents are its own."""
    return f"test-{uuid.uuid4().hex[:16]}"


def cloud_settings(project: str = "sandbox", concurrency: Concurrency = "transaction") -> CloudSettings:
    return CloudSettings(
        project=project, database="(default)", concurrency=concurrency, flow_runs_collection="flow_runs"
    )


@contextmanager
def firestore_on(host: str, project: str = "sandbox") -> Iterator[firestore.Client]:
    """Give a client of the Firestore at that address, made as the workers make theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FIRESTORE_HOST, host)
        client = firestore_client(cloud_settings(project))
    yield client
    client.close()


@contextmanager
def storage_on(host: str) -> Iterator[storage.Client]:
    """Give a client of the Cloud Storage at that address, made as the workers make theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STORAGE_HOST, host)
        client = storage_client(cloud_settings())
    yield client
    client.close()


def a_bucket(client: storage.Client) -> str:
    """Create a bucket of a name that nobody has used; return the name."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    client.create_bucket(name)
    return name


@dataclass
class Naps:
    """A sleep that takes no time, or a share of it, remembers, and ends a test that retries for ever."""

    most: int = 60
    share: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) > self.most:
            pytest.fail(f"retried more than {self.most} times")
        time.sleep(seconds * self.share)
