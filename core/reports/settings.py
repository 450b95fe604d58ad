"""Settings of the report worker (4.31): names, defaults, and what each may be.

Owns the table of variables. Must not know where their text comes from; never shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from returns.result import Result, Success

from core.problems import Problem, Problems, collect, problem
from core.secrets import Secret
from core.settings import (
    Given,
    Table,
    bucket_name,
    collection_name,
    number,
    one_of,
    parse_table,
    safe_origin,
    text,
    whole_number,
)
from effects import ModelApiMode

KEY_VARIABLE = "GEMINI_API_KEY"
PROMPTS_COLLECTION = "llm_prompts"
SCHEMAS_COLLECTION = "llm_schemas"
_PREFIX = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """Everything that can be set, checked."""

    bucket: str
    prefix: str
    mode: ModelApiMode
    base_url: str
    allowed_models: frozenset[str] | None
    """None allows all."""
    call_timeout_seconds: float
    invocation_timeout_seconds: int
    finalize_budget_seconds: int
    prompts_collection: str
    schemas_collection: str
    env: str
    log_level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfiguration:
    """Settings and the key."""

    settings: ReportSettings
    api_key: Secret | None


def _prefix(given: Given) -> Result[str, Problems]:
    name = given.text.strip("/")
    if not name or (_PREFIX.fullmatch(name) and ".." not in name):
        return Success(name)
    return problem(given.where, "must be a path like reports or team/reports")


def _models(given: Given) -> Result[frozenset[str] | None, Problems]:
    names = frozenset(name.strip() for name in given.text.split(",") if name.strip())
    return Success(names or None)


_VARIABLES: Table = {
    "bucket": ("ARTIFACTS_BUCKET", bucket_name),
    "prefix": ("ARTIFACTS_PREFIX", _prefix),
    "mode": ("LLM_API_MODE", one_of("real", "mock", "record")),
    "base_url": ("GEMINI_BASE_URL", safe_origin),
    "allowed_models": ("GEMINI_ALLOWED_MODELS", _models),
    "call_timeout_seconds": ("GEMINI_TIMEOUT_SECONDS", number(1, 3_600)),
    "invocation_timeout_seconds": ("INVOCATION_TIMEOUT_SECONDS", whole_number(1, 86_400)),
    "finalize_budget_seconds": ("FINALIZE_BUDGET_SECONDS", whole_number(1, 86_400)),
    "prompts_collection": ("LLM_PROMPTS_COLLECTION", collection_name),
    "schemas_collection": ("LLM_SCHEMAS_COLLECTION", collection_name),
    "env": ("ENV", text),
    "log_level": ("LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR")),
}

VARIABLES = (KEY_VARIABLE, *(name for name, _ in _VARIABLES.values()))
"""Names of all environment variables that matter."""

DEFAULTS: Mapping[str, str] = {
    "ARTIFACTS_PREFIX": "",
    "GEMINI_BASE_URL": "https://generativelanguage.googleapis.com",
    "GEMINI_ALLOWED_MODELS": "",
    "GEMINI_TIMEOUT_SECONDS": "600",
    "INVOCATION_TIMEOUT_SECONDS": "780",
    "FINALIZE_BUDGET_SECONDS": "120",
    "LLM_PROMPTS_COLLECTION": PROMPTS_COLLECTION,
    "LLM_SCHEMAS_COLLECTION": SCHEMAS_COLLECTION,
    "ENV": "local",
    "LOG_LEVEL": "INFO",
}
CLOUD_DEFAULTS: Mapping[str, str] = {**DEFAULTS, "LLM_API_MODE": "real", "ENV": "prod"}
LOCAL_DEFAULTS: Mapping[str, str] = {
    **DEFAULTS,
    "ARTIFACTS_BUCKET": "gs://local-artifacts",
    "LLM_API_MODE": "mock",
}


def parse_report_configuration(
    given: Mapping[str, Given], defaults: Mapping[str, str]
) -> Result[ReportConfiguration, Problems]:
    """Return settings and key, or everything that is wrong with them."""
    values = parse_table(_VARIABLES, given, defaults)
    key = _key(given.get(KEY_VARIABLE), values["mode"].value_or("mock"))
    problems = (*collect(*values.values(), key), *_together(values))
    if problems:
        return Result.from_failure(problems)
    settings = ReportSettings(**{one.name: values[one.name].unwrap() for one in fields(ReportSettings)})
    return Success(ReportConfiguration(settings=settings, api_key=key.unwrap()))


def _key(given: Given | None, mode: str) -> Result[Secret | None, Problems]:
    secret = given.text.strip() if given is not None else ""
    if secret and not (secret.isascii() and secret.isprintable() and " " not in secret):
        return problem(KEY_VARIABLE, "must be printable ASCII without spaces")
    if not secret and mode != "mock":
        return problem(KEY_VARIABLE, f"is required in {mode} mode")
    return Success(Secret(secret) if secret else None)


def _together(values: Mapping[str, Result[object, Problems]]) -> Problems:
    """Return the problems that no single value has."""
    found = []
    whole, reserve = (
        values[name].value_or(None) for name in ("invocation_timeout_seconds", "finalize_budget_seconds")
    )
    if isinstance(whole, int) and isinstance(reserve, int) and reserve >= whole:
        found.append(Problem("FINALIZE_BUDGET_SECONDS", "must be less than INVOCATION_TIMEOUT_SECONDS"))
    if values["mode"].value_or(None) == "record" and values["env"].value_or(None) == "prod":
        found.append(Problem("LLM_API_MODE", "record is refused where ENV is prod; use real"))
    return tuple(found)
