from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from core.documents import Decision, UpdateDocument, apply_change
from core.failures import MAX_DETAILS_BYTES, MAX_MESSAGE_CHARACTERS
from core.flow.advance import advance, advance_flow
from core.rules import decide, paths_of
from effects import AdvanceFlow, FieldChange, FlowAdvanced, FlowUnchanged, LeasePolicy
from tests.builders import NOW, RUN_ID, RUN_PATH, a_claim, a_flow_run, a_plain_step

POLICY = LeasePolicy(max_attempts=3)
EFFECT = AdvanceFlow(flow_run=RUN_PATH, leases=POLICY)
AT = "2025-12-15T10:25:30Z"
EARLIER = "2025-12-15T10:25:00Z"


def changes(flow_run: dict[str, Any], policy: LeasePolicy = POLICY) -> dict[tuple[str, ...], Any]:
    return {change.path: change.after for change in advance(flow_run, RUN_ID, policy, NOW)}


def whys(flow_run: dict[str, Any], policy: LeasePolicy = POLICY) -> dict[tuple[str, ...], str]:
    return {change.path: change.why for change in advance(flow_run, RUN_ID, policy, NOW)}


def counts(**some: int) -> dict[str, int]:
    none = dict.fromkeys(("pending", "ready", "running", "succeeded", "failed", "skipped", "cancelled"), 0)
    return {"total": sum(some.values()), **none, **some}


# The rule.


def test_a_flow_run_that_is_gone_is_not_made_anew() -> None:
    gone = FlowUnchanged(flow_run=RUN_PATH, reason="flow_run_missing", at=NOW)
    assert advance_flow({RUN_PATH: None}, EFFECT, NOW) == Decision(gone)


def test_the_table_of_rules_knows_it() -> None:
    assert paths_of(EFFECT) == (RUN_PATH,)
    assert decide({RUN_PATH: None}, EFFECT, NOW) == advance_flow({RUN_PATH: None}, EFFECT, NOW)


def test_nothing_to_change_is_no_write() -> None:
    flow_run = a_flow_run(
        {"a": a_plain_step("READY")}, progress={"currentStepId": "a", "stepCounts": counts(ready=1)}
    )
    unchanged = FlowUnchanged(flow_run=RUN_PATH, reason="nothing_to_change", at=NOW)
    assert advance_flow({RUN_PATH: flow_run}, EFFECT, NOW) == Decision(unchanged)


def test_a_forgotten_document_is_touched_and_nothing_else() -> None:
    progress = {"currentStepId": "a", "stepCounts": counts(ready=1)}
    old = "2025-12-15T10:00:00Z"
    forgotten = a_flow_run({"a": a_plain_step("READY")}, progress=progress, createdAt=old, updatedAt=old)
    policy = LeasePolicy(max_attempts=3, retell_after_seconds=600)
    assert changes(forgotten) == {}
    assert changes(forgotten, policy) == {("updatedAt",): AT}
    assert changes({**forgotten, "updatedAt": AT}, policy) == {}
    assert "told again" in whys(forgotten, policy)["updatedAt",]


def test_all_that_changes_is_one_update_with_its_reasons() -> None:
    steps = {"a": a_plain_step("SUCCEEDED"), "b": a_plain_step("PENDING", ["a"]), "c": a_plain_step("PENDING")}
    decision = advance_flow({RUN_PATH: a_flow_run(steps, status="PENDING")}, EFFECT, NOW)
    expected = (
        FieldChange(path=("steps", "b", "status"), before="PENDING", after="READY", why="a SUCCEEDED"),
        FieldChange(path=("steps", "c", "status"), before="PENDING", after="READY", why="it depends on nothing"),
        FieldChange(path=("status",), before="PENDING", after="RUNNING", why="steps are READY or RUNNING"),
        FieldChange(path=("progress", "currentStepId"), before=None, after="b", why="1 of 3 steps have ended"),
        FieldChange(
            path=("progress", "stepCounts"),
            before=None,
            after=counts(succeeded=1, ready=2),
            why="1 of 3 steps have ended",
        ),
        FieldChange(path=("updatedAt",), before=None, after=AT, why="the document changed"),
    )
    assert decision.outcome == FlowAdvanced(flow_run=RUN_PATH, status="RUNNING", changes=expected, at=NOW)
    assert decision.changes == (
        UpdateDocument(path=RUN_PATH, assign={one.path: one.after for one in expected}, remove=()),
    )


def test_a_current_step_that_is_none_any_more_is_taken_away() -> None:
    steps = {"a": a_plain_step("SUCCEEDED")}
    flow_run = a_flow_run(steps, progress={"currentStepId": "a", "note": "theirs"})
    (update,) = advance_flow({RUN_PATH: flow_run}, EFFECT, NOW).changes
    assert isinstance(update, UpdateDocument)
    assert update.remove == (("progress", "currentStepId"),)
    assert apply_change(flow_run, update)["progress"] == {"note": "theirs", "stepCounts": counts(succeeded=1)}


def test_the_status_of_a_run_whose_status_stays_is_said_as_well() -> None:
    outcome = advance_flow({RUN_PATH: a_flow_run()}, EFFECT, NOW).outcome
    assert isinstance(outcome, FlowAdvanced)
    assert outcome.status == "RUNNING"


def test_a_moment_that_a_store_gives_as_a_datetime_is_shown_as_text() -> None:
    flow_run = a_flow_run(updatedAt=datetime(2025, 12, 1, tzinfo=UTC))
    assert advance(flow_run, RUN_ID, POLICY, NOW)[-1].before == "2025-12-01T00:00:00Z"


def test_what_is_so_already_is_no_change() -> None:
    assert ("updatedAt",) not in changes(a_flow_run(updatedAt=AT))
    assert ("updatedAt",) not in changes(a_flow_run(updatedAt=NOW))


# What is wrong with a document.


def test_all_that_is_wrong_with_a_flow_run_is_said_at_once() -> None:
    flow_run = a_flow_run({"a": {"status": "DONE"}, "b": 7}, runId="other", status="STARTED")
    problems = [
        {"path": "runId", "message": f"is 'other'; must be the document's id, {RUN_ID}"},
        {
            "path": "status",
            "message": "is 'STARTED'; must be one of PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED",
        },
        {
            "path": "steps.a.status",
            "message": "is 'DONE'; must be one of PENDING, READY, RUNNING, SUCCEEDED, FAILED, SKIPPED, CANCELLED",
        },
        {"path": "steps.b", "message": "is a number; must be an object"},
    ]
    message = "the flow_run is not valid: " + "; ".join(f"{one['path']}: {one['message']}" for one in problems)
    assert changes(flow_run) == {
        ("status",): "FAILED",
        ("finishedAt",): AT,
        ("error",): {"code": "FLOW_RUN_INVALID", "message": message, "details": {"problems": problems}},
        ("updatedAt",): AT,
    }


def test_a_document_without_anything_is_not_valid() -> None:
    error = changes({})[("error",)]
    assert [one["path"] for one in error["details"]["problems"]] == ["runId", "status", "steps"]


def test_a_run_that_is_not_valid_keeps_its_counts_true() -> None:
    flow_run = a_flow_run({"a": a_plain_step("FAILED")}, runId="other", progress={"stepCounts": {}})
    assert changes(flow_run)[("progress", "stepCounts")] == counts(failed=1)
    assert changes(flow_run)[("progress", "currentStepId")] == "a"


# How a run fails.


def failing(steps: dict[str, Any], policy: LeasePolicy = POLICY) -> Any:
    changed = changes(a_flow_run(steps), policy)
    assert (changed[("status",)], changed[("finishedAt",)]) == ("FAILED", AT)
    return changed[("error",)]


def test_a_failed_step_fails_the_run_and_its_code_is_named() -> None:
    steps = {
        "b": a_plain_step("FAILED"),
        "a": a_plain_step("FAILED", error={"code": "CHART_API_FAILED"}),
        "c": a_plain_step("PENDING"),
    }
    assert failing(steps) == {
        "code": "STEP_FAILED",
        "message": "failed: a (CHART_API_FAILED), b",
        "details": {"steps": ["a", "b"]},
    }
    assert ("steps", "c", "status") not in changes(a_flow_run(steps))


def test_a_step_behind_a_failed_one_fails_the_run_with_both_named() -> None:
    steps = {"charts": a_plain_step("FAILED"), "report": a_plain_step("PENDING", ["charts"])}
    assert failing(steps) == {
        "code": "DEPENDENCY_UNSATISFIABLE",
        "message": "can never run: report depends on charts, which is FAILED",
        "details": {
            "steps": ["report"],
            "reasons": [{"stepId": "report", "because": "depends on charts, which is FAILED"}],
        },
    }


def test_a_mistake_in_the_document_wins_over_all_and_is_said_first() -> None:
    steps = {
        "a": a_plain_step("FAILED", error={"code": "X"}),
        "b": a_plain_step("PENDING", ["c"]),
        "c": a_plain_step("PENDING", ["a"]),
        "d": a_plain_step("PENDING", ["x"]),
        "e": a_plain_step("PENDING", ["f"]),
        "f": a_plain_step("PENDING", ["e"]),
    }
    error = failing(steps)
    assert error["code"] == "FLOW_RUN_INVALID"
    assert error["message"] == (
        "can never run: d depends on x, which does not exist; e depends on itself: e -> f -> e; "
        "f depends on itself: e -> f -> e; c depends on a, which is FAILED; b depends on c, which can never run"
    )
    assert error["details"]["steps"] == ["b", "c", "d", "e", "f"]


@pytest.mark.parametrize("shape", ["circle", "behind"])
def test_a_thousand_steps_in_vain_stay_within_the_bounds_and_still_name_the_cause(shape: str) -> None:
    names = [f"charts:1M:ctpl_{number:03}" for number in range(1_000)]
    behind = zip(names, [*names[1:], names[0]], strict=True)
    steps = {one: a_plain_step("PENDING", [needed]) for one, needed in behind}
    cause = "depends on itself: charts:1M:ctpl_000 -> charts:1M:ctpl_001 -> "
    if shape == "behind":
        steps[names[-1]] = a_plain_step("CANCELLED")
        cause = "depends on charts:1M:ctpl_999, which is CANCELLED"
    error = failing(steps)
    assert len(error["message"]) <= MAX_MESSAGE_CHARACTERS
    assert len(json.dumps(error["details"])) <= MAX_DETAILS_BYTES
    assert cause in error["message"]
    assert error["details"]["truncated"]
    assert len(error["details"]["steps"]) >= 100
    assert error["details"]["reasons"]


def test_what_is_left_out_is_counted() -> None:
    steps = {f"s{number:02}": a_plain_step("PENDING", ["x"]) for number in range(25)}
    error = failing(steps)
    assert error["message"].endswith("s09 depends on x, which does not exist; and 15 more")
    assert (len(error["details"]["steps"]), len(error["details"]["reasons"])) == (25, 10)


# Abandoned steps.


def running(attempt: int, lease_until: str | None = EARLIER) -> dict[str, Any]:
    return a_plain_step("RUNNING", outputs=a_claim(attempt, lease_until))


def test_an_abandoned_step_is_ready_again_and_its_claim_stays() -> None:
    flow_run = a_flow_run({"a": running(2)})
    changed = changes(flow_run)
    assert {path: after for path, after in changed.items() if path[0] == "steps"} == {
        ("steps", "a", "status"): "READY"
    }
    assert whys(flow_run)[("steps", "a", "status")] == (
        "abandoned in attempt 2 of 3, whose lease ran out at 2025-12-15T10:25:00Z"
    )


def test_a_step_abandoned_for_the_last_time_fails_and_so_does_the_run() -> None:
    said = "the step was abandoned in attempt 3 of 3, whose lease ran out at 2025-12-15T10:25:00Z"
    changed = changes(a_flow_run({"a": {**running(3), "error": {"code": "OF_AN_EARLIER_ATTEMPT"}}}))
    assert changed == {
        ("steps", "a", "status"): "FAILED",
        ("steps", "a", "error"): {"code": "STEP_ABANDONED", "message": said},
        ("steps", "a", "finishedAt"): AT,
        ("status",): "FAILED",
        ("finishedAt",): AT,
        ("error",): {
            "code": "STEP_FAILED",
            "message": "failed: a (STEP_ABANDONED)",
            "details": {"steps": ["a"]},
        },
        ("progress", "currentStepId"): "a",
        ("progress", "stepCounts"): counts(failed=1),
        ("updatedAt",): AT,
    }


def test_a_run_that_fails_returns_no_step_to_ready() -> None:
    steps = {"a": running(1), "b": running(3), "c": a_plain_step("PENDING", ["b"])}
    changed = changes(a_flow_run(steps))
    assert changed[("error",)]["code"] == "DEPENDENCY_UNSATISFIABLE"
    assert ("steps", "a", "status") not in changed
    assert changed[("steps", "b", "status")] == "FAILED"
    assert changed[("progress", "stepCounts")] == counts(running=1, failed=1, pending=1)
    assert changed[("progress", "currentStepId")] == "a"


def test_the_reason_says_that_there_was_no_lease_or_that_the_holder_is_gone() -> None:
    flow_run = a_flow_run({"a": running(1, None)})
    assumed = LeasePolicy(max_attempts=3, assume_lease_seconds=0)
    gone = LeasePolicy(max_attempts=3, holders_gone=True)
    status = ("steps", "a", "status")
    assert status not in changes(flow_run)
    assert whys(flow_run, assumed)[status] == "abandoned in attempt 1 of 3, without a lease"
    assert whys(flow_run, gone)[status] == "abandoned in attempt 1 of 3: the process that held it is gone"


# Runs that have ended, and where a run stands.


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_an_ended_run_gets_no_more_than_true_counts_and_only_if_it_has_some(status: str) -> None:
    steps = {"a": running(1), "b": a_plain_step("PENDING")}
    assert changes(a_flow_run(steps, status=status)) == {}
    assert changes(a_flow_run(steps, status=status, progress={"stepCounts": {}})) == {
        ("progress", "currentStepId"): "a",
        ("progress", "stepCounts"): counts(running=1, pending=1),
        ("updatedAt",): AT,
    }


def test_an_ended_run_whose_steps_make_no_sense_is_left_alone() -> None:
    assert changes(a_flow_run({"a": 7}, status="FAILED", progress={"stepCounts": {}})) == {}


@pytest.mark.parametrize(
    ("statuses", "current"),
    [
        ({"a": "READY", "b": "RUNNING", "c": "RUNNING"}, "b"),
        ({"a": "SUCCEEDED", "c": "READY", "b": "READY"}, "b"),
        ({"a": "SUCCEEDED", "c": "FAILED", "b": "FAILED"}, "b"),
        ({"a": "FAILED", "b": "RUNNING"}, "b"),
        ({"a": "SUCCEEDED", "b": "SKIPPED"}, None),
        ({}, None),
    ],
)
def test_a_run_stands_at_the_first_step_that_runs_else_is_ready_else_failed(
    statuses: dict[str, str], current: str | None
) -> None:
    steps = {step_id: a_plain_step(status) for step_id, status in statuses.items()}
    assert changes(a_flow_run(steps)).get(("progress", "currentStepId")) == current
