"""A whole flow, killed before and after every effect and resumed by another process: nothing is lost, nothing done twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event, Lock
from typing import Any, Literal

import pytest

from cli import advance_flow
from core.charts.images import is_whole_png
from core.charts.manifest import manifest_problems
from effects import (
    AccountsReserved,
    CallChartApi,
    ChartRefused,
    Effect,
    ObjectStored,
    Outcome,
    PutObject,
    ReserveAccount,
)
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.performers import Interpreter
from interpreters.shipped import FLOW_RUNS
from tests.builders import CANARY
from tests.end_to_end.console import (
    SCRIPTS,
    TDA_CHARTS,
    Call,
    Ended,
    artifacts,
    call_all,
    exported,
    finish,
    object_file,
    start,
)
from tests.end_to_end.pacing_server import Answer, Asked, PacingServer, Reply, a_picture, serving, when_told
from tests.end_to_end.zygote import Process

FILE = FLOW_RUNS / "candles_then_charts.json"
FLOW_RUN: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
RUN_ID: str = FLOW_RUN["runId"]
CANDLES = FLOW_RUNS.parent / "candles" / "BTCUSDT_4h.json"
GIVEN = ("--given", f"candles:4h={CANDLES}", "--state-dir", "state", "--output-summary", "json")
CHARTS = {
    (step["timeframe"], request["chartTemplateId"])
    for step in FLOW_RUN["steps"].values()
    for request in step["inputs"].get("requests", ())
}
SIDE_BY_SIDE = 4
PATIENCE_SECONDS = 60
VARIABLE = {"AdvanceFlow", "Wait"}
"""Effects of which a run has more or fewer: how many passes are made, and which slots are missed, depends on the moment."""

Moment = Literal["before", "after"]
Point = tuple[str, int]
"""An effect of a run: its label, and the how manieth with this label it is."""
FORKSERVER = multiprocessing.get_context("forkserver")
# All tests of a process share one forkserver, and who sets the list last sets it for all.
FORKSERVER.set_forkserver_preload([__name__, "tests.interpreters.test_orchestrators_racing"])


# In the child.


def live(folder: Path, name: str, arguments: tuple[str, ...], dies_at: Point | None, moment: Moment) -> None:
    """Run `tda flow` in this process, which kills itself before or after an effect."""
    os.chdir(folder)
    for number in (1, 2):
        os.dup2(os.open(f"{name}.{number}", os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    journal = os.open(f"{name}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    Interpreter.perform = mortal(Interpreter.perform, journal, dies_at, moment)  # type: ignore[method-assign]
    advance_flow.main(arguments, prog_name="tda flow")


Perform = Callable[[Interpreter, Effect], Outcome]


def mortal(perform: Perform, journal: int, dies_at: Point | None, moment: Moment) -> Perform:
    """Return a performer that does one effect at a time, writes down what it does, and dies when it is told to."""
    lock, counts = Lock(), Counter[str]()

    def write(did: str, effect: Effect, **more: Any) -> None:
        row = {"did": did, "label": label_of(effect), "chart": chart_of(effect), **more}
        os.write(journal, f"{json.dumps(row)}\n".encode())

    def perform_or_die(interpreter: Interpreter, effect: Effect) -> Outcome:
        with lock:
            label = label_of(effect)
            counts[label] += 1
            is_last = (label, counts[label]) == dies_at
            if is_last and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            write("begun", effect)
            outcome = perform(interpreter, effect)
            is_late = isinstance(outcome, ChartRefused) and outcome.kind == "slot_missed"
            is_stored = isinstance(outcome, ObjectStored)
            write("done", effect, reserved=reserved_by(effect, outcome), stored=is_stored, is_late=is_late)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return outcome

    return perform_or_die


def label_of(effect: Effect) -> str:
    """Return what an effect is called: its kind, and its chart if it has one."""
    return " ".join(filter(None, (type(effect).__name__, chart_of(effect))))


def chart_of(effect: Effect) -> str | None:
    """Return timeframe and template of the chart that an effect draws or stores."""
    if isinstance(effect, CallChartApi):
        return f"{effect.timeframe} {effect.chart_template_id}"
    if isinstance(effect, PutObject) and effect.name.endswith(".png"):
        return next(f"{frame} {one}" for frame, one in CHARTS if effect.name.endswith(f"_{frame}_{one}.png"))
    return None


def reserved_by(effect: Effect, outcome: Outcome) -> int:
    """Return how many calls were counted."""
    if not isinstance(effect, ReserveAccount) or not isinstance(outcome, AccountsReserved):
        return 0
    counted = {need.chart_template_id for need in effect.for_requests if need.holding is None}
    return sum(one.chart_template_id in counted for one in outcome.assignments)


# What came of it.


@dataclass
class Life:
    """A run that was killed at one point, and what the next process made of it."""

    folder: Path
    dies_at: Point | None
    moment: Moment
    first: int | None = None
    """Exit code of the process that was to be killed."""
    second: int | None = None
    """Exit code of the one that went on."""

    def __str__(self) -> str:
        """Name the point."""
        return f"killed {self.moment} {self.dies_at}"

    def begin(self) -> BaseProcess:
        """Start the flow, which runs until it is killed, or to its end."""
        self.folder.mkdir(parents=True)
        return self._process("first", ("run", "--flow-run-path", str(FILE), *GIVEN), self.dies_at)

    def resume(self) -> BaseProcess:
        """Go on in another process."""
        self.stored_between = self.documents()
        return self._process("second", ("resume", RUN_ID, *GIVEN), None)

    def _process(self, name: str, arguments: tuple[str, ...], dies_at: Point | None) -> BaseProcess:
        process = FORKSERVER.Process(target=live, args=(self.folder, name, arguments, dies_at, self.moment))
        process.start()
        return process

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def was_killed(self) -> bool:
        return self.first == -signal.SIGKILL

    def said(self, name: str) -> str:
        return "".join((self.folder / f"{name}.{number}").read_text("utf-8") for number in (1, 2))

    def journal(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / f"{name}.journal"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def documents(self) -> dict[str, Any]:
        store = SqliteDocuments(self.state / "documents.sqlite3")
        found = {**store.collection("flow_runs"), **store.collection("chart_img_accounts_usage_mock")}
        store.close()
        return found

    @cached_property
    def stored(self) -> dict[str, Any]:
        return self.documents()

    @property
    def flow_run(self) -> dict[str, Any]:
        return dict(self.stored[f"flow_runs/{RUN_ID}"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Run the flow once, unharmed."""
    life = Life(tmp_path_factory.mktemp("whole") / "0", None, "after")
    (life.first,) = ended([life.begin()])
    return life


def ended(processes: Sequence[BaseProcess]) -> list[int | None]:
    """Wait for processes and return their exit codes; from one thread only, as multiprocessing wants it."""
    for process in processes:
        process.join(PATIENCE_SECONDS)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def killed_and_resumed(lives: Sequence[Life]) -> None:
    """Live a few lives at a time."""
    for number in range(0, len(lives), SIDE_BY_SIDE):
        some = lives[number : number + SIDE_BY_SIDE]
        for life, code in zip(some, ended([life.begin() for life in some]), strict=True):
            life.first = code
        for life, code in zip(some, ended([life.resume() for life in some]), strict=True):
            life.second = code


def test_a_run_that_is_left_alone_ends_well(whole: Life) -> None:
    assert whole.first == 0, whole.said("first")
    assert whole.flow_run["status"] == "SUCCEEDED"
    calls = Counter(row["chart"] for row in whole.journal("first") if is_call(row))
    assert calls == {f"{frame} {one}": 1 for frame, one in CHARTS}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_effect_and_resumed_a_run_loses_nothing_and_does_nothing_twice(
    whole: Life, tmp_path: Path, moment: Moment
) -> None:
    labels = Counter(row["label"] for row in whole.journal("first") if row["did"] == "begun")
    points = [(label, number) for label, count in labels.items() for number in range(1, count + 1)]
    lives = [Life(tmp_path / f"{number:02}", point, moment) for number, point in enumerate(points)]
    killed_and_resumed(lives)
    missed = [life.dies_at for life in lives if not life.was_killed]
    assert {point[0] for point in missed if point} <= VARIABLE
    for life in lives:
        for check in CHECKS:
            check(life)


def is_call(row: dict[str, Any]) -> bool:
    """Return whether a chart was asked for; one that came too late for its slot was not."""
    return row["label"].startswith("CallChartApi") and row["did"] == "done" and not row["is_late"]


def check_the_end(life: Life) -> None:
    """The run and all its steps succeed, and the last word is the result."""
    assert life.first in {0, -signal.SIGKILL}, f"{life}: {life.said('first')}"
    assert life.second == 0, f"{life}: {life.said('second')}"
    assert life.flow_run["status"] == "SUCCEEDED", str(life)
    assert {step["status"] for step in life.flow_run["steps"].values()} == {"SUCCEEDED"}, str(life)
    assert life.flow_run["progress"]["stepCounts"]["succeeded"] == len(FLOW_RUN["steps"]), str(life)
    said = json.loads((life.folder / "second.1").read_text("utf-8"))
    assert (said["status"], said["runId"], said["waitsFor"]) == ("SUCCEEDED", RUN_ID, []), str(life)


def check_the_attempts(life: Life) -> None:
    """What was finished stays as it was; what was not is attempted once more."""
    between = life.stored_between[f"flow_runs/{RUN_ID}"]["steps"]
    for step_id, step in life.flow_run["steps"].items():
        before = between[step_id]
        if before["status"] == "SUCCEEDED":
            assert step == before, f"{life}: {step_id}"
        claimed = before["outputs"].get("execution", {}).get("claim", {}).get("attempt", 0)
        attempts = claimed + (before["status"] != "SUCCEEDED")
        assert step["outputs"]["execution"]["claim"]["attempt"] == attempts <= 2, f"{life}: {step_id}"


def check_the_calls(life: Life) -> None:
    """No chart whose picture was stored is drawn again, and none is left out."""
    stored = {row["chart"] for row in life.journal("first") if row.get("stored") and row["chart"]}
    drawn = [row["chart"] for row in life.journal("second") if is_call(row)]
    assert not stored & set(drawn), f"{life}: drew {stored & set(drawn)} again"
    assert stored | set(drawn) == {f"{frame} {one}" for frame, one in CHARTS}, str(life)
    assert len(drawn) == len(set(drawn)), str(life)


def check_the_usage(life: Life) -> None:
    """Every reservation is counted once."""
    reserved = sum(row.get("reserved", 0) for row in (*life.journal("first"), *life.journal("second")))
    (usage,) = [one for path, one in life.stored.items() if path.startswith("chart_img_accounts_usage_mock/")]
    assert usage["usageToday"] == reserved, str(life)


def check_the_manifests(life: Life) -> None:
    """Manifests are valid and name whole pictures, all that were asked for."""
    for step_id, step in FLOW_RUN["steps"].items():
        wanted = [one["chartTemplateId"] for one in step["inputs"].get("requests", ())]
        if not wanted:
            continue
        uri = life.flow_run["steps"][step_id]["outputs"]["outputsManifestGcsUri"]
        manifest = json.loads(object_file(life.state, uri).read_text("utf-8"))
        assert manifest_problems(manifest) == (), str(life)
        assert [one["chartTemplateId"] for one in manifest["items"]] == wanted, str(life)
        assert manifest["failures"] == [], str(life)
        for item in manifest["items"]:
            assert is_whole_png(object_file(life.state, item["png_gcs_uri"]).read_bytes()), f"{life}: {item}"


def check_the_files(life: Life) -> None:
    """Every artifact is there once, and the document to look at is the stored one."""
    assert len(artifacts(life.state, "*.png")) == len(CHARTS), str(life)
    uri = life.flow_run["steps"]["candles:4h"]["outputs"]["gcs_uri"]
    assert object_file(life.state, uri).read_bytes() == CANDLES.read_bytes(), str(life)
    assert len(artifacts(life.state)) == len(CHARTS) + len(FLOW_RUN["steps"]), str(life)
    assert exported(life.state, RUN_ID) == life.flow_run, str(life)


CHECKS = (
    check_the_end,
    check_the_attempts,
    check_the_calls,
    check_the_usage,
    check_the_manifests,
    check_the_files,
)


# The console scripts.

TDA = (str(SCRIPTS / "tda"),)
RUN = ("flow", "run", "--flow-run-path", FILE, *GIVEN)
RESUME = ("flow", "resume", RUN_ID, *GIVEN)
KILLED_AT = ("claim_attempt", "chart_api_call_finished", "png_written", "manifest_written")
"""What a run says of its second step when it is killed; after the last it may just have gone on to the third."""


def real(server: PacingServer) -> dict[str, str]:
    accounts = [{"id": "acc1", "apiKey": CANARY, "requestsPerSecond": 50}]
    return {
        "CHARTS_API_MODE": "real",
        "CHART_IMG_BASE_URL": server.url,
        "CHART_IMG_ACCOUNTS_JSON": json.dumps(accounts),
    }


def begin(folder: Path, server: PacingServer, until: str) -> Process:
    """Start a run and return when its second step has come to that event.

    With a fresh interpreter: one whose imports are made is over before anyone can kill it.
    """
    folder.mkdir()
    process = start(Call(folder, RUN, TDA, real(server), real=True))
    assert process.stderr is not None
    for line in process.stderr:
        entry = json.loads(line)
        if (entry["event"], entry.get("stepId")) == (until, "charts:4h"):
            break
    return process


def one_soon_and_two_late() -> Answer:
    """Draw one chart of the first step at once and keep it waiting for the others."""
    delays = iter([0.05, 1.5, 1.5])

    def answer(asked: Asked) -> Reply:
        time.sleep(next(delays, 0.05))
        return a_picture(asked)

    return answer


@dataclass
class Killed:
    """A run that was killed with kill -9, as a person would, and resumed."""

    folder: Path
    until: str

    def go(self) -> Killed:
        with serving(one_soon_and_two_late()) as server:
            process = begin(self.folder, server, self.until)
            process.kill()
            self.first = finish(process)
            time.sleep(0.2)  # what was on its way to the server has come
            self.pictures = len(artifacts(self.folder / "state", "*.png"))
            asked = len(server.asked)
            self.second = finish(start(Call(self.folder, RESUME, TDA, real(server))))
            self.asked_again = len(server.asked) - asked
        return self


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Killed]:
    folder = tmp_path_factory.mktemp("kills")
    with ThreadPoolExecutor(len(KILLED_AT)) as threads:
        killed = threads.map(lambda one: Killed(folder / one, one).go(), KILLED_AT)
        return dict(zip(KILLED_AT, killed, strict=True))


@pytest.mark.parametrize("until", KILLED_AT)
def test_a_process_killed_at_work_is_resumed_by_the_next(kills: dict[str, Killed], until: str) -> None:
    life = kills[until]
    assert (life.first.code, life.second.code) == (-signal.SIGKILL, 0), life.second.stderr
    assert life.second.summary()["steps"] == dict.fromkeys(FLOW_RUN["steps"], "SUCCEEDED")
    returned = life.second.events("step_returned")
    assert all("the process that held it is gone" in one["reason"] for one in returned)
    if until != KILLED_AT[-1]:
        assert [one["stepId"] for one in returned] == ["charts:4h"]


@pytest.mark.parametrize("until", KILLED_AT)
def test_only_the_pictures_that_are_missing_are_asked_for_again(kills: dict[str, Killed], until: str) -> None:
    life = kills[until]
    assert life.asked_again == len(CHARTS) - life.pictures
    assert len(artifacts(life.folder / "state", "*.png")) == len(CHARTS)


@dataclass
class Interrupted:
    """A run that others wanted to have as well, that was stopped with Ctrl-C, and that went on as it was told to."""

    folder: Path

    def go(self) -> Interrupted:
        told = Event()
        with serving(when_told(told)) as server:
            process = begin(self.folder, server, "chart_api_call_started")
            others = {
                "run": Call(self.folder, RUN, TDA),
                "resume": Call(self.folder, RESUME, TDA),
                "apply": Call(self.folder, ("flow", "apply", RUN_ID, "--state-dir", "state"), TDA),
                "run-local": Call(
                    self.folder, ("run-local", "--flow-run-path", FILE, "--state-dir", "state"), TDA_CHARTS
                ),
            }
            self.others = call_all(others)
            self.was_at_work = process.poll() is None
            process.send_signal(signal.SIGINT)
            self.first = finish(process)
            told.set()
        (self.stopped,) = self.first.events("local_run_stopped")
        words = shlex.split(self.stopped["message"].partition("go on with: ")[2])
        self.second = finish(start(Call(self.folder, words[1:], (str(SCRIPTS / words[0]),))))
        return self


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    return Interrupted(tmp_path_factory.mktemp("interrupted") / "0").go()


@pytest.mark.parametrize("command", ["run", "resume", "apply", "run-local"])
def test_a_run_that_a_process_is_at_work_on_is_refused_to_others(interrupted: Interrupted, command: str) -> None:
    assert interrupted.was_at_work
    refused = interrupted.others[command]
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.problems() == [
        f"--state-dir state: another process is at work on run {RUN_ID}; wait for its end"
    ]


def test_an_interrupt_ends_at_once_and_says_how_to_go_on(interrupted: Interrupted) -> None:
    assert (interrupted.first.code, interrupted.first.stdout) == (130, "")
    assert interrupted.first.events()[-1] == interrupted.stopped
    assert "Traceback" not in interrupted.first.stderr
    command = f"tda flow resume {RUN_ID} --state-dir state --given candles:4h={CANDLES}"
    assert interrupted.stopped["message"] == f"stopped; go on with: {command}"


def test_the_words_of_an_interrupted_run_make_it_go_on(interrupted: Interrupted) -> None:
    second: Ended = interrupted.second
    assert (second.code, second.stdout.partition(":")[0]) == (0, "FLOW SUCCEEDED"), second.stderr
