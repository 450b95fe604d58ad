"""Effects and outcomes as readable JSON, and back.

One encoding for dry-run, golden files and the journal: camelCase keys, moments as RFC 3339, the class name
as the tag `effect` or `outcome`, bytes as size and SHA-256. Must not know any particular word.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from effects import Blob, Effect, Outcome
from effects.moments import rfc3339


def encode_effect(effect: Effect) -> dict[str, Any]:
    """Return the effect as JSON, tagged with its class name."""
    return dict(_CONVERTER.unstructure(effect, unstructure_as=Effect))


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON, tagged with its class name."""
    return dict(_CONVERTER.unstructure(outcome, unstructure_as=Outcome))


def decode_effect(encoded: dict[str, Any]) -> Effect:
    """Return the effect that was encoded; its pictures come back without their bytes."""
    return _CONVERTER.structure(encoded, Effect)  # type: ignore[arg-type]


def decode_outcome(encoded: dict[str, Any]) -> Outcome:
    """Return the outcome that was encoded; its pictures come back without their bytes."""
    return _CONVERTER.structure(encoded, Outcome)  # type: ignore[arg-type]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _renames(cls: type) -> dict[str, Any]:
    return {field.name: override(rename=_camel(field.name)) for field in fields(cls)}


def _encode_blob(content: Blob) -> dict[str, Any]:
    return {"size": content.size, "sha256": content.sha256}


def _decode_blob(encoded: dict[str, Any], _: type) -> Blob:
    return Blob(data=None, size=encoded["size"], known_sha256=encoded["sha256"])


def _converter() -> Converter:
    converter = Converter(unstruct_collection_overrides={tuple: list})
    converter.register_unstructure_hook_factory(
        is_dataclass, lambda cls: make_dict_unstructure_fn(cls, converter, **_renames(cls))
    )
    converter.register_structure_hook_factory(
        is_dataclass, lambda cls: make_dict_structure_fn(cls, converter, **_renames(cls))
    )
    converter.register_unstructure_hook(datetime, rfc3339)
    converter.register_structure_hook(datetime, lambda text, _: datetime.fromisoformat(text))
    converter.register_unstructure_hook(Blob, _encode_blob)
    converter.register_structure_hook(Blob, _decode_blob)
    configure_tagged_union(Effect, converter, tag_name="effect")
    configure_tagged_union(Outcome, converter, tag_name="outcome")
    return converter


_CONVERTER = _converter()
