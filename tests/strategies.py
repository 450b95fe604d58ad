"""Strategies: the values that property tests draw."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from core.flow.status import StepStatus
from effects import AccountPolicy
from tests.builders import NOW, a_step

STATUSES: tuple[StepStatus, ...] = (
    "PENDING",
    "READY",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "SKIPPED",
    "CANCELLED",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

documents = st.dictionaries(st.text(max_size=8), json_values, max_size=4)

step_ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)

steps = st.builds(
    lambda kind, status: a_step(stepType=kind, status=status),
    st.sampled_from(["CHART_EXPORT", "LLM_REPORT", "OHLCV_EXPORT"]),
    st.sampled_from(STATUSES),
)

step_maps: st.SearchStrategy[dict[str, Any]] = st.dictionaries(step_ids, steps | json_values, max_size=8)

template_ids = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)

_FIRST = datetime(2020, 1, 1)  # noqa: DTZ001 - hypothesis adds the zone
_LAST = datetime(2035, 1, 1)  # noqa: DTZ001

moments = st.datetimes(_FIRST, _LAST, timezones=st.just(UTC))

around_midnight = st.integers(-5_000, 5_000).map(
    lambda ms: NOW.replace(hour=0, minute=0, second=0) + timedelta(days=1, milliseconds=ms)
)

policies = st.builds(
    AccountPolicy,
    id=st.sampled_from(["acc1", "acc2", "acc3"]),
    daily_limit=st.none() | st.integers(0, 6),
    requests_per_second=st.none() | st.sampled_from([0.5, 1.0, 4.0, 10.0]),
)
