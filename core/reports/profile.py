"""The request profile of a report step: authoritative, nothing is merged into it (4.10, 4.11).

Owns what a profile may be, and the schema ids. Must not know any provider's client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Result, Success

from core.problems import Problem, Problems, collect, kind_or_missing, problem

SCHEMA_KIND = "LLM_REPORT_OUTPUT"
MIME_TYPE = "application/json"
_SCHEMA_IDS = (
    re.compile(r"llm_report_output_v([0-9]{1,9})"),
    re.compile(r"llm_schema_[0-9A-Za-z]+_(?:report|reco)(?:_[0-9A-Za-z]+)*?_v([0-9]{1,9})_[0-9]{1,9}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How the model is asked."""

    model: str
    schema_id: str
    schema_version: int
    generation: Mapping[str, Any]
    """What the API is told, by its own names."""
    raw: Mapping[str, Any]
    """The profile as it stands in the step."""


def schema_version(schema_id: object) -> int | None:
    """Return the version that a schema id of either convention states (N, or the major one), None for any other id."""
    text = schema_id if isinstance(schema_id, str) else ""
    found = (pattern.fullmatch(text) for pattern in _SCHEMA_IDS)
    return next((int(one[1]) for one in found if one), None)


def parse_profile(value: object, where: str, allowed: Collection[str] | None) -> Result[Profile, Problems]:
    """Return the profile, or everything that keeps it from being executed."""
    if not isinstance(value, Mapping):
        return problem(where, f"is {kind_or_missing(value)}; must be an object")
    model = _model(value, where, allowed)
    schema_id = _schema_id(value.get("structuredOutput"), f"{where}.structuredOutput")
    problems = (*collect(model, schema_id), *_wrong_values(value, where))
    if problems:
        return Result.from_failure(problems)
    return Success(
        Profile(
            model=model.unwrap(),
            schema_id=schema_id.unwrap(),
            schema_version=schema_version(schema_id.unwrap()) or 0,
            generation={name: value[name] for name in _GENERATION if value.get(name) is not None},
            raw=value,
        )
    )


def _model(profile: Mapping[str, Any], where: str, allowed: Collection[str] | None) -> Result[str, Problems]:
    name = profile.get("model") if profile.get("modelName") is None else profile["modelName"]
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", name):
        return problem(f"{where}.modelName", f"is {kind_or_missing(name)}; must be the name of a model")
    if allowed is not None and name not in allowed:
        return problem(
            f"{where}.modelName", f"{name} is not allowed here; allowed are: {', '.join(sorted(allowed))}"
        )
    return Success(name)


def _schema_id(spec: object, where: str) -> Result[str, Problems]:
    if not isinstance(spec, Mapping):
        return problem(where, f"is {kind_or_missing(spec)}; must be an object with schemaId and kind")
    problems = []
    if spec.get("kind") != SCHEMA_KIND:
        problems.append(Problem(f"{where}.kind", f"is {spec.get('kind')!r:.80}; must be {SCHEMA_KIND}"))
    if schema_version(spec.get("schemaId")) is None:
        must = "must be like llm_report_output_v1 or llm_schema_1M_report_v1_0"
        problems.append(Problem(f"{where}.schemaId", f"is {spec.get('schemaId')!r:.120}; {must}"))
    return Result.from_failure(tuple(problems)) if problems else Success(spec["schemaId"])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


_GENERATION: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "temperature": (_is_number, "a number"),
    "topP": (_is_number, "a number"),
    "topK": (_is_number, "a number"),
    "maxOutputTokens": (_is_count, "a whole number >= 1"),
    "stopSequences": (_is_texts, "a list of strings"),
    "candidateCount": (lambda value: _is_count(value) and value == 1, "1"),
    "responseMimeType": (lambda value: value == MIME_TYPE, MIME_TYPE),
    "thinkingConfig": (lambda value: isinstance(value, Mapping), "an object"),
}
"""What the API is told, and what each may be. All but the mime type may be absent."""


def _wrong_values(profile: Mapping[str, Any], where: str) -> Problems:
    return tuple(
        Problem(f"{where}.{name}", f"is {profile.get(name)!r:.80}; must be {must}")
        for name, (is_right, must) in _GENERATION.items()
        if (profile.get(name) is not None or name == "responseMimeType") and not is_right(profile.get(name))
    )
