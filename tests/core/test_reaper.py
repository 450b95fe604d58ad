from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from core.flow.reaper import ReapInputs, ReapState, abort, react, start
from core.program import Next
from effects import (
    AdvanceFlow,
    ClaimLost,
    Effect,
    EffectFailed,
    FindFlowRuns,
    FlowAdvanced,
    FlowRunsFound,
    FlowUnchanged,
    LeasePolicy,
    Outcome,
)
from tests.builders import NOW, a_claim, a_flow_run, a_plain_step

LEASES = LeasePolicy(max_attempts=3)
ENDS_AT = NOW + timedelta(minutes=9)
LATER, EARLIER = "2025-12-15T11:00:00Z", "2025-12-15T10:00:00Z"


def inputs(page_size: int = 2) -> ReapInputs:
    return ReapInputs(collection="flow_runs", leases=LEASES, ends_at=ENDS_AT, page_size=page_size)


def query(after: str | None, limit: int = 2, status: str = "RUNNING") -> FindFlowRuns:
    return FindFlowRuns(collection="flow_runs", status=status, after=after, limit=limit)


def moving(run_id: str) -> AdvanceFlow:
    return AdvanceFlow(flow_run=f"flow_runs/{run_id}", leases=LEASES)


def a_run(run_id: str, *, is_abandoned: bool) -> dict[str, Any]:
    """Return a run whose one step is held by a worker, or was."""
    step = a_plain_step("RUNNING", outputs=a_claim(lease_until=EARLIER if is_abandoned else LATER))
    counts = {"total": 1, "pending": 0, "ready": 0, "running": 1, "succeeded": 0, "failed": 0}
    progress = {"currentStepId": "a", "stepCounts": {**counts, "skipped": 0, "cancelled": 0}}
    return a_flow_run({"a": step}, runId=run_id, progress=progress)


def page(runs: Mapping[str, bool], at: datetime = NOW) -> FlowRunsFound:
    """Return a page of runs, each with whether its step was abandoned."""
    found = {f"flow_runs/{one}": a_run(one, is_abandoned=lost) for one, lost in runs.items()}
    return FlowRunsFound(flow_runs=found, at=at)


def advanced(run_id: str, at: datetime = NOW) -> FlowAdvanced:
    return FlowAdvanced(flow_run=f"flow_runs/{run_id}", status="RUNNING", changes=(), at=at)


def unchanged(run_id: str) -> FlowUnchanged:
    return FlowUnchanged(flow_run=f"flow_runs/{run_id}", reason="nothing_to_change", at=NOW)


def failed(effect: Effect) -> EffectFailed:
    return EffectFailed(effect=effect, error_type="OSError", message="scripted", at=NOW)


def fed(*outcomes: Outcome, page_size: int = 2) -> Next[ReapState]:
    """Return where a walk stands after these outcomes."""
    following = start(inputs(page_size))
    for outcome in outcomes:
        following = react(following.state, outcome)
    return following


def test_a_walk_begins_with_the_first_page_of_running_runs() -> None:
    assert fed().effects == (query(None),)


def test_only_runs_that_ask_for_a_change_are_moved_on() -> None:
    following = fed(page({"a": False, "b": True}))
    assert following.effects == (moving("b"),)
    assert following.state.seen == 2


def test_a_page_that_asks_for_nothing_is_followed_by_the_next_at_once() -> None:
    assert fed(page({"a": False, "b": False})).effects == (query("flow_runs/b"),)


def test_the_next_page_waits_until_all_of_this_one_have_settled() -> None:
    found = page({"a": True, "b": True})
    assert fed(found).effects == (moving("a"), moving("b"))
    assert fed(found, advanced("b")).effects == ()
    assert fed(found, advanced("b"), unchanged("a")).effects == (query("flow_runs/b"),)


def test_a_page_that_is_not_full_is_the_last_and_runs_that_nobody_began_come_after() -> None:
    running = (page({"a": True, "b": False}), advanced("a"), page({"c": False}))
    assert fed(*running).effects == (query(None, status="PENDING"),)
    following = fed(*running, page({"d": False}))
    assert (following.effects, following.state.is_complete, following.state.seen) == ((), True, 4)
    assert following.state.advanced == (advanced("a"),)


def test_where_there_is_no_run_the_walk_is_over_at_once() -> None:
    following = fed(page({}), page({}))
    assert (following.effects, following.state.is_complete, following.state.seen) == ((), True, 0)


def test_a_pending_run_whose_event_was_lost_is_moved_on() -> None:
    forgotten = a_flow_run({"a": a_plain_step("PENDING")}, runId="a", status="PENDING")
    following = fed(page({}), FlowRunsFound(flow_runs={"flow_runs/a": forgotten}, at=NOW))
    assert following.effects == (moving("a"),)


def test_every_running_run_is_seen_once_over_several_pages() -> None:
    runs = {f"run{number:02}": number % 3 == 0 for number in range(11)}
    documents = {f"flow_runs/{one}": a_run(one, is_abandoned=lost) for one, lost in runs.items()}
    asked: list[Effect] = []
    following = start(inputs(4))
    effects = list(following.effects)
    while effects:
        effect = effects.pop(0)
        asked.append(effect)
        outcome: Outcome
        if isinstance(effect, FindFlowRuns):
            of_status = documents if effect.status == "RUNNING" else {}
            later = [path for path in of_status if path > (effect.after or "")][: effect.limit]
            outcome = FlowRunsFound(flow_runs={path: documents[path] for path in later}, at=NOW)
        else:
            assert isinstance(effect, AdvanceFlow)
            outcome = advanced(effect.flow_run.rpartition("/")[2])
        following = react(following.state, outcome)
        effects += following.effects
    assert [one for one in asked if isinstance(one, FindFlowRuns)] == [
        query(None, 4),
        query("flow_runs/run03", 4),
        query("flow_runs/run07", 4),
        query(None, 4, "PENDING"),
    ]
    assert [one for one in asked if isinstance(one, AdvanceFlow)] == [
        moving(one) for one, lost in runs.items() if lost
    ]
    assert (following.state.seen, len(following.state.advanced), following.state.is_complete) == (11, 4, True)


def test_a_run_that_could_not_be_moved_on_is_named_and_the_walk_goes_on() -> None:
    following = fed(page({"a": True, "b": True}), failed(moving("a")), advanced("b"))
    assert following.effects == (query("flow_runs/b"),)
    last = react(react(following.state, page({})).state, page({})).state
    assert (last.failed, last.is_complete, last.statuses) == (("flow_runs/a",), False, ())


def test_a_collection_that_cannot_be_read_ends_the_walk_and_is_named() -> None:
    following = fed(page({"a": False, "b": False}), failed(query("flow_runs/b")))
    assert following.effects == ()
    assert (following.state.failed, following.state.is_complete) == (("flow_runs",), False)


def test_no_page_is_begun_when_the_time_is_over() -> None:
    following = fed(page({"a": False, "b": False}, at=ENDS_AT))
    assert (following.effects, following.state.is_complete) == ((), False)
    following = fed(page({"a": True, "b": False}), advanced("a", at=ENDS_AT))
    assert (following.effects, following.state.is_complete) == ((), False)


def test_what_was_asked_for_in_time_still_counts() -> None:
    following = fed(page({}), page({"a": True}, at=ENDS_AT), advanced("a", at=ENDS_AT))
    assert (following.effects, following.state.is_complete) == ((), True)


THREE: tuple[Outcome, ...] = (advanced("a"), unchanged("b"), failed(moving("c")))


@pytest.mark.parametrize(
    "order", list(permutations(THREE)), ids=lambda order: "-".join(type(one).__name__ for one in order)
)
def test_the_order_of_outcomes_does_not_matter(order: tuple[Outcome, ...]) -> None:
    following = fed(page({"a": True, "b": True, "c": True}), *order, page_size=3)
    assert following.effects == (query("flow_runs/c", 3),)
    assert (following.state.advanced, following.state.failed) == ((advanced("a"),), ("flow_runs/c",))


@pytest.mark.parametrize("again", THREE, ids=lambda one: type(one).__name__)
def test_an_outcome_that_comes_twice_counts_once(again: Outcome) -> None:
    found = page({"a": True, "b": True, "c": True})
    before = fed(found, *THREE, page_size=3).state
    assert react(before, again) == Next(before)
    halfway = fed(found, again, page_size=3).state
    assert react(halfway, again) == Next(halfway)


def test_a_page_that_nobody_asked_for_changes_nothing() -> None:
    waiting = fed(page({"a": True, "b": True})).state
    over = fed(page({"a": False}), page({})).state
    for state in (waiting, over):
        for stray in (
            page({"x": True}),
            page({}),
            failed(query(None)),
            ClaimLost(reason="not_ready", at=NOW),
        ):
            assert react(state, stray) == Next(state)


def test_a_walk_that_breaks_awaits_nothing_more() -> None:
    following = abort(fed(page({"a": True, "b": True})).state, "ValueError")
    assert (following.effects, following.state.awaited) == ((), frozenset())
    assert (following.state.failed, following.state.is_complete) == (("flow_runs",), False)
    assert react(following.state, advanced("a")) == Next(following.state)
