"""Words about stored artifacts.

Owns putting, listing and reading objects, and what became of it. Must not know where objects are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from effects.word import Blob, word


@word
class PutObject:
    """Store bytes under a name, once."""

    bucket: str
    """Bucket, without gs://."""
    name: str
    """Object name inside the bucket."""
    content: Blob
    """The bytes."""
    content_type: str
    """MIME type."""
    create_only: bool
    """Leave an object that has other bytes alone."""
    give_up_at: datetime
    """When this try must have ended."""


@word
class ObjectStored:
    """The object is there with these bytes."""

    name: str
    """Object name."""
    uri: str
    """gs:// URI."""
    at: datetime
    """When it happened."""


@word
class ObjectNotStored:
    """The object is not there with these bytes."""

    name: str
    """Object name."""
    reason: Literal["name_taken", "failed"]
    """Another object has the name, or the store could not."""
    message: str
    """What the store said."""
    at: datetime
    """When it happened."""


@word
class ListObjects:
    """Look what is stored under a prefix."""

    bucket: str
    """Bucket, without gs://."""
    prefix: str
    """What the names begin with."""
    give_up_at: datetime
    """When this try must have ended."""


@word
class ObjectsListed:
    """What is stored under the prefix."""

    prefix: str
    """What the names begin with."""
    sizes: Mapping[str, int]
    """Number of bytes of each object, by name."""
    at: datetime
    """When it happened."""


@word
class ReadObject:
    """Read the bytes of an object."""

    bucket: str
    """Bucket, without gs://."""
    name: str
    """Object name inside the bucket."""
    max_bytes: int
    """An object of more bytes than this is not read."""
    give_up_at: datetime
    """When this try must have ended."""


@word
class ObjectRead:
    """The object's bytes."""

    name: str
    """Object name."""
    content: Blob
    """The bytes."""
    at: datetime
    """When it happened."""


@word
class ObjectNotRead:
    """There is no such object, it is too large, or the store could not say."""

    name: str
    """Object name, or the prefix of a listing."""
    reason: Literal["missing", "too_large", "failed"]
    """Why."""
    message: str
    """What the store said."""
    at: datetime
    """When it happened."""
