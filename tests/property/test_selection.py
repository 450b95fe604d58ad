from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.flow.selection import NothingToDo, select_step, unmet_dependencies, wanted_step_problems
from tests.builders import a_flow_run, a_step
from tests.strategies import STATUSES, json_values, step_ids, step_maps


def ready_ids(steps: Mapping[str, Any]) -> list[str]:
    return [
        step_id
        for step_id, step in steps.items()
        if isinstance(step, dict) and step.get("stepType") == "CHART_EXPORT" and step.get("status") == "READY"
    ]


@given(steps=step_maps, run_status=st.sampled_from(STATUSES))
def test_the_smallest_ready_chart_step_is_taken_whatever_the_run_s_status(
    steps: dict[str, Any], run_status: str
) -> None:
    chosen = select_step({"steps": steps, "status": run_status}, "CHART_EXPORT")
    ready = sorted(ready_ids(steps))
    assert chosen == (ready[0] if ready else NothingToDo("no_ready_step"))


@given(steps=step_maps, wanted=step_ids)
def test_a_wanted_step_is_taken_only_if_it_is_a_ready_chart_step(steps: dict[str, Any], wanted: str) -> None:
    chosen = select_step({"steps": steps}, "CHART_EXPORT", wanted)
    assert chosen == (wanted if wanted in ready_ids(steps) else NothingToDo("step_not_ready"))


@given(steps=json_values.filter(lambda value: not isinstance(value, dict)))
def test_steps_that_are_no_map_are_nothing_to_do(steps: object) -> None:
    assert select_step({"steps": steps}, "CHART_EXPORT") == NothingToDo("steps_not_a_map")


@given(steps=step_maps)
def test_selection_is_the_same_however_the_steps_are_ordered(steps: dict[str, Any]) -> None:
    backwards = dict(reversed(steps.items()))
    assert select_step({"steps": steps}, "CHART_EXPORT") == select_step({"steps": backwards}, "CHART_EXPORT")


@pytest.mark.parametrize(
    ("steps", "wanted", "said"),
    [
        ({"a": a_step()}, "b", "there is no step 'b'; CHART_EXPORT steps are: a"),
        ({"a": a_step(stepType="LLM_REPORT")}, "b", "there is no step 'b'; CHART_EXPORT steps are: none"),
        ({"a": a_step(stepType="LLM_REPORT")}, "a", "step 'a' is of type 'LLM_REPORT', not CHART_EXPORT"),
        ({"a": "text"}, "a", "there is no step 'a'; CHART_EXPORT steps are: none"),
        ([], "a", "there is no step 'a'; CHART_EXPORT steps are: none"),
    ],
)
def test_a_step_that_cannot_be_wanted_is_named_with_those_that_can(steps: Any, wanted: str, said: str) -> None:
    (problem,) = wanted_step_problems({"steps": steps}, "CHART_EXPORT", wanted, "--step-id")
    assert str(problem) == f"--step-id: {said}"


def test_a_step_of_the_right_type_can_be_wanted_in_any_status() -> None:
    flow_run = a_flow_run({"a": a_step(status="FAILED")})
    assert wanted_step_problems(flow_run, "CHART_EXPORT", "a", "--step-id") == ()


@pytest.mark.parametrize(
    ("depends_on", "unmet"),
    [
        (["ok", "failed", "gone", "odd"], ("failed", "gone", "odd")),
        ([], ()),
        (None, ()),
        ("ok", ()),
        ([1, "ok"], ()),
    ],
)
def test_unmet_dependencies_are_those_that_have_not_succeeded(depends_on: Any, unmet: tuple[str, ...]) -> None:
    steps = {
        "a": a_step(dependsOn=depends_on),
        "ok": a_step(status="SUCCEEDED"),
        "failed": a_step(status="FAILED"),
        "odd": "text",
    }
    assert unmet_dependencies(a_flow_run(steps), "a") == unmet
