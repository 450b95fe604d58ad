"""Effects and outcomes as readable JSON, and back.

One encoding for dry-run, golden files and the journal: camelCase keys, moments as RFC 3339, the class name
as the tag `effect` or `outcome`, bytes as size and SHA-256. Must not know any particular word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from effects import Blob, Effect, Outcome
from effects.moments import rfc3339

ShowBlob = Callable[[Blob], dict[str, Any]]
ReadBlob = Callable[[dict[str, Any]], Blob]


def show_size(content: Blob) -> dict[str, Any]:
    """Return size and SHA-256 of the bytes."""
    return {"size": content.size, "sha256": content.sha256}


def read_size(encoded: dict[str, Any]) -> Blob:
    """Return a Blob of which only size and SHA-256 are known."""
    return Blob(data=None, size=encoded["size"], known_sha256=encoded["sha256"])


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _renames(cls: type) -> dict[str, Any]:
    return {field.name: override(rename=_camel(field.name)) for field in fields(cls)}


def _converter(show: ShowBlob, read: ReadBlob) -> Converter:
    converter = Converter(unstruct_collection_overrides={tuple: list, frozenset: sorted})
    converter.register_unstructure_hook_factory(
        is_dataclass, lambda cls: make_dict_unstructure_fn(cls, converter, **_renames(cls))
    )
    converter.register_structure_hook_factory(
        is_dataclass, lambda cls: make_dict_structure_fn(cls, converter, **_renames(cls))
    )
    converter.register_unstructure_hook(datetime, rfc3339)
    converter.register_structure_hook(datetime, lambda text, _: datetime.fromisoformat(text))
    converter.register_unstructure_hook(Blob, show)
    converter.register_structure_hook(Blob, lambda encoded, _: read(encoded))
    configure_tagged_union(Effect, converter, tag_name="effect")
    configure_tagged_union(Outcome, converter, tag_name="outcome")
    return converter


class Encoding:
    """The encoding; only how bytes are shown can be chosen."""

    def __init__(self, show: ShowBlob = show_size, read: ReadBlob = read_size) -> None:
        """Show bytes, and read them back, by these two functions."""
        self._converter = _converter(show, read)

    def effect(self, effect: Effect) -> dict[str, Any]:
        """Return the effect as JSON, tagged with its class name."""
        encoded = self._converter.unstructure(effect, unstructure_as=Effect)
        return {"effect": encoded["effect"], **encoded}

    def outcome(self, outcome: Outcome) -> dict[str, Any]:
        """Return the outcome as JSON, tagged with its class name."""
        encoded = self._converter.unstructure(outcome, unstructure_as=Outcome)
        return {"outcome": encoded["outcome"], **encoded}

    def value(self, value: Any) -> Any:
        """Return any value made of dataclasses as JSON, without a tag."""
        return self._converter.unstructure(value)

    def decode(self, encoded: Any, kind: Any) -> Any:
        """Return the value of this kind, a class or a union, that was encoded."""
        return self._converter.structure(encoded, kind)


_PLAIN = Encoding()


def encode_effect(effect: Effect) -> dict[str, Any]:
    """Return the effect as JSON, tagged with its class name."""
    return _PLAIN.effect(effect)


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON, tagged with its class name."""
    return _PLAIN.outcome(outcome)


def decode_effect(encoded: dict[str, Any]) -> Effect:
    """Return the effect that was encoded; its pictures come back without their bytes."""
    effect: Effect = _PLAIN.decode(encoded, Effect)
    return effect


def decode_outcome(encoded: dict[str, Any]) -> Outcome:
    """Return the outcome that was encoded; its pictures come back without their bytes."""
    outcome: Outcome = _PLAIN.decode(encoded, Outcome)
    return outcome
