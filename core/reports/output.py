"""Structured output: from the provider's response to a checked object (4.13, 4.14).

Owns extraction and validation, in this order and with no trimming, no unwrapping, no regular expression. What is said of an answer
never holds a part of it: only sizes, hashes, and places in the schema. Must not know how the model was asked.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn

from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry

from core.documents import field

InvalidKind = Literal["missing_text", "json_parse", "schema_validation", "finish_reason"]
MAX_ERRORS = 10
MAX_LEVELS = 100
_SMALLEST: Mapping[str, Any] = {"summary": {"markdown": ""}, "details": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a response says, before it is judged."""

    text: str | None
    """All parts of the first candidate, joined; None where there is no text."""
    finish_reason: str | None
    block_reason: str | None
    model_version: str | None
    usage: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputInvalid:
    """Why an answer cannot be used."""

    kind: InvalidKind
    message: str
    finish_reason: str | None
    text_bytes: int
    text_sha256: str | None


def read_response(response: bytes) -> Answer:
    """Return what the provider's response says; whatever is not where it should be is missing."""
    try:
        document = json.loads(response)
    except (ValueError, RecursionError):
        document = None
    candidates = field(document, "candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    usage = field(document, "usageMetadata")
    return Answer(
        text=_text(field(first, "content", "parts")),
        finish_reason=_string(field(first, "finishReason")),
        block_reason=_string(field(document, "promptFeedback", "blockReason")),
        model_version=_string(field(document, "modelVersion")),
        usage=usage if isinstance(usage, Mapping) else None,
    )


def _text(parts: object) -> str | None:
    texts = [field(part, "text") for part in parts] if isinstance(parts, list) else []
    return "".join(text for text in texts if isinstance(text, str)) or None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def is_blocked(answer: Answer) -> bool:
    """Return whether the provider kept the answer back for safety."""
    return answer.finish_reason == "SAFETY" or (answer.text is None and answer.block_reason is not None)


def validate_output(answer: Answer, json_schema: Mapping[str, Any]) -> Mapping[str, Any] | StructuredOutputInvalid:
    """Return the output, or why there is none: text, then JSON, then the schema, then what every report needs."""
    text = answer.text
    if text is None:
        is_cut = answer.finish_reason not in {None, "STOP"}
        said = f"there is no text; the model stopped with {answer.finish_reason}" if is_cut else "there is no text"
        return _invalid(answer, "finish_reason" if is_cut else "missing_text", said)
    try:
        output = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        cut = "; it was cut at the largest number of tokens" if answer.finish_reason == "MAX_TOKENS" else ""
        return _invalid(answer, "json_parse", f"the text is not JSON{cut}")
    if _is_deeper(output, MAX_LEVELS):
        return _invalid(answer, "schema_validation", f"is nested more than {MAX_LEVELS} levels deep")
    wrong = _schema_errors(output, json_schema)
    if wrong:
        return _invalid(answer, "schema_validation", f"does not match the schema: {'; '.join(wrong)}")
    if not isinstance(field(output, "summary", "markdown"), str) or not isinstance(
        field(output, "details"), Mapping
    ):
        message = "summary.markdown must be a string and details an object"
        return _invalid(answer, "schema_validation", message)
    return dict(output)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    """Return the number; one that only infinity could stand for cannot be stored as JSON."""
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant(text)


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether the value has more levels than this; without recursion, for that is what it guards."""
    level = [value]
    while level and levels:
        inside = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for values in inside for one in values]
        levels -= 1
    return bool(level)


def _invalid(answer: Answer, kind: InvalidKind, message: str) -> StructuredOutputInvalid:
    data = None if answer.text is None else answer.text.encode("utf-8", "surrogatepass")
    return StructuredOutputInvalid(
        kind=kind,
        message=message,
        finish_reason=answer.finish_reason,
        text_bytes=len(data or b""),
        text_sha256=None if data is None else hashlib.sha256(data).hexdigest(),
    )


def _schema_errors(output: Any, json_schema: Mapping[str, Any]) -> list[str]:
    """Return which rules of the schema are broken, by their place in the schema: the answer itself is not shown."""
    try:
        validator = _validator(json.dumps(json_schema, sort_keys=True))
        errors = sorted({"/".join(map(str, one.absolute_schema_path)) for one in validator.iter_errors(output)})
    except Exception as error:  # noqa: BLE001 - a schema can be broken where only its use shows it: behind a reference
        return [f"the schema cannot be applied ({type(error).__name__})"]
    more = [f"and {len(errors) - MAX_ERRORS} more"] if len(errors) > MAX_ERRORS else []
    return [*errors[:MAX_ERRORS], *more]


@lru_cache(maxsize=16)
def _validator(text: str) -> Any:
    """Return the compiled schema; nothing outside of it is looked up."""
    json_schema = json.loads(text)
    return validator_for(json_schema, Draft202012Validator)(json_schema, registry=Registry())


def is_applicable(json_schema: Mapping[str, Any]) -> bool:
    """Return whether the smallest report can be judged by the schema, whatever comes of it."""
    try:
        list(_validator(json.dumps(json_schema, sort_keys=True)).iter_errors(_SMALLEST))
    except Exception:  # noqa: BLE001 - see above
        return False
    return True
