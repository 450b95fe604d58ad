"""Objects in memory, for tests and simulation."""

from __future__ import annotations

from datetime import datetime
from threading import Lock

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
    blob,
)
from interpreters.objects.refusals import not_read, not_stored


class ObjectMemory:
    """An object store that forgets everything with the process."""

    def __init__(self) -> None:
        """Begin empty."""
        self.objects: dict[str, bytes] = {}
        self._lock = Lock()

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        """Store the bytes."""
        uri, data = object_uri(effect.bucket, effect.name), effect.content.data or b""
        with self._lock:
            if effect.create_only and self.objects.get(uri, data) != data:
                return not_stored(effect, "name_taken", "the name has other bytes", now)
            self.objects[uri] = data
        return ObjectStored(name=effect.name, uri=uri, at=now)

    def list(self, effect: ListObjects, now: datetime) -> ObjectsListed:
        """Return names and sizes of the objects under a prefix."""
        bucket = object_uri(effect.bucket, "")
        with self._lock:
            found = {
                uri: len(data) for uri, data in self.objects.items() if uri.startswith(bucket + effect.prefix)
            }
        sizes = {uri.removeprefix(bucket): found[uri] for uri in sorted(found)}
        return ObjectsListed(prefix=effect.prefix, sizes=sizes, at=now)

    def read(self, effect: ReadObject, now: datetime) -> ObjectRead | ObjectNotRead:
        """Return the bytes of an object."""
        with self._lock:
            data = self.objects.get(object_uri(effect.bucket, effect.name))
        if data is None:
            return not_read(effect.name, "missing", "there is no such object", now)
        if len(data) > effect.max_bytes:
            return not_read(effect.name, "too_large", f"it has {len(data)} bytes", now)
        return ObjectRead(name=effect.name, content=blob(data), at=now)
