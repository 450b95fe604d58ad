"""`tda sandbox` with its services: a whole flow by one command, and children that die with it."""

from __future__ import annotations

import copy
import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interpreters.sandbox.workers import TARGETS
from interpreters.shipped import CANDLES, FLOW_RUNS
from tests.emulators import FIRESTORE_HOST, STORAGE_HOST, firestore_on
from tests.end_to_end.console import SCRIPTS, Call, Ended, call_all, environment, finish, start, write_json
from tests.end_to_end.service_world import wait_until
from tests.end_to_end.test_sandbox_command import ANY_PORTS, Running, without_grpc
from tests.end_to_end.zygote import ROOT

pytestmark = pytest.mark.timeout(120)

TDA = (str(SCRIPTS / "tda"),)
SAMPLE = FLOW_RUNS / "candles_charts_report.json"
RUN: dict[str, Any] = json.loads(SAMPLE.read_text("utf-8"))
GIVEN = ("--given", f"candles:4h={CANDLES / 'BTCUSDT_4h.json'}")
SANDBOX = ("sandbox", *ANY_PORTS)
FLOW = (*SANDBOX, "--flow-run-path", SAMPLE, "--logs-dir", "logs")
ENDED = "FLOW SUCCEEDED: candles:4h=SUCCEEDED, charts:4h=SUCCEEDED, charts:1d=SUCCEEDED, report:4h=SUCCEEDED\n"


def a_run_that_fails() -> dict[str, Any]:
    """Return the sample with a prompt that does not exist, and no charts but those of the report."""
    run = copy.deepcopy(RUN)
    run["steps"]["report:4h"]["inputs"]["llm"]["promptId"] = "no_such_prompt"
    run["steps"]["report:4h"]["dependsOn"].remove("charts:1d")
    del run["steps"]["charts:1d"]
    return run


def services_of(pid: int) -> list[int]:
    """Return the processes that were started by this one, and by those in turn."""
    said = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, check=True, text=True).stdout
    parents = dict(tuple(map(int, line.split())) for line in said.splitlines())
    family = {pid}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family - {pid})


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sandbox flow")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Ended]:
    calls: dict[str, Call] = {}
    for name, arguments in {
        "waiting": FLOW,
        "failing": (
            *(*SANDBOX, "--flow-run-path", "failing.json", *GIVEN),
            *("--logs-dir", "logs", "--env-file", "sandbox.env"),
        ),
        "wrong": (*SANDBOX, "--flow-run-path", SAMPLE, "--given", "nothing=x", "--given", "report:4h=x"),
        "no file": (*SANDBOX, "--flow-run-path", "none.json"),
        "worker that cannot start": (*FLOW, *GIVEN),
    }.items():
        (folder / name).mkdir()
        variables = {"CHART_IMG_TIMEOUT_SECONDS": "soon"} if name == "worker that cannot start" else {}
        calls[name] = Call(folder / name, arguments, TDA, variables)
    write_json(folder / "failing" / "failing.json", a_run_that_fails())
    return {name: without_grpc(ended) for name, ended in call_all(calls).items()}


def logged(folder: Path, target: str) -> list[dict[str, Any]]:
    lines = (folder / "logs" / f"{target}.log").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_whole_sample_runs_in_the_sandbox_by_one_command_and_a_terminal_shows_it(tmp_path: Path) -> None:
    terminal, line = pty.openpty()
    variables = environment({"TERM": "xterm", "PYTHONPATH": str(ROOT)})
    process = subprocess.Popen(
        [*TDA, *map(str, (*FLOW, *GIVEN))],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=line,
        text=True,
    )
    os.close(line)
    shown = b""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    text = shown.decode("utf-8", "replace")
    assert (process.communicate()[0], process.returncode) == (ENDED, 0), text
    for words in ("candles:4h", "SUCCEEDED", "Sandbox report", "This text was written by the sandbox"):
        assert words in text
    entries = {target: logged(tmp_path, target) for target in TARGETS}
    completed = [
        one["stepId"] for target in TARGETS for one in entries[target] if one["event"] == "step_completed"
    ]
    assert sorted(completed) == ["charts:1d", "charts:4h", "report:4h"]
    (asked,) = [one for one in entries["worker_llm_client"] if one["event"] == "llm_request_started"]
    assert (asked["llm"]["mode"], asked["imagesCount"]) == ("real", 3)


def test_a_run_that_waits_for_somebody_else_ends_as_flow_run_does(runs: Mapping[str, Ended]) -> None:
    ended = runs["waiting"]
    assert ended.code == 1
    first, second = ended.stdout.splitlines()
    assert first.startswith("FLOW WAITING: candles:4h=READY, charts:4h=PENDING")
    assert second.startswith(
        "waiting: candles:4h is READY, and no worker here serves OHLCV_EXPORT: --given candles:4h="
    )


def test_a_step_that_fails_ends_the_run_with_1(runs: Mapping[str, Ended], folder: Path) -> None:
    ended = runs["failing"]
    assert ended.code == 1
    assert ended.stdout.startswith("FLOW FAILED: candles:4h=SUCCEEDED, charts:4h=SUCCEEDED, report:4h=FAILED")
    assert [one["event"] for one in ended.events()] == ["claim_attempt", "step_completed"], "the given step"
    entries = logged(folder / "failing", "worker_llm_client")
    (failed,) = [one for one in entries if one["event"] == "step_failed"]
    assert (failed["service"], failed["errorCode"]) == ("worker-llm-client", "PROMPT_NOT_FOUND")
    assert f"export {FIRESTORE_HOST}=" in (folder / "failing" / "sandbox.env").read_text("utf-8")


def test_a_wrong_call_is_said_before_anything_starts(runs: Mapping[str, Ended]) -> None:
    assert (runs["wrong"].code, len(runs["wrong"].problems())) == (2, 2)
    assert (runs["no file"].code, len(runs["no file"].problems())) == (2, 1)


def test_a_service_that_cannot_start_is_said(runs: Mapping[str, Ended], folder: Path) -> None:
    ended = runs["worker that cannot start"]
    assert (ended.code, ended.stdout) == (2, "")
    (problem,) = ended.problems()
    assert problem.startswith("sandbox: cannot start: worker_chart_export has ended with exit code")
    assert logged(folder / "worker that cannot start", "worker_chart_export")[-1]["event"] == "config_error"


# Until it is stopped.


def a_client_s_run_is_worked_on(serving: Running) -> None:
    """Write a flow_run as any client would, and wait for its end."""
    run = copy.deepcopy(RUN)
    run["steps"] = {"charts:4h": {**run["steps"]["charts:4h"], "dependsOn": []}}
    with firestore_on(serving.variables[FIRESTORE_HOST], "sandbox") as client:
        document = client.document("flow_runs", run["runId"])
        document.set(run)
        wait_until(lambda: (document.get().to_dict() or {})["status"] == "SUCCEEDED", "the run ends")
    assert serving.variables[STORAGE_HOST]
    assert len(serving.lines[-1].partition("events go to ")[2].split(", ")) == len(TARGETS)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_services_work_for_any_client_and_die_with_the_command(tmp_path: Path, number: int, code: int) -> None:
    process = start(Call(tmp_path, (*SANDBOX, "--with-workers", "--logs-dir", "logs"), TDA))
    serving = Running(process)
    children = services_of(process.pid)
    if number == signal.SIGINT:
        a_client_s_run_is_worked_on(serving)
    assert len(children) >= len(TARGETS)
    os.kill(process.pid, number)
    assert finish(process).code == code
    wait_until(lambda: not any(map(is_alive, children)), "the services are gone", 5)


def test_a_flow_that_is_stopped_says_so_by_its_exit_code(tmp_path: Path) -> None:
    process = start(Call(tmp_path, (*SANDBOX, "--flow-run-path", SAMPLE, *GIVEN), TDA))
    assert process.stderr is not None
    at_work = ("worker-chart-export", "claim_attempt")
    lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
    assert any((one["service"], one["event"]) == at_work for one in lines), "without a folder, logs go to stderr"
    children = services_of(process.pid)
    process.terminate()
    ended = finish(process)
    assert (ended.code, ended.stdout) == (128 + signal.SIGTERM, "")
    wait_until(lambda: not any(map(is_alive, children)), "the services are gone", 5)
