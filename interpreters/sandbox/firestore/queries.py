"""Structured queries: which documents, in which order, from where to where.

Owns collections, order, cursors, offset, limit and projection. Must not know locks or the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.cloud.firestore_v1.types import StructuredQuery as QueryTypes

from interpreters.sandbox.firestore.failures import refuse, refuse_unimplemented
from interpreters.sandbox.firestore.field_paths import FieldPath, masked, parse_field_path
from interpreters.sandbox.firestore.filters import (
    NAME,
    Predicate,
    field_value,
    inequality_paths,
    parse_filter,
)
from interpreters.sandbox.firestore.names import checked_parent, collection_of
from interpreters.sandbox.firestore.transactions import Documents, Selection
from interpreters.sandbox.firestore.values import value_key
from interpreters.sandbox.firestore.wire import Document, StructuredQuery, Value


@dataclass(frozen=True, slots=True)
class _Order:
    path: FieldPath
    descending: bool


def parse_query(parent: str, query: StructuredQuery) -> Selection:
    """Return the function that selects the query's documents."""
    _check(query)
    tests = _tests(checked_parent(parent), query)
    orders = _orders(query)

    def select(documents: Documents) -> list[Document]:
        found = [document for document in documents.values() if all(test(document) for test in tests)]
        _sort(found, orders)
        return _limited(_between_cursors(found, orders, query), query)

    return select


def projected(document: Document, query: StructuredQuery) -> Document:
    """Return the document with only the fields the query selects."""
    if not query.HasField("select") or not query.select.fields:
        return document
    paths = (parse_field_path(one.field_path) for one in query.select.fields)
    return masked(document, [path for path in paths if path != NAME])


def _check(query: StructuredQuery) -> None:
    if query.HasField("find_nearest"):
        refuse_unimplemented("searches of vectors")
    if query.offset < 0 or query.limit.value < 0:
        refuse("Offset and limit must not be negative.")


def _tests(parent: str, query: StructuredQuery) -> list[Predicate]:
    orders = [parse_field_path(one.field.field_path) for one in query.order_by]
    tests = [_in_collections(parent, query.from_), *map(_has, orders)]
    if query.HasField("where"):
        tests.append(parse_filter(query.where))
    return tests


def _in_collections(parent: str, selectors: Iterable[Any]) -> Predicate:
    def is_selected(document: Document) -> bool:
        if not document.name.startswith(f"{parent}/"):
            return False
        above, collection = collection_of(document.name)
        return any(
            one.collection_id in {"", collection} and (one.all_descendants or above == parent) for one in selectors
        )

    return is_selected


def _has(path: FieldPath) -> Predicate:
    return lambda document: field_value(document, path) is not None


def _orders(query: StructuredQuery) -> list[_Order]:
    """Return the orders asked for, then those the documentation adds: inequality fields, and the name."""
    descending = QueryTypes.Direction.DESCENDING
    orders = [
        _Order(parse_field_path(one.field.field_path), one.direction == descending) for one in query.order_by
    ]
    last = orders[-1].descending if orders else False
    added = sorted(set(inequality_paths(query.where)) - {NAME})
    for path in [*added, NAME]:
        if path not in {order.path for order in orders}:
            orders.append(_Order(path, last))
    return orders


def _sort(documents: list[Document], orders: Sequence[_Order]) -> None:
    for order in reversed(orders):
        documents.sort(key=partial(_key, order.path), reverse=order.descending)


def _key(path: FieldPath, document: Document) -> tuple[Any, ...]:
    """Return a sort key; what an OR lets through may lack the field, and comes first."""
    value = field_value(document, path)
    return () if value is None else value_key(value)


def _between_cursors(
    documents: list[Document], orders: Sequence[_Order], query: StructuredQuery
) -> list[Document]:
    if query.HasField("start_at"):
        least = 0 if query.start_at.before else 1
        documents = [one for one in documents if _position(one, query.start_at.values, orders) >= least]
    if query.HasField("end_at"):
        greatest = -1 if query.end_at.before else 0
        documents = [one for one in documents if _position(one, query.end_at.values, orders) <= greatest]
    return documents


def _position(document: Document, cursor: Sequence[Value], orders: Sequence[_Order]) -> int:
    """Return -1, 0 or 1 for a document before, at or after the cursor."""
    if len(cursor) > len(orders):
        refuse("Cursor has too many values.")
    for value, order in zip(cursor, orders, strict=False):
        here, there = _key(order.path, document), value_key(value)
        if here != there:
            return -1 if (here < there) != order.descending else 1
    return 0


def _limited(documents: list[Document], query: StructuredQuery) -> list[Document]:
    end = query.offset + query.limit.value if query.HasField("limit") else None
    return documents[query.offset : end]
