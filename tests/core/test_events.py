from __future__ import annotations

from core.charts.events import events_begun, events_done, events_of_result
from core.charts.state import StepResult
from core.charts.summary import json_summary, text_summary
from core.failures import step_error
from effects import (
    ClaimLost,
    ClaimStep,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    ObjectNotStored,
    PutObject,
    Wait,
    blob,
)
from tests.builders import NOW, RUN_PATH, STEP_ID

CLAIM = ClaimStep(flow_run=RUN_PATH, step_id=STEP_ID, step_type="CHART_EXPORT", token="t", lease_seconds=1)
FINALIZE = FinalizeStep(flow_run=RUN_PATH, step_id=STEP_ID, token="t", status="FAILED", outputs={}, error=None)
PUT = PutObject(
    bucket="b", name="n.png", content=blob(b""), content_type="image/png", create_only=True, give_up_at=NOW
)


def test_a_lost_claim_is_logged_with_its_reason() -> None:
    (event,) = events_done(CLAIM, ClaimLost(reason="not_ready", at=NOW))
    assert (event.event, event.severity) == ("claim_attempt", "INFO")
    assert event.fields == {"stepId": STEP_ID, "claimed": False, "reason": "not_ready"}


def test_a_lost_finalize_is_a_warning() -> None:
    (event,) = events_done(FINALIZE, FinalizeLost(reason="claimed_by_another", at=NOW))
    assert (event.event, event.severity) == ("finalize_lost", "WARNING")


def test_an_effect_that_broke_is_an_error_with_its_type() -> None:
    (event,) = events_done(PUT, EffectFailed(effect=PUT, error_type="OSError", message="disk", at=NOW))
    assert (event.event, event.severity) == ("effect_failed", "ERROR")
    assert event.fields == {"effect": "PutObject", "errorType": "OSError"}


def test_an_object_that_was_not_stored_is_a_warning() -> None:
    (event,) = events_done(PUT, ObjectNotStored(name="n.png", reason="failed", message="disk", at=NOW))
    assert (event.event, event.severity) == ("object_not_written", "WARNING")
    assert event.fields == {"objectName": "n.png", "reason": "failed"}


def test_a_wait_is_for_the_curious() -> None:
    (event,) = events_begun(Wait(until=NOW, reason="slot", chart_template_id="x"))
    assert (event.event, event.severity) == ("wait_started", "DEBUG")


def test_the_summary_has_the_contract_s_form() -> None:
    result = StepResult(
        status="SUCCEEDED",
        step_id=STEP_ID,
        manifest_uri="gs://b/m.json",
        items_count=3,
        failures_count=1,
        min_images=2,
    )
    assert (
        text_summary(result) == "CHART_EXPORT SUCCEEDED: manifest=gs://b/m.json, items=3, failures=1, minImages=2"
    )
    assert json_summary(result, "run", "mock") == {
        "status": "SUCCEEDED",
        "runId": "run",
        "stepId": STEP_ID,
        "outputsManifestGcsUri": "gs://b/m.json",
        "itemsCount": 3,
        "failuresCount": 1,
        "minImages": 2,
        "chartsApiMode": "mock",
        "errorCode": None,
        "noopReason": None,
    }


def test_a_failed_step_is_an_error_with_its_code() -> None:
    result = StepResult(status="FAILED", step_id=STEP_ID, error=step_error("VALIDATION_FAILED", "no symbol"))
    (event,) = events_of_result(result)
    assert (event.severity, event.fields["errorCode"]) == ("ERROR", "VALIDATION_FAILED")
    assert text_summary(result).endswith("minImages=unknown, error=VALIDATION_FAILED")


def test_a_claim_that_failed_completes_nothing() -> None:
    error = step_error("INTERNAL_ERROR", "the claim failed: ServiceUnavailable")
    (event,) = events_of_result(StepResult(status="FAILED", step_id=STEP_ID, error=error, is_claim_unknown=True))
    assert (event.event, event.severity, event.fields["claimed"]) == ("claim_attempt", "ERROR", False)
