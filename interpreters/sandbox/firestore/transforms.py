"""Field transforms: what a field becomes, given what it is.

Owns their arithmetic. Must not know documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from interpreters.sandbox.firestore.failures import refuse
from interpreters.sandbox.firestore.timestamps import timestamp
from interpreters.sandbox.firestore.values import is_number, number, value_key
from interpreters.sandbox.firestore.wire import Value, new_value

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_MILLISECOND = 1000


def transformed(transform: Any, current: Value | None, commit_time: int) -> tuple[Value, Value]:
    """Return the new value of the field, and the result the answer carries."""
    kind = transform.WhichOneof("transform_type")
    if kind is None:
        refuse("A field transform must say what it does.")
    if kind == "set_to_server_value":
        value = new_value(timestamp_value=timestamp(commit_time - commit_time % _MILLISECOND))
        return value, value
    operand = getattr(transform, kind)
    if kind in _ARRAYS:
        return _ARRAYS[kind](_elements(current), operand.values), new_value(null_value=0)
    if not is_number(operand):
        refuse(f"The operand of {kind} must be an integer or a double.")
    value = operand if current is None or not is_number(current) else _NUMBERS[kind](current, operand)
    return value, value


def _elements(current: Value | None) -> list[Value]:
    return [] if current is None else list(current.array_value.values)


def _append_missing(elements: list[Value], more: Any) -> Value:
    for element in more:
        if value_key(element) not in map(value_key, elements):
            elements.append(element)
    return _array(elements)


def _remove_all(elements: list[Value], unwanted: Any) -> Value:
    keys = [value_key(element) for element in unwanted]
    return _array([element for element in elements if value_key(element) not in keys])


def _array(elements: list[Value]) -> Value:
    array = new_value()
    array.array_value.SetInParent()
    array.array_value.values.extend(elements)
    return array


def _increment(current: Value, operand: Value) -> Value:
    total = number(current) + number(operand)
    if isinstance(total, int):
        return new_value(integer_value=max(_INT64_MIN, min(_INT64_MAX, total)))
    return new_value(double_value=total)


def _maximum(current: Value, operand: Value) -> Value:
    return operand if math.isnan(number(operand)) or number(operand) > number(current) else current


def _minimum(current: Value, operand: Value) -> Value:
    return operand if math.isnan(number(operand)) or number(operand) < number(current) else current


_ARRAYS: Mapping[str, Callable[[list[Value], Any], Value]] = {
    "append_missing_elements": _append_missing,
    "remove_all_from_array": _remove_all,
}
_NUMBERS: Mapping[str, Callable[[Value, Value], Value]] = {
    "increment": _increment,
    "maximum": _maximum,
    "minimum": _minimum,
}
