"""Prompts and schemas as documents hold them (4.8, 4.9).

Owns what makes a prompt or a schema usable. Must not know where they are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from returns.result import Result, Success

from core.documents import field
from core.problems import Problem, Problems, kind_or_missing
from core.reports.output import is_applicable
from core.reports.profile import SCHEMA_KIND

_MAX_REFERENCES = 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """Instructions for the model."""

    system: str
    user: str


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What the model's output must match."""

    json_schema: Mapping[str, Any]
    sha256: str


def parse_prompt(document: object) -> Result[Prompt, Problems]:
    """Return the prompt, or everything that is wrong with it."""
    if not isinstance(document, Mapping):
        return Result.from_failure((Problem("(top)", "must be an object"),))
    version = document.get("schemaVersion")
    problems = [
        Problem(name, f"is {kind_or_missing(document.get(name))}; must be a string")
        for name in ("systemInstruction", "userPrompt")
        if not isinstance(document.get(name), str)
    ]
    if version != 1 or isinstance(version, bool):
        problems.insert(0, Problem("schemaVersion", "must be 1"))
    if problems:
        return Result.from_failure(tuple(problems))
    return Success(Prompt(document["systemInstruction"], document["userPrompt"]))


def parse_schema(schema_id: str, document: object) -> Result[OutputSchema, Problems]:
    """Return the schema, or everything that keeps reports from being checked by it."""
    if not isinstance(document, Mapping):
        return Result.from_failure((Problem("(top)", "must be an object"),))
    problems = tuple(
        Problem(where, message)
        for where, is_right, message in (
            ("schemaId", document.get("schemaId") == schema_id, f"must be {schema_id}, the document's id"),
            ("kind", document.get("kind") == SCHEMA_KIND, f"must be {SCHEMA_KIND}"),
            ("sha256", isinstance(document.get("sha256"), str), "must be a string"),
            ("isActive", document.get("isActive") is not False, "the schema is not active"),
        )
        if not is_right
    )
    problems = (*problems, *_json_schema_problems(document.get("jsonSchema")))
    if problems:
        return Result.from_failure(problems)
    return Success(OutputSchema(document["jsonSchema"], document["sha256"]))


def schema_sha256(json_schema: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the schema with sorted keys and no spaces, in UTF-8."""
    text = json.dumps(json_schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _json_schema_problems(schema: object) -> Problems:
    if not isinstance(schema, Mapping):
        return (Problem("jsonSchema", f"is {kind_or_missing(schema)}; must be a JSON Schema"),)
    try:
        validator_for(schema, Draft202012Validator).check_schema(dict(schema))
    except SchemaError as error:
        return (Problem("jsonSchema", f"is not a JSON Schema: {error.message:.200}"),)
    except (AttributeError, TypeError, ValueError, RecursionError):
        return (Problem("jsonSchema", "is not a JSON Schema: its $schema or its depth"),)
    if not is_applicable(schema):
        return (Problem("jsonSchema", "cannot be applied: a reference in it leads nowhere, or in a circle"),)
    summary = _resolved(schema, field(_resolved(schema, schema), "properties", "summary"))
    return tuple(
        Problem("jsonSchema", f"must require {name}")
        for name, where, key in (
            ("summary", _resolved(schema, schema), "summary"),
            ("details", _resolved(schema, schema), "details"),
            ("summary.markdown", summary, "markdown"),
        )
        if key not in _required(where)
    )


def _required(schema: object) -> tuple[Any, ...]:
    required = field(schema, "required")
    return tuple(required) if isinstance(required, list | tuple) else ()


def _resolved(root: Mapping[str, Any], schema: object) -> object:
    """Follow references inside the document; one that leads nowhere, or too far, requires nothing."""
    for _ in range(_MAX_REFERENCES):
        reference = field(schema, "$ref")
        if not isinstance(reference, str):
            return schema
        schema = field(root, *reference.removeprefix("#").strip("/").split("/")) if reference != "#" else root
    return None
