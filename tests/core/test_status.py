from __future__ import annotations

from typing import get_args

import pytest

from core.flow.status import (
    ENDED_RUNS,
    RUN_STATUSES,
    RUN_TRANSITIONS,
    STEP_STATUSES,
    STEP_TRANSITIONS,
    IllegalTransitionError,
    RunEvent,
    RunStatus,
    StepEvent,
    StepStatus,
    next_run_status,
)


def test_the_statuses_are_those_of_the_contract() -> None:
    assert get_args(StepStatus) == STEP_STATUSES
    assert get_args(RunStatus) == RUN_STATUSES


def test_every_event_has_its_place_in_a_table() -> None:
    assert {event for _, event in STEP_TRANSITIONS} == set(get_args(StepEvent))
    assert {event for _, event in RUN_TRANSITIONS} == set(get_args(RunEvent))


def test_what_has_ended_moves_no_more() -> None:
    assert {status for status, _ in RUN_TRANSITIONS} == {"PENDING", "RUNNING"}
    assert {status for status, _ in STEP_TRANSITIONS} == {"PENDING", "READY", "RUNNING"}
    assert set(RUN_STATUSES) - {"PENDING", "RUNNING"} == set(ENDED_RUNS)


def test_ready_comes_from_the_orchestrator_s_events_only() -> None:
    events = {event for (_, event), after in STEP_TRANSITIONS.items() if after == "READY"}
    assert events == {"promote", "return"}


def test_skipped_and_cancelled_are_people_s() -> None:
    assert not {"SKIPPED", "CANCELLED"} & set(STEP_TRANSITIONS.values())
    assert "CANCELLED" not in RUN_TRANSITIONS.values()


def test_a_run_that_is_moved_against_its_table_is_a_bug() -> None:
    with pytest.raises(IllegalTransitionError, match="a CANCELLED run cannot succeed"):
        next_run_status("CANCELLED", "succeed")
