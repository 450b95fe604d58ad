"""The shape every word of the vocabulary has: a frozen, keyword-only value.

Owns the decorator, how a value is changed, and the `Blob` that carries bytes. Must not know any particular effect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

T = TypeVar("T")

Document = Mapping[str, Any]
"""A stored JSON document."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def word(cls: type[T]) -> type[T]:
    """Return the class as a frozen, keyword-only dataclass."""
    return dataclass(frozen=True, kw_only=True)(cls)


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - said to be exported
else:

    def replace(value: T, /, **changes: Any) -> T:
        """Return the value with some fields changed: what `dataclasses.replace` does, ten times faster.

        For frozen dataclasses without slots and without `__post_init__`. Programs change a value at every step they take.
        """
        changed = object.__new__(type(value))
        fields = changed.__dict__
        fields.update(value.__dict__)
        fields.update(changes)
        return changed


@word
class Blob:
    """Bytes on their way: held in memory, shown as size and SHA-256, never as themselves."""

    data: bytes | None
    """The bytes; None where they are only hoped for, or were read back from JSON."""
    size: int | None
    """Number of bytes; None while only hoped for."""
    known_sha256: str | None = None
    """SHA-256 as read back from JSON, where the bytes themselves are gone, or others stand in for them."""

    @property
    def sha256(self) -> str | None:
        """Return the hexadecimal SHA-256 of the bytes, None where nothing is known of them."""
        if self.known_sha256 is not None or self.data is None:
            return self.known_sha256
        return hashlib.sha256(self.data).hexdigest()

    def __repr__(self) -> str:
        """Return size only: bytes are never printed."""
        return f"Blob(size={self.size})"


def blob(data: bytes) -> Blob:
    """Return the bytes as a Blob."""
    return Blob(data=data, size=len(data))


HOPED_BLOB = Blob(data=None, size=None)
"""What a picture is in a plan: nobody has drawn it yet."""
