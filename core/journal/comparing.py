"""What differs between two values of JSON, field by field.

Owns the paths and the showing of values. A field that is not there is null, as in a journal of a time when nobody knew of it. Bytes of
which one side knows nothing are not compared. Must not know what the values mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.problems import document_path

MAX_SHOWN_CHARACTERS = 200
_BLOB = {"size", "sha256"}
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field, as it was and as it is now."""

    path: str
    was: str
    now: str


def differences(was: Any, now: Any) -> tuple[FieldDifference, ...]:
    """Return every field that differs, with its path."""
    return tuple(
        FieldDifference(document_path(*path), shown(old), shown(new)) for path, old, new in _walk(was, now)
    )


def shown(value: Any) -> str:
    """Return a value as text of a bounded length."""
    text = "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def _walk(was: Any, now: Any, *path: str | int) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        if was.keys() >= _BLOB and now.keys() >= _BLOB:
            was, now = _comparable(was, now)
        for key in {**was, **now}:
            yield from _walk(was.get(key), now.get(key), *path, key)
    elif isinstance(was, list) and isinstance(now, list):
        for i in range(max(len(was), len(now))):
            yield from _walk(_item(was, i), _item(now, i), *path, i)
    elif was != now:
        yield path, was, now


def _item(values: list[Any], i: int) -> Any:
    return values[i] if i < len(values) else _ABSENT


def _comparable(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return of two Blobs what can be compared: nothing, size and hash, or the texts themselves."""
    if was["sha256"] is None or now["sha256"] is None or was["sha256"] == now["sha256"]:
        return {}, {}
    if "text" in was and "text" in now:
        return {"text": _parsed(was["text"])}, {"text": _parsed(now["text"])}
    return {key: was[key] for key in _BLOB}, {key: now[key] for key in _BLOB}


def _parsed(text: str) -> Any:
    """Return the JSON of a text, or its lines where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.split("\n")
