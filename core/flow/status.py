"""The life of a step and of a run: tables from (status, event) to the next status.

Nothing else in the project assigns a status; what is not in a table is illegal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

StepStatus = Literal["PENDING", "READY", "RUNNING", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"]
StepEvent = Literal["promote", "claim", "succeed", "fail", "return", "abandon"]

STEP_STATUSES: tuple[StepStatus, ...] = (
    "PENDING",
    "READY",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "SKIPPED",
    "CANCELLED",
)

STEP_TRANSITIONS: Mapping[tuple[StepStatus, StepEvent], StepStatus] = {
    ("PENDING", "promote"): "READY",
    ("READY", "claim"): "RUNNING",
    ("RUNNING", "succeed"): "SUCCEEDED",
    ("RUNNING", "fail"): "FAILED",
    ("RUNNING", "return"): "READY",
    ("RUNNING", "abandon"): "FAILED",
}
"""Workers claim, succeed and fail; the orchestrator promotes, returns and abandons. SKIPPED and CANCELLED are people's."""

RunStatus = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
RunEvent = Literal["begin", "succeed", "fail"]

RUN_STATUSES: tuple[RunStatus, ...] = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
ENDED_RUNS: tuple[RunStatus, ...] = ("SUCCEEDED", "FAILED", "CANCELLED")
"""Statuses that a run keeps."""

RUN_TRANSITIONS: Mapping[tuple[RunStatus, RunEvent], RunStatus] = {
    ("PENDING", "begin"): "RUNNING",
    ("PENDING", "succeed"): "SUCCEEDED",
    ("PENDING", "fail"): "FAILED",
    ("RUNNING", "succeed"): "SUCCEEDED",
    ("RUNNING", "fail"): "FAILED",
}
"""CANCELLED is people's."""


class IllegalTransitionError(Exception):
    """A bug: a step or a run was moved in a way its life does not know."""


def next_status(status: StepStatus, event: StepEvent) -> StepStatus:
    """Return the status of a step after the event."""
    try:
        return STEP_TRANSITIONS[status, event]
    except KeyError:
        message = f"a {status} step cannot {event}"
        raise IllegalTransitionError(message) from None


def next_run_status(status: RunStatus, event: RunEvent) -> RunStatus:
    """Return the status of a run after the event."""
    try:
        return RUN_TRANSITIONS[status, event]
    except KeyError:
        message = f"a {status} run cannot {event}"
        raise IllegalTransitionError(message) from None
