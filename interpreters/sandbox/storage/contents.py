"""What is in Cloud Storage: buckets, and the live generation of each object.

Owns generations and the order of changes: one at a time. Must not know HTTP or uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import RLock
from typing import Any

from interpreters.sandbox.storage.preconditions import Preconditions
from interpreters.sandbox.storage.refusals import conflict, no_bucket, no_object, required
from interpreters.sandbox.storage.stored import Content, StoredObject, rfc3339, writable

_ANY = Preconditions()
_MAX_NAME_BYTES = 1024


def utc_now() -> datetime:
    """Return this moment."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Bucket:
    """A bucket, without what is in it."""

    name: str
    created: datetime
    generation: int

    def resource(self, origin: str) -> dict[str, Any]:
        """Return the bucket in JSON form, with a link to that origin."""
        created = rfc3339(self.created)
        return {
            "kind": "storage#bucket",
            "id": self.name,
            "selfLink": f"{origin}/storage/v1/b/{self.name}",
            "name": self.name,
            "projectNumber": "0",
            "generation": str(self.generation),
            "metageneration": "1",
            "location": "US",
            "locationType": "multi-region",
            "storageClass": "STANDARD",
            "etag": "CAE=",
            "timeCreated": created,
            "updated": created,
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        }


class Contents:
    """All buckets and objects, in memory."""

    def __init__(self, buckets: Iterable[str] = (), now: Callable[[], datetime] = utc_now) -> None:
        """Begin with empty buckets of these names."""
        self._now = now
        self._lock = RLock()
        self._last_generation = 0
        self._buckets: dict[str, Bucket] = {}
        self._objects: dict[str, dict[str, StoredObject]] = {}
        for name in buckets:
            self.create_bucket(name)

    def create_bucket(self, name: str) -> Bucket:
        """Create an empty bucket."""
        with self._lock:
            if name in self._buckets:
                message = "Your previous request to create the named bucket succeeded and you already own it."
                raise conflict(message)
            bucket = Bucket(name, self._now(), self._next_generation())
            self._buckets[name], self._objects[name] = bucket, {}
            return bucket

    def bucket(self, name: str) -> Bucket:
        """Return a bucket."""
        with self._lock:
            self._in(name)
            return self._buckets[name]

    def buckets(self) -> list[Bucket]:
        """Return all buckets by name."""
        with self._lock:
            return [self._buckets[name] for name in sorted(self._buckets)]

    def delete_bucket(self, name: str) -> None:
        """Delete a bucket that is empty."""
        with self._lock:
            if self._in(name):
                message = "The bucket you tried to delete is not empty."
                raise conflict(message)
            del self._buckets[name], self._objects[name]

    def objects(self, bucket: str) -> list[StoredObject]:
        """Return the objects of a bucket, in the order of their names in UTF-8."""
        with self._lock:
            return sorted(self._in(bucket).values(), key=lambda one: one.name.encode())

    def check(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Refuse if a write to that name would be refused now."""
        _check_name(name)
        with self._lock:
            found = self._in(bucket).get(name)
            preconditions.check(found.generation if found else 0, found.metageneration if found else 0)

    def put(
        self,
        bucket: str,
        name: str,
        content: Content,
        metadata: Mapping[str, Any],
        preconditions: Preconditions = _ANY,
    ) -> StoredObject:
        """Store a new generation, if the preconditions hold and the declared checksums are right."""
        content.check(metadata)
        with self._lock:
            self.check(bucket, name, preconditions)
            now, generation = self._now(), self._next_generation()
            stored = StoredObject(bucket, name, content, generation, now, now, metadata=writable(metadata))
            self._objects[bucket][name] = stored
            return stored

    def get(
        self, bucket: str, name: str, preconditions: Preconditions = _ANY, generation: int | None = None
    ) -> StoredObject:
        """Return an object to read; only its live generation is kept."""
        with self._lock:
            found = self._live(bucket, name, generation)
        preconditions.check(found.generation, found.metageneration, reading=True)
        return found

    def patch(
        self,
        bucket: str,
        name: str,
        changes: Mapping[str, Any],
        preconditions: Preconditions = _ANY,
        generation: int | None = None,
    ) -> StoredObject:
        """Change some metadata: None removes, custom metadata is merged."""
        with self._lock:
            found = self._live(bucket, name, generation)
            preconditions.check(found.generation, found.metageneration)
            changed = replace(
                found,
                metadata=_merged(found.metadata, changes),
                metageneration=found.metageneration + 1,
                updated=self._now(),
            )
            self._objects[bucket][name] = changed
            return changed

    def delete(
        self, bucket: str, name: str, preconditions: Preconditions = _ANY, generation: int | None = None
    ) -> None:
        """Delete an object."""
        with self._lock:
            found = self._live(bucket, name, generation)
            preconditions.check(found.generation, found.metageneration)
            del self._objects[bucket][name]

    def _in(self, bucket: str) -> dict[str, StoredObject]:
        objects = self._objects.get(bucket)
        if objects is None:
            raise no_bucket()
        return objects

    def _live(self, bucket: str, name: str, generation: int | None) -> StoredObject:
        found = self._in(bucket).get(name)
        if found is None or generation not in {None, found.generation}:
            raise no_object(bucket, name)
        return found

    def _next_generation(self) -> int:
        microseconds = int(self._now().timestamp() * 1_000_000)
        self._last_generation = max(self._last_generation + 1, microseconds)
        return self._last_generation


def _check_name(name: str) -> None:
    if not name or len(name.encode()) > _MAX_NAME_BYTES or "\r" in name or "\n" in name:
        message = "Required object name is missing, too long or malformed."
        raise required(message)


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**old, **changes}
    if changes.get("metadata") is not None:
        custom = {**old.get("metadata", {}), **changes["metadata"]}
        merged["metadata"] = {name: value for name, value in custom.items() if value is not None}
    return writable(merged)
