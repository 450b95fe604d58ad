"""Documents and changes to them, as values.

Owns the meaning of a change, which every document store shares: a rule looks at documents and returns
the changes and the outcome; a store commits them or runs the rule again. Must not know where documents live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from effects import Document

FieldPath = tuple[str, ...]
"""Keys from the top of a document to a field."""

Documents = Mapping[str, Document | None]
"""Documents by path (collection/id); None where there is none."""

OutcomeT_co = TypeVar("OutcomeT_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateDocument:
    """Set and remove some fields; all others stay. A missing document is created."""

    path: str
    assign: Mapping[FieldPath, Any]
    remove: tuple[FieldPath, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceDocument:
    """Put a whole document in the place of whatever is there."""

    path: str
    document: Document


Change = UpdateDocument | ReplaceDocument


@dataclass(frozen=True, slots=True)
class Decision(Generic[OutcomeT_co]):
    """What a rule decided: the outcome, which holds once the changes are committed."""

    outcome: OutcomeT_co
    changes: tuple[Change, ...] = ()


Rule = Callable[[Documents], Decision[OutcomeT_co]]
"""A pure function of the documents; it may run more than once."""


def apply_change(document: Document | None, change: Change) -> dict[str, Any]:
    """Return the document after the change; the given one stays as it is."""
    if isinstance(change, ReplaceDocument):
        return dict(change.document)
    copies: dict[FieldPath, dict[str, Any]] = {(): dict(document or {})}
    for path, value in change.assign.items():
        _copied(copies, path[:-1])[path[-1]] = value
    for path in change.remove:
        _copied(copies, path[:-1]).pop(path[-1], None)
    return copies[()]


def field(document: object, *path: str) -> Any:
    """Return the value at the path, None where anything on the way is missing or not an object."""
    value: Any = document
    for key in path:
        if type(value) is not dict and not isinstance(value, Mapping):  # the first is quick, and nearly always so
            return None
        value = value.get(key)
    return value


def _copied(copies: dict[FieldPath, dict[str, Any]], path: FieldPath) -> dict[str, Any]:
    """Return the object at the path to write in: copied, but only once, so that the original is not touched."""
    if path not in copies:
        above = _copied(copies, path[:-1])
        below = above.get(path[-1])
        copies[path] = above[path[-1]] = dict(below) if isinstance(below, Mapping) else {}
    return copies[path]
