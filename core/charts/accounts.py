"""Chart-IMG accounts as configured (§11.1).

Owns the parsing of CHART_IMG_ACCOUNTS_JSON and what an account allows in each mode. Never shows a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Result, Success

from core.problems import Problem, Problems, collect, kind_of, problem
from core.secrets import Secret
from effects import AccountPolicy

_ID = re.compile(r"(?!\.{1,2}$)(?!__.*__$)[A-Za-z0-9._-]{1,128}")
LEAST_RATE, MOST_RATE = 0.001, 1_000.0
_KEY = re.compile(r"[!-~]{1,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account with its key."""

    id: str
    api_key: Secret
    daily_limit: int | None = None
    requests_per_second: float | None = None


LOCAL_ACCOUNT = Account(id="local", api_key=Secret("no-key-in-mock-mode"))
"""Stands in where mock mode has no accounts configured."""


def parse_accounts(text: str, where: str) -> Result[tuple[Account, ...], Problems]:
    """Return the accounts in order of preference, or everything that is wrong with the JSON."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return problem(where, 'is not JSON; must be a list like [{"id": "acc1", "apiKey": "…"}]')
    if not isinstance(rows, list) or not rows:
        got = "is an empty list" if rows == [] else f"is {kind_of(rows)}"
        return problem(where, f'{got}; must be a list like [{{"id": "acc1", "apiKey": "…"}}]')
    parsed = [_parse_account(row, f"{where}[{i}]") for i, row in enumerate(rows)]
    accounts = [one.value_or(None) for one in parsed]
    found = (*collect(*parsed), *_repeated(accounts, where))
    return Result.from_failure(found) if found else Success(tuple(one.unwrap() for one in parsed))


def real_policies(
    accounts: tuple[Account, ...], daily_limit: int, requests_per_second: float
) -> tuple[AccountPolicy, ...]:
    """Return what each account allows; what its record does not state is the default."""
    return tuple(
        AccountPolicy(
            id=account.id,
            daily_limit=daily_limit if account.daily_limit is None else account.daily_limit,
            requests_per_second=account.requests_per_second or requests_per_second,
        )
        for account in accounts
    )


def mock_policies(accounts: tuple[Account, ...]) -> tuple[AccountPolicy, ...]:
    """Return what each account allows where nothing is spent: only a limit its record states."""
    return tuple(
        AccountPolicy(id=account.id, daily_limit=account.daily_limit, requests_per_second=None)
        for account in accounts
    )


def _parse_account(row: Any, where: str) -> Result[Account, Problems]:
    if not isinstance(row, Mapping):
        return problem(where, f"is {kind_of(row)}; must be an object with id and apiKey")
    daily_limit, rate = row.get("dailyLimit"), row.get("requestsPerSecond")
    problems = tuple(
        Problem(f"{where}.{name}", must)
        for name, is_right, must in (
            ("id", _matches(row.get("id"), _ID), "must be 1 to 128 letters, digits, '.', '_' or '-'"),
            ("apiKey", _matches(row.get("apiKey"), _KEY), "must be 1 to 512 printable characters without spaces"),
            ("dailyLimit", daily_limit is None or _is_number(daily_limit, int), "must be an integer >= 0"),
            (
                "requestsPerSecond",
                rate is None or (_is_number(rate) and LEAST_RATE <= rate <= MOST_RATE),
                f"must be a number from {LEAST_RATE:g} to {MOST_RATE:g}",
            ),
        )
        if not is_right
    )
    return (
        Result.from_failure(problems)
        if problems
        else Success(
            Account(id=row["id"], api_key=Secret(row["apiKey"]), daily_limit=daily_limit, requests_per_second=rate)
        )
    )


def _matches(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_number(value: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and value >= 0  # type: ignore[operator]


def _repeated(accounts: list[Account | None], where: str) -> Problems:
    """One key under two ids would be counted as two quotas."""
    found = []
    for i, account in enumerate(accounts):
        earlier = [one for one in accounts[:i] if one is not None]
        if account is not None and account.id in {one.id for one in earlier}:
            found.append(Problem(f"{where}[{i}].id", f"{account.id!r} stands here twice; ids are unique"))
        if account is not None and account.api_key in {one.api_key for one in earlier}:
            found.append(Problem(f"{where}[{i}].apiKey", "is the key of an earlier account; name a key once"))
    return tuple(found)
