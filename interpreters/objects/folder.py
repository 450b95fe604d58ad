"""Objects as files: <folder>/<bucket>/<object name>.

Owns the mapping of names to files. Must not know what is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

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
from interpreters.files import create_file, replace_file
from interpreters.objects.refusals import not_read, not_stored

_MAX_COMPONENT_BYTES = 255


class ObjectFolder:
    """An object store on disk."""

    def __init__(self, folder: Path) -> None:
        """Keep objects below the folder."""
        self._folder = folder

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        """Store the bytes, whole or not at all."""
        path = self._file(effect.bucket, effect.name)
        data = effect.content.data or b""
        try:
            if not effect.create_only:
                replace_file(path, data)
            elif not create_file(path, data):
                return not_stored(effect, "name_taken", "the name has other bytes", now)
        except OSError as error:
            return not_stored(effect, "failed", f"{type(error).__name__}: {error.strerror}", now)
        return ObjectStored(name=effect.name, uri=object_uri(effect.bucket, effect.name), at=now)

    def list(self, effect: ListObjects, now: datetime) -> ObjectsListed | ObjectNotRead:
        """Return names and sizes of the objects under a prefix."""
        above, slash, _ = effect.prefix.rpartition("/")
        folder = self._file(effect.bucket, above)
        try:
            found = {f"{above}{slash}{_name(path, folder)}": path.stat().st_size for path in _files(folder)}
        except OSError as error:
            return not_read(effect.prefix, "failed", f"{type(error).__name__}: {error.strerror}", now)
        sizes = {name: found[name] for name in sorted(found) if name.startswith(effect.prefix)}
        return ObjectsListed(prefix=effect.prefix, sizes=sizes, at=now)

    def read(self, effect: ReadObject, now: datetime) -> ObjectRead | ObjectNotRead:
        """Return the bytes of an object."""
        try:
            with self._file(effect.bucket, effect.name).open("rb") as file:
                data = file.read(effect.max_bytes + 1)
        except FileNotFoundError:
            return not_read(effect.name, "missing", "there is no such object", now)
        except OSError as error:
            return not_read(effect.name, "failed", f"{type(error).__name__}: {error.strerror}", now)
        if len(data) > effect.max_bytes:
            return not_read(effect.name, "too_large", f"it has more than {effect.max_bytes} bytes", now)
        return ObjectRead(name=effect.name, content=blob(data), at=now)

    def _file(self, bucket: str, name: str) -> Path:
        return self._folder / bucket / Path(*map(_component, name.split("/")))


def _files(folder: Path) -> Iterator[Path]:
    """Return all files below a folder but those that are still being written; none where there is no folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir():
            yield from _files(path)
        elif not path.name.startswith("."):
            yield path


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _component(name: str) -> str:
    """Return the name of a file or folder; one that is too long for a file system keeps its beginning and a hash."""
    encoded = name.encode()
    if len(encoded) <= _MAX_COMPONENT_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _MAX_COMPONENT_BYTES - 20].decode(errors='ignore')}~{digest}"
