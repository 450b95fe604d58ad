"""Filters of structured queries: which documents they let through.

Owns the meaning of each operator, as the documentation gives it. Must not know order, cursors or limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from google.cloud.firestore_v1.types import StructuredQuery

from interpreters.sandbox.firestore.failures import refuse
from interpreters.sandbox.firestore.field_paths import FieldPath, parse_field_path, value_at
from interpreters.sandbox.firestore.values import NULL_RANK, ValueKey, is_nan, value_key
from interpreters.sandbox.firestore.wire import Document, Value, new_value

NAME = ("__name__",)
"""The path that stands for a document's name."""

Predicate = Callable[[Document], bool]

_Field = StructuredQuery.FieldFilter.Operator
_Unary = StructuredQuery.UnaryFilter.Operator
_Composite = StructuredQuery.CompositeFilter.Operator
_INEQUALITIES = {
    _Field.LESS_THAN,
    _Field.LESS_THAN_OR_EQUAL,
    _Field.GREATER_THAN,
    _Field.GREATER_THAN_OR_EQUAL,
    _Field.NOT_EQUAL,
    _Field.NOT_IN,
}


def field_value(document: Document, path: FieldPath) -> Value | None:
    """Return the field's value, the document's own reference for its name, None where there is none."""
    if path == NAME:
        return new_value(reference_value=document.name)
    return value_at(document.fields, path)


def parse_filter(where: Any) -> Predicate:
    """Return the test a filter makes of documents."""
    kind = where.WhichOneof("filter_type")
    if kind is None:
        refuse("A filter must say what it filters by.")
    return _PARSERS[kind](getattr(where, kind))


def inequality_paths(where: Any) -> Iterator[FieldPath]:
    """Return the fields a filter compares by anything but equality; they order the result."""
    for one in where.composite_filter.filters:
        yield from inequality_paths(one)
    if where.HasField("field_filter") and where.field_filter.op in _INEQUALITIES:
        yield parse_field_path(where.field_filter.field.field_path)
    if where.HasField("unary_filter") and where.unary_filter.op in {_Unary.IS_NOT_NAN, _Unary.IS_NOT_NULL}:
        yield parse_field_path(where.unary_filter.field.field_path)


def _composite(where: Any) -> Predicate:
    if where.op not in _JUNCTIONS:
        refuse("A composite filter must be AND or OR.")
    parts = [parse_filter(one) for one in where.filters]
    junction = _JUNCTIONS[where.op]
    return lambda document: junction(part(document) for part in parts)


def _unary(where: Any) -> Predicate:
    if where.op not in _UNARY:
        refuse("A unary filter must have an operator.")
    return _on_field(where.field.field_path, _UNARY[where.op])


def _field(where: Any) -> Predicate:
    if where.op not in _FIELD:
        refuse("A field filter must have an operator.")
    if where.op in _LISTS and not where.value.array_value.values:
        refuse("'IN', 'NOT_IN' and 'ARRAY_CONTAINS_ANY' want a non-empty array.")
    wanted = where.value
    test = _FIELD[where.op]
    return _on_field(where.field.field_path, lambda value: test(value, wanted))


def _on_field(text: str, test: Callable[[Value], bool]) -> Predicate:
    path = parse_field_path(text)

    def predicate(document: Document) -> bool:
        value = field_value(document, path)
        return value is not None and test(value)

    return predicate


def _compared(test: Callable[[ValueKey, ValueKey], bool]) -> Callable[[Value, Value], bool]:
    """Return a comparison that only values of one type can pass."""

    def compare(value: Value, wanted: Value) -> bool:
        one, other = value_key(value), value_key(wanted)
        return one[0] == other[0] and test(one, other)

    return compare


def _is_null(value: Value) -> bool:
    return value_key(value)[0] == NULL_RANK


def _equals(value: Value, wanted: Value) -> bool:
    return value_key(value) == value_key(wanted)


def _differs(value: Value, wanted: Value) -> bool:
    return not _is_null(value) and not _equals(value, wanted)


def _is_in(value: Value, wanted: Value) -> bool:
    return any(_equals(value, one) for one in wanted.array_value.values)


def _is_not_in(value: Value, wanted: Value) -> bool:
    return all(not _is_null(one) and _differs(value, one) for one in wanted.array_value.values)


def _contains(value: Value, wanted: Value) -> bool:
    return any(_equals(one, wanted) for one in value.array_value.values)


def _contains_any(value: Value, wanted: Value) -> bool:
    return any(_contains(value, one) for one in wanted.array_value.values)


_PARSERS: Mapping[str, Callable[[Any], Predicate]] = {
    "composite_filter": _composite,
    "field_filter": _field,
    "unary_filter": _unary,
}
_JUNCTIONS: Mapping[int, Callable[[Iterable[bool]], bool]] = {_Composite.AND: all, _Composite.OR: any}
_LISTS = {_Field.IN, _Field.NOT_IN, _Field.ARRAY_CONTAINS_ANY}
_FIELD: Mapping[int, Callable[[Value, Value], bool]] = {
    _Field.LESS_THAN: _compared(lambda one, other: one < other),
    _Field.LESS_THAN_OR_EQUAL: _compared(lambda one, other: one <= other),
    _Field.GREATER_THAN: _compared(lambda one, other: one > other),
    _Field.GREATER_THAN_OR_EQUAL: _compared(lambda one, other: one >= other),
    _Field.EQUAL: _equals,
    _Field.NOT_EQUAL: _differs,
    _Field.ARRAY_CONTAINS: _contains,
    _Field.IN: _is_in,
    _Field.NOT_IN: _is_not_in,
    _Field.ARRAY_CONTAINS_ANY: _contains_any,
}
_UNARY: Mapping[int, Callable[[Value], bool]] = {
    _Unary.IS_NAN: is_nan,
    _Unary.IS_NULL: _is_null,
    _Unary.IS_NOT_NAN: lambda value: not is_nan(value) and not _is_null(value),
    _Unary.IS_NOT_NULL: lambda value: not _is_null(value),
}
