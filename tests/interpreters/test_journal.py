"""Journals of real runs: where their lines go, and that they never cost a step."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from core.journal.kinds import CHARTS, Kind
from core.journal.settings import Bucket, Folder, JournalSettings, OneFile
from core.program import Next
from effects import ObjectNotStored, ObjectStored, Outcome, PutObject, TemplatesLoaded
from interpreters import shipped
from interpreters.clock import SystemClock
from interpreters.embedded import StateDirectory
from interpreters.journal import JournalFile, Journals, journals_on, run_journalled
from interpreters.objects.memory import ObjectMemory
from interpreters.telemetry import JsonLog
from tests.builders import RUN_ID, a_configuration, a_flow_run, some_inputs
from tests.journals import Lines, replayed, runs_of

CLOCK = SystemClock()


class Place:
    """A state directory whose runs have journals."""

    def __init__(self, folder: Path, journal: JournalSettings) -> None:
        self.state = StateDirectory(folder / "state", CLOCK, journal)
        self.log = io.StringIO()

    def run(self) -> str:
        """Draw the charts of a flow_run and return what became of the step."""
        self.state.place(a_flow_run())
        export = self.state.chart_export(a_configuration(), shipped.TEMPLATES, shipped.CHART_API_FIXTURES)
        return export.run(a_flow_run(), None, JsonLog(self.log, CLOCK)).status

    def events(self, name: str) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [entry for entry in entries if entry["event"] == name]


@pytest.fixture
def place_of(tmp_path: Path) -> Iterator[Any]:
    places = []

    def make(journal: JournalSettings) -> Place:
        places.append(Place(tmp_path, journal))
        return places[-1]

    yield make
    for one in places:
        one.state.close()


def test_runs_are_appended_to_one_file_each_with_its_own_first_line(place_of: Any, tmp_path: Path) -> None:
    place = place_of(JournalSettings(place=OneFile(str(tmp_path / "all.jsonl"))))
    assert [place.run(), place.run()] == ["SUCCEEDED", "SUCCEEDED"]
    runs = runs_of((tmp_path / "all.jsonl").read_text("utf-8"))
    assert [(run.kind, run.is_cut) for run in runs] == [(CHARTS, False)] * 2
    assert place.events("journal_failed") == []


def test_in_a_folder_each_run_has_a_file_named_after_it(place_of: Any, tmp_path: Path) -> None:
    place_of(JournalSettings(place=Folder(str(tmp_path / "journals")))).run()
    (path,) = (tmp_path / "journals").rglob("*.jsonl")
    again = replayed(path.read_text("utf-8"))
    assert (again.found, path.parent.name) == ((), RUN_ID)
    assert path.stem.endswith(f"_chart-export_charts-4h-all_{again.run.inputs.token[:12]}")


def test_in_a_bucket_each_run_has_an_object_stored_at_its_end(place_of: Any, tmp_path: Path) -> None:
    place_of(JournalSettings(place=Bucket("journals", "of/charts"), texts=True)).run()
    (path,) = (tmp_path / "state" / "artifacts" / "journals" / "of" / "charts" / RUN_ID).iterdir()
    assert replayed(path.read_text("utf-8")).run.texts


def test_lines_are_on_disk_as_soon_as_things_happen(tmp_path: Path) -> None:
    journals = journals_on(JournalSettings(place=OneFile(str(tmp_path / "x.jsonl"))), ObjectMemory(), CLOCK)
    assert journals is not None
    inputs = some_inputs()
    journal = journals.of(CHARTS, inputs, JsonLog(io.StringIO(), CLOCK), CLOCK)
    journal.begun(CHARTS.program.start(inputs).effects[0])
    assert len((tmp_path / "x.jsonl").read_text("utf-8").splitlines()) == 2
    journal.close()


def test_a_line_that_a_killed_worker_left_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"run": "torn", "beg', "utf-8")
    for line in ("one", "two"):
        file = JournalFile(path)
        file.write(line)
        file.close()
    assert path.read_text("utf-8") == '{"run": "torn", "beg\none\ntwo\n'


# A journal that cannot be written.


def test_a_folder_that_cannot_be_made_is_said_once_and_the_step_succeeds(place_of: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    place = place_of(JournalSettings(place=Folder(str(tmp_path / "taken"))))
    assert place.run() == "SUCCEEDED"
    (said,) = place.events("journal_failed")
    assert said["severity"] == "WARNING"
    assert said["message"].startswith("the journal is not written: ")


class FullDisk(Lines):
    """A sink that takes a few lines and no more."""

    def write(self, line: str) -> None:
        if len(self.lines) == 5:
            raise OSError(28, "No space left on device")
        super().write(line)


def test_a_disk_that_fills_up_is_said_once_and_the_step_succeeds(place_of: Any) -> None:
    place, disk = place_of(JournalSettings()), FullDisk()
    place.state._journals = Journals(lambda _: disk, texts=False)
    assert place.run() == "SUCCEEDED"
    (said,) = place.events("journal_failed")
    assert "No space left on device" in said["message"]
    again = replayed(disk.text)
    assert (again.found, again.run.is_cut) == ((), True)


def test_a_file_that_takes_only_a_part_of_a_line_is_an_error(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "x.jsonl")
    raw, file._file = file._file, _Stingy()  # type: ignore[assignment]
    with pytest.raises(OSError, match="not written to its end"):
        file.write("a line")
    raw.close()


class _Stingy:
    def write(self, data: bytes) -> int:
        return len(data) - 1


class Refusing(ObjectMemory):
    """A bucket into which nothing can be put."""

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        return ObjectNotStored(name=effect.name, reason="failed", message="403 Forbidden", at=now)


def test_a_bucket_that_refuses_is_said_and_the_step_succeeds(place_of: Any) -> None:
    place = place_of(JournalSettings())
    place.state._journals = journals_on(JournalSettings(place=Bucket("b", "")), Refusing(), CLOCK)
    assert place.run() == "SUCCEEDED"
    assert "403 Forbidden" in place.events("journal_failed")[0]["message"]


# A program that breaks.


def breaking(error: type[BaseException]) -> Kind[Any, Any]:
    def react(state: Any, outcome: Outcome) -> Next[Any]:
        if isinstance(outcome, TemplatesLoaded):
            raise error
        return CHARTS.program.react(state, outcome)

    return replace(CHARTS, program=replace(CHARTS.program, react=react))


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_abort_is_in_the_journal_and_followed_by_a_replay(place_of: Any, error: type[BaseException]) -> None:
    place, lines = place_of(JournalSettings()), Lines()
    place.state.place(a_flow_run())
    export = place.state.chart_export(a_configuration(), shipped.TEMPLATES, shipped.CHART_API_FIXTURES)
    kind, log = breaking(error), JsonLog(place.log, CLOCK)
    journals = Journals(lambda _: lines, texts=False)
    inputs = export.inputs(a_flow_run(), None)
    state = run_journalled(kind, inputs, export.interpreter, 2, log, [], journals)
    assert state.result.status == "FAILED"
    (run,) = runs_of(lines.text)
    assert [one.error_type for one in run.entries if hasattr(one, "error_type")] == [error.__name__]
    assert error is KeyboardInterrupt or replayed(lines.text, kind).found == ()
    said = [(one.was, one.now) for one in replayed(lines.text).found]
    assert said == (
        [] if error is KeyboardInterrupt else [("breaks with ZeroDivisionError", "begins ReserveAccount")]
    )
