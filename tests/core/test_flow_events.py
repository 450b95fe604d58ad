from __future__ import annotations

import pytest

from core.failures import step_error
from core.flow.events import given_step_events, orchestrator_events
from effects import (
    AdvanceFlow,
    ClaimLost,
    ClaimStep,
    EffectFailed,
    FieldChange,
    FinalizeLost,
    FinalizeStep,
    FlowAdvanced,
    FlowUnchanged,
    LeasePolicy,
    ObjectStored,
    PutObject,
    StepClaimed,
    StepError,
    StepFinalized,
    blob,
)
from tests.builders import NOW, RUN_ID, RUN_PATH, a_flow_run, a_plain_step

ADVANCE = AdvanceFlow(flow_run=RUN_PATH, leases=LeasePolicy(max_attempts=3))
CLAIM = ClaimStep(flow_run=RUN_PATH, step_id="a", step_type="OHLCV_EXPORT", token="t", lease_seconds=1)
PUT = PutObject(
    bucket="b", name="n", content=blob(b""), content_type="application/json", create_only=False, give_up_at=NOW
)
URI = "gs://b/runs/r/a/candles.json"


def finalize(error: StepError | None = None) -> FinalizeStep:
    return FinalizeStep(
        flow_run=RUN_PATH,
        step_id="a",
        token="t",
        status="FAILED" if error else "SUCCEEDED",
        outputs={"gcs_uri": None if error else URI},
        error=error,
    )


def advanced(*changes: FieldChange) -> FlowAdvanced:
    return FlowAdvanced(flow_run=RUN_PATH, status="RUNNING", changes=changes, at=NOW)


def moved(path: tuple[str, ...], before: str, after: str) -> FieldChange:
    return FieldChange(path=path, before=before, after=after, why="because")


@pytest.mark.parametrize(
    ("before", "after", "name", "severity"),
    [
        ("PENDING", "READY", "step_promoted", "INFO"),
        ("RUNNING", "READY", "step_returned", "WARNING"),
        ("RUNNING", "FAILED", "step_abandoned", "ERROR"),
    ],
)
def test_every_move_of_a_step_has_its_event(before: str, after: str, name: str, severity: str) -> None:
    (event,) = orchestrator_events(ADVANCE, advanced(moved(("steps", "a", "status"), before, after)))
    assert (event.event, event.severity) == (name, severity)
    assert event.message == f"a {before} -> {after}: because"
    assert event.fields == {"runId": RUN_ID, "stepId": "a", "status": after, "reason": "because"}


@pytest.mark.parametrize(("after", "severity"), [("SUCCEEDED", "INFO"), ("FAILED", "ERROR")])
def test_a_run_that_changes_its_status_is_told_and_its_failure_is_an_error(after: str, severity: str) -> None:
    (event,) = orchestrator_events(ADVANCE, advanced(moved(("status",), "RUNNING", after)))
    assert (event.event, event.severity) == ("flow_run_status_changed", severity)
    assert event.message == f"run {RUN_ID} RUNNING -> {after}: because"
    assert event.fields == {"runId": RUN_ID, "status": after, "reason": "because"}


def test_other_fields_are_not_told_and_the_order_is_kept() -> None:
    changes = (
        moved(("steps", "a", "status"), "PENDING", "READY"),
        moved(("steps", "a", "error"), "x", "y"),
        moved(("status",), "PENDING", "RUNNING"),
        moved(("progress", "currentStepId"), "b", "a"),
        moved(("updatedAt",), "x", "y"),
    )
    events = orchestrator_events(ADVANCE, advanced(*changes))
    assert [event.event for event in events] == ["step_promoted", "flow_run_status_changed"]


def test_a_pass_that_changed_nothing_says_nothing() -> None:
    unchanged = FlowUnchanged(flow_run=RUN_PATH, reason="nothing_to_change", at=NOW)
    assert orchestrator_events(ADVANCE, unchanged) == ()


def test_a_pass_that_broke_is_an_error() -> None:
    broken = EffectFailed(effect=ADVANCE, error_type="OperationalError", message="locked", at=NOW)
    (event,) = orchestrator_events(ADVANCE, broken)
    assert (event.event, event.severity) == ("effect_failed", "ERROR")
    assert event.message == "AdvanceFlow failed unexpectedly: OperationalError: locked"


# A given step.


def test_a_claim_is_told_with_its_attempt_and_a_dependency_that_is_not_met() -> None:
    flow_run = a_flow_run({"a": a_plain_step("READY", ["b"]), "b": a_plain_step("PENDING")})
    claimed = StepClaimed(flow_run=flow_run, attempt=2, first_claimed_at=NOW, lease_until=NOW, at=NOW)
    claim, unmet = given_step_events(CLAIM, claimed)
    assert claim.fields == {"stepId": "a", "claimed": True, "attempt": 2}
    assert (unmet.event, unmet.severity, unmet.fields) == ("dependencies_unmet", "WARNING", {"dependsOn": ["b"]})


def test_a_claim_that_was_lost_is_told() -> None:
    (event,) = given_step_events(CLAIM, ClaimLost(reason="not_ready", at=NOW))
    assert event.fields == {"stepId": "a", "claimed": False, "reason": "not_ready"}


def test_a_given_step_that_succeeded_names_its_artifact() -> None:
    (event,) = given_step_events(finalize(), StepFinalized(status="SUCCEEDED", at=NOW))
    assert (event.event, event.severity, event.message) == ("step_completed", "INFO", "a SUCCEEDED, given")
    assert event.fields == {"stepId": "a", "status": "SUCCEEDED", "errorCode": None, "gcs_uri": URI}


def test_a_given_step_that_failed_is_an_error_with_its_code() -> None:
    effect = finalize(step_error("GCS_WRITE_FAILED", "disk full"))
    (event,) = given_step_events(effect, StepFinalized(status="FAILED", at=NOW))
    assert (event.severity, event.fields["errorCode"]) == ("ERROR", "GCS_WRITE_FAILED")


def test_a_finalize_that_was_lost_is_a_warning() -> None:
    (event,) = given_step_events(finalize(), FinalizeLost(reason="claimed_by_another", at=NOW))
    assert (event.event, event.severity) == ("finalize_lost", "WARNING")


def test_an_effect_of_a_given_step_that_broke_is_an_error() -> None:
    (event,) = given_step_events(PUT, EffectFailed(effect=PUT, error_type="OSError", message="disk", at=NOW))
    assert (event.event, event.fields["effect"]) == ("effect_failed", "PutObject")


def test_storing_the_file_says_nothing_of_its_own() -> None:
    assert given_step_events(PUT, ObjectStored(name="n", uri=URI, at=NOW)) == ()
