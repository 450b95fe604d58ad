"""A document's change, as listeners see it, and which fields it changed.

Owns the difference of two documents. Must not know who listens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interpreters.sandbox.firestore.field_paths import FieldPath, write_field_path
from interpreters.sandbox.firestore.wire import Document, Fields, Value, canonical, new_document


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit did to one document; the documents are shared: read, never change them."""

    name: str
    """The document's full name."""

    old: Document | None
    """The document before, None if it was created."""

    new: Document | None
    """The document after, None if it was deleted."""

    update_mask: tuple[str, ...]
    """Paths of the changed fields, quoted as the API does; empty unless the document was updated."""

    commit_time: int
    """The moment of the commit, in microseconds since 1970."""


def change_between(name: str, old: Document | None, new: Document | None, commit_time: int) -> Change:
    """Return the change that leads from one document to the other."""
    mask: tuple[str, ...] = ()
    if old is not None and new is not None:
        mask = tuple(sorted(map(write_field_path, _different(old.fields, new.fields, ()))))
    return Change(name, old, new, mask, commit_time)


def _different(old: Fields, new: Fields, above: FieldPath) -> Iterator[FieldPath]:
    for key in {*old, *new}:
        path = (*above, key)
        if key not in old or key not in new:
            yield path
        elif old[key].HasField("map_value") and new[key].HasField("map_value"):
            yield from _different(old[key].map_value.fields, new[key].map_value.fields, path)
        elif not _same(old[key], new[key]):
            yield path


def _same(old: Value, new: Value) -> bool:
    return canonical(new_document(fields={"value": old})) == canonical(new_document(fields={"value": new}))
