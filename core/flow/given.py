"""The program of a given step: a file that someone brings becomes the step's artifact.

Owns the shortest way from READY to SUCCEEDED, for step types that no worker here serves. Must not know what the file holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from core.failures import GCS_WRITE_FAILED, INTERNAL_ERROR, step_error
from core.flow.leases import LEASE_MARGIN_SECONDS
from core.program import Next, Program
from effects import (
    Blob,
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    ObjectNotStored,
    ObjectStored,
    Outcome,
    PutObject,
    StepClaimed,
    StepError,
    StepFinalized,
)
from effects.word import replace

STORE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInputs:
    """What a run is given."""

    flow_run_path: str
    step_id: str
    step_type: str
    bucket: str
    file_name: str
    content: Blob
    token: str
    now: datetime


Phase = Literal["claiming", "storing", "ending", "ended"]


@dataclass(frozen=True, kw_only=True)
class GivenState:
    """Where a run stands."""

    inputs: GivenInputs
    phase: Phase = "claiming"
    lease_until: datetime | None = None
    is_claim_unknown: bool = False
    """The claim itself failed: nothing is known to be claimed, and trying again can help."""


def artifact_name(run_id: str, step_id: str, file_name: str) -> str:
    """Return the object name of a given artifact: of run, step and file name alone."""
    return f"runs/{run_id}/{step_id}/{file_name}"


def start(inputs: GivenInputs) -> Next[GivenState]:
    """Return the claim of the step."""
    claim = ClaimStep(
        flow_run=inputs.flow_run_path,
        step_id=inputs.step_id,
        step_type=inputs.step_type,
        token=inputs.token,
        lease_seconds=STORE_SECONDS + LEASE_MARGIN_SECONDS,
    )
    return Next(GivenState(inputs=inputs), (claim,))


def react(state: GivenState, outcome: Outcome) -> Next[GivenState]:
    """Return what can begin after the outcome; what its phase does not expect changes nothing, nor does what comes after the lease."""
    lease_until = outcome.lease_until if isinstance(outcome, StepClaimed) else state.lease_until
    if lease_until is not None and outcome.at >= lease_until:
        return _end(state)
    if isinstance(outcome, EffectFailed):
        return _on_broken(state, outcome)
    reaction = _REACTIONS.get((state.phase, type(outcome)))
    return reaction(state, outcome) if reaction else Next(state)


def abort(state: GivenState, error_type: str) -> Next[GivenState]:
    """Return the finalize as FAILED of a step that was claimed when the program broke."""
    if state.phase != "storing":
        return _end(state)
    return _fail(state, step_error(INTERNAL_ERROR, f"the worker broke: {error_type}", {"errorType": error_type}))


def _on_claimed(state: GivenState, outcome: StepClaimed) -> Next[GivenState]:
    storing = replace(state, phase="storing", lease_until=outcome.lease_until)
    return Next(storing, (_put(state.inputs, outcome.at),))


def _on_stored(state: GivenState, outcome: ObjectStored) -> Next[GivenState]:
    return Next(replace(state, phase="ending"), (_finalize(state.inputs, outcome.uri, None),))


def _on_not_stored(state: GivenState, outcome: ObjectNotStored) -> Next[GivenState]:
    return _fail(state, step_error(GCS_WRITE_FAILED, f"the file could not be stored: {outcome.message}"))


def _on_end(state: GivenState, outcome: Outcome) -> Next[GivenState]:
    return _end(state)


def _on_broken(state: GivenState, outcome: EffectFailed) -> Next[GivenState]:
    """Fail the step where its file could not be stored; else there is nothing to end, or only its lease can."""
    match state.phase, outcome.effect:
        case "claiming", ClaimStep():
            return _end(replace(state, is_claim_unknown=True))
        case ("storing", PutObject()) | ("ending", FinalizeStep()):
            return abort(state, outcome.error_type)
        case _:
            return Next(state)


_REACTIONS: dict[tuple[Phase, type], Callable[[GivenState, Any], Next[GivenState]]] = {
    ("claiming", StepClaimed): _on_claimed,
    ("claiming", ClaimLost): _on_end,
    ("storing", ObjectStored): _on_stored,
    ("storing", ObjectNotStored): _on_not_stored,
    ("ending", StepFinalized): _on_end,
    ("ending", FinalizeLost): _on_end,
}


def _end(state: GivenState) -> Next[GivenState]:
    return Next(replace(state, phase="ended"))


def _put(inputs: GivenInputs, now: datetime) -> Effect:
    run_id = inputs.flow_run_path.rpartition("/")[2]
    return PutObject(
        bucket=inputs.bucket,
        name=artifact_name(run_id, inputs.step_id, inputs.file_name),
        content=inputs.content,
        content_type="application/json" if inputs.file_name.endswith(".json") else "application/octet-stream",
        create_only=False,
        give_up_at=now + timedelta(seconds=STORE_SECONDS),
    )


def _fail(state: GivenState, error: StepError) -> Next[GivenState]:
    return Next(replace(state, phase="ending"), (_finalize(state.inputs, None, error),))


def _finalize(inputs: GivenInputs, uri: str | None, error: StepError | None) -> Effect:
    return FinalizeStep(
        flow_run=inputs.flow_run_path,
        step_id=inputs.step_id,
        token=inputs.token,
        status="FAILED" if error else "SUCCEEDED",
        outputs={"gcs_uri": uri},
        error=error,
    )


GIVEN: Program[GivenInputs, GivenState] = Program(start=start, react=react, abort=abort)
