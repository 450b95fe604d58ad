from __future__ import annotations

from typing import Any

import pytest

from core.flow.selection import NothingToDo
from core.reports.selection import Recover, select_report
from tests.report_world import (
    CANDLES_ID,
    OLD_ID,
    REPORT_ID,
    a_report_flow_run,
    a_report_step,
    changed_step,
    done_step,
    report_steps,
)

RUN_STATUSES = ("PENDING", "SUCCEEDED", "FAILED", "CANCELLED", "odd")
NOT_SUCCEEDED = ("PENDING", "READY", "RUNNING", "FAILED", "SKIPPED", "CANCELLED", None)


def test_4_3_a_ready_step_whose_dependencies_succeeded_is_taken() -> None:
    assert select_report(a_report_flow_run()) == REPORT_ID


@pytest.mark.parametrize("status", RUN_STATUSES)
def test_4_1_only_a_running_flow_run_is_worked_on(status: str) -> None:
    for flow_run in (a_report_flow_run(status=status), changed_step(status="RUNNING") | {"status": status}):
        assert select_report(flow_run) == NothingToDo("flow_run_not_running")


@pytest.mark.parametrize("changes", [{"status": None}, {"status": 7}, {"steps": None}, {"steps": []}])
def test_4_1_a_flow_run_without_status_or_steps_is_invalid(changes: dict[str, Any]) -> None:
    assert select_report({**a_report_flow_run(), **changes}) == NothingToDo("flow_run_invalid")


def test_4_1_unknown_fields_are_ignored() -> None:
    flow_run = a_report_flow_run({**report_steps(extra={"x": [1]}), "odd": "text", "none": None}, novel={"y": 1})
    assert select_report(flow_run) == REPORT_ID


@pytest.mark.parametrize("status", ["PENDING", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED", "odd", None])
def test_4_3_a_step_that_is_not_ready_is_not_taken(status: str | None) -> None:
    assert select_report(changed_step(status=status)) == NothingToDo("no_ready_step")


def test_4_7_a_ready_step_of_another_type_is_not_taken() -> None:
    assert select_report(changed_step(stepType="LLM_RECOMMENDATION")) == NothingToDo("no_ready_step")


@pytest.mark.parametrize("status", NOT_SUCCEEDED)
def test_4_7_a_dependency_that_has_not_succeeded_is_the_reason(status: str | None) -> None:
    steps = report_steps()
    steps[CANDLES_ID] = {**steps[CANDLES_ID], "status": status}
    assert select_report(a_report_flow_run(steps)) == NothingToDo("dependency_not_succeeded")


@pytest.mark.parametrize("depends_on", [["nobody"], [7], "text", {"a": 1}, [["x"]]])
def test_dependencies_that_make_no_sense_are_left_to_the_inputs_check(depends_on: Any) -> None:
    assert select_report(changed_step(dependsOn=depends_on)) == REPORT_ID


@pytest.mark.parametrize("depends_on", [None, [], ()])
def test_a_step_without_dependencies_is_executable(depends_on: Any) -> None:
    assert select_report(changed_step(dependsOn=depends_on)) == REPORT_ID


def test_4_7_of_several_executable_steps_the_smallest_id_is_taken_whatever_the_order() -> None:
    steps = {"z": a_report_step(), "b": a_report_step(), "a": a_report_step(status="PENDING"), **report_steps()}
    assert select_report(a_report_flow_run(steps)) == "b"
    assert select_report(a_report_flow_run(dict(reversed(steps.items())))) == "b"


def test_4_7_a_step_whose_dependencies_are_unmet_does_not_hide_another() -> None:
    steps = {
        "a": a_report_step(dependsOn=["pending"]),
        "pending": a_report_step(status="PENDING"),
        **report_steps(),
    }
    assert select_report(a_report_flow_run(steps)) == REPORT_ID


def test_a_wanted_step_is_taken_instead_of_a_smaller_one() -> None:
    flow_run = a_report_flow_run({"a": a_report_step(), **report_steps()})
    assert select_report(flow_run, REPORT_ID) == REPORT_ID


@pytest.mark.parametrize("wanted", [OLD_ID, CANDLES_ID, "nobody"])
def test_a_wanted_step_that_is_not_to_be_had_is_nothing_to_do(wanted: str) -> None:
    assert select_report(a_report_flow_run(), wanted) == NothingToDo("no_ready_step")


def test_4_33_running_report_steps_are_looked_after_in_order() -> None:
    steps = {"z": a_report_step(status="RUNNING"), "a": a_report_step(status="RUNNING"), "charts": done_step("X")}
    assert select_report(a_report_flow_run(steps)) == Recover(("a", "z"), "no_ready_step")
    assert select_report(a_report_flow_run(steps), "z") == Recover(("z",), "no_ready_step")


def test_4_33_an_executable_step_comes_before_running_ones() -> None:
    steps = {"a": a_report_step(status="RUNNING"), **report_steps()}
    assert select_report(a_report_flow_run(steps)) == REPORT_ID


def test_4_7_after_the_running_steps_the_reason_is_still_the_dependency() -> None:
    steps = {"a": a_report_step(status="RUNNING"), **report_steps(dependsOn=["a"])}
    assert select_report(a_report_flow_run(steps)) == Recover(("a",), "dependency_not_succeeded")
