"""Runs that broke a promise once; `past.json` says what the bug was.

The schedules were found by undoing the fix. Where a change of the simulator moves a point, the fault would not happen any more, and the
test says so: undo the fix again, and write down the schedule that it breaks with now.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interpreters.simulation.faults import parse_schedule
from interpreters.simulation.runs import by_seeds, with_schedule
from interpreters.simulation.scenarios import choices_of

PAST: list[dict[str, Any]] = json.loads((Path(__file__).parent / "past.json").read_text("utf-8"))


def _name(one: dict[str, Any]) -> str:
    return f"{one['seed']}-{one['steps']}"


@pytest.mark.parametrize("one", PAST, ids=_name)
def test_a_seed_that_failed_once_keeps_every_promise(one: dict[str, Any]) -> None:
    assert by_seeds([one["seed"]]).failures == []
    assert by_seeds([one["seed"]], shape=one["steps"]).failures == []


@pytest.mark.parametrize("one", [one for one in PAST if one["only"]], ids=_name)
def test_the_faults_that_broke_a_promise_once_happen_and_break_none(one: dict[str, Any]) -> None:
    schedule = parse_schedule(one["only"])
    world, violation = with_schedule(one["seed"], choices_of(one["seed"], one["steps"]), schedule)
    assert violation is None
    assert world.happened == schedule
