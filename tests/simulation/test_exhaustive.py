"""All single and double faults of one step, in parts that xdist spreads."""

from __future__ import annotations

import pytest

from interpreters.simulation.faults import Fault, parse_faults
from interpreters.simulation.runs import exhaustive
from interpreters.simulation.scenarios import Shape

PARTS: dict[Shape, int] = {"charts": 4, "report": 6}


@pytest.mark.parametrize(
    ("shape", "part"), [(shape, (i, count)) for shape, count in PARTS.items() for i in range(count)]
)
def test_no_two_faults_of_one_step_break_a_promise(shape: Shape, part: tuple[int, int]) -> None:
    tally = exhaustive(shape, part=part)
    assert tally.failures == []
    assert tally.runs > 100


def test_the_parts_of_a_walk_make_its_runs_once() -> None:
    few = parse_faults([Fault.ANSWER_LOST.value])
    whole = exhaustive("charts", allowed=few)
    parts = [exhaustive("charts", allowed=few, part=(i, 3)) for i in range(3)]
    assert whole.runs == sum(one.runs for one in parts) > 10
    assert whole.effects == sum(one.effects for one in parts)


def test_a_walk_goes_as_deep_as_it_is_told() -> None:
    few = parse_faults([Fault.TRANSIENT.value])
    runs = [exhaustive("charts", depth, few).runs for depth in range(3)]
    assert runs[0] == 1
    assert runs[0] < runs[1] < runs[2]
