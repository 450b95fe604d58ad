"""Objects in memory, for tests and simulation."""

from __future__ import annotations

from datetime import datetime
from threading import Lock

from core.charts.naming import object_uri
from effects import ObjectNotStored, ObjectStored, PutObject


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
                message = "the name has other bytes"
                return ObjectNotStored(name=effect.name, reason="name_taken", message=message, at=now)
            self.objects[uri] = data
        return ObjectStored(name=effect.name, uri=uri, at=now)
