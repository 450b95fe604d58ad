"""Claim and finalize as pure rules on the flow_run document, and leases.

Owns who may write a step: whoever's token stands in `outputs.execution.claim`. Both rules are idempotent
under their own token, so a commit whose answer was lost can be run again. Must not know what the work is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from core.documents import Decision, Documents, ReplaceDocument, UpdateDocument, field
from core.flow.status import StepEvent, next_status
from effects import (
    ClaimLost,
    ClaimStep,
    Document,
    FinalizeLost,
    FinalizeStep,
    StepClaimed,
    StepError,
    StepFinalized,
)
from effects.moments import parse_moment, rfc3339

CLAIM = ("outputs", "execution", "claim")
LEASE_MARGIN_SECONDS = 60


def claim_step(documents: Documents, effect: ClaimStep, now: datetime) -> Decision[StepClaimed | ClaimLost]:
    """Decide whether the step becomes RUNNING under the effect's token (§3.1)."""
    flow_run = documents[effect.flow_run]
    if flow_run is None:
        return Decision(ClaimLost(reason="flow_run_missing", at=now))
    step = field(flow_run, "steps", effect.step_id)
    claim = field(step, *CLAIM)
    if _is_held(step, effect.token):
        return Decision(_claimed(flow_run, claim["attempt"], parse_moment(claim["leaseUntil"]) or now, now))
    if field(step, "status") != "READY" or field(step, "stepType") != effect.step_type:
        return Decision(ClaimLost(reason="step_not_ready", at=now))
    return _take(flow_run, effect, _attempts(claim) + 1, now)


def _take(flow_run: Document, effect: ClaimStep, attempt: int, now: datetime) -> Decision[StepClaimed]:
    lease_until = now + timedelta(seconds=effect.lease_seconds)
    claim = {
        "token": effect.token,
        "attempt": attempt,
        "startedAt": rfc3339(now),
        "leaseUntil": rfc3339(lease_until),
    }
    step = ("steps", effect.step_id)
    assign = {(*step, "status"): next_status("READY", "claim"), (*step, *CLAIM): claim}
    return Decision(
        _claimed(flow_run, attempt, lease_until, now),
        (UpdateDocument(path=effect.flow_run, assign=assign),),
    )


def _claimed(flow_run: Document, attempt: int, lease_until: datetime, now: datetime) -> StepClaimed:
    return StepClaimed(flow_run=flow_run, attempt=attempt, lease_until=lease_until, at=now)


def _attempts(claim: object) -> int:
    attempt = claim.get("attempt") if isinstance(claim, Mapping) else 0
    return attempt if isinstance(attempt, int) else 0


def finalize_step(
    documents: Documents, effect: FinalizeStep, now: datetime
) -> Decision[StepFinalized | FinalizeLost]:
    """Decide whether the step gets its terminal status: only under the token that claimed it (§3.2)."""
    step = field(documents[effect.flow_run], "steps", effect.step_id)
    if field(step, *CLAIM, "token") != effect.token:
        return Decision(FinalizeLost(reason="claimed_by_another", at=now))
    if field(step, "status") == effect.status:
        return Decision(StepFinalized(status=effect.status, at=now))
    if field(step, "status") != "RUNNING":
        return Decision(FinalizeLost(reason="not_running", at=now))
    return Decision(StepFinalized(status=effect.status, at=now), (_ending(effect, now),))


def _ending(effect: FinalizeStep, now: datetime) -> UpdateDocument:
    step = ("steps", effect.step_id)
    event: StepEvent = "succeed" if effect.status == "SUCCEEDED" else "fail"
    fields: dict[tuple[str, ...], Any] = {
        (*step, "status"): next_status("RUNNING", event),
        (*step, "finishedAt"): rfc3339(now),
        (*step, "error"): error_document(effect.error) if effect.error else None,
        **{(*step, "outputs", name): value for name, value in effect.outputs.items()},
    }
    return UpdateDocument(
        path=effect.flow_run,
        assign={path: value for path, value in fields.items() if value is not None},
        remove=tuple(path for path, value in fields.items() if value is None),
    )


def error_document(error: StepError) -> dict[str, Any]:
    """Return the error as documents and manifests hold it: no `details` where there are none."""
    details = {} if error.details is None else {"details": error.details}
    return {"code": error.code, "message": error.message, **details}


def place_flow_run(
    documents: Documents, path: str, flow_run: Document, now: datetime
) -> Decision[tuple[str, ...]]:
    """Decide to store a flow_run, unless a worker is at work on the stored one: then name its steps."""
    held = tuple(sorted(_steps_under_lease(documents[path], now)))
    return Decision(held, () if held else (ReplaceDocument(path=path, document=flow_run),))


def _steps_under_lease(flow_run: Document | None, now: datetime) -> Iterator[str]:
    steps = field(flow_run, "steps")
    for step_id, step in steps.items() if isinstance(steps, Mapping) else ():
        lease_until = parse_moment(field(step, *CLAIM, "leaseUntil"))
        if field(step, "status") == "RUNNING" and lease_until is not None and lease_until > now:
            yield step_id


def _is_held(step: object, token: str) -> bool:
    return isinstance(step, Mapping) and step.get("status") == "RUNNING" and field(step, *CLAIM, "token") == token
