"""Settings of the orchestrator: names, defaults, and what each may be.

Owns the table of variables. Must not know where their text comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from returns.result import Result, Success

from core.problems import Problems, collect
from core.settings import Given, Table, one_of, parse_table, text, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """Everything that can be set, checked."""

    step_max_attempts: int
    invocation_timeout_seconds: int
    env: str
    log_level: str


_VARIABLES: Table = {
    "step_max_attempts": ("STEP_MAX_ATTEMPTS", whole_number(1, 100)),
    "invocation_timeout_seconds": ("INVOCATION_TIMEOUT_SECONDS", whole_number(1, 86_400)),
    "env": ("ENV", text),
    "log_level": ("LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR")),
}

VARIABLES = tuple(name for name, _ in _VARIABLES.values())
LOCAL_DEFAULTS: Mapping[str, str] = {
    "STEP_MAX_ATTEMPTS": "3",
    "INVOCATION_TIMEOUT_SECONDS": "540",
    "ENV": "local",
    "LOG_LEVEL": "INFO",
}
CLOUD_DEFAULTS: Mapping[str, str] = {**LOCAL_DEFAULTS, "ENV": "prod"}


def parse_flow_settings(given: Mapping[str, Given], defaults: Mapping[str, str]) -> Result[FlowSettings, Problems]:
    """Return the settings, or everything that is wrong with them."""
    values = parse_table(_VARIABLES, given, defaults)
    problems = collect(*values.values())
    if problems:
        return Result.from_failure(problems)
    return Success(FlowSettings(**{field: value.unwrap() for field, value in values.items()}))
