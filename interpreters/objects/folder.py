"""Objects as files: <folder>/<bucket>/<object name>.

Owns the mapping of names to files. Must not know what is stored.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

from core.charts.naming import object_uri
from effects import ObjectNotStored, ObjectStored, PutObject
from interpreters.files import create_file, replace_file

_MAX_COMPONENT_BYTES = 255


class ObjectFolder:
    """An object store on disk."""

    def __init__(self, folder: Path) -> None:
        """Keep objects below the folder."""
        self._folder = folder

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        """Store the bytes, whole or not at all."""
        path = self._folder / effect.bucket / Path(*map(_component, effect.name.split("/")))
        data = effect.content.data or b""
        try:
            if not effect.create_only:
                replace_file(path, data)
            elif not create_file(path, data):
                return _not_stored(effect, "name_taken", "the name has other bytes", now)
        except OSError as error:
            return _not_stored(effect, "failed", f"{type(error).__name__}: {error.strerror}", now)
        return ObjectStored(name=effect.name, uri=object_uri(effect.bucket, effect.name), at=now)


def _component(name: str) -> str:
    """Return the name of a file or folder; one that is too long for a file system keeps its beginning and a hash."""
    encoded = name.encode()
    if len(encoded) <= _MAX_COMPONENT_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _MAX_COMPONENT_BYTES - 20].decode(errors='ignore')}~{digest}"


def _not_stored(effect: PutObject, reason: str, message: str, now: datetime) -> ObjectNotStored:
    return ObjectNotStored(name=effect.name, reason=reason, message=message, at=now)  # type: ignore[arg-type]
