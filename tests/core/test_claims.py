"""Claims as examples; a claim in order: 4.1 and 4.3 of the report model hold for the document as it is by then."""

from __future__ import annotations

from typing import Any

import pytest

from core.documents import Decision
from core.flow.claims import claim_step, finalize_step
from effects import ClaimLost, ClaimStep, FinalizeLost, FinalizeStep, StepClaimed
from tests.builders import NOW, RUN_PATH, a_claim, a_flow_run, a_plain_step

STEP = "report"


def claimed(*, in_order: bool = True, depends_on: Any = ("a",), status: str = "RUNNING", **statuses: str) -> Any:
    steps = {one: a_plain_step(of) for one, of in statuses.items()}
    steps[STEP] = a_plain_step("READY", stepType="LLM_REPORT", dependsOn=list(depends_on))
    effect = ClaimStep(
        flow_run=RUN_PATH,
        step_id=STEP,
        step_type="LLM_REPORT",
        token="token-1",
        lease_seconds=60,
        in_order=in_order,
    )
    return claim_step({RUN_PATH: a_flow_run(steps, status=status)}, effect, NOW)


@pytest.mark.parametrize("status", ["PENDING", "SUCCEEDED", "FAILED", "CANCELLED"])
def test_4_1_a_run_that_is_not_running_by_now_is_left_alone(status: str) -> None:
    assert claimed(status=status, a="SUCCEEDED") == Decision(ClaimLost(reason="flow_run_not_running", at=NOW))


@pytest.mark.parametrize("status", ["PENDING", "READY", "RUNNING", "FAILED", "SKIPPED", "CANCELLED"])
def test_4_3_a_step_whose_dependency_has_not_succeeded_by_now_is_left_alone(status: str) -> None:
    assert claimed(a=status) == Decision(ClaimLost(reason="dependency_not_succeeded", at=NOW))


def test_a_step_whose_turn_it_is_is_claimed() -> None:
    assert isinstance(claimed(a="SUCCEEDED").outcome, StepClaimed)


def test_a_dependency_that_does_not_exist_is_an_error_of_the_input_not_of_the_order() -> None:
    assert isinstance(claimed(depends_on=("a", "nowhere"), a="SUCCEEDED").outcome, StepClaimed)


def test_who_does_not_ask_for_order_takes_any_ready_step() -> None:
    assert isinstance(claimed(in_order=False, status="FAILED", a="FAILED").outcome, StepClaimed)


def test_a_step_that_runs_under_another_token_is_not_ended() -> None:
    step = a_plain_step("RUNNING", outputs=a_claim(2))
    effect = FinalizeStep(
        flow_run=RUN_PATH, step_id=STEP, token="not the one", status="SUCCEEDED", outputs={}, error=None
    )
    decision = finalize_step({RUN_PATH: a_flow_run({STEP: step})}, effect, NOW)
    assert decision == Decision(FinalizeLost(reason="claimed_by_another", at=NOW))
