"""Settings of the chart worker (§11): names, defaults, and what each may be.

Owns the table of variables. Must not know where their text comes from; never shows a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from returns.result import Result, Success

from core.charts.accounts import LEAST_RATE, LOCAL_ACCOUNT, MOST_RATE, Account, parse_accounts
from core.problems import Problem, Problems, collect, problem
from core.settings import (
    Given,
    Table,
    bucket_name,
    number,
    one_of,
    optional_text,
    parse_table,
    safe_origin,
    text,
    whole_number,
)
from effects import ChartsApiMode

ACCOUNTS_VARIABLE = "CHART_IMG_ACCOUNTS_JSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSettings:
    """Everything that can be set, checked."""

    bucket: str
    mode: ChartsApiMode
    default_timezone: str | None
    base_url: str
    daily_limit: int
    requests_per_second: float
    call_timeout_seconds: float
    max_parallel: int
    max_attempts: int
    max_image_bytes: int
    invocation_timeout_seconds: int
    finalize_budget_seconds: int
    env: str
    log_level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartConfiguration:
    """Settings and accounts."""

    settings: ChartSettings
    accounts: tuple[Account, ...]


_VARIABLES: Table = {
    "bucket": ("CHARTS_BUCKET", bucket_name),
    "mode": ("CHARTS_API_MODE", one_of("real", "mock", "record")),
    "default_timezone": ("CHARTS_DEFAULT_TIMEZONE", optional_text),
    "base_url": ("CHART_IMG_BASE_URL", safe_origin),
    "daily_limit": ("CHART_IMG_DAILY_LIMIT", whole_number(0)),
    "requests_per_second": ("CHART_IMG_REQUESTS_PER_SECOND", number(LEAST_RATE, MOST_RATE)),
    "call_timeout_seconds": ("CHART_IMG_TIMEOUT_SECONDS", number(0.1, 3_600)),
    "max_parallel": ("CHARTS_MAX_PARALLEL", whole_number(1, 256)),
    "max_attempts": ("CHARTS_MAX_ATTEMPTS", whole_number(1, 20)),
    "max_image_bytes": ("CHARTS_MAX_IMAGE_BYTES", whole_number(1)),
    "invocation_timeout_seconds": ("INVOCATION_TIMEOUT_SECONDS", whole_number(1, 86_400)),
    "finalize_budget_seconds": ("FINALIZE_BUDGET_SECONDS", whole_number(1, 86_400)),
    "env": ("ENV", text),
    "log_level": ("LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR")),
}

VARIABLES = (ACCOUNTS_VARIABLE, *(name for name, _ in _VARIABLES.values()))
"""Names of all environment variables that matter."""

DEFAULTS: Mapping[str, str] = {
    "CHARTS_DEFAULT_TIMEZONE": "",
    "CHART_IMG_BASE_URL": "https://api.chart-img.com",
    "CHART_IMG_DAILY_LIMIT": "44",
    "CHART_IMG_REQUESTS_PER_SECOND": "1",
    "CHART_IMG_TIMEOUT_SECONDS": "60",
    "CHARTS_MAX_PARALLEL": "8",
    "CHARTS_MAX_ATTEMPTS": "3",
    "CHARTS_MAX_IMAGE_BYTES": str(10 * 1024 * 1024),
    "INVOCATION_TIMEOUT_SECONDS": "540",
    "FINALIZE_BUDGET_SECONDS": "30",
    "ENV": "local",
    "LOG_LEVEL": "INFO",
}
CLOUD_DEFAULTS: Mapping[str, str] = {**DEFAULTS, "CHARTS_API_MODE": "real", "ENV": "prod"}
LOCAL_DEFAULTS: Mapping[str, str] = {
    **DEFAULTS,
    "CHARTS_BUCKET": "gs://local-artifacts",
    "CHARTS_API_MODE": "mock",
}


def parse_configuration(
    given: Mapping[str, Given], defaults: Mapping[str, str]
) -> Result[ChartConfiguration, Problems]:
    """Return settings and accounts, or everything that is wrong with them."""
    values = parse_table(_VARIABLES, given, defaults)
    mode = values["mode"].value_or("mock")
    accounts = _accounts(given.get(ACCOUNTS_VARIABLE), mode)
    problems = (*collect(*values.values(), accounts), *_together(values, given))
    if problems:
        return Result.from_failure(problems)
    settings = ChartSettings(**{one.name: values[one.name].unwrap() for one in fields(ChartSettings)})
    return Success(ChartConfiguration(settings=settings, accounts=accounts.unwrap()))


def _accounts(given: Given | None, mode: str) -> Result[tuple[Account, ...], Problems]:
    if given is not None and (given.text.strip() or given.where != ACCOUNTS_VARIABLE):
        return parse_accounts(given.text, given.where)
    if mode == "mock":
        return Success((LOCAL_ACCOUNT,))
    message = f'is required in {mode} mode: a list like [{{"id": "acc1", "apiKey": "…"}}]'
    return problem(ACCOUNTS_VARIABLE, message)


def _together(values: Mapping[str, Result[object, Problems]], given: Mapping[str, Given]) -> Problems:
    """Return the problems that no single value has."""
    found = []
    whole, reserve = (
        values[name].value_or(None) for name in ("invocation_timeout_seconds", "finalize_budget_seconds")
    )
    if isinstance(whole, int) and isinstance(reserve, int) and reserve >= whole:
        found.append(Problem("FINALIZE_BUDGET_SECONDS", "must be less than INVOCATION_TIMEOUT_SECONDS"))
    if values["mode"].value_or(None) == "record" and values["env"].value_or(None) == "prod":
        where = given["CHARTS_API_MODE"].where if "CHARTS_API_MODE" in given else "CHARTS_API_MODE"
        found.append(Problem(where, "record is refused where ENV is prod; use real"))
    return tuple(found)
