"""The life of a step: one table from (status, event) to the next status.

Nothing else in the project assigns a status; what is not in the table is illegal.
"""

from __future__ import annotations

from typing import Literal

StepStatus = Literal["PENDING", "READY", "RUNNING", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"]
StepEvent = Literal["claim", "succeed", "fail"]

STEP_TRANSITIONS: dict[tuple[StepStatus, StepEvent], StepStatus] = {
    ("READY", "claim"): "RUNNING",
    ("RUNNING", "succeed"): "SUCCEEDED",
    ("RUNNING", "fail"): "FAILED",
}


class IllegalTransitionError(Exception):
    """A bug: a step was moved in a way its life does not know."""


def next_status(status: StepStatus, event: StepEvent) -> StepStatus:
    """Return the status after the event."""
    try:
        return STEP_TRANSITIONS[status, event]
    except KeyError:
        message = f"a {status} step cannot {event}"
        raise IllegalTransitionError(message) from None
