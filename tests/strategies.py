"""Strategies: the values that property tests draw."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from core.flow.status import RUN_STATUSES, StepStatus
from effects import AccountPolicy, LeasePolicy
from effects.moments import rfc3339
from tests.builders import NOW, a_flow_run, a_plain_step, a_step

STATUSES: tuple[StepStatus, ...] = (
    "PENDING",
    "READY",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "SKIPPED",
    "CANCELLED",
)


def many(examples: int) -> settings:
    """Return settings with so many examples, or with a few times the profile's where only lines are wanted."""
    return settings(max_examples=min(examples, 5 * settings().max_examples))


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

# Graphs of steps: small ones that shrink well, and large ones that come from a seed.

EARLIER, LATER = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
LEASES: tuple[Any, ...] = (*map(rfc3339, (EARLIER, NOW, LATER)), EARLIER, LATER, "soon", 7, None)
ATTEMPTS: tuple[Any, ...] = (0, 1, 2, 3, 4, 2.0, "two", None)


def some_outputs(random: Random) -> dict[str, Any]:
    """Return outputs with a claim or without one, its lease in the past, in the future, or nonsense."""
    claim = {
        "token": "theirs",
        "attempt": random.choice(ATTEMPTS),
        "startedAt": random.choice((rfc3339(EARLIER), rfc3339(NOW - timedelta(hours=1)), None)),
        "leaseUntil": random.choice(LEASES),
    }
    return random.choice(({}, {"execution": {"claim": {}}}, {"execution": {"claim": claim}}))


def some_steps(random: Random, size: int, statuses: Sequence[str], *, wildness: float = 0) -> dict[str, Any]:
    """Return steps that depend on each other; only what is wild can depend on later ones, itself, or nobody."""
    ids = [f"s{number}" for number in range(size)]
    random.shuffle(ids)
    steps = {}
    for place, step_id in enumerate(ids):
        earlier, anyone = ids[max(0, place - 20) : place], [*ids, "missing"]
        depends_on = [
            random.choice(anyone if random.random() < wildness else earlier or anyone[-1:])
            for _ in range(random.choice((0, 1, 2, 3)))
            if earlier or random.random() < wildness
        ]
        steps[step_id] = a_plain_step(random.choice(statuses), depends_on, outputs=some_outputs(random))
    return dict(sorted(steps.items(), key=lambda _: random.random()))


_some_statuses = st.lists(st.sampled_from(STATUSES), min_size=1, max_size=7, unique=True) | st.sampled_from(
    [list(STATUSES), ["PENDING", "SUCCEEDED"], ["PENDING", "READY", "RUNNING", "SUCCEEDED"]]
)


def step_graphs(
    statuses: st.SearchStrategy[list[Any]] = _some_statuses, wildness: Sequence[float] = (0, 0.01, 0.5)
) -> st.SearchStrategy[dict[str, Any]]:
    """Return graphs of up to 200 steps: acyclic where nothing is wild."""
    wild = st.sampled_from(wildness)
    small = st.builds(some_steps, st.randoms(use_true_random=False), st.integers(0, 7), statuses, wildness=wild)
    large = st.builds(some_steps, st.randoms(use_true_random=True), st.integers(8, 200), statuses, wildness=wild)
    return small | large


flow_runs: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda steps, status, extra: a_flow_run(steps, **{**extra, "status": status}),
    step_graphs(),
    st.sampled_from(("RUNNING", "RUNNING", "PENDING", *RUN_STATUSES)),
    st.fixed_dictionaries(
        {},
        optional={
            "progress": st.sampled_from(({}, {"currentStepId": "s0"}, {"stepCounts": {}, "extra": 1}, None)),
            "updatedAt": st.sampled_from((rfc3339(EARLIER), rfc3339(NOW), EARLIER)),
        },
    ),
)

lease_policies = st.builds(
    LeasePolicy,
    max_attempts=st.integers(1, 4),
    assume_lease_seconds=st.none() | st.sampled_from((0, 1, 600)),
    holders_gone=st.booleans(),
)
