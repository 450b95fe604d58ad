"""What a replay finds: where today's program decides differently, and where that cannot be said."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

import pytest

from core.journal.kinds import CHARTS, KINDS, REPORTS, Kind
from core.journal.replay import Difference, Doubt
from core.journal.summary import MAX_LISTED, all_as_text, replay_as_json, replay_as_text
from core.program import Next
from effects import (
    CallChartApi,
    CallModel,
    ChartRendered,
    ClaimStep,
    Effect,
    FinalizeStep,
    Outcome,
    PutObject,
    ReserveAccount,
    Wait,
)
from tests.builders import TEMPLATE_IDS, a_configuration, some_inputs
from tests.journals import Lines, a_journal, changed, journal_of, replayed
from tests.report_world import GOOD, ReportWorld, a_response
from tests.world import World


def charts(**changes: Any) -> World:
    world = World(some_inputs(a_configuration(CHARTS_MAX_PARALLEL="1")), **changes)
    world.run()
    return world


def reports(*answers: Any, **changes: Any) -> ReportWorld:
    world = ReportWorld(answers=answers or ["good"], **changes)
    world.run()
    return world


CHART_JOURNAL = journal_of(charts(), CHARTS)
REPORT_JOURNAL = journal_of(reports(), REPORTS)
WITH_TEXTS = journal_of(reports(), REPORTS, texts=True)


def line_of(text: str, *words: str) -> int:
    """Return the number of the first line that has all these words."""
    return next(i for i, line in enumerate(text.splitlines(), 1) if all(one in line for one in words))


def found(text: str, kind: Kind[Any, Any]) -> list[tuple[int, str, str, str]]:
    return [(one.line, one.what, one.was, one.now) for one in replayed(text, kind).certain]


# Programs that agree.


def test_the_programs_are_known_by_these_names() -> None:
    assert list(KINDS) == ["chart-export", "llm-report", "advance-flow", "reap", "given-step"]


def test_a_journal_agrees_with_the_program_that_wrote_it() -> None:
    again = replayed(CHART_JOURNAL)
    assert (again.found, again.doubts, again.decisions) == ((), (), 12)
    assert replay_as_text(again, "run.jsonl") == (
        "run.jsonl:1: chart-export of 20251215-102530_BTCUSDT_k3f7a: agrees in 12 decisions"
    )


def test_a_run_that_found_nothing_to_do_agrees() -> None:
    world = World(some_inputs(wanted_step="unheard-of"))
    world.run()
    assert replayed(journal_of(world, CHARTS)).decisions == 1


# Programs that were changed.


def another_bucket(effect: Effect) -> Effect:
    is_manifest = isinstance(effect, PutObject) and not effect.create_only
    return replace(effect, bucket="elsewhere") if is_manifest else effect  # type: ignore[type-var]


def test_a_field_that_is_another_is_named_with_its_path_and_line() -> None:
    line = line_of(CHART_JOURNAL, '"begun"', "manifest.json")
    expected = [(line, "PutObject, effect 10: bucket", '"local-artifacts"', '"elsewhere"')]
    assert found(CHART_JOURNAL, changed(CHARTS, another_bucket)) == expected


def test_a_nested_field_is_named_by_its_whole_path() -> None:
    def dearer(effect: Effect) -> Effect:
        if not isinstance(effect, ReserveAccount):
            return effect
        return replace(effect, accounts=(replace(effect.accounts[0], daily_limit=5),))

    ((line, what, was, now),) = found(CHART_JOURNAL, changed(CHARTS, dearer))
    assert (what, was, now) == ("ReserveAccount, effect 3: accounts[0].dailyLimit", "null", "5")
    assert line == line_of(CHART_JOURNAL, '"begun": 3')


def test_an_effect_that_does_not_begin_any_more_is_told_and_the_journal_followed_to_its_end() -> None:
    def without_last(effect: Effect) -> Effect | None:
        return None if isinstance(effect, FinalizeStep) else effect

    ((line, what, was, now),) = found(CHART_JOURNAL, changed(CHARTS, without_last))
    assert (line, what, now) == (
        line_of(CHART_JOURNAL, "FinalizeStep"),
        "FinalizeStep, effect 11",
        "does not begin",
    )
    assert was.startswith('{"effect": "FinalizeStep"')


def test_an_effect_that_begins_newly_is_told_with_what_it_comes_after() -> None:
    def twice(following: Next[Any]) -> Next[Any]:
        return replace(following, effects=(*following.effects, *following.effects[:1]))

    program = replace(CHARTS.program, start=lambda inputs: twice(CHARTS.program.start(inputs)))
    ((line, what, was, now),) = found(CHART_JOURNAL, replace(CHARTS, program=program))
    assert (line, what, was) == (1, "at the start", "no ClaimStep")
    assert '"stepId": "charts:4h:all"' in now


def test_a_result_that_is_another_is_told() -> None:
    poorer = replace(CHARTS, result=lambda state: replace(state.result, items_count=0))
    line = len(CHART_JOURNAL.splitlines())
    assert found(CHART_JOURNAL, poorer) == [(line, "result.itemsCount", "3", "0")]


def test_a_manifest_that_is_another_is_told_field_by_field() -> None:
    def renamed(effect: Effect) -> Effect:
        if not isinstance(effect, PutObject) or effect.create_only:
            return effect
        manifest = {**json.loads(effect.content.data or b""), "symbol": "ETHUSDT"}
        data = json.dumps(manifest).encode()
        return replace(effect, content=replace(effect.content, data=data, size=len(data)))

    ((_, what, was, now),) = found(CHART_JOURNAL, changed(CHARTS, renamed))
    assert (what, was, now) == ("PutObject, effect 10: content.text.symbol", '"BTCUSDT"', '"ETHUSDT"')


def test_several_differences_are_all_told() -> None:
    def slower(effect: Effect) -> Effect:
        return replace(effect, timeout_seconds=1.0) if isinstance(effect, CallChartApi) else effect

    assert [what for _, what, _, _ in found(CHART_JOURNAL, changed(CHARTS, slower))] == [
        f"CallChartApi, effect {number}: timeoutSeconds" for number in (4, 6, 8)
    ]


# Programs that break.


def breaking(kind: Kind[Any, Any], on: type, error: type[BaseException] = ZeroDivisionError) -> Kind[Any, Any]:
    def react(state: Any, outcome: Outcome) -> Next[Any]:
        if isinstance(outcome, on):
            raise error
        return kind.program.react(state, outcome)

    return replace(kind, program=replace(kind.program, react=react))


def test_a_program_that_breaks_now_is_told_and_followed_no_further() -> None:
    again = replayed(CHART_JOURNAL, breaking(CHARTS, ChartRendered))
    line = line_of(CHART_JOURNAL, '"ChartRendered"')
    what = "after ChartRendered of effect 4"
    expected = Difference(
        line=line, what=what, was="begins PutObject", now="breaks with ZeroDivisionError", is_certain=True
    )
    assert (again.found, again.stopped) == ((expected,), line)
    assert f"  line {line}: from here the journal cannot be followed" in replay_as_text(again, "x")


def test_a_program_that_breaks_at_its_start_is_told() -> None:
    def start(_: Any) -> NoReturn:
        raise KeyError

    again = replayed(CHART_JOURNAL, replace(CHARTS, program=replace(CHARTS.program, start=start)))
    assert [(one.what, one.was, one.now) for one in again.found] == [
        ("at the start", "begins ClaimStep", "breaks with KeyError")
    ]


def broken_journal(kind: Kind[Any, Any], error: type[BaseException] = ZeroDivisionError) -> str:
    """Return the journal of a run whose program broke when its first chart came, and was aborted."""
    inputs, lines = some_inputs(a_configuration(CHARTS_MAX_PARALLEL="1")), Lines()
    journal = a_journal(CHARTS, inputs, lines)
    world = World(inputs)
    following = kind.program.start(inputs)
    in_flight = [*following.effects]
    for effect in in_flight:
        journal.begun(effect)
    while in_flight:
        effect = in_flight.pop(0)
        outcome = world._outcome(effect, max(inputs.now, effect.until) if isinstance(effect, Wait) else inputs.now)
        journal.done(effect, outcome)
        try:
            following = kind.program.react(following.state, outcome)
        except (ZeroDivisionError, KeyboardInterrupt) as broke:
            journal.aborted(type(broke).__name__)
            following = kind.program.abort(following.state, type(broke).__name__)
        in_flight += following.effects
        for one in following.effects:
            journal.begun(one)
    journal.ended(following.state)
    return lines.text


def test_a_program_that_broke_and_breaks_the_same_way_agrees() -> None:
    broken = breaking(CHARTS, ChartRendered)
    assert replayed(broken_journal(broken), broken).found == ()


def test_a_program_that_broke_and_does_not_any_more_is_told_once_and_the_abort_followed() -> None:
    text = broken_journal(breaking(CHARTS, ChartRendered))
    expected = (
        line_of(text, '"ChartRendered"'),
        "after ChartRendered of effect 4",
        "breaks with ZeroDivisionError",
        "begins PutObject",
    )
    assert found(text, CHARTS) == [expected]


def test_a_program_that_breaks_otherwise_is_told() -> None:
    text = broken_journal(breaking(CHARTS, ChartRendered))
    ((_, _, was, now),) = found(text, breaking(CHARTS, ChartRendered, KeyError))
    assert (was, now) == ("breaks with ZeroDivisionError", "breaks with KeyError")


def test_an_interruption_is_no_difference() -> None:
    assert replayed(broken_journal(breaking(CHARTS, ChartRendered, KeyboardInterrupt))).found == ()


def test_an_interruption_while_the_program_waits_is_followed() -> None:
    lines = [*CHART_JOURNAL.splitlines()[:2], '{"run": "token-1", "aborted": "KeyboardInterrupt"}']
    again = replayed("\n".join(lines))
    assert (again.found, again.decisions, again.run.is_cut) == ((), 2, True)
    assert "the journal ends early" in replay_as_text(again, "x")


def test_an_abort_that_begins_other_things_is_told() -> None:
    text = broken_journal(breaking(CHARTS, ChartRendered, KeyboardInterrupt))
    idle = replace(CHARTS.program, abort=lambda state, _: Next(state))
    again = replayed(text, replace(CHARTS, program=idle))
    assert again.certain[0].line == line_of(text, '"begun": 5')
    busy = replace(CHARTS.program, abort=lambda state, _: Next(state, CHARTS.program.start(state.inputs).effects))
    again = replayed(text, replace(CHARTS, program=busy))
    assert "after the abort (KeyboardInterrupt)" in [one.what for one in again.certain]


def test_a_reaction_that_began_nothing_before_an_interruption_counts() -> None:
    """It came, nothing was to be begun after it, and then somebody pressed Ctrl-C."""
    world = World(some_inputs(), answers={TEMPLATE_IDS[0]: ["png"]})
    world.run()
    lines = journal_of(world, CHARTS).splitlines()
    stored = next(i for i, line in enumerate(lines) if '"ObjectStored"' in line)
    assert '"done"' in lines[stored + 1]
    cut = [*lines[: stored + 1], '{"run": "token-1", "aborted": "KeyboardInterrupt"}']
    assert replayed("\n".join(cut)).found == ()


# Texts that are not there.


def test_a_report_whose_texts_are_not_in_its_journal_agrees_as_far_as_can_be_checked() -> None:
    again = replayed(REPORT_JOURNAL)
    assert again.certain == ()
    assert again.doubts == tuple(
        Doubt(line=line_of(REPORT_JOURNAL, f'"outcome": {{"outcome": "{name}"', word), outcome=name)
        for name, word in (("PromptLoaded", ""), ("ObjectRead", "candles.json"), ("ModelAnswered", ""))
    )
    said = replay_as_text(again, "run.jsonl")
    assert "decisions, as far as can be checked" in said
    assert said.endswith("a run with --journal-texts keeps them")


def test_a_report_whose_texts_are_in_its_journal_is_checked_to_the_last_letter() -> None:
    again = replayed(WITH_TEXTS)
    assert (again.found, again.doubts) == ((), ())


def test_a_prompt_that_is_put_otherwise_is_told_where_texts_were_kept() -> None:
    def louder(effect: Effect) -> Effect:
        if not isinstance(effect, CallModel):
            return effect
        data = (effect.user.data or b"").replace(b"month", b"MONTH")
        return replace(effect, user=replace(effect.user, data=data))

    ((_, what, was, now),) = found(WITH_TEXTS, changed(REPORTS, louder))
    assert what.startswith("CallModel, effect 9: user.text[")
    assert (was, now) == ('"Write about the month."', '"Write about the MONTH."')


def test_what_does_not_rest_on_a_text_is_told_before_one_is_missing() -> None:
    def other_step(effect: Effect) -> Effect:
        return replace(effect, lease_seconds=1) if isinstance(effect, ClaimStep) else effect

    assert [what for _, what, _, _ in found(REPORT_JOURNAL, changed(REPORTS, other_step))] == [
        "ClaimStep, effect 1: leaseSeconds"
    ]


@pytest.mark.parametrize(
    "answers",
    [
        [a_response("no JSON"), a_response(GOOD)],
        [a_response("no JSON"), a_response("still none")],
        ["SAFETY"],
        ["500 INTERNAL oh"],
        ["timeout"],
    ],
)
def test_an_answer_that_was_not_as_hoped_is_no_difference_without_its_text(answers: list[Any]) -> None:
    world = reports(*answers)
    again = replayed(journal_of(world, REPORTS))
    assert again.certain == ()
    assert replayed(journal_of(world, REPORTS, texts=True)).found == ()


def test_a_difference_after_a_missing_text_is_shown_as_one_that_may_come_of_it() -> None:
    again = replayed(REPORT_JOURNAL, breaking(REPORTS, object))
    assert again.certain
    again = replayed(REPORT_JOURNAL, changed(REPORTS, lambda one: None if isinstance(one, FinalizeStep) else one))
    assert again.certain == ()
    assert [one.now for one in again.uncertain] == ["does not begin"]
    assert "which may come of that:" in replay_as_text(again, "x")


def test_a_missing_text_after_which_all_is_as_it_was_is_said_too() -> None:
    line = line_of(REPORT_JOURNAL, '"outcome": "PromptLoaded"')
    again = replayed("\n".join(REPORT_JOURNAL.splitlines()[:line]))
    assert (again.found, len(again.doubts)) == ((), 1)
    assert "which may come of that" not in replay_as_text(again, "x")


def test_bytes_that_are_no_text_cannot_be_kept_and_that_is_said_without_advice() -> None:
    world = reports(given={**ReportWorld().given, "candles.json": b"\xff\xfe"})
    again = replayed(journal_of(world, REPORTS, texts=True))
    assert [one.outcome for one in again.doubts] == ["ObjectRead"]
    assert "--journal-texts" not in replay_as_text(again, "x")


# What is said.


def test_machines_are_told_the_same() -> None:
    again = replayed(CHART_JOURNAL, changed(CHARTS, another_bucket))
    said = replay_as_json(again, "run.jsonl")
    assert said.pop("differences") == [
        {
            "line": line_of(CHART_JOURNAL, '"begun"', "manifest.json"),
            "what": "PutObject, effect 10: bucket",
            "was": '"local-artifacts"',
            "now": '"elsewhere"',
        }
    ]
    assert said == {
        "file": "run.jsonl",
        "line": 1,
        "program": "chart-export",
        "subject": "20251215-102530_BTCUSDT_k3f7a",
        "agrees": False,
        "decisions": 12,
        "endsEarly": False,
        "stoppedAtLine": None,
        "uncertain": [],
        "unchecked": [],
    }


def test_people_are_told_what_was_then_and_what_is_now() -> None:
    line = line_of(CHART_JOURNAL, '"begun"', "manifest.json")
    assert replay_as_text(replayed(CHART_JOURNAL, changed(CHARTS, another_bucket)), "run.jsonl") == (
        "run.jsonl:1: chart-export of 20251215-102530_BTCUSDT_k3f7a: 1 difference in 12 decisions\n"
        f"  line {line}: PutObject, effect 10: bucket\n"
        '    then: "local-artifacts"\n'
        '    now:  "elsewhere"'
    )


def test_of_many_differences_the_first_are_listed() -> None:
    def later(effect: Effect) -> Effect:
        moments = {
            name: getattr(effect, name) + timedelta(days=1)
            for name in effect.__dataclass_fields__
            if isinstance(getattr(effect, name), datetime)
        }
        return replace(effect, **moments) if moments else effect  # type: ignore[arg-type]

    world = charts(answers=dict.fromkeys(TEMPLATE_IDS, ["500 down"] * 2 + ["png"]))
    again = replayed(journal_of(world, CHARTS), changed(CHARTS, later))
    assert replay_as_text(again, "x").endswith(f"  and {len(again.certain) - MAX_LISTED} more")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((CHART_JOURNAL,), "1 run: all agree"),
        ((CHART_JOURNAL, REPORT_JOURNAL), "2 runs: all agree, 1 could not be checked in full"),
    ],
)
def test_several_runs_are_summed_up(texts: tuple[str, ...], expected: str) -> None:
    assert all_as_text([replayed(one) for one in texts]) == expected


def test_a_sum_counts_who_decided_differently() -> None:
    again = [replayed(CHART_JOURNAL), replayed(CHART_JOURNAL, changed(CHARTS, another_bucket))]
    assert all_as_text(again) == "2 runs: 1 decided differently"
