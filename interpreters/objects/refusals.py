"""How an object store says that it could not: as outcomes, the same for every store.

Owns their making. Must not know any store.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from effects import ObjectNotRead, ObjectNotStored, PutObject


def not_stored(
    effect: PutObject, reason: Literal["name_taken", "failed"], message: str, now: datetime
) -> ObjectNotStored:
    """Return the outcome of an object that is not there with these bytes."""
    return ObjectNotStored(name=effect.name, reason=reason, message=message, at=now)


def not_read(
    name: str, reason: Literal["missing", "too_large", "failed"], message: str, now: datetime
) -> ObjectNotRead:
    """Return the outcome of an object, or of a listing, that was not read."""
    return ObjectNotRead(name=name, reason=reason, message=message, at=now)
