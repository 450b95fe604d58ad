"""Leases: how long a claim holds, which RUNNING steps were abandoned, and which READY ones forgotten.

Owns the reading of `outputs.execution.claim`. Must not know what the work is, nor change anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from core.documents import field
from effects import Document, LeasePolicy
from effects.moments import parse_moment

CLAIM = ("outputs", "execution", "claim")
"""Where a step holds the claim that it runs under."""
LEASE_MARGIN_SECONDS = 60
"""How much longer than an invocation a claim holds."""
RETELL_AFTER_SECONDS = 600
"""READY steps that nobody took for so long are told of again."""


def is_too_late(give_up_at: datetime, now: datetime) -> bool:
    """Return whether a write that should have been given up by then must not be sent any more.

    A worker that was held up for long may have lost its step: what it writes now would hit what another has written.
    """
    return now >= give_up_at + timedelta(seconds=LEASE_MARGIN_SECONDS / 2)


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
    end = lease_end(step)
    ran_out = _is_silent(flow_run, step, policy, now) if end is None else end <= now
    return policy.holders_gone or ran_out


def _is_silent(flow_run: Document, step: Mapping[str, Any], policy: LeasePolicy, now: datetime) -> bool:
    """Return whether a lease is to be assumed where none is stated, and no sign of life is younger than it."""
    if policy.assume_lease_seconds is None:
        return False
    signs = (
        field(step, *CLAIM, "startedAt"),
        field(step, "outputs", "execution", "timing", "startedAt"),
        step.get("createdAt"),
        flow_run.get("updatedAt"),
        flow_run.get("createdAt"),
    )
    return _are_older(signs, policy.assume_lease_seconds, now)


def is_forgotten(flow_run: Document, policy: LeasePolicy, now: datetime) -> bool:
    """Return whether READY steps of a RUNNING run have waited for long: the event that told of them may be lost."""
    if policy.retell_after_seconds is None or flow_run.get("status") != "RUNNING":
        return False
    steps = field(flow_run, "steps")
    is_waiting = isinstance(steps, Mapping) and any(field(one, "status") == "READY" for one in steps.values())
    signs = (flow_run.get("updatedAt"), flow_run.get("createdAt"))
    return is_waiting and _are_older(signs, policy.retell_after_seconds, now)


def _are_older(signs: Iterable[object], seconds: int, now: datetime) -> bool:
    """Return whether no sign of life is younger than this."""
    ages = ((now - moment).total_seconds() for moment in map(parse_moment, signs) if moment is not None)
    return all(age >= seconds for age in ages)
