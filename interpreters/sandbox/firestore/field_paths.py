"""Paths to fields: their written form with backticks, and the fields they lead to.

Owns reading, putting and removing by path. Must not know masks' or transforms' reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from interpreters.sandbox.firestore.failures import refuse
from interpreters.sandbox.firestore.wire import Document, Fields, Value, new_document

FieldPath = tuple[str, ...]
"""Keys from the top of a document to a field."""

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_SEGMENT = re.compile(r"(?P<simple>[A-Za-z_][A-Za-z_0-9]*)|`(?P<quoted>(?:[^`\\]|\\.)+)`", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_field_path(text: str) -> FieldPath:
    """Return the keys of a path as the API writes it."""
    keys: list[str] = []
    at = 0
    while True:
        found = _SEGMENT.match(text, at)
        if found is None:
            refuse(f'Invalid property path "{text}".')
        keys.append(found["simple"] or _ESCAPED.sub(r"\1", found["quoted"]))
        at = found.end()
        if at == len(text):
            return tuple(keys)
        if text[at] != ".":
            refuse(f'Invalid property path "{text}".')
        at += 1


def write_field_path(path: Iterable[str]) -> str:
    """Return the path as the API writes it."""
    return ".".join(map(_write_key, path))


def value_at(fields: Fields, path: FieldPath) -> Value | None:
    """Return the value at the path, None where there is none."""
    *parents, last = path
    for key in parents:
        if key not in fields or not fields[key].HasField("map_value"):
            return None
        fields = fields[key].map_value.fields
    return fields.get(last)


def put_value(fields: Fields, path: FieldPath, value: Value) -> None:
    """Put the value at the path; what is on the way and not a map becomes one."""
    *parents, last = path
    for key in parents:
        fields[key].map_value.SetInParent()
        fields = fields[key].map_value.fields
    fields[last].CopyFrom(value)


def remove_value(fields: Fields, path: FieldPath) -> None:
    """Remove the value at the path, if there is one."""
    *parents, last = path
    for key in parents:
        if key not in fields or not fields[key].HasField("map_value"):
            return
        fields = fields[key].map_value.fields
    fields.pop(last, None)


def masked(document: Document, paths: Iterable[FieldPath]) -> Document:
    """Return the document with only the fields at the paths."""
    kept = new_document(name=document.name, create_time=document.create_time, update_time=document.update_time)
    for path in paths:
        value = value_at(document.fields, path)
        if value is not None:
            put_value(kept.fields, path, value)
    return kept


def _write_key(key: str) -> str:
    if _SIMPLE.fullmatch(key):
        return key
    return "`" + key.replace("\\", "\\\\").replace("`", "\\`") + "`"
