"""Objects in Cloud Storage.

Owns uploads, listings and downloads, their timeouts, and the settling of an upload whose answer was lost. Must not know what is stored.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import google_crc32c
import requests
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from core.charts.naming import object_uri
from effects import (
    ListObjects,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    PutObject,
    ReadObject,
)
from effects import blob as as_blob
from interpreters.objects.refusals import not_read, not_stored

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Client

LEAST_SECONDS = 1.0
TRY_SECONDS = 10.0
"""How long one try may be silent; the program makes the next one."""
CONNECT_SECONDS = 5.0
_FAILURES = (
    exceptions.GoogleAPICallError,
    exceptions.RetryError,
    requests.RequestException,
    GoogleAuthError,
    OSError,
)


class GcsObjects:
    """An object store on Cloud Storage."""

    def __init__(self, client: Callable[[], Client]) -> None:
        """Use the client that the function returns, asked for at the first use."""
        self._client = client

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        """Store the bytes; a create-only name that has the same bytes counts as stored."""
        data = effect.content.data or b""
        try:
            blob = self._client().bucket(effect.bucket).blob(effect.name)
            if not _upload(blob, data, effect, _ends(effect.give_up_at, now)):
                return not_stored(effect, "name_taken", "the name has other bytes", now)
        except _FAILURES as error:
            return not_stored(effect, "failed", _said(error), now)
        return ObjectStored(name=effect.name, uri=object_uri(effect.bucket, effect.name), at=now)

    def list(self, effect: ListObjects, now: datetime) -> ObjectsListed | ObjectNotRead:
        """Return names and sizes of the objects under a prefix."""
        ends = _ends(effect.give_up_at, now)
        try:
            found = self._client().list_blobs(
                effect.bucket,
                prefix=effect.prefix,
                fields="items(name,size),nextPageToken",
                timeout=_timeout(ends),
                retry=None,
            )
            sizes = {blob.name: int(blob.size) for blob in found}
        except _FAILURES as error:
            return not_read(effect.prefix, "failed", _said(error), now)
        return ObjectsListed(prefix=effect.prefix, sizes=sizes, at=now)

    def read(self, effect: ReadObject, now: datetime) -> ObjectRead | ObjectNotRead:
        """Return the bytes of an object, asking for no more than one byte above the limit."""
        ends = _ends(effect.give_up_at, now)
        try:
            data = (
                self._client()
                .bucket(effect.bucket)
                .blob(effect.name)
                .download_as_bytes(end=effect.max_bytes, timeout=_timeout(ends), retry=None)
            )
        except exceptions.NotFound:
            return not_read(effect.name, "missing", "there is no such object", now)
        except exceptions.RequestRangeNotSatisfiable:
            data = b""
        except _FAILURES as error:
            return not_read(effect.name, "failed", _said(error), now)
        if len(data) > effect.max_bytes:
            return not_read(effect.name, "too_large", f"it has more than {effect.max_bytes} bytes", now)
        return ObjectRead(name=effect.name, content=as_blob(data), at=now)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _ends(give_up_at: datetime, now: datetime) -> float:
    """Return when one try must be over, on the monotonic clock."""
    left = max((give_up_at - now).total_seconds(), LEAST_SECONDS)
    return time.monotonic() + min(left, TRY_SECONDS)


def _upload(blob: Blob, data: bytes, effect: PutObject, ends: float) -> bool:
    """Upload, once: the program tries again. Return False if the name has other bytes."""
    try:
        blob.upload_from_string(
            data,
            content_type=effect.content_type,
            if_generation_match=0 if effect.create_only else None,
            checksum="crc32c",
            timeout=_timeout(ends),
            retry=None,
        )
    except exceptions.PreconditionFailed:
        # Either another object has the name, or an earlier try of this upload landed and its answer was lost.
        blob.reload(timeout=_timeout(ends), retry=None)
        return bool(blob.crc32c == _crc32c(data))
    return True


def _timeout(ends: float) -> tuple[float, float]:
    """Return how long to wait for a connection, and for the next bytes."""
    left = max(ends - time.monotonic(), 0.1)
    return min(CONNECT_SECONDS, left), left


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
