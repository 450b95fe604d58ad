"""`--journal` on commands that run a program, and `tda replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli import tda
from interpreters.shipped import FLOW_RUNS
from tests.golden.test_golden import FOLDER
from tests.journals import runs_of

FIVE, FLOW = FLOW_RUNS / "five_charts.json", FLOW_RUNS / "candles_then_charts.json"
DRAW = ("charts", "run-local", "--flow-run-path", FIVE)
FIVE_CHARTS = FOLDER / "journals" / "five_charts.jsonl"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tda, [*map(str, arguments)])


def problems(result: Result) -> list[str]:
    (entry,) = map(json.loads, result.stderr.splitlines())
    return [f"{one['where']}: {one['message']}" for one in entry["problems"]]


def test_what_a_command_did_can_be_replayed(tmp_path: Path) -> None:
    assert said(*DRAW, "--journal", "run.jsonl").exit_code == 0
    replayed = said("replay", "run.jsonl")
    assert replayed.exit_code == 0, replayed.output
    assert (
        replayed.stdout == "run.jsonl:1: chart-export of 20251215-102530_BTCUSDT_k3f7a: agrees in 16 decisions\n"
    )


def test_commands_of_the_orchestrator_append_to_the_same_file() -> None:
    assert said("flow", "apply", "--flow-run-path", FLOW, "--journal", "x.jsonl").exit_code == 0
    assert said("flow", "reap", "--journal", "x.jsonl", "--journal-texts").exit_code == 0
    runs = runs_of(Path("x.jsonl").read_text("utf-8"))
    assert [(run.kind.name, run.texts) for run in runs] == [("advance-flow", False), ("reap", True)]
    assert said("replay", "x.jsonl").stdout.endswith("2 runs: all agree\n")


def test_a_whole_flow_says_how_to_go_on_with_its_journal() -> None:
    ended = said("flow", "run", "--flow-run-path", FLOW, "--journal", "x.jsonl", "--journal-texts")
    assert ended.exit_code == 1
    assert "--journal x.jsonl --journal-texts" in ended.stderr
    assert {run.kind.name for run in runs_of(Path("x.jsonl").read_text("utf-8"))} == {"advance-flow"}


def test_without_a_flag_the_variable_names_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOURNAL_URI", f"file://{tmp_path}/journals")
    assert said("flow", "apply", "--flow-run-path", FLOW).exit_code == 0
    (path,) = (tmp_path / "journals").rglob("*.jsonl")
    assert said("replay", path, "--json").exit_code == 0


@pytest.mark.parametrize(
    ("flags", "variables", "expected"),
    [
        (["--journal", "no/such/x"], {}, "--journal no/such/x: cannot be written: No such file or directory"),
        (["--journal-texts"], {}, "--journal-texts: needs --journal FILE, or JOURNAL_URI"),
        ([], {"JOURNAL_URI": "s3://x"}, "JOURNAL_URI: must be gs://BUCKET/PREFIX, a folder, or file:///FOLDER"),
    ],
)
def test_a_wrong_call_stops_before_anything_is_claimed(
    flags: list[str], variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = said(*DRAW, *flags)
    assert (ended.exit_code, problems(ended)) == (2, [expected])
    assert list(tmp_path.iterdir()) == []


# Replay.


def doctored(**changes: Any) -> Path:
    """Write the journal of a real run, as if the program had called with another timeout."""
    text = FIVE_CHARTS.read_text("utf-8").replace('"timeoutSeconds": 60.0', '"timeoutSeconds": 61.0')
    Path("then.jsonl").write_text(text, "utf-8")
    return Path("then.jsonl")


def test_a_difference_is_shown_and_is_an_exit_code() -> None:
    ended = said("replay", doctored(), FIVE_CHARTS)
    assert ended.exit_code == 1
    first, line, then, now, *_ = ended.stdout.splitlines()
    assert first.endswith("5 differences in 16 decisions")
    assert line.endswith("timeoutSeconds")
    assert (then.strip(), now.strip()) == ("then: 61.0", "now:  60.0")
    assert ended.stdout.endswith("2 runs: 1 decided differently\n")


def test_machines_get_a_line_for_each_run() -> None:
    ended = said("replay", "--json", doctored(), FIVE_CHARTS)
    assert ended.exit_code == 1
    assert [json.loads(line)["agrees"] for line in ended.stdout.splitlines()] == [False, True]


def test_files_that_cannot_be_read_are_all_named_with_their_lines(tmp_path: Path) -> None:
    Path("garbage").write_bytes(b"\x89PNG")
    Path("newer").write_text(FIVE_CHARTS.read_text("utf-8").replace('"journal": 1', '"journal": 9', 1), "utf-8")
    ended = said("replay", "missing", "garbage", "newer", FIVE_CHARTS)
    assert ended.exit_code == 2
    assert problems(ended) == [
        "missing: cannot be read: No such file or directory",
        "garbage: line 1: is not JSON: Expecting value: line 1 column 1 (char 0)",
        "newer: line 1: is of a journal of version 9; this is version 1 of the format",
    ]


def test_a_journal_that_was_cut_off_is_replayed_so_far() -> None:
    Path("cut").write_text(FIVE_CHARTS.read_text("utf-8")[:9_000], "utf-8")
    ended = said("replay", "cut")
    assert ended.exit_code == 0
    assert "the journal ends early" in ended.stdout


def test_help_teaches() -> None:
    shown = said("replay", "--help").stdout
    assert "tda replay run.jsonl" in shown
    assert "Exit codes: 0" in shown
