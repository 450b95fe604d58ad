"""Words about stored artifacts.

Owns putting an object and what became of it. Must not know where objects are kept.
"""

from __future__ import annotations

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
