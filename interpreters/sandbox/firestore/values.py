"""The order of values, across types, as Firestore's documentation gives it.

Owns comparison and equality (3 equals 3.0, NaN equals itself). Must not know queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from interpreters.sandbox.firestore.failures import refuse_unimplemented
from interpreters.sandbox.firestore.names import order_key
from interpreters.sandbox.firestore.timestamps import microseconds
from interpreters.sandbox.firestore.wire import Value

ValueKey = tuple[int, Any]
"""The rank of the type, then what values of the type are sorted by."""

NULL_RANK = 0


def value_key(value: Value) -> ValueKey:
    """Return what a value is sorted and compared by."""
    kind = value.WhichOneof("value_type") or "null_value"
    if kind not in _KEYS:
        refuse_unimplemented(f"values of the kind {kind}")
    rank, key = _KEYS[kind]
    return rank, key(getattr(value, kind))


def is_nan(value: Value) -> bool:
    """Return whether a value is the number that is none."""
    return bool(value.HasField("double_value")) and math.isnan(value.double_value)


def is_number(value: Value) -> bool:
    """Return whether a value is an integer or a double."""
    return bool(value.HasField("integer_value") or value.HasField("double_value"))


def number(value: Value) -> int | float:
    """Return the number a value holds."""
    held: int | float = value.integer_value if value.HasField("integer_value") else value.double_value
    return held


def _number_key(held: float) -> tuple[int, float]:
    return (0, 0) if math.isnan(held) else (1, held)


def _array_key(array: Any) -> tuple[ValueKey, ...]:
    return tuple(map(value_key, array.values))


def _map_key(held: Any) -> tuple[tuple[bytes, ValueKey], ...]:
    return tuple(sorted((key.encode(), value_key(value)) for key, value in held.fields.items()))


_KEYS: Mapping[str, tuple[int, Callable[[Any], Any]]] = {
    "null_value": (NULL_RANK, lambda _: 0),
    "boolean_value": (1, bool),
    "integer_value": (2, _number_key),
    "double_value": (2, _number_key),
    "timestamp_value": (3, microseconds),
    "string_value": (4, str.encode),
    "bytes_value": (5, bytes),
    "reference_value": (6, order_key),
    "geo_point_value": (7, lambda point: (point.latitude, point.longitude)),
    "array_value": (8, _array_key),
    "map_value": (9, _map_key),
}
