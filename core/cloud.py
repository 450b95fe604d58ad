"""Settings of the production interpreter: which project, database and collections, and how commits are guarded.

Owns their names, defaults and checks. Must not know any client library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from returns.result import Result, Success

from core.flow.flow_run import FLOW_RUNS_COLLECTION
from core.problems import Problems, collect, problem
from core.settings import Given, Table, collection_name, one_of, parse_table

Concurrency = Literal["transaction", "precondition"]

_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{1,127}")
_DATABASE = re.compile(r"\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """Where documents live, checked."""

    project: str
    database: str
    concurrency: Concurrency
    flow_runs_collection: str


def _matching(given: Given, pattern: re.Pattern[str], must: str) -> Result[str, Problems]:
    return Success(given.text) if pattern.fullmatch(given.text) else problem(given.where, must)


_VARIABLES: Table = {
    "project": (
        "GOOGLE_CLOUD_PROJECT",
        lambda given: _matching(given, _PROJECT, "must be a project id, like my-project-1"),
    ),
    "database": (
        "FIRESTORE_DATABASE",
        lambda given: _matching(given, _DATABASE, "must be (default) or a database id"),
    ),
    "concurrency": ("FIRESTORE_CONCURRENCY", one_of("transaction", "precondition")),
    "flow_runs_collection": ("FLOW_RUNS_COLLECTION", collection_name),
}

VARIABLES = tuple(name for name, _ in _VARIABLES.values())
DEFAULTS: Mapping[str, str] = {
    "FIRESTORE_DATABASE": "(default)",
    "FIRESTORE_CONCURRENCY": "transaction",
    "FLOW_RUNS_COLLECTION": FLOW_RUNS_COLLECTION,
}


def parse_cloud_settings(given: Mapping[str, Given]) -> Result[CloudSettings, Problems]:
    """Return the settings, or everything that is wrong with them."""
    values = parse_table(_VARIABLES, given, DEFAULTS)
    problems = collect(*values.values())
    if problems:
        return Result.from_failure(problems)
    return Success(CloudSettings(**{field: value.unwrap() for field, value in values.items()}))
