from __future__ import annotations

import copy
import json
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.documents import apply_change, field
from core.flow.advance import advance_flow
from core.flow.claims import claim_step, finalize_step
from core.flow.graph import parse_graph, promotable, waiting_in_vain
from core.flow.leases import CLAIM
from core.flow.status import (
    ENDED_RUNS,
    RUN_STATUSES,
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    IllegalTransitionError,
    next_run_status,
    next_status,
)
from effects import AdvanceFlow, ClaimStep, FinalizeStep, FlowAdvanced, FlowUnchanged, LeasePolicy
from effects.encoding import encode_outcome
from effects.moments import rfc3339
from tests.builders import NOW, RUN_ID, RUN_PATH, a_claim, a_flow_run, a_plain_step
from tests.strategies import (
    STATUSES,
    documents,
    flow_runs,
    json_values,
    lease_policies,
    some_steps,
    step_graphs,
)

POLICY = LeasePolicy(max_attempts=3)
MINUTE = timedelta(minutes=1)
few = settings(max_examples=50)


def advanced(
    flow_run: dict[str, Any], policy: LeasePolicy = POLICY, now: datetime = NOW
) -> tuple[dict[str, Any], FlowAdvanced | FlowUnchanged]:
    """Return the document after one pass of the orchestrator, and what it says of it."""
    decision = advance_flow({RUN_PATH: flow_run}, AdvanceFlow(flow_run=RUN_PATH, leases=policy), now)
    after = flow_run
    for change in decision.changes:
        after = apply_change(after, change)
    return after, decision.outcome


def statuses_of(flow_run: dict[str, Any]) -> dict[str, str]:
    return {step_id: step["status"] for step_id, step in flow_run["steps"].items()}


def doomed(steps: dict[str, Any]) -> set[str]:
    """Return the PENDING steps that never run, the naive way: let everybody else succeed until nothing moves."""
    fine = {one for one, step in steps.items() if step["status"] in {"READY", "RUNNING", "SUCCEEDED"}}
    pending = {one for one, step in steps.items() if step["status"] == "PENDING"}
    while True:
        more = {one for one in pending - fine if set(steps[one]["dependsOn"]) <= fine}
        if not more:
            return pending - fine
        fine |= more


def mistaken(steps: dict[str, Any]) -> bool:
    """Return whether a PENDING step names an id that does not exist, or comes back to itself, the naive way."""
    waits = {one: set(step["dependsOn"]) for one, step in steps.items() if step["status"] == "PENDING"}
    if any(not needed <= steps.keys() for needed in waits.values()):
        return True
    while ends := {one for one, needed in waits.items() if not needed & waits.keys()}:
        waits = {one: needed for one, needed in waits.items() if one not in ends}
    return bool(waits)


# What holds for every run, whatever its graph.


@given(flow_run=flow_runs, policy=lease_policies)
def test_every_change_of_status_is_one_that_the_tables_know(flow_run: dict[str, Any], policy: LeasePolicy) -> None:
    before = copy.deepcopy(flow_run)
    after, outcome = advanced(flow_run, policy)
    assert flow_run == before
    moves = {
        one: (was, now)
        for (one, was), now in zip(statuses_of(flow_run).items(), statuses_of(after).values(), strict=True)
        if was != now
    }
    known = {
        (was, now) for (was, event), now in STEP_TRANSITIONS.items() if event in {"promote", "return", "abandon"}
    }
    assert set(moves.values()) <= known
    changed = [one.path for one in outcome.changes] if isinstance(outcome, FlowAdvanced) else []
    assert len(set(changed)) == len(changed)
    assert sorted(path[1] for path in changed if path[0] == "steps" and path[2:] == ("status",)) == sorted(moves)
    was, now = flow_run["status"], after["status"]
    assert was == now or (was, now) in {(was, now) for (was, _), now in RUN_TRANSITIONS.items()}


@given(flow_run=flow_runs, policy=lease_policies)
def test_a_second_pass_changes_nothing_and_writes_nothing(flow_run: dict[str, Any], policy: LeasePolicy) -> None:
    once, first = advanced(flow_run, policy)
    decision = advance_flow({RUN_PATH: once}, AdvanceFlow(flow_run=RUN_PATH, leases=policy), NOW)
    assert decision.changes == ()
    assert isinstance(decision.outcome, FlowUnchanged)
    if isinstance(first, FlowUnchanged):
        assert once == flow_run
    else:
        assert once != flow_run
        assert first.status == once["status"]
        assert [one for one in first.changes if one.before == one.after] == []


@given(flow_run=flow_runs, policy=lease_policies)
def test_nothing_is_ready_before_all_it_depends_on_has_succeeded(
    flow_run: dict[str, Any], policy: LeasePolicy
) -> None:
    after, _ = advanced(flow_run, policy)
    was, now = statuses_of(flow_run), statuses_of(after)
    promoted = {one for one in now if (was[one], now[one]) == ("PENDING", "READY")}
    for one in promoted:
        assert {now.get(needed) for needed in after["steps"][one]["dependsOn"]} <= {"SUCCEEDED"}
    if after["status"] == "RUNNING":
        able = {
            one
            for one, step in flow_run["steps"].items()
            if was[one] == "PENDING" and all(was.get(needed) == "SUCCEEDED" for needed in step["dependsOn"])
        }
        assert promoted == able == set(promotable(parse_graph(flow_run["steps"]).unwrap()))
    else:
        assert promoted == set()


@given(flow_run=flow_runs, policy=lease_policies)
def test_a_run_has_ended_or_names_what_it_waits_for(flow_run: dict[str, Any], policy: LeasePolicy) -> None:
    after, _ = advanced(flow_run, policy)
    statuses = statuses_of(after)
    if after["status"] in ENDED_RUNS:
        return
    assert after["status"] == "RUNNING"
    current = after["progress"]["currentStepId"]
    assert statuses[current] == ("RUNNING" if "RUNNING" in statuses.values() else "READY")
    assert doomed(after["steps"]) == set()


@given(flow_run=flow_runs, policy=lease_policies)
def test_a_run_ends_as_its_steps_do(flow_run: dict[str, Any], policy: LeasePolicy) -> None:
    after, _ = advanced(flow_run, policy)
    statuses, never = set(statuses_of(after).values()), doomed(after["steps"])
    if flow_run["status"] in ENDED_RUNS:
        return
    if never or "FAILED" in statuses:
        code = "DEPENDENCY_UNSATISFIABLE" if never else "STEP_FAILED"
        assert after["status"] == "FAILED"
        assert after["error"]["code"] == ("FLOW_RUN_INVALID" if mistaken(after["steps"]) else code)
        listed = after["error"]["details"]["steps"]
        blamed = never or {one for one, status in statuses_of(after).items() if status == "FAILED"}
        assert listed
        assert listed == sorted(blamed)[: len(listed)]
        assert len(listed) == len(blamed) or after["error"]["details"]["truncated"]
    else:
        assert "error" not in after
        assert after["status"] == ("RUNNING" if statuses & {"READY", "RUNNING"} else "SUCCEEDED")
    assert ("finishedAt" in after) == (after["status"] in ENDED_RUNS)


@given(flow_run=flow_runs, policy=lease_policies, ended=st.sampled_from(ENDED_RUNS))
def test_an_ended_run_keeps_its_status_and_its_steps(
    flow_run: dict[str, Any], policy: LeasePolicy, ended: str
) -> None:
    flow_run["status"] = ended
    after, outcome = advanced(flow_run, policy)
    assert {**after, "progress": 0, "updatedAt": 0} == {**flow_run, "progress": 0, "updatedAt": 0}
    if isinstance(outcome, FlowAdvanced):
        assert {one.path[0] for one in outcome.changes} <= {"progress", "updatedAt"}
        assert outcome.status == ended


@given(flow_run=flow_runs, policy=lease_policies)
def test_progress_counts_what_is_there(flow_run: dict[str, Any], policy: LeasePolicy) -> None:
    after, _ = advanced(flow_run, policy)
    if after["status"] in ENDED_RUNS and field(after, "progress", "stepCounts") is None:
        assert flow_run["status"] in ENDED_RUNS
        return
    statuses = list(statuses_of(after).values())
    counted = {"total": len(statuses), **{one.lower(): statuses.count(one) for one in STATUSES}}
    assert after["progress"]["stepCounts"] == counted


@few
@given(graph=step_graphs(), extra=documents, step_extra=documents, policy=lease_policies)
def test_every_field_that_is_not_the_orchestrator_s_stays(
    graph: dict[str, Any], extra: dict[str, Any], step_extra: dict[str, Any], policy: LeasePolicy
) -> None:
    steps = {one: {**step_extra, **step} for one, step in graph.items()}
    flow_run = {**extra, **a_flow_run(steps, progress={"note": extra})}
    after, _ = advanced(flow_run, policy)
    assert after["progress"].pop("note") == extra
    own = {"status", "error", "finishedAt", "updatedAt", "progress", "steps"}
    assert {key: value for key, value in after.items() if key not in own} == {
        key: value for key, value in flow_run.items() if key not in own
    }
    for one, step in after["steps"].items():
        own = {"status", "error", "finishedAt"} if step["status"] == "FAILED" else {"status"}
        before = flow_run["steps"][one]
        assert {**step, **dict.fromkeys(own)} == {**before, **dict.fromkeys(own)}


# The graph.


@given(steps=step_graphs())
def test_a_pending_step_waits_in_vain_exactly_when_it_can_never_run(steps: dict[str, Any]) -> None:
    vain = waiting_in_vain(parse_graph(steps).unwrap())
    assert [one.step_id for one in vain] == sorted(doomed(steps))
    assert any(one.is_mistake for one in vain) == mistaken(steps)


@given(steps=step_graphs(st.just(["PENDING"]), wildness=(0.2, 0.9)))
def test_the_way_round_is_one_that_the_document_has(steps: dict[str, Any]) -> None:
    for vain in waiting_in_vain(parse_graph(steps).unwrap()):
        said, _, rest = vain.because.partition(": ")
        if said == "depends on itself":
            way = rest.split(" -> ")
            assert way[0] == way[-1]
            for one, needed in pairwise(way):
                assert "…" in one + needed or needed in steps[one]["dependsOn"]


@given(steps=step_graphs(st.just(["PENDING", "SUCCEEDED"]), wildness=(0,)))
def test_nobody_waits_in_vain_where_nothing_is_lost_and_nothing_turns(steps: dict[str, Any]) -> None:
    assert waiting_in_vain(parse_graph(steps).unwrap()) == ()


# Whole lives.


@few
@given(
    steps=step_graphs(st.just(["PENDING"]) | st.just(["PENDING", "SUCCEEDED"]), wildness=(0,)),
    random=st.randoms(use_true_random=True),
    lives=st.sampled_from([0, 0, 0.3]),
)
def test_every_acyclic_run_whose_steps_succeed_ends_succeeded(
    steps: dict[str, Any], random: Random, lives: float
) -> None:
    """Workers take what is READY in any order; some die, but never three times on the same step."""
    for step in steps.values():
        step["outputs"] = {}
    flow_run, now, taken = a_flow_run(steps, status="PENDING"), NOW, 0
    passes = 0
    while flow_run["status"] not in ENDED_RUNS:
        flow_run, outcome = advanced(flow_run, POLICY, now)
        passes += 1
        assert passes <= 3 * len(steps) + 1, f"still {outcome}"
        ready = [one for one, status in statuses_of(flow_run).items() if status == "READY"]
        for one in random.sample(ready, k=random.randint(min(1, len(ready)), len(ready))):
            taken += 1
            flow_run = worked(flow_run, one, f"token-{taken}", now, dies=random.random() < lives)
        now += MINUTE
    assert flow_run["status"] == "SUCCEEDED"
    assert set(statuses_of(flow_run).values()) <= {"SUCCEEDED"}
    assert advanced(flow_run, POLICY, now)[0] == flow_run


def worked(flow_run: dict[str, Any], step_id: str, token: str, now: datetime, *, dies: bool) -> dict[str, Any]:
    claim = ClaimStep(flow_run=RUN_PATH, step_id=step_id, step_type="CHART_EXPORT", token=token, lease_seconds=60)
    (change,) = claim_step({RUN_PATH: flow_run}, claim, now).changes
    flow_run = apply_change(flow_run, change)
    if dies and field(flow_run, "steps", step_id, *CLAIM, "attempt") < POLICY.max_attempts:
        return flow_run
    done = FinalizeStep(
        flow_run=RUN_PATH, step_id=step_id, token=token, status="SUCCEEDED", outputs={}, error=None
    )
    (change,) = finalize_step({RUN_PATH: flow_run}, done, now).changes
    return apply_change(flow_run, change)


@few
@given(
    flow_run=flow_runs,
    ends=st.lists(st.sampled_from(["SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"]), min_size=1, max_size=4),
)
def test_every_run_ends_however_its_steps_do(flow_run: dict[str, Any], ends: list[str]) -> None:
    passes = 0
    while advanced(flow_run)[0]["status"] not in ENDED_RUNS:
        flow_run = copy.deepcopy(advanced(flow_run)[0])
        for step in flow_run["steps"].values():
            if step["status"] in {"READY", "RUNNING"}:
                step["status"] = ends[passes % len(ends)]
        passes += 1
        assert passes <= len(flow_run["steps"])


# Leases.

leases = st.sampled_from([None, -600, -1, 0, 1, 600])
attempts = st.sampled_from([None, 0, 1, 2, 3, 4, 5])


@given(lease=leases, attempt=attempts, started=st.none() | st.integers(0, 1200), policy=lease_policies)
def test_a_running_step_is_abandoned_exactly_when_its_lease_has_run_out(
    lease: int | None, attempt: int | None, started: int | None, policy: LeasePolicy
) -> None:
    seconds = {"leaseUntil": lease, "startedAt": None if started is None else -started}
    claim = {key: rfc3339(NOW + timedelta(seconds=one)) for key, one in seconds.items() if one is not None}
    outputs = {"execution": {"claim": {**claim, "token": "theirs", **({"attempt": attempt} if attempt else {})}}}
    created = rfc3339(NOW - timedelta(days=1))
    step = a_plain_step("RUNNING", outputs=outputs, createdAt=created)
    after, _ = advanced(a_flow_run({"a": step, "b": a_plain_step("READY")}, createdAt=created), policy)

    assumed = policy.assume_lease_seconds
    ran_out = lease <= 0 if lease is not None else assumed is not None and (started is None or started >= assumed)
    given_up = (attempt or 0) >= policy.max_attempts
    if not (ran_out or policy.holders_gone):
        assert after["steps"]["a"] == step
        assert after["status"] == "RUNNING"
    elif not given_up:
        assert after["steps"]["a"] == {**step, "status": "READY"}
        assert after["status"] == "RUNNING"
    else:
        abandoned = after["steps"]["a"]
        error = abandoned.pop("error")
        assert error["code"] == "STEP_ABANDONED"
        assert abandoned == {**step, "status": "FAILED", "finishedAt": rfc3339(NOW)}
        assert after["error"]["code"] == "STEP_FAILED"
        assert after["error"]["details"] == {"steps": ["a"]}


@given(steps=step_graphs(wildness=(0,)))
def test_without_a_lease_or_a_policy_nobody_is_abandoned(steps: dict[str, Any]) -> None:
    for step in steps.values():
        step["outputs"] = a_claim(7)
    after, _ = advanced(a_flow_run(steps))
    running = {one for one, step in steps.items() if step["status"] == "RUNNING"}
    assert {one for one, status in statuses_of(after).items() if status == "RUNNING"} == running


@given(steps=step_graphs(wildness=(0,)), attempts_allowed=st.integers(1, 9))
def test_where_the_holders_are_gone_nothing_goes_on_running(steps: dict[str, Any], attempts_allowed: int) -> None:
    after, _ = advanced(a_flow_run(steps), LeasePolicy(max_attempts=attempts_allowed, holders_gone=True))
    assert after["status"] == "FAILED" or "RUNNING" not in statuses_of(after).values()


# Whatever a document holds.

times = (
    st.sampled_from(["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2025-12-15T10:25:30+02:00"]) | json_values
)
claims = st.fixed_dictionaries({}, optional={"leaseUntil": times, "attempt": json_values, "startedAt": times})
odd_outputs = json_values | st.builds(
    lambda claim: {"execution": {"claim": claim, "timing": claim}}, json_values | claims
)
odd_steps = json_values | st.fixed_dictionaries(
    {"status": st.sampled_from(["RUNNING", *STATUSES])},
    optional={
        "dependsOn": st.lists(st.sampled_from("abc"), max_size=3),
        "outputs": odd_outputs,
        "createdAt": times,
    },
)
very_odd_steps = odd_steps | st.fixed_dictionaries({}, optional={"status": json_values, "dependsOn": json_values})
odd_flow_runs: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "runId": st.just(RUN_ID) | json_values,
        "status": st.sampled_from(RUN_STATUSES) | json_values,
        "steps": st.dictionaries(st.sampled_from("abc"), very_odd_steps) | json_values,
        "progress": json_values | st.fixed_dictionaries({"stepCounts": json_values, "currentStepId": json_values}),
        "updatedAt": times,
        "createdAt": times,
        "error": json_values,
    },
)
nearly_right = st.builds(
    lambda steps, extra: {"runId": RUN_ID, "status": "RUNNING", "steps": steps, **extra},
    st.dictionaries(st.sampled_from("abc"), odd_steps, max_size=3),
    odd_flow_runs,
)


@settings(max_examples=200)
@given(flow_run=odd_flow_runs | nearly_right, policy=lease_policies)
def test_no_document_is_too_odd(flow_run: dict[str, Any], policy: LeasePolicy) -> None:
    after, outcome = advanced(flow_run, policy)
    assert after["status"] in RUN_STATUSES
    json.dumps([after, encode_outcome(outcome)])
    again, second = advanced(after, policy)
    assert again == after
    assert isinstance(second, FlowUnchanged)


# The tables.


@given(status=st.sampled_from(RUN_STATUSES), event=st.sampled_from(["begin", "succeed", "fail"]))
def test_a_run_moves_only_as_the_table_says(status: Any, event: Any) -> None:
    if (status, event) in RUN_TRANSITIONS:
        assert next_run_status(status, event) == RUN_TRANSITIONS[status, event]
    else:
        with pytest.raises(IllegalTransitionError, match=f"a {status} run cannot {event}"):
            next_run_status(status, event)


@given(status=st.sampled_from(STATUSES), event=st.sampled_from(["promote", "return", "abandon"]))
def test_the_orchestrator_moves_a_step_only_as_the_table_says(status: Any, event: Any) -> None:
    if (status, event) in STEP_TRANSITIONS:
        assert next_status(status, event) == STEP_TRANSITIONS[status, event]
    else:
        with pytest.raises(IllegalTransitionError, match=f"a {status} step cannot {event}"):
            next_status(status, event)


def test_a_graph_that_is_not_wild_is_acyclic() -> None:
    """The strategy is what it says: Random is drawn, so this checks the builder rather than an example."""
    steps = some_steps(Random(7), 200, ["PENDING"])
    assert (len(steps), doomed(steps), mistaken(steps)) == (200, set(), False)
    assert max(len(step["dependsOn"]) for step in steps.values()) == 3
