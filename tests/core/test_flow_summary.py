from __future__ import annotations

from core.flow.summary import changes_as_json, changes_as_text, flow_as_json, flow_as_text
from effects import FieldChange
from tests.builders import RUN_ID, a_flow_run, a_plain_step

COUNTS = {"total": 2, "графики": 1}
CHANGES = (
    FieldChange(path=("steps", "charts:4h", "status"), before="PENDING", after="READY", why="candles SUCCEEDED"),
    FieldChange(path=("progress", "stepCounts"), before=None, after=COUNTS, why="1 of 2 steps have ended"),
    FieldChange(path=("error",), before={"code": "X"}, after=None, why="no longer"),
)
WAITS = ("candles is READY, and no worker here serves OHLCV_EXPORT: --given candles=FILE",)
FLOW_RUN = a_flow_run({"b": a_plain_step("PENDING", ["a"]), "a": a_plain_step("READY")})


def test_a_change_is_a_line_with_where_from_what_to_what_and_why() -> None:
    assert changes_as_text(CHANGES).splitlines() == [
        'steps["charts:4h"].status  PENDING -> READY  (candles SUCCEEDED)',
        'progress.stepCounts        none -> {"total": 2, "графики": 1}  (1 of 2 steps have ended)',
        'error                      {"code": "X"} -> none  (no longer)',
    ]


def test_no_change_is_said_in_words() -> None:
    assert changes_as_text(()) == "nothing to change"


def test_changes_as_json_keep_their_values() -> None:
    first, second, third = changes_as_json(RUN_ID, CHANGES)["changes"]
    assert first == {
        "path": 'steps["charts:4h"].status',
        "before": "PENDING",
        "after": "READY",
        "why": "candles SUCCEEDED",
    }
    assert (second["before"], second["after"], third["after"]) == (None, COUNTS, None)
    assert changes_as_json(RUN_ID, ()) == {"runId": RUN_ID, "changes": []}


def test_a_flow_is_one_line_with_its_steps_in_the_order_they_can_run_in() -> None:
    assert flow_as_text(FLOW_RUN, ()) == "FLOW RUNNING: a=READY, b=PENDING"


def test_a_flow_that_waits_says_for_whom() -> None:
    assert flow_as_text(FLOW_RUN, WAITS).splitlines() == [
        "FLOW WAITING: a=READY, b=PENDING",
        f"waiting: {WAITS[0]}",
    ]


def test_a_flow_that_failed_says_its_code() -> None:
    failed = {**FLOW_RUN, "status": "FAILED", "error": {"code": "DEPENDENCY_UNSATISFIABLE"}}
    assert flow_as_text(failed, ()) == "FLOW FAILED: a=READY, b=PENDING, error=DEPENDENCY_UNSATISFIABLE"
    assert flow_as_json(failed, ()) == {
        "status": "FAILED",
        "runId": RUN_ID,
        "steps": {"a": "READY", "b": "PENDING"},
        "waitsFor": [],
        "errorCode": "DEPENDENCY_UNSATISFIABLE",
    }


def test_a_flow_as_json_says_what_it_waits_for() -> None:
    said = flow_as_json(FLOW_RUN, WAITS)
    assert (said["status"], said["waitsFor"], said["errorCode"]) == ("WAITING", list(WAITS), None)


def test_a_flow_whose_steps_make_no_sense_names_none() -> None:
    invalid = a_flow_run({"a": a_plain_step("DONE")}, status="FAILED", error={"code": "FLOW_RUN_INVALID"})
    assert flow_as_text(invalid, ()) == "FLOW FAILED: error=FLOW_RUN_INVALID"
    assert flow_as_json(invalid, ())["steps"] == {}


def test_a_flow_without_steps_says_so() -> None:
    assert flow_as_text(a_flow_run({}, status="SUCCEEDED"), ()) == "FLOW SUCCEEDED: no steps"
