"""Whatever happens in a run, its journal replays without a difference; and wherever the journal ends, nothing breaks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from returns.result import Failure

from core.journal.kinds import CHARTS, REPORTS
from core.journal.reading import read_journal
from core.journal.replay import replay
from effects import Effect, Outcome
from tests.builders import TEMPLATE_IDS, a_configuration, an_account, some_inputs
from tests.journals import driven, journal_of, replayed
from tests.property.test_program_ends import outcomes as chart_outcomes
from tests.property.test_report_program_ends import FLOW_RUNS, Luck
from tests.property.test_report_program_ends import outcomes as report_outcomes
from tests.report_world import GOOD, ReportWorld, a_response, some_report_inputs
from tests.world import World

MODES = ["real", "mock", "record"]
SCRIPTS = ["png", "png", "timeout", "429 limit", "500 down", "401 key", "400 symbol", "missing"]
answers = st.dictionaries(
    st.sampled_from(TEMPLATE_IDS), st.lists(st.sampled_from(SCRIPTS), min_size=1, max_size=4)
)
lucks = st.builds(Luck, st.builds(Random, st.integers(0, 2**32)), st.sampled_from([0, 0.05, 0.1, 0.3, 0.6]))
breaks = st.none() | st.none() | st.integers(0, 20)


def chart_inputs(mode: str) -> Any:
    configuration = a_configuration([an_account("acc1"), an_account("acc2")])
    inputs = some_inputs(configuration, fixtures=frozenset({f"BINANCE_BTCUSDT__4h__{TEMPLATE_IDS[0]}"}))
    return replace(inputs, settings=replace(inputs.settings, mode=mode))


@settings(max_examples=25)
@given(answers=answers, mode=st.sampled_from(MODES), texts=st.booleans())
def test_the_journal_of_any_chart_export_in_the_virtual_world_agrees(
    answers: dict[str, list[str]], mode: str, texts: bool
) -> None:
    world = World(chart_inputs(mode), answers=answers)
    world.run()
    again = replayed(journal_of(world, CHARTS, texts=texts))
    assert (again.found, again.doubts, again.stopped) == ((), (), None)


@settings(max_examples=25)
@given(data=st.data(), mode=st.sampled_from(MODES), break_after=breaks)
def test_the_journal_of_any_outcomes_of_a_chart_export_in_any_order_shows_no_difference(
    data: st.DataObject, mode: str, break_after: int | None
) -> None:
    def answer(effect: Effect, at: datetime) -> Outcome:
        return chart_outcomes(effect, data.draw, at)

    def pick(number: int) -> int:
        return data.draw(st.integers(0, number - 1))

    assert replayed(driven(CHARTS, chart_inputs(mode), answer, pick, break_after=break_after)).certain == ()


@settings(max_examples=60)
@given(
    luck=lucks,
    mode=st.sampled_from(MODES),
    flow_run=st.sampled_from(FLOW_RUNS),
    break_after=breaks,
    texts=st.booleans(),
)
def test_the_journal_of_any_report_shows_no_difference_and_with_texts_no_doubt(
    luck: Luck, mode: str, flow_run: dict[str, Any], break_after: int | None, texts: bool
) -> None:
    at = [timedelta(0)]

    def answer(effect: Effect, now: datetime) -> Outcome:
        at[0] += luck.delay()
        return report_outcomes(effect, luck, now + at[0])

    inputs = some_report_inputs(flow_run, variables={"LLM_API_MODE": mode})
    text = driven(REPORTS, inputs, answer, luck.random.randrange, break_after=break_after, texts=texts)
    again = replayed(text)
    assert again.certain == ()
    assert not texts or (again.found, again.doubts, again.stopped) == ((), (), None)


REPORT = ReportWorld(answers=[a_response("no JSON"), a_response(GOOD)])
REPORT.run()
CHART_RUN = World(some_inputs(), answers={TEMPLATE_IDS[0]: ["500 down", "png"]})
CHART_RUN.run()
JOURNALS = [
    journal_of(REPORT, REPORTS),
    journal_of(REPORT, REPORTS, texts=True),
    journal_of(CHART_RUN, CHARTS),
    journal_of(REPORT, REPORTS) + journal_of(CHART_RUN, CHARTS).replace("token-1", "token-2"),
]


@settings(max_examples=60)
@given(text=st.sampled_from(JOURNALS), where=st.floats(0, 1))
def test_a_journal_that_is_cut_anywhere_replays_to_that_point(text: str, where: float) -> None:
    cut = text[: round(where * len(text))]
    read = read_journal(cut)
    if isinstance(read, Failure):
        assert "\n" not in cut
        return
    *whole, last = map(replay, read.unwrap())
    assert [one for one in (*whole, last) if one.certain] == []
    assert not any(one.run.is_cut for one in whole)
