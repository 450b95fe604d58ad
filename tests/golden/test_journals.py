"""Journals of real runs on the embedded default: today's programs still decide as they did then.

`make journals` records them anew; where one of these tests fails, first ask whether the new decision is meant.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.journal.kinds import CHARTS, KINDS, REPORTS
from core.journal.reading import JournalledRun, read_journal
from core.journal.replay import replay
from effects import Effect, ObjectRead, PutObject, Waited
from interpreters import shipped
from tests.golden.test_golden import FOLDER
from tests.journals import changed, journal_of, replayed
from tests.report_world import world_as_given

FILES = sorted((FOLDER / "journals").glob("*.jsonl"))
REPORT_CASES = sorted((FOLDER / "reports").glob("*.json"))


def runs_in(path: Path) -> tuple[JournalledRun, ...]:
    return read_journal(path.read_text("utf-8")).unwrap()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_real_run_of_then_is_decided_the_same_way_now(path: Path) -> None:
    again = [replay(run) for run in runs_in(path)]
    assert [one for replayed in again for one in replayed.certain] == []
    assert not any(one.run.is_cut or one.stopped for one in again)
    is_checked_in_full = path.stem != "whole_flow"
    assert is_checked_in_full != any(one.doubts for one in again)


def test_there_is_a_journal_of_every_program_and_of_all_that_is_hard() -> None:
    runs = [run for path in FILES for run in runs_in(path)]
    assert {run.kind.name for run in runs} == set(KINDS)
    assert {run.inputs.settings.mode for run in runs if run.kind in {CHARTS, REPORTS}} == {"mock"}
    came = [type(entry.outcome) for run in runs for entry in run.entries if hasattr(entry, "outcome")]
    assert {ObjectRead, Waited} <= set(came)


def test_a_program_that_were_changed_would_be_found_out_by_them() -> None:
    def elsewhere(effect: Effect) -> Effect:
        return replace(effect, bucket="elsewhere") if isinstance(effect, PutObject) else effect

    (run,) = runs_in(FOLDER / "journals" / "five_charts.jsonl")
    found = replay(run, changed(CHARTS, elsewhere)).certain
    assert len(found) == 6
    assert {one.what.partition(": ")[2] for one in found} == {"bucket"}
    lines = (FOLDER / "journals" / "five_charts.jsonl").read_text("utf-8").splitlines()
    assert all('"PutObject"' in lines[one.line - 1] for one in found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_texts_are_in_the_one_journal_that_was_asked_for_them(path: Path) -> None:
    text = path.read_text("utf-8")
    (prompt,) = shipped.PROMPTS.glob("*.json")
    words = json.loads(prompt.read_text("utf-8"))["userPrompt"][:40]
    assert (json.dumps(words)[1:-1].replace("\\", "\\\\") in text) == (path.stem == "whole_flow_with_texts")
    assert "\\u0089PNG" not in text


@pytest.mark.parametrize("path", REPORT_CASES, ids=lambda path: path.stem)
def test_every_golden_report_has_a_journal_that_agrees(path: Path) -> None:
    world = world_as_given(json.loads(path.read_text("utf-8"))["given"])
    world.run()
    assert replayed(journal_of(world, REPORTS)).certain == ()
    again = replayed(journal_of(world, REPORTS, texts=True))
    assert again.certain == ()
    assert again.found == () or again.doubts
