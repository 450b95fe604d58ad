from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreters.simulation.chance import choose, draw
from interpreters.simulation.faults import (
    ALL_FAULTS,
    CLOCK_FAULTS,
    EVENT_FAULTS,
    FAULTS_OF,
    WHAT_IT_IS,
    Fault,
    Point,
    parse_faults,
    parse_schedule,
    schedule_text,
)

ACTORS = ("charts-1", "charts-2", "reports-1", "orchestrator-2", "given-1", "bus")
POINTS = st.builds(Point, st.sampled_from(ACTORS), st.integers(min_value=0, max_value=999))


@given(st.dictionaries(POINTS, st.sampled_from(Fault), max_size=6))
def test_a_schedule_is_read_from_its_text_as_it_was(schedule: dict[Point, Fault]) -> None:
    assert parse_schedule(schedule_text(schedule)) == schedule


@pytest.mark.parametrize("text", ["charts-1", "charts-1:crash-after", "charts-1:x:crash-after", "a:1:429:2"])
def test_what_is_not_a_schedule_is_shown_one(text: str) -> None:
    with pytest.raises(ValueError, match="is not like charts-1:3:crash-after"):
        parse_schedule(text)


def test_unknown_faults_are_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"there is no fault crash, nap; there are: crash-before, crash-after, "):
        parse_faults(["nap", "429", "crash"])
    with pytest.raises(ValueError, match=r"there is no fault nap; there are: crash-before, "):
        parse_schedule("charts-1:1:nap")


def test_faults_are_allowed_by_name() -> None:
    few = parse_faults(["429", "5xx"])
    assert few.faults == {Fault.LIMIT_SAID, Fault.SERVER_ERROR}
    assert few.among((Fault.BROKEN, Fault.SERVER_ERROR)) == (Fault.SERVER_ERROR,)
    assert parse_faults([]) is ALL_FAULTS
    assert pickle.loads(pickle.dumps(few)).faults == few.faults


def test_every_fault_can_befall_something_and_says_what_it_is() -> None:
    possible = {*EVENT_FAULTS, *CLOCK_FAULTS, *(one for faults in FAULTS_OF.values() for one in faults)}
    assert set(Fault) == possible == set(WHAT_IT_IS)


def test_chance_is_even_and_differs_at_every_point() -> None:
    drawn = [draw(seed, actor, number) for seed in range(100) for actor in range(-2, 8) for number in range(20)]
    assert len(set(drawn)) == len(drawn)
    for shift in range(0, 64, 8):
        counts = [0] * 16
        for bits in drawn:
            counts[choose(bits >> shift, 16) if shift <= 48 else bits >> 60] += 1
        assert max(counts) < 1.15 * len(drawn) / 16
        assert min(counts) > 0.85 * len(drawn) / 16
