from __future__ import annotations

from typing import Any

import pytest

from core.flow.orchestrator import AdvanceInputs, AdvanceResult, AdvanceState, abort, react, start
from effects import (
    AdvanceFlow,
    EffectFailed,
    FieldChange,
    FlowAdvanced,
    FlowRunsFound,
    FlowUnchanged,
    LeasePolicy,
    Outcome,
)
from tests.builders import NOW, RUN_PATH, a_flow_run, a_plain_step

LEASES = LeasePolicy(max_attempts=3)
EFFECT = AdvanceFlow(flow_run=RUN_PATH, leases=LEASES)
CHANGE = FieldChange(path=("status",), before="PENDING", after="RUNNING", why="steps are READY or RUNNING")
SETTLED = {
    "currentStepId": "a",
    "stepCounts": {
        "total": 1,
        "pending": 0,
        "ready": 1,
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "skipped": 0,
        "cancelled": 0,
    },
}


def inputs(flow_run: dict[str, Any] | None) -> AdvanceInputs:
    return AdvanceInputs(flow_run_path=RUN_PATH, flow_run=flow_run, leases=LEASES, now=NOW)


def ended(outcome: Outcome, state: AdvanceState | None = None) -> AdvanceResult | None:
    following = react(state or start(inputs(None)).state, outcome)
    assert following.effects == ()
    return following.state.result


def test_a_document_that_is_not_known_is_moved_on_by_one_effect() -> None:
    following = start(inputs(None))
    assert (following.effects, following.state.result) == ((EFFECT,), None)


def test_a_known_document_that_asks_for_a_change_is_moved_on() -> None:
    assert start(inputs(a_flow_run({"a": a_plain_step("PENDING")}))).effects == (EFFECT,)


def test_a_known_document_that_asks_for_none_is_neither_read_nor_written() -> None:
    following = start(inputs(a_flow_run({"a": a_plain_step("READY")}, progress=SETTLED)))
    assert following.effects == ()
    assert following.state.result == AdvanceResult(status="UNCHANGED", reason="nothing_to_change")


def test_a_document_under_another_id_is_not_settled() -> None:
    known = a_flow_run({"a": a_plain_step("READY")}, progress=SETTLED, runId="another")
    assert start(inputs(known)).effects == (EFFECT,)


def test_what_was_changed_is_the_result() -> None:
    outcome = FlowAdvanced(flow_run=RUN_PATH, status="RUNNING", changes=(CHANGE,), at=NOW)
    assert ended(outcome) == AdvanceResult(status="CHANGED", run_status="RUNNING", changes=(CHANGE,))


@pytest.mark.parametrize("reason", ["nothing_to_change", "flow_run_missing"])
def test_a_pass_that_changed_nothing_says_why(reason: str) -> None:
    outcome = FlowUnchanged(flow_run=RUN_PATH, reason=reason, at=NOW)
    assert ended(outcome) == AdvanceResult(status="UNCHANGED", reason=reason)


def test_a_store_that_broke_is_a_pass_that_did_not_take_place() -> None:
    outcome = EffectFailed(effect=EFFECT, error_type="OperationalError", message="locked", at=NOW)
    assert ended(outcome) == AdvanceResult(status="FAILED", reason="OperationalError")


def test_any_other_outcome_changes_nothing() -> None:
    assert ended(FlowRunsFound(flow_runs={}, at=NOW)) is None


def test_a_pass_that_breaks_before_its_end_has_failed() -> None:
    following = abort(start(inputs(None)).state, "ValueError")
    assert following.effects == ()
    assert following.state.result == AdvanceResult(status="FAILED", reason="ValueError")


def test_a_result_that_is_there_is_kept_when_something_breaks_later() -> None:
    unchanged = AdvanceResult(status="UNCHANGED", reason="nothing_to_change")
    state = AdvanceState(inputs=inputs(None), result=unchanged)
    assert abort(state, "KeyboardInterrupt").state.result == unchanged
    assert ended(EffectFailed(effect=EFFECT, error_type="OSError", message="", at=NOW), state) == unchanged
