"""The limits of a document: its size, and what may not be in it.

Owns the size calculation of Firestore's documentation ("Storage size calculations"). Must not know writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interpreters.sandbox.firestore.failures import refuse, refuse_unimplemented
from interpreters.sandbox.firestore.names import relative
from interpreters.sandbox.firestore.wire import Document, Fields, Value

MAX_DOCUMENT_BYTES = 1_048_576
_NAME_EXTRA = 16
_MAP_EXTRA = 32
_MAX_DEPTH = 20


def check_document(document: Document) -> None:
    """Refuse a document that Firestore would not keep."""
    _check_fields(document.fields, 1)
    size = document_size(document)
    if size > MAX_DOCUMENT_BYTES:
        refuse(
            f"Document '{document.name}' cannot be written because its size ({size:,} bytes) "
            f"exceeds the maximum allowed size of {MAX_DOCUMENT_BYTES:,} bytes."
        )


def document_size(document: Document) -> int:
    """Return the bytes a document counts for."""
    return _name_size(document.name) + _fields_size(document.fields)


def _check_fields(fields: Fields, depth: int) -> None:
    if depth > _MAX_DEPTH:
        refuse(f"Property is nested deeper than the maximum of {_MAX_DEPTH} levels.")
    for key, value in fields.items():
        if not key or (key.startswith("__") and key.endswith("__")):
            refuse(f'Property name "{key}" is empty or reserved.')
        _check_value(value, depth)


def _check_value(value: Value, depth: int) -> None:
    if value.HasField("map_value"):
        _check_fields(value.map_value.fields, depth + 1)
    for element in value.array_value.values:
        if element.HasField("array_value"):
            refuse("Cannot convert an array value in an array value.")
        _check_value(element, depth + 1)


def _fields_size(fields: Fields) -> int:
    return _MAP_EXTRA + sum(_string_size(key) + _value_size(value) for key, value in fields.items())


def _value_size(value: Value) -> int:
    kind = value.WhichOneof("value_type") or "null_value"
    if kind not in _SIZES:
        refuse_unimplemented(f"values of the kind {kind}")
    return _SIZES[kind](getattr(value, kind))


def _string_size(text: str) -> int:
    return len(text.encode()) + 1


def _name_size(name: str) -> int:
    return _NAME_EXTRA + sum(map(_string_size, relative(name)))


_SIZES: Mapping[str, Callable[[Any], int]] = {
    "null_value": lambda _: 1,
    "boolean_value": lambda _: 1,
    "integer_value": lambda _: 8,
    "double_value": lambda _: 8,
    "timestamp_value": lambda _: 8,
    "string_value": _string_size,
    "bytes_value": len,
    "reference_value": _name_size,
    "geo_point_value": lambda _: 16,
    "array_value": lambda array: sum(map(_value_size, array.values)),
    "map_value": lambda held: _fields_size(held.fields),
}
