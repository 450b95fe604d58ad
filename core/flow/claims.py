"""Claim and finalize as pure rules on the flow_run document.

Owns who may write a step: whoever's token stands in `outputs.execution.claim`. Both rules are idempotent
under their own token, so a commit whose answer was lost can be run again. Must not know what the work is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from core.documents import Decision, Documents, ReplaceDocument, UpdateDocument, field
from core.failures import error_document
from core.flow.leases import CLAIM, attempts_of, lease_end, steps_under_lease
from core.flow.selection import unmet_dependencies
from core.flow.status import StepEvent, next_status
from effects import (
    ClaimLost,
    ClaimStep,
    Document,
    FinalizeLost,
    FinalizeStep,
    StepClaimed,
    StepFinalized,
)
from effects.moments import parse_moment, rfc3339

_FINAL = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED")


def claim_step(documents: Documents, effect: ClaimStep, now: datetime) -> Decision[StepClaimed | ClaimLost]:
    """Decide whether the step becomes RUNNING under the effect's token (§3.1)."""
    flow_run = documents[effect.flow_run]
    if flow_run is None:
        return Decision(ClaimLost(reason="flow_run_missing", at=now))
    step = field(flow_run, "steps", effect.step_id)
    if _is_held(step, effect.token):
        return Decision(_claimed(flow_run, step, lease_end(step) or now, now))
    if field(step, "status") != "READY" or field(step, "stepType") != effect.step_type:
        return Decision(ClaimLost(reason="not_ready", at=now))
    out_of_order = _out_of_order(flow_run, effect.step_id) if effect.in_order else None
    if out_of_order is not None:
        return Decision(ClaimLost(reason=out_of_order, at=now))
    return _take(flow_run, step, effect, now)


def _out_of_order(flow_run: Document, step_id: str) -> str | None:
    """Return why it is not this step's turn; a dependency that does not exist is an error of the input, not of the order."""
    if flow_run.get("status") != "RUNNING":
        return "flow_run_not_running"
    steps = flow_run["steps"]
    unmet = [one for one in unmet_dependencies(flow_run, step_id) if one in steps]
    return "dependency_not_succeeded" if unmet else None


def _take(flow_run: Document, step: Document, effect: ClaimStep, now: datetime) -> Decision[StepClaimed]:
    attempt, lease_until = attempts_of(step) + 1, now + timedelta(seconds=effect.lease_seconds)
    claim = {
        "token": effect.token,
        "attempt": attempt,
        "firstStartedAt": rfc3339(_first_started_at(step) or now),
        "startedAt": rfc3339(now),
        "leaseUntil": rfc3339(lease_until),
    }
    here = ("steps", effect.step_id)
    return Decision(
        _claimed(flow_run, {"outputs": {"execution": {"claim": claim}}}, lease_until, now),
        (
            UpdateDocument(
                path=effect.flow_run,
                assign={(*here, "status"): next_status("READY", "claim"), (*here, *CLAIM): claim},
            ),
        ),
    )


def _claimed(flow_run: Document, step: Document, lease_until: datetime, now: datetime) -> StepClaimed:
    return StepClaimed(
        flow_run=flow_run,
        attempt=attempts_of(step),
        first_claimed_at=_first_started_at(step) or now,
        lease_until=lease_until,
        at=now,
    )


def _first_started_at(step: Document) -> datetime | None:
    """Return when the first attempt at the step began, None where there was none."""
    first, last = field(step, *CLAIM, "firstStartedAt"), field(step, *CLAIM, "startedAt")
    return parse_moment(first) or parse_moment(last)


def finalize_step(
    documents: Documents, effect: FinalizeStep, now: datetime
) -> Decision[StepFinalized | FinalizeLost]:
    """Decide whether the step gets its terminal status: only under the token that claimed it (§3.2)."""
    step = field(documents[effect.flow_run], "steps", effect.step_id)
    status = field(step, "status")
    if status in _FINAL:
        is_ours = effect.token is not None and _has_ended_by(step, effect)
        return Decision(
            StepFinalized(status=effect.status, at=now)
            if is_ours
            else FinalizeLost(reason="already_final", at=now)
        )
    if status != "RUNNING":
        return Decision(FinalizeLost(reason="not_running", at=now))
    if effect.token not in {None, field(step, *CLAIM, "token")}:
        return Decision(FinalizeLost(reason="claimed_by_another", at=now))
    return Decision(StepFinalized(status=effect.status, at=now), (_ending(effect, now),))


def _has_ended_by(step: Document, effect: FinalizeStep) -> bool:
    """Return whether the step has just what the effect would write: a commit whose answer was lost."""
    written: dict[tuple[str, ...], Any] = {
        **{("outputs", name): value for name, value in effect.outputs.items()},
        **{("outputs", "execution", name): value for name, value in effect.execution.items()},
        ("status",): effect.status,
        (*CLAIM, "token"): effect.token,
    }
    return all(field(step, *path) == value for path, value in written.items())


def _ending(effect: FinalizeStep, now: datetime) -> UpdateDocument:
    step = ("steps", effect.step_id)
    event: StepEvent = "succeed" if effect.status == "SUCCEEDED" else "fail"
    fields: dict[tuple[str, ...], Any] = {
        (*step, "status"): next_status("RUNNING", event),
        (*step, "finishedAt"): rfc3339(now),
        (*step, "error"): error_document(effect.error) if effect.error else None,
        **{(*step, "outputs", name): value for name, value in effect.outputs.items()},
        **{(*step, "outputs", "execution", name): value for name, value in effect.execution.items()},
    }
    return UpdateDocument(
        path=effect.flow_run,
        assign={path: value for path, value in fields.items() if value is not None},
        remove=tuple(path for path, value in fields.items() if value is None),
    )


def place_flow_run(
    documents: Documents, path: str, flow_run: Document, now: datetime
) -> Decision[tuple[str, ...]]:
    """Decide to store a flow_run, unless a worker is at work on the stored one: then name its steps."""
    held = tuple(sorted(steps_under_lease(documents[path], now)))
    return Decision(held, () if held else (ReplaceDocument(path=path, document=flow_run),))


def _is_held(step: object, token: str) -> bool:
    return isinstance(step, Mapping) and step.get("status") == "RUNNING" and field(step, *CLAIM, "token") == token
