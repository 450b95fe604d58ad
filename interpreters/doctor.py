"""Is the cloud as the worker needs it? One check after another, each with what to do if not.

Owns the checks and their advice. Leaves nothing behind in the database or the bucket.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core.charts.settings import ChartConfiguration
from core.cloud import CloudSettings
from interpreters.cloud import firestore_client, storage_client
from interpreters.documents.firestore import READ_RETRY, READ_SECONDS
from interpreters.templates import TEMPLATES_COLLECTION

_PROBE = b"written by the doctor"
_ONCE: dict[str, Any] = {"timeout": 15, "retry": None}


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    is_well: bool
    said: str
    advice: str = ""


def examine(configuration: ChartConfiguration, settings: CloudSettings) -> Iterator[Finding]:
    """Yield the findings one by one, as they are made."""
    bucket = configuration.settings.bucket
    yield Finding(
        "configuration",
        is_well=True,
        said=f"project {settings.project}, bucket gs://{bucket}, {len(configuration.accounts)} accounts",
    )
    yield _check(
        "credentials",
        lambda: _credentials(settings),
        "run `gcloud auth application-default login`, or give the service account of the service",
    )
    yield _check(
        "database",
        lambda: _database(settings),
        f"create the Firestore database {settings.database} in {settings.project}, and grant roles/datastore.user",
    )
    yield _check(
        "bucket",
        lambda: _bucket(settings, bucket),
        f"create gs://{bucket}, and grant roles/storage.objectUser on it",
    )


def _check(name: str, look: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(name, is_well=True, said=look())
    except Exception as error:  # noqa: BLE001 - whatever is wrong, the person is told
        return Finding(name, is_well=False, said=f"{type(error).__name__}: {error}"[:500], advice=advice)


def _credentials(settings: CloudSettings) -> str:
    client = storage_client(settings)
    return f"found ({type(client._credentials).__name__})"  # noqa: SLF001 - the library shows them nowhere else


def _database(settings: CloudSettings) -> str:
    templates = list(
        firestore_client(settings)
        .collection(TEMPLATES_COLLECTION)
        .limit(1000)
        .stream(retry=READ_RETRY, timeout=READ_SECONDS)
    )
    hint = "" if templates else "; seed them with `worker-chart-export templates import`"
    return f"{settings.database} answers, {len(templates)} chart templates{hint}"


def _bucket(settings: CloudSettings, bucket: str) -> str:
    blob = storage_client(settings).bucket(bucket).blob(f"doctor/{uuid.uuid4().hex}.txt")
    blob.upload_from_string(_PROBE, content_type="text/plain", if_generation_match=0, **_ONCE)
    try:
        if blob.download_as_bytes(**_ONCE) != _PROBE:
            message = "it gives back other bytes than were written"
            raise OSError(message)
    finally:
        blob.delete(**_ONCE)
    return f"gs://{bucket} can be written and read"
