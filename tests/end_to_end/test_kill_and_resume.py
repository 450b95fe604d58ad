"""A whole flow, killed before and after every effect and resumed by another process: nothing is lost, nothing done twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import pytest

from cli import advance_flow
from core.charts.images import is_whole_png
from core.charts.manifest import manifest_problems
from effects import AccountsReserved, CallChartApi, Effect, ObjectStored, Outcome, PutObject, ReserveAccount
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
from tests.end_to_end.pacing_server import PacingServer, serving, slowly
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
SIDE_BY_SIDE = 3
PATIENCE_SECONDS = 60

Moment = Literal["before", "after"]
FORKSERVER = multiprocessing.get_context("forkserver")
# All tests of a process share one forkserver, and who sets the list last sets it for all.
FORKSERVER.set_forkserver_preload([__name__, "tests.interpreters.test_orchestrators_racing"])


# In the child.


def live(folder: Path, name: str, arguments: tuple[str, ...], dies_at: int, moment: Moment) -> None:
    """Run `tda flow` in this process, which kills itself before or after its n-th effect; 0 lets it live."""
    os.chdir(folder)
    for number in (1, 2):
        os.dup2(os.open(f"{name}.{number}", os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    journal = os.open(f"{name}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    Interpreter.perform = mortal(Interpreter.perform, journal, dies_at, moment)  # type: ignore[method-assign]
    advance_flow.main(arguments, prog_name="tda flow")


Perform = Callable[[Interpreter, Effect], Outcome]


def mortal(perform: Perform, journal: int, dies_at: int, moment: Moment) -> Perform:
    """Return a performer that does one effect at a time, writes down what it does, and dies when it is told to."""
    lock, effects = Lock(), iter(range(1, sys.maxsize))

    def write(did: str, effect: Effect, **more: Any) -> None:
        row = {"did": did, "kind": type(effect).__name__, "chart": chart_of(effect), **more}
        os.write(journal, f"{json.dumps(row)}\n".encode())

    def perform_or_die(interpreter: Interpreter, effect: Effect) -> Outcome:
        with lock:
            is_last = next(effects) == dies_at
            if is_last and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            write("begun", effect)
            outcome = perform(interpreter, effect)
            write("done", effect, reserved=reserved_by(effect, outcome), stored=isinstance(outcome, ObjectStored))
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return outcome

    return perform_or_die


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
    dies_at: int
    moment: Moment

    def __str__(self) -> str:
        """Name the point."""
        last = self.journal("first")[-1] if self.journal("first") else {}
        return f"killed {self.moment} effect {self.dies_at}; the last it did: {last.get('did')} {last.get('kind')}"

    def begin(self) -> Life:
        """Run the flow until it is killed, or to its end."""
        self.folder.mkdir()
        arguments = ("run", "--flow-run-path", str(FILE), *GIVEN)
        self.first = self._process("first", arguments, self.dies_at)
        self.stored_between = self.documents()
        return self

    def resume(self) -> Life:
        """Go on in another process."""
        self.second = self._process("second", ("resume", RUN_ID, *GIVEN), 0)
        return self

    def _process(self, name: str, arguments: tuple[str, ...], dies_at: int) -> int | None:
        process = FORKSERVER.Process(target=live, args=(self.folder, name, arguments, dies_at, self.moment))
        process.start()
        process.join(PATIENCE_SECONDS)
        code = process.exitcode
        process.kill()
        return code

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

    @cached_property
    def whole_journal(self) -> list[dict[str, Any]]:
        return [*self.journal("first"), *self.journal("second")]

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
    return Life(tmp_path_factory.mktemp("whole") / "0", 0, "after").begin()


@pytest.fixture(scope="module")
def lives(whole: Life, tmp_path_factory: pytest.TempPathFactory) -> list[Life]:
    """Kill the flow at every effect, before and after; resume what was killed."""
    folder = tmp_path_factory.mktemp("lives")
    effects = sum(row["did"] == "begun" for row in whole.journal("first"))
    lives = _killed_and_resumed(folder, range(1, effects + 1))
    while lives[-1].was_killed:  # how many passes the orchestrator makes depends on the moment
        lives += _killed_and_resumed(folder, range(lives[-1].dies_at + 1, lives[-1].dies_at + 2))
    return lives


def _killed_and_resumed(folder: Path, points: range) -> list[Life]:
    moments: tuple[Moment, ...] = ("before", "after")
    lives = [Life(folder / f"{one:02} {moment}", one, moment) for one in points for moment in moments]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        return list(threads.map(lambda life: life.begin().resume(), lives))


def killed(lives: list[Life]) -> Iterator[Life]:
    return (life for life in lives if life.was_killed)


def test_a_run_that_is_left_alone_ends_well(whole: Life) -> None:
    assert whole.first == 0, whole.said("first")
    assert whole.flow_run["status"] == "SUCCEEDED"
    assert Counter(row["chart"] for row in whole.journal("first") if row["kind"] == "CallChartApi") == {
        f"{frame} {one}": 2 for frame, one in CHARTS
    }


def test_every_kind_of_effect_is_a_point_to_be_killed_at(whole: Life, lives: list[Life]) -> None:
    begun = {row["kind"] for row in whole.journal("first")}
    died_in = {life.journal("first")[-1]["kind"] for life in killed(lives) if life.moment == "after"}
    assert died_in == begun
    assert len(list(killed(lives))) > 2 * len(CHARTS) * len(("call", "put"))


def test_killed_anywhere_and_resumed_a_run_succeeds(lives: list[Life]) -> None:
    for life in lives:
        assert life.first in {0, -signal.SIGKILL}, f"{life}: {life.said('first')}"
        assert life.second == 0, f"{life}: {life.said('second')}"
        assert life.flow_run["status"] == "SUCCEEDED", str(life)
        assert {step["status"] for step in life.flow_run["steps"].values()} == {"SUCCEEDED"}, str(life)
        assert life.flow_run["progress"]["stepCounts"]["succeeded"] == len(FLOW_RUN["steps"]), str(life)


def test_no_step_is_attempted_more_than_twice_and_finished_steps_are_left_as_they_were(lives: list[Life]) -> None:
    for life in lives:
        between = life.stored_between[f"flow_runs/{RUN_ID}"]["steps"]
        for step_id, step in life.flow_run["steps"].items():
            claim = between[step_id]["outputs"].get("execution", {}).get("claim", {})
            if between[step_id]["status"] == "SUCCEEDED":
                assert step == between[step_id], f"{life}: {step_id}"
            expected = claim.get("attempt", 0) + (between[step_id]["status"] != "SUCCEEDED")
            assert step["outputs"]["execution"]["claim"]["attempt"] == expected <= 2, f"{life}: {step_id}"


def test_no_chart_whose_picture_was_stored_is_drawn_again(lives: list[Life]) -> None:
    for life in killed(lives):
        stored = {row["chart"] for row in life.journal("first") if row.get("stored") and row["chart"]}
        drawn = [
            row["chart"]
            for row in life.journal("second")
            if row["kind"] == "CallChartApi" and row["did"] == "begun"
        ]
        assert not stored & set(drawn), f"{life}: drew {stored & set(drawn)} again"
        assert stored | set(drawn) == {f"{frame} {one}" for frame, one in CHARTS}, str(life)
        assert len(drawn) == len(set(drawn)), str(life)


def test_what_was_drawn_is_counted_and_nothing_else(lives: list[Life]) -> None:
    for life in lives:
        reserved = sum(row.get("reserved", 0) for row in life.whole_journal)
        (usage,) = [one for path, one in life.stored.items() if path.startswith("chart_img_accounts_usage_mock/")]
        assert usage["usageToday"] == reserved, str(life)


def test_manifests_are_valid_and_their_pictures_whole(lives: list[Life]) -> None:
    for life in lives:
        for step_id, step in FLOW_RUN["steps"].items():
            if "requests" not in step["inputs"]:
                continue
            uri = life.flow_run["steps"][step_id]["outputs"]["outputsManifestGcsUri"]
            manifest = json.loads(object_file(life.state, uri).read_text("utf-8"))
            assert manifest_problems(manifest) == (), str(life)
            wanted = [one["chartTemplateId"] for one in step["inputs"]["requests"]]
            assert [one["chartTemplateId"] for one in manifest["items"]] == wanted, str(life)
            assert manifest["failures"] == [], str(life)
            for item in manifest["items"]:
                assert is_whole_png(object_file(life.state, item["png_gcs_uri"]).read_bytes()), f"{life}: {item}"


def test_every_artifact_is_there_once(lives: list[Life]) -> None:
    for life in lives:
        assert len(artifacts(life.state, "*.png")) == len(CHARTS), str(life)
        uri = life.flow_run["steps"]["candles:4h"]["outputs"]["gcs_uri"]
        assert object_file(life.state, uri).read_bytes() == CANDLES.read_bytes(), str(life)
        assert len(artifacts(life.state)) == len(CHARTS) + 3, str(life)


def test_the_document_to_look_at_is_the_stored_one(lives: list[Life]) -> None:
    for life in lives:
        assert exported(life.state, RUN_ID) == life.flow_run, str(life)


def test_the_last_word_is_the_result(lives: list[Life]) -> None:
    for life in lives:
        said = json.loads((life.folder / "second.1").read_text("utf-8"))
        assert (said["status"], said["runId"], said["waitsFor"]) == ("SUCCEEDED", RUN_ID, []), str(life)


# The console scripts.

TDA = (str(SCRIPTS / "tda"),)
RUN = ("flow", "run", "--flow-run-path", FILE, *GIVEN)
RESUME = ("flow", "resume", RUN_ID, *GIVEN)
KILLED_AT = ("claim_attempt", "chart_api_call_finished", "png_written", "manifest_written")
"""What a run says last before it is killed, of its second step."""


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


@dataclass
class Killed:
    """A run that was killed with kill -9, as a person would, and resumed."""

    folder: Path
    until: str

    def go(self) -> Killed:
        with serving(slowly(0.1)) as server:
            process = begin(self.folder, server, self.until)
            process.kill()
            self.first = finish(process)
            self.pictures = len(artifacts(self.folder / "state", "*.png"))
            asked = len(server.asked)
            self.second = finish(start(Call(self.folder, RESUME, TDA, real(server))))
            self.asked_again = len(server.asked) - asked
        return self


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Killed]:
    folder = tmp_path_factory.mktemp("kills")
    with ThreadPoolExecutor(2) as threads:
        killed = threads.map(lambda one: Killed(folder / one, one).go(), KILLED_AT)
        return dict(zip(KILLED_AT, killed, strict=True))


@pytest.mark.parametrize("until", KILLED_AT)
def test_a_process_killed_at_work_is_resumed_by_the_next(kills: dict[str, Killed], until: str) -> None:
    life = kills[until]
    assert (life.first.code, life.second.code) == (-signal.SIGKILL, 0), life.second.stderr
    assert life.second.summary()["steps"] == dict.fromkeys(FLOW_RUN["steps"], "SUCCEEDED")
    (returned,) = life.second.events("step_returned")
    assert returned["stepId"] == "charts:4h"
    assert "the process that held it is gone" in returned["reason"]


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
        with serving(slowly(15)) as server:
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
