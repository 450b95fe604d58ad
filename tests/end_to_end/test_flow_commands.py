from __future__ import annotations

import copy
import json
import os
import pty
import re
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.documents import Decision, ReplaceDocument
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.shipped import FLOW_RUNS
from tests.builders import CANARY, a_claim, a_flow_run, a_plain_step
from tests.end_to_end.console import (
    EVERY_ENTRY,
    PATIENCE_SECONDS,
    SCRIPTS,
    Call,
    Ended,
    artifacts,
    call_all,
    environment,
    exported,
    object_file,
    write_flow_run,
    write_json,
)
from tests.end_to_end.pacing_server import Asked, Reply, serving

TDA_FLOW = (str(SCRIPTS / "tda"), "flow")
ADVANCE_FLOW = (str(SCRIPTS / "advance-flow"),)
SAMPLE = FLOW_RUNS / "candles_then_charts.json"
FLOW_RUN: dict[str, Any] = json.loads(SAMPLE.read_text("utf-8"))
RUN_ID: str = FLOW_RUN["runId"]
STEPS = ["candles:4h", "charts:4h", "charts:1d"]
CANDLES = FLOW_RUNS.parent / "candles" / "BTCUSDT_4h.json"
STATE = ("--state-dir", "state")
RUN = ("run", "--flow-run-path", "flow_run.json", *STATE)
GIVEN = ("--given", f"candles:4h={CANDLES}")
ACCOUNTS = json.dumps([{"id": "acc1", "apiKey": CANARY, "requestsPerSecond": 50}])
PLANTED = {"CHART_IMG_ACCOUNTS_JSON": ACCOUNTS, "LOG_LEVEL": "DEBUG"}


def flow(folder: Path, *arguments: str | Path, document: object = FLOW_RUN, **changes: Any) -> Call:
    """Return a call of `tda flow` in a folder that has the document."""
    folder.mkdir(parents=True, exist_ok=True)
    write_flow_run(folder, document)
    return Call(folder, arguments, **{"command": TDA_FLOW, "variables": PLANTED, **changes})


def store(state: Path, *documents: dict[str, Any]) -> None:
    """Put flow_runs into a state directory as an earlier process would have left them."""
    with closing(SqliteDocuments(state / "documents.sqlite3", announced="flow_runs")) as opened:
        for one in documents:
            path, change = (
                f"flow_runs/{one['runId']}",
                ReplaceDocument(path=f"flow_runs/{one['runId']}", document=one),
            )
            opened.transact((path,), lambda _, change=change: Decision(None, (change,)))  # type: ignore[misc]


def stored(state: Path, run_id: str = RUN_ID) -> dict[str, Any]:
    with closing(SqliteDocuments(state / "documents.sqlite3")) as opened:
        return dict(opened.collection("flow_runs")[f"flow_runs/{run_id}"])


def statuses(flow_run: Mapping[str, Any]) -> dict[str, str]:
    return {step_id: step["status"] for step_id, step in flow_run["steps"].items()}


def echo_the_key(asked: Asked) -> Reply:
    return Reply(400, json.dumps({"message": f"no charts for {asked.key}"}).encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flow")


# Whole flows.


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Ended]:
    """Run whole flows, and those that go on with them."""
    with serving(echo_the_key) as server:
        real = {**PLANTED, "CHARTS_API_MODE": "real", "CHART_IMG_BASE_URL": server.url, "CHARTS_MAX_ATTEMPTS": "1"}
        first = {
            "text": flow(folder / "text", *RUN, *GIVEN),
            "json": flow(folder / "json", *RUN, *GIVEN, "--output-summary", "json", command=ADVANCE_FLOW),
            "waiting": flow(folder / "waiting", *RUN),
            "waiting, as json": flow(folder / "waiting too", *RUN, "--output-summary", "json"),
            "failing": flow(folder / "failing", *RUN, *GIVEN, variables=real),
            "killed after it failed": flow(killed_after_it_failed(folder / "killed"), *RUN, *GIVEN),
            "cycle": flow(folder / "cycle", *RUN, document=a_cycle()),
        }
        ended = call_all(first)
    resume = ("resume", RUN_ID, *STATE)
    second = {
        "run again while it waits": flow(folder / "waiting", *RUN, *GIVEN, "--charts-api-mode", "mock"),
        "run again after its end": flow(folder / "text", *RUN, *GIVEN, "--output-summary", "none"),
        "resumed after its end": flow(folder / "failing", *resume),
    }
    ended |= call_all(second)
    return ended | call_all({"resumed with the file": flow(folder / "waiting", *resume, *GIVEN)})


def killed_after_it_failed(folder: Path) -> Path:
    """Leave a run as a process does that is killed when one step has failed and another is at work."""
    document = copy.deepcopy(FLOW_RUN)
    document["status"] = "FAILED"
    document["steps"]["charts:4h"] |= {"status": "RUNNING", "outputs": a_claim(1, "2999-01-01T00:00:00Z")}
    document["steps"]["candles:4h"] |= {"status": "FAILED"}
    store(folder / "state", document)
    return folder


def a_cycle() -> dict[str, Any]:
    document = copy.deepcopy(FLOW_RUN)
    document["steps"]["candles:4h"]["dependsOn"] = ["charts:1d"]
    document["steps"]["extra"] = a_plain_step("PENDING", ["nowhere"])
    return document


def test_the_shipped_sample_runs_to_its_end_with_one_command(runs: Mapping[str, Ended], folder: Path) -> None:
    ended = runs["text"]
    assert ended.code == 0
    assert ended.stdout == "FLOW SUCCEEDED: candles:4h=SUCCEEDED, charts:4h=SUCCEEDED, charts:1d=SUCCEEDED\n"
    state = folder / "json" / "state"
    assert exported(state, RUN_ID) == stored(state)
    document = exported(state, RUN_ID)
    assert (document["status"], set(statuses(document).values())) == ("SUCCEEDED", {"SUCCEEDED"})
    given = document["steps"]["candles:4h"]["outputs"]["gcs_uri"]
    assert object_file(state, given).read_bytes() == CANDLES.read_bytes()
    assert len(artifacts(state, "*.png")) == 5


def test_the_console_script_is_the_same_and_its_json_is_one_object(runs: Mapping[str, Ended]) -> None:
    assert runs["json"].code == 0
    assert runs["json"].stdout.count("\n") == 1
    assert runs["json"].summary() == {
        "status": "SUCCEEDED",
        "runId": RUN_ID,
        "steps": dict.fromkeys(STEPS, "SUCCEEDED"),
        "waitsFor": [],
        "errorCode": None,
    }


def test_the_log_says_what_the_orchestrator_and_the_workers_did(runs: Mapping[str, Ended]) -> None:
    ended = runs["json"]
    assert all(set(entry) >= EVERY_ENTRY for entry in ended.events())
    assert {entry["service"] for entry in ended.events()} == {"advance-flow"}
    assert {entry["runId"] for entry in ended.events()} == {RUN_ID}
    assert [entry["stepId"] for entry in ended.events("step_promoted")] == STEPS
    assert [entry["stepId"] for entry in ended.events("step_completed")] == STEPS
    assert [entry["status"] for entry in ended.events("flow_run_status_changed")] == ["RUNNING", "SUCCEEDED"]


def test_the_input_file_is_never_changed(runs: Mapping[str, Ended], folder: Path) -> None:
    assert runs
    for name in ("text", "waiting", "failing"):
        assert json.loads((folder / name / "flow_run.json").read_text("utf-8")) == FLOW_RUN


def test_a_run_that_waits_says_which_step_waits_for_whom(runs: Mapping[str, Ended], folder: Path) -> None:
    ended = runs["waiting"]
    line = "candles:4h is READY, and no worker here serves OHLCV_EXPORT: --given candles:4h=FILE; charts:4h waits for it"
    assert (ended.code, ended.stdout.splitlines()) == (
        1,
        ["FLOW WAITING: candles:4h=READY, charts:4h=PENDING, charts:1d=PENDING", f"waiting: {line}"],
    )
    (stopped,) = ended.events("local_run_stopped")
    assert stopped["message"] == f"the run has not ended; go on with: tda flow resume {RUN_ID} --state-dir state"
    said = runs["waiting, as json"]
    assert (said.code, said.summary()["status"], said.summary()["waitsFor"]) == (1, "WAITING", [line])


def test_a_run_that_has_not_ended_is_not_begun_anew(runs: Mapping[str, Ended]) -> None:
    ended = runs["run again while it waits"]
    go_on = f"tda flow resume {RUN_ID} --state-dir state --charts-api-mode mock --given candles:4h={CANDLES}"
    assert (ended.code, ended.stdout) == (2, "")
    where = f"--flow-run-path flow_run.json: run {RUN_ID} is stored in --state-dir state and has not ended"
    assert ended.problems() == [f"{where}; go on with: {go_on}"]


def test_a_run_that_waited_goes_on_with_the_file(runs: Mapping[str, Ended]) -> None:
    ended = runs["resumed with the file"]
    assert (ended.code, ended.stdout.partition(":")[0]) == (0, "FLOW SUCCEEDED")


def test_a_run_that_has_ended_can_be_run_again_and_says_nothing_where_nothing_is_asked_for(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    assert (runs["run again after its end"].code, runs["run again after its end"].stdout) == (0, "")
    steps = exported(folder / "text" / "state", RUN_ID)["steps"].values()
    assert {step["outputs"]["execution"]["claim"]["attempt"] for step in steps} == {1}


def test_a_chart_step_that_fails_ends_the_run(runs: Mapping[str, Ended], folder: Path) -> None:
    expected = (
        "FLOW FAILED: candles:4h=SUCCEEDED, charts:4h=FAILED, charts:1d=PENDING, error=DEPENDENCY_UNSATISFIABLE\n"
    )
    assert (runs["failing"].code, runs["failing"].stdout) == (1, expected)
    document = exported(folder / "failing" / "state", RUN_ID)
    assert document["error"]["details"]["steps"] == ["charts:1d"]
    assert "charts:4h" in document["error"]["message"]
    assert document["progress"]["stepCounts"]["failed"] == 1


def test_a_run_that_failed_is_not_taken_up_again(runs: Mapping[str, Ended]) -> None:
    ended = runs["resumed after its end"]
    assert (ended.code, ended.stdout) == (1, runs["failing"].stdout)
    assert [entry["event"] for entry in ended.events()] == ["local_run_started"]


def test_a_failed_run_whose_worker_was_killed_can_be_run_again_at_once(runs: Mapping[str, Ended]) -> None:
    ended = runs["killed after it failed"]
    assert (ended.code, ended.stdout.partition(":")[0]) == (0, "FLOW SUCCEEDED")


def test_a_run_that_can_never_end_is_refused_at_once(runs: Mapping[str, Ended], folder: Path) -> None:
    assert runs["cycle"].code == 1
    assert runs["cycle"].stdout.endswith("error=FLOW_RUN_INVALID\n")
    error = exported(folder / "cycle" / "state", RUN_ID)["error"]
    assert error["details"]["steps"] == sorted([*STEPS, "extra"])
    assert "nowhere" in error["message"]


def test_a_planted_key_appears_nowhere(runs: Mapping[str, Ended], folder: Path) -> None:
    assert "no charts for ***" in runs["failing"].stderr
    for name, ended in runs.items():
        assert CANARY not in ended.stdout + ended.stderr, name
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name.startswith("documents.sqlite3") for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


# Wrong calls.

STORED_ONCE = ("RUN_ID: name a stored run, or a file with --flow-run-path: one of the two",)
FILE = ("--flow-run-path", "flow_run.json")
WRONG: dict[str, tuple[tuple[str | Path, ...], tuple[str, ...]]] = {
    "every --given that is wrong": (
        (
            *RUN,
            *("--given", "candles:4h", "--given", "=x", "--given", "nope=x", "--given", f"charts:4h={CANDLES}"),
            *("--given", "candles:4h=nowhere.json", "--given", "candles:4h=.", *GIVEN, *GIVEN),
        ),
        (
            "--given candles:4h: must be STEP_ID=FILE",
            "--given =x: must be STEP_ID=FILE",
            "--given nope=x: there is no step 'nope'; steps are: candles:4h, charts:1d, charts:4h",
            f"--given charts:4h={CANDLES}: is a step that worker-chart-export does; only steps without a worker are given",
            "--given candles:4h=nowhere.json: cannot be read: No such file or directory",
            "--given candles:4h=.: cannot be read: Is a directory",
            f"--given candles:4h={CANDLES}: candles:4h is given twice",
        ),
    ),
    "no such file": (
        ("run", "--flow-run-path", "nowhere.json", *STATE),
        ("--flow-run-path nowhere.json: cannot be read: No such file or directory",),
    ),
    "not a flow_run": (
        ("run", "--flow-run-path", "list.json", *STATE),
        ("list.json: (top): is a list; must be a flow_run object",),
    ),
    "plan of both": (("plan", RUN_ID, *FILE), STORED_ONCE),
    "plan of none": (("plan", *STATE), STORED_ONCE),
    "graph of steps that make no sense": (
        ("graph", "--flow-run-path", "odd.json"),
        (
            "steps.a.status: is 'DONE'; must be one of PENDING, READY, ",
            "steps.b.dependsOn: must be a list of step ids",
        ),
    ),
    "graph of an unknown run": (("graph", "nope", *STATE), ("RUN_ID: there is no run nope in --state-dir state",)),
    "apply of an unknown run": (("apply", "nope", *STATE), ("RUN_ID: there is no run nope in --state-dir state",)),
    "resume of a path": (("resume", "../x", *STATE), ("RUN_ID: there is no run '../x' in --state-dir state",)),
    "resume of a run in a file that is no store": (
        ("resume", RUN_ID, "--state-dir", "odd"),
        ("--state-dir odd: cannot be read: no such column: body",),
    ),
    "run in a file that is no store": (
        ("run", *FILE, "--state-dir", "odd too"),
        ("--state-dir odd too: cannot be read: no such column: body",),
    ),
    "a moment that is none": (("plan", *FILE, "--now", "today"), ("--now: must be RFC 3339",)),
}


@pytest.fixture(scope="module")
def wrong(folder: Path) -> dict[str, Ended]:
    here = folder / "wrong"
    write_json(here / "list.json", [1])
    odd = {"a": {"stepType": "X", "status": "DONE"}, "b": {"stepType": "X", "status": "READY", "dependsOn": "a"}}
    write_json(here / "odd.json", a_flow_run(odd))
    for name in ("odd", "odd too"):
        (here / name).mkdir()
        with closing(sqlite3.connect(here / name / "documents.sqlite3")) as connection:
            connection.execute("CREATE TABLE documents (path TEXT)")
    calls = {name: flow(here, *arguments) for name, (arguments, _) in WRONG.items()}
    settings = {"STEP_MAX_ATTEMPTS": "0", "LOG_LEVEL": "LOUD"}
    calls["settings"] = flow(here, *RUN, *GIVEN, variables=settings)
    return call_all(calls)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_everything_that_is_wrong_and_exits_2(wrong: Mapping[str, Ended], name: str) -> None:
    ended, expected = wrong[name], WRONG[name][1]
    assert "Traceback" not in ended.stderr
    assert (ended.code, ended.stdout) == (2, "")
    problems = ended.problems()
    assert len(problems) == len(expected)
    for problem, start in zip(problems, expected, strict=True):
        assert problem.startswith(start)


def test_settings_that_are_wrong_are_said_before_anything_is_stored(
    wrong: Mapping[str, Ended], folder: Path
) -> None:
    assert wrong["settings"].code == 2
    assert [one.partition(":")[0] for one in wrong["settings"].problems()] == ["STEP_MAX_ATTEMPTS", "LOG_LEVEL"]
    assert not (folder / "wrong" / "state").exists()


# One pass.

NOW = ("--now", "2025-12-15T12:00:00Z")


def changed(ended: Ended) -> dict[str, tuple[Any, Any]]:
    return {one["path"]: (one["before"], one["after"]) for one in ended.summary()["changes"]}


@pytest.fixture(scope="module")
def passes(folder: Path) -> dict[str, Ended]:
    """Look at a file, make one pass over it, and look at what is stored then."""
    here = folder / "passes"
    first = {
        "plan": flow(here, "plan", *FILE, *NOW, *STATE),
        "plan json": flow(here, "plan", *FILE, *NOW, *STATE, "--format", "json", command=ADVANCE_FLOW),
        "graph": flow(here, "graph", *FILE, *STATE),
        "graph mermaid": flow(here, "graph", *FILE, *STATE, "--format", "mermaid"),
    }
    ended = call_all(first)
    assert not (here / "state").exists()
    ended |= call_all({"apply": flow(here, "apply", *FILE, *STATE, "--format", "json")})
    by_id = {name: flow(here, name, RUN_ID, *STATE) for name in ("plan", "apply", "graph")}
    return ended | {f"{name} by id": one for name, one in call_all(by_id).items()}


def test_a_plan_says_what_one_pass_would_change_and_why(passes: Mapping[str, Ended]) -> None:
    lines = passes["plan"].stdout.splitlines()
    assert (passes["plan"].code, passes["plan"].stderr) == (0, "")
    assert lines[0] == 'steps["candles:4h"].status  PENDING -> READY  (it depends on nothing)'
    assert lines[1] == "status                      PENDING -> RUNNING  (steps are READY or RUNNING)"
    assert lines[-1] == "updatedAt                   none -> 2025-12-15T12:00:00Z  (the document changed)"


def test_a_plan_as_json_is_what_apply_does(passes: Mapping[str, Ended]) -> None:
    planned, done = changed(passes["plan json"]), changed(passes["apply"])
    assert planned['steps["candles:4h"].status'] == ("PENDING", "READY")
    assert planned.pop("updatedAt") != done.pop("updatedAt")
    assert planned == done
    assert passes["apply"].summary()["runId"] == RUN_ID


def test_apply_stores_the_document_and_leaves_the_steps_to_workers(
    passes: Mapping[str, Ended], folder: Path
) -> None:
    state = folder / "passes" / "state"
    assert statuses(stored(state)) == {"candles:4h": "READY", "charts:4h": "PENDING", "charts:1d": "PENDING"}
    assert exported(state, RUN_ID) == stored(state)
    assert [entry["event"] for entry in passes["apply"].events()] == ["step_promoted", "flow_run_status_changed"]


def test_a_second_pass_over_the_stored_run_changes_nothing(passes: Mapping[str, Ended]) -> None:
    for name in ("apply by id", "plan by id"):
        assert (passes[name].code, passes[name].stdout, passes[name].stderr) == (0, "nothing to change\n", "")


def test_the_graph_of_a_file_and_of_a_stored_run(passes: Mapping[str, Ended]) -> None:
    before = [
        f"flow_run {RUN_ID}: PENDING",
        "  PENDING    candles:4h  OHLCV_EXPORT",
        "  PENDING    charts:4h   CHART_EXPORT  after candles:4h",
        "  PENDING    charts:1d   CHART_EXPORT  after charts:4h",
    ]
    assert passes["graph"].stdout.splitlines() == before
    after = passes["graph by id"].stdout.splitlines()
    assert after[:2] == [f"flow_run {RUN_ID}: RUNNING", "  READY      candles:4h  OHLCV_EXPORT"]
    assert after[2:] == before[2:]


def test_the_graph_as_mermaid(passes: Mapping[str, Ended]) -> None:
    lines = passes["graph mermaid"].stdout.splitlines()
    assert lines[:2] == ["flowchart TD", '  s1["candles:4h<br/>OHLCV_EXPORT<br/>PENDING"]:::PENDING']
    assert [line for line in lines if "-->" in line] == ["  s1 --> s2", "  s2 --> s3"]


# Abandoned steps.

PAST, FUTURE = "2025-12-15T10:00:00Z", "2999-01-01T00:00:00Z"


def a_running(run_id: str, lease_until: str | None, **changes: Any) -> dict[str, Any]:
    step = a_plain_step("RUNNING", outputs=a_claim(1, lease_until))
    counts = dict.fromkeys(("pending", "ready", "succeeded", "failed", "skipped", "cancelled"), 0)
    progress = {"currentStepId": "a", "stepCounts": {"total": 1, "running": 1, **counts}}
    return a_flow_run({"a": step}, runId=run_id, progress=progress, **changes)


@pytest.fixture(scope="module")
def reaped(folder: Path) -> dict[str, Ended]:
    calls = {
        "text": (),
        "json": ("--format", "json"),
        "last attempt": ("--format", "json"),
        "assumed": ("--format", "json", "--assume-lease", "60"),
    }
    for name in calls:
        store(
            folder / f"reap {name}" / "state",
            a_running("abandoned", PAST),
            a_running("held", FUTURE),
            a_running("leaseless", None),
            a_running("over", PAST, status="CANCELLED"),
        )
    limits = {"last attempt": {"STEP_MAX_ATTEMPTS": "1"}}
    return call_all(
        {
            name: flow(folder / f"reap {name}", "reap", *STATE, *flags, variables=limits.get(name, {}))
            for name, flags in calls.items()
        }
    )


def test_reaping_returns_the_steps_whose_lease_ran_out(reaped: Mapping[str, Ended], folder: Path) -> None:
    assert reaped["json"].code == 0
    said = reaped["json"].summary()
    assert (said["seen"], said["isComplete"], said["failed"]) == (3, True, [])
    assert [one["runId"] for one in said["advanced"]] == ["abandoned"]
    state = folder / "reap json" / "state"
    after = {one: stored(state, one)["steps"]["a"]["status"] for one in ("abandoned", "held", "leaseless", "over")}
    assert after == {"abandoned": "READY", "held": "RUNNING", "leaseless": "RUNNING", "over": "RUNNING"}
    assert exported(state, "abandoned") == stored(state, "abandoned")
    (returned,) = reaped["json"].events("step_returned")
    assert returned["reason"] == f"abandoned in attempt 1 of 3, whose lease ran out at {PAST}"


def test_reaping_says_so_in_text(reaped: Mapping[str, Ended]) -> None:
    lines = reaped["text"].stdout.splitlines()
    assert lines[0] == "flow_runs/abandoned"
    assert lines[1].startswith("steps.a.status")
    assert lines[-1] == "3 runs seen, 1 moved on"


def test_a_step_abandoned_in_its_last_attempt_fails_with_its_run(
    reaped: Mapping[str, Ended], folder: Path
) -> None:
    assert reaped["last attempt"].code == 0
    document = stored(folder / "reap last attempt" / "state", "abandoned")
    step = document["steps"]["a"]
    assert (step["status"], step["error"]["code"]) == ("FAILED", "STEP_ABANDONED")
    assert (document["status"], document["error"]["code"]) == ("FAILED", "STEP_FAILED")


def test_a_lease_can_be_assumed_where_there_is_none(reaped: Mapping[str, Ended], folder: Path) -> None:
    assert [one["runId"] for one in reaped["assumed"].summary()["advanced"]] == ["abandoned", "leaseless"]
    assert stored(folder / "reap assumed" / "state", "leaseless")["steps"]["a"]["status"] == "READY"


# A person at a terminal.


def test_a_terminal_shows_one_live_line_a_step(tmp_path: Path) -> None:
    terminal, line = pty.openpty()
    with subprocess.Popen(
        [*TDA_FLOW, "run", "--flow-run-path", str(SAMPLE), *GIVEN],
        cwd=tmp_path,
        env=environment({"TERM": "xterm"}),
        stdout=subprocess.PIPE,
        stderr=line,
        text=True,
    ) as process:
        os.close(line)
        shown = b""
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:  # how Linux says that the other side is gone
            pass
        stdout, _ = process.communicate(timeout=PATIENCE_SECONDS)
    os.close(terminal)
    assert (process.returncode, stdout.partition(":")[0]) == (0, "FLOW SUCCEEDED")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8", "replace"))
    lines = [one.strip() for one in text.splitlines()]
    assert not [one for one in lines if one.startswith("{")]
    last = [one for one in lines if one][-len(STEPS) :]
    for step_id, shown_line in zip(STEPS, last, strict=True):
        assert re.fullmatch(rf"• {step_id} +SUCCEEDED \d:\d\d:\d\d", shown_line)
