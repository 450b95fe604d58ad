from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.documents import Decision, apply_change
from core.flow.claims import claim_step, finalize_step, place_flow_run
from core.flow.status import STEP_TRANSITIONS, IllegalTransitionError, next_status
from effects import (
    ClaimLost,
    ClaimStep,
    FinalizeLost,
    FinalizeStep,
    StepClaimed,
    StepError,
    StepFinalized,
)
from effects.moments import parse_moment, rfc3339
from tests.builders import NOW, RUN_PATH, STEP_ID, a_flow_run, a_step
from tests.strategies import STATUSES, documents, json_values, moments

FINAL = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED")
CLAIM = ClaimStep(flow_run=RUN_PATH, step_id=STEP_ID, step_type="CHART_EXPORT", token="mine", lease_seconds=600)
FINALIZE = FinalizeStep(
    flow_run=RUN_PATH,
    step_id=STEP_ID,
    token="mine",
    status="SUCCEEDED",
    outputs={"outputsManifestGcsUri": "gs://b/m.json"},
    error=None,
)
ERROR = StepError(code="CHART_API_FAILED", message="no", details={"n": 1})


def committed(flow_run: dict[str, Any], decision: Decision[Any]) -> dict[str, Any]:
    for change in decision.changes:
        flow_run = apply_change(flow_run, change)
    return flow_run


def claimed(flow_run: dict[str, Any], token: str = "mine") -> dict[str, Any]:
    return committed(flow_run, claim_step({RUN_PATH: flow_run}, replace(CLAIM, token=token), NOW))


@given(status=st.sampled_from(STATUSES), event=st.sampled_from(["claim", "succeed", "fail"]))
def test_a_status_moves_only_as_the_table_says(status: Any, event: Any) -> None:
    if (status, event) in STEP_TRANSITIONS:
        assert next_status(status, event) == STEP_TRANSITIONS[status, event]
    else:
        with pytest.raises(IllegalTransitionError, match=f"a {status} step cannot {event}"):
            next_status(status, event)


@given(status=st.sampled_from(STATUSES), kind=st.sampled_from(["CHART_EXPORT", "LLM_REPORT"]))
def test_only_a_ready_step_of_the_right_type_is_claimed(status: str, kind: str) -> None:
    flow_run = a_flow_run({STEP_ID: a_step(status=status, stepType=kind)})
    decision = claim_step({RUN_PATH: flow_run}, CLAIM, NOW)
    if (status, kind) == ("READY", "CHART_EXPORT"):
        assert isinstance(decision.outcome, StepClaimed)
        assert committed(flow_run, decision)["steps"][STEP_ID]["status"] == "RUNNING"
    else:
        assert decision == Decision(ClaimLost(reason="not_ready", at=NOW))


def test_a_claim_writes_token_attempt_starts_and_lease() -> None:
    step = claimed(a_flow_run())["steps"][STEP_ID]
    assert step["outputs"]["execution"]["claim"] == {
        "token": "mine",
        "attempt": 1,
        "firstStartedAt": "2025-12-15T10:25:30Z",
        "startedAt": "2025-12-15T10:25:30Z",
        "leaseUntil": "2025-12-15T10:35:30Z",
    }


@pytest.mark.parametrize(("before", "after"), [(1, 2), (7, 8), ("seven", 1), (None, 1)])
def test_only_the_claim_raises_the_attempt(before: Any, after: int) -> None:
    flow_run = a_flow_run({STEP_ID: a_step(outputs={"execution": {"claim": {"attempt": before}}})})
    assert claimed(flow_run)["steps"][STEP_ID]["outputs"]["execution"]["claim"]["attempt"] == after


def test_a_claim_run_again_under_its_own_token_changes_nothing_and_says_the_same() -> None:
    once = claimed(a_flow_run())
    decision = claim_step({RUN_PATH: once}, CLAIM, NOW + timedelta(seconds=5))
    assert decision.changes == ()
    assert isinstance(decision.outcome, StepClaimed)
    assert (decision.outcome.attempt, decision.outcome.lease_until) == (1, NOW + timedelta(seconds=600))
    assert decision.outcome.first_claimed_at == NOW


@given(starts=st.lists(moments, min_size=1, max_size=5))
def test_every_later_claim_keeps_when_the_first_attempt_began(starts: list[datetime]) -> None:
    flow_run = a_flow_run()
    for number, start in enumerate(starts, 1):
        effect = replace(CLAIM, token=f"token-{number}")
        decision = claim_step({RUN_PATH: flow_run}, effect, start)
        flow_run = committed(flow_run, decision)
        claim = flow_run["steps"][STEP_ID]["outputs"]["execution"]["claim"]
        assert isinstance(decision.outcome, StepClaimed)
        assert (decision.outcome.attempt, decision.outcome.first_claimed_at) == (number, starts[0])
        assert (claim["firstStartedAt"], claim["startedAt"]) == (rfc3339(starts[0]), rfc3339(start))
        again = claim_step({RUN_PATH: flow_run}, effect, start + timedelta(seconds=9)).outcome
        assert again == replace(decision.outcome, flow_run=flow_run, at=start + timedelta(seconds=9))
        flow_run["steps"][STEP_ID]["status"] = "READY"


EARLIER, LONG_AGO = "2025-12-15T09:00:00Z", "2025-12-14T09:00:00Z"


@pytest.mark.parametrize(
    ("claim", "first"),
    [
        ({"attempt": 1, "startedAt": EARLIER}, EARLIER),
        ({"attempt": 2, "firstStartedAt": LONG_AGO, "startedAt": EARLIER}, LONG_AGO),
        ({"attempt": 2, "firstStartedAt": "some day", "startedAt": EARLIER}, EARLIER),
        ({"attempt": 1, "startedAt": "some day"}, "2025-12-15T10:25:30Z"),
        ({"attempt": 1, "startedAt": 7, "firstStartedAt": None}, "2025-12-15T10:25:30Z"),
        ({"attempt": 1}, "2025-12-15T10:25:30Z"),
        ("text", "2025-12-15T10:25:30Z"),
    ],
)
def test_the_first_start_is_read_from_whatever_claim_is_there(claim: Any, first: str) -> None:
    flow_run = a_flow_run({STEP_ID: a_step(outputs={"execution": {"claim": claim}})})
    decision = claim_step({RUN_PATH: flow_run}, CLAIM, NOW)
    assert isinstance(decision.outcome, StepClaimed)
    assert decision.outcome.first_claimed_at == parse_moment(first)
    written = committed(flow_run, decision)["steps"][STEP_ID]["outputs"]["execution"]["claim"]
    assert written["firstStartedAt"] == first


def test_a_held_claim_of_an_older_worker_counts_from_its_own_start() -> None:
    flow_run = claimed(a_flow_run())
    claim = flow_run["steps"][STEP_ID]["outputs"]["execution"]["claim"]
    del claim["firstStartedAt"]
    outcome = claim_step({RUN_PATH: flow_run}, CLAIM, NOW + timedelta(seconds=5)).outcome
    assert isinstance(outcome, StepClaimed)
    assert outcome.first_claimed_at == NOW
    del claim["startedAt"]
    outcome = claim_step({RUN_PATH: flow_run}, CLAIM, NOW + timedelta(seconds=5)).outcome
    assert isinstance(outcome, StepClaimed)
    assert outcome.first_claimed_at == NOW + timedelta(seconds=5)


def test_a_step_claimed_by_another_is_lost() -> None:
    decision = claim_step({RUN_PATH: claimed(a_flow_run(), "theirs")}, CLAIM, NOW)
    assert decision == Decision(ClaimLost(reason="not_ready", at=NOW))


def test_a_flow_run_that_is_gone_is_lost() -> None:
    assert claim_step({RUN_PATH: None}, CLAIM, NOW) == Decision(ClaimLost(reason="flow_run_missing", at=NOW))


@given(extra=documents, step_extra=documents, outputs_extra=documents)
def test_claim_and_finalize_keep_every_field_they_do_not_own(
    extra: dict[str, Any], step_extra: dict[str, Any], outputs_extra: dict[str, Any]
) -> None:
    outputs_extra.pop("execution", None)
    step = {**step_extra, **a_step(outputs=outputs_extra)}
    flow_run = {**extra, **a_flow_run({STEP_ID: step, "other": {"x": 1}})}
    before = copy.deepcopy(flow_run)
    done = claimed(flow_run)
    done = committed(done, finalize_step({RUN_PATH: done}, FINALIZE, NOW))
    assert flow_run == before
    owned = done["steps"][STEP_ID]
    assert owned.pop("status") == "SUCCEEDED"
    assert owned.pop("finishedAt") == "2025-12-15T10:25:30Z"
    assert owned["outputs"].pop("outputsManifestGcsUri") == "gs://b/m.json"
    assert owned["outputs"].pop("execution")["claim"]["token"] == "mine"
    del before["steps"][STEP_ID]["status"]
    before["steps"][STEP_ID].pop("finishedAt", None)
    before["steps"][STEP_ID].pop("error", None)
    before["steps"][STEP_ID]["outputs"].pop("outputsManifestGcsUri", None)
    assert done == before


@given(
    status=st.sampled_from(STATUSES),
    token=st.sampled_from(["mine", "theirs"]),
    to=st.sampled_from(["SUCCEEDED", "FAILED"]),
)
def test_only_a_running_step_under_the_same_token_is_finalized(
    status: str, token: str, to: Literal["SUCCEEDED", "FAILED"]
) -> None:
    flow_run = claimed(a_flow_run(), token)
    flow_run["steps"][STEP_ID]["status"] = status
    decision = finalize_step({RUN_PATH: flow_run}, replace(FINALIZE, status=to), NOW)
    if status in FINAL:
        assert decision == Decision(FinalizeLost(reason="already_final", at=NOW))
    elif status != "RUNNING":
        assert decision == Decision(FinalizeLost(reason="not_running", at=NOW))
    elif token == "theirs":
        assert decision == Decision(FinalizeLost(reason="claimed_by_another", at=NOW))
    else:
        assert committed(flow_run, decision)["steps"][STEP_ID]["status"] == to


endings = st.builds(
    replace,
    st.just(FINALIZE),
    status=st.sampled_from(["SUCCEEDED", "FAILED"]),
    outputs=st.dictionaries(
        st.sampled_from(["gcs_uri", "outputsManifestGcsUri"]), st.none() | st.text(max_size=3)
    ),
    execution=st.dictionaries(st.sampled_from(["timing", "llm", "reused"]), json_values, max_size=2),
    error=st.sampled_from([None, ERROR]),
)


@given(effect=endings, later=st.integers(0, 100))
def test_a_finalize_run_again_finds_its_own_commit(effect: FinalizeStep, later: int) -> None:
    once = claimed(a_flow_run())
    done = committed(once, finalize_step({RUN_PATH: once}, effect, NOW))
    at = NOW + timedelta(seconds=later)
    assert finalize_step({RUN_PATH: done}, effect, at) == Decision(StepFinalized(status=effect.status, at=at))


@given(effect=endings, other=endings)
def test_4_22_2_a_step_that_is_already_final_is_not_overwritten(effect: FinalizeStep, other: FinalizeStep) -> None:
    """4.22.2: only where each of its writes stands in the step it counts as our own commit."""
    once = claimed(a_flow_run())
    done = committed(once, finalize_step({RUN_PATH: once}, effect, NOW))
    again = finalize_step({RUN_PATH: done}, other, NOW)
    assert again.changes == ()
    running = copy.deepcopy(done)
    running["steps"][STEP_ID]["status"] = "RUNNING"
    written = committed(running, finalize_step({RUN_PATH: running}, replace(other, error=effect.error), NOW))
    if written != done:
        assert again.outcome == FinalizeLost(reason="already_final", at=NOW)


@given(effect=endings, token=st.sampled_from(["theirs", "mine"]))
def test_4_33_without_a_token_a_running_step_is_ended_under_the_one_in_the_document(
    effect: FinalizeStep, token: str
) -> None:
    """4.33: recovery; the first worker then sees that the step is final, and so does the recovery run again."""
    flow_run = claimed(a_flow_run(), token)
    decision = finalize_step({RUN_PATH: flow_run}, replace(effect, token=None), NOW)
    assert decision.outcome == StepFinalized(status=effect.status, at=NOW)
    done = committed(flow_run, decision)
    assert done["steps"][STEP_ID]["outputs"]["execution"]["claim"]["token"] == token
    first = replace(effect, token=token, execution={**effect.execution, "timing": "of the first worker"})
    for late in (first, replace(effect, token=None)):
        late_decision = finalize_step({RUN_PATH: done}, late, NOW)
        assert late_decision == Decision(FinalizeLost(reason="already_final", at=NOW))


@given(status=st.sampled_from(STATUSES))
def test_4_22_2_only_a_running_step_is_recovered(status: str) -> None:
    flow_run = claimed(a_flow_run(), "theirs")
    flow_run["steps"][STEP_ID]["status"] = status
    decision = finalize_step({RUN_PATH: flow_run}, replace(FINALIZE, token=None), NOW)
    reason = None if status == "RUNNING" else "already_final" if status in FINAL else "not_running"
    assert getattr(decision.outcome, "reason", None) == reason
    assert bool(decision.changes) == (status == "RUNNING")


@given(execution=st.dictionaries(st.sampled_from(["timing", "llm", "reused"]), json_values, max_size=3))
def test_what_is_said_of_the_execution_stands_beside_the_claim(execution: dict[str, Any]) -> None:
    once = claimed(a_flow_run())
    done = committed(once, finalize_step({RUN_PATH: once}, replace(FINALIZE, execution=execution), NOW))
    said = done["steps"][STEP_ID]["outputs"]["execution"]
    assert said.pop("claim")["token"] == "mine"
    assert said == {name: value for name, value in execution.items() if value is not None}


def test_a_failed_step_has_its_error_and_a_succeeded_one_loses_an_old_one() -> None:
    flow_run = claimed(a_flow_run({STEP_ID: a_step(error={"code": "OLD"})}))
    failed = committed(
        flow_run, finalize_step({RUN_PATH: flow_run}, replace(FINALIZE, status="FAILED", error=ERROR), NOW)
    )
    assert failed["steps"][STEP_ID]["error"] == {"code": "CHART_API_FAILED", "message": "no", "details": {"n": 1}}
    succeeded = committed(flow_run, finalize_step({RUN_PATH: flow_run}, FINALIZE, NOW))
    assert "error" not in succeeded["steps"][STEP_ID]


def test_a_step_that_ends_without_a_manifest_does_not_keep_an_older_one_s_uri() -> None:
    flow_run = claimed(a_flow_run({STEP_ID: a_step(outputs={"outputsManifestGcsUri": "gs://old"})}))
    effect = replace(FINALIZE, status="FAILED", error=ERROR, outputs={"outputsManifestGcsUri": None})
    ended = committed(flow_run, finalize_step({RUN_PATH: flow_run}, effect, NOW))
    assert "outputsManifestGcsUri" not in ended["steps"][STEP_ID]["outputs"]


@given(outputs=json_values)
def test_any_value_of_outputs_can_be_claimed_over(outputs: Any) -> None:
    step = claimed(a_flow_run({STEP_ID: {**a_step(), "outputs": outputs}}))["steps"][STEP_ID]
    assert step["outputs"]["execution"]["claim"]["token"] == "mine"


@pytest.mark.parametrize(("seconds", "held"), [(599, (STEP_ID,)), (600, ()), (601, ())])
def test_a_flow_run_is_replaced_unless_a_lease_is_live(seconds: int, held: tuple[str, ...]) -> None:
    stored, given_ = claimed(a_flow_run()), a_flow_run()
    decision = place_flow_run({RUN_PATH: stored}, RUN_PATH, given_, NOW + timedelta(seconds=seconds))
    assert decision.outcome == held
    assert committed(stored, decision) == (stored if held else given_)


@pytest.mark.parametrize("stored", [None, {}, {"steps": []}, {"steps": {"a": "text", "b": {"status": "RUNNING"}}}])
def test_whatever_holds_no_lease_is_replaced(stored: Any) -> None:
    assert place_flow_run({RUN_PATH: stored}, RUN_PATH, a_flow_run(), NOW).outcome == ()
