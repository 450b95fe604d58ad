"""Leases: how long a claim holds, and which RUNNING steps were abandoned.

Owns the reading of `outputs.execution.claim`. Must not know what the work is, nor change anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from core.documents import field
from effects import Document, LeasePolicy
from effects.moments import parse_moment

CLAIM = ("outputs", "execution", "claim")
"""Where a step holds the claim that it runs under."""
LEASE_MARGIN_SECONDS = 60
"""How much longer than an invocation a claim holds."""


def attempts_of(step: object) -> int:
    """Return how often the step has been claimed."""
    attempt = field(step, *CLAIM, "attempt")
    return attempt if isinstance(attempt, int) else 0


def lease_end(step: object) -> datetime | None:
    """Return when the step's claim stops holding, None where it states no lease."""
    return parse_moment(field(step, *CLAIM, "leaseUntil"))


def steps_under_lease(flow_run: Document | None, now: datetime) -> Iterator[str]:
    """Return the RUNNING steps whose claim still holds."""
    steps = field(flow_run, "steps")
    for step_id, step in steps.items() if isinstance(steps, Mapping) else ():
        end = lease_end(step)
        if field(step, "status") == "RUNNING" and end is not None and end > now:
            yield step_id


def is_abandoned(flow_run: Document, step: Mapping[str, Any], policy: LeasePolicy, now: datetime) -> bool:
    """Return whether nobody is at work on the RUNNING step any more."""
    end = lease_end(step) or _assumed_end(flow_run, step, policy, now)
    return policy.holders_gone or (end is not None and end <= now)


def _assumed_end(
    flow_run: Document, step: Mapping[str, Any], policy: LeasePolicy, now: datetime
) -> datetime | None:
    """Return when a claim without a lease ends, if one is to be assumed: counted from the last sign of life."""
    if policy.assume_lease_seconds is None:
        return None
    signs = (
        field(step, *CLAIM, "startedAt"),
        field(step, "outputs", "execution", "timing", "startedAt"),
        step.get("createdAt"),
        flow_run.get("updatedAt"),
        flow_run.get("createdAt"),
    )
    moments = [moment for moment in map(parse_moment, signs) if moment is not None]
    return max(moments) + timedelta(seconds=policy.assume_lease_seconds) if moments else now
