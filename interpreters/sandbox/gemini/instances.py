"""An object that matches a JSON Schema, made from the schema alone.

Owns the choice of the smallest thing that fits. Must not know what the schema is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 20


def instance_of(schema: Any, text: str, root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Return something that matches the schema, with this text wherever any string will do."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return text
    root = root or schema
    if isinstance(schema.get("$ref"), str):
        return instance_of(_resolved(root, schema["$ref"]), text, root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            merged = {**{name: value for name, value in schema.items() if name != key}, **schema[key][0]}
            return instance_of(merged, text, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    return _OF_TYPE.get(_type(schema), _string)(schema, text, root, depth + 1)


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return str(next((one for one in kind if one != "null"), "null"))
    return str(kind or ("object" if "properties" in schema else "string"))


def _resolved(root: Mapping[str, Any], reference: str) -> Any:
    here: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        here = here.get(key, {}) if key else here
    return here


def _object(schema: Mapping[str, Any], text: str, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: instance_of(properties.get(name, {}), text, root, depth) for name in schema.get("required", ())}


def _array(schema: Mapping[str, Any], text: str, root: Mapping[str, Any], depth: int) -> list[Any]:
    return [instance_of(schema.get("items", {}), text, root, depth)] * schema.get("minItems", 0)


def _number(schema: Mapping[str, Any], text: str, root: Mapping[str, Any], depth: int) -> float:
    least: float = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return least


def _string(schema: Mapping[str, Any], text: str, root: Mapping[str, Any], depth: int) -> str:
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


_OF_TYPE = {
    "object": _object,
    "array": _array,
    "number": _number,
    "integer": _number,
    "string": _string,
    "boolean": lambda *_: True,
    "null": lambda *_: None,
}
