from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from core.charts.images import png_size
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.shipped import FLOW_RUNS
from tests.builders import RUN_ID, STEP_ID, TEMPLATE_IDS, a_flow_run, a_png, a_step, an_input
from tests.end_to_end.console import (
    Call,
    Ended,
    artifacts,
    call,
    call_at_once,
    exported_step,
    finish,
    manifest,
    run_local,
    start,
)
from tests.end_to_end.pacing_server import Asked, PacingServer, Reply, serving, slowly, when_told

FIVE_CHARTS: dict[str, Any] = json.loads((FLOW_RUNS / "five_charts.json").read_text("utf-8"))
FIVE_TEMPLATE_IDS = [one["chartTemplateId"] for one in FIVE_CHARTS["steps"][STEP_ID]["inputs"]["requests"]]
RATE = 4
DAILY_LIMIT = 8
LATE_SECONDS = 0.1
"""How late a call may start and still keep its slot."""
KEYS = {"acc1": "key-one", "acc2": "key-two", "acc3": "key-three"}


def accounts_json(**stated: float) -> str:
    return json.dumps([{"id": one, "apiKey": key, **stated} for one, key in KEYS.items()])


def real(server: PacingServer, **stated: float) -> dict[str, str]:
    return {
        "CHARTS_API_MODE": "real",
        "CHART_IMG_BASE_URL": server.url,
        "CHART_IMG_ACCOUNTS_JSON": accounts_json(**stated),
    }


def usages(state: Path) -> dict[str, dict[str, Any]]:
    documents = SqliteDocuments(state / "documents.sqlite3")
    found = documents.collection("chart_img_accounts_usage")
    documents.close()
    return {path.partition("/")[2]: dict(one) for path, one in found.items()}


def one_of_many(folder: Path, number: int, document: dict[str, Any], variables: dict[str, str]) -> Call:
    """Return a run with an id and an input file of its own, on the state directory that all share."""
    run_id = RUN_ID.replace("102530", f"1025{number:02}")
    flags = ("--state-dir", folder / "state")
    return run_local(folder / run_id, {**document, "runId": run_id}, flags=flags, variables=variables)


# The same file at once.


def test_of_processes_that_take_the_same_file_at_once_exactly_one_claims(tmp_path: Path) -> None:
    with serving(slowly(2.5)) as server:
        made = run_local(tmp_path, a_flow_run(), variables=real(server, requestsPerSecond=50))
        ended = call_at_once([made] * 4)
        asked = len(server.asked)
    claims = [entry["claimed"] for one in ended for entry in one.events("claim_attempt")]
    assert claims.count(True) == 1
    (winner,) = [one for one in ended if one.code == 0 and one.summary()["status"] == "SUCCEEDED"]
    for loser in ended:
        if loser is not winner:
            assert loser.code == 2 or loser.summary()["noopReason"] in {"step_not_ready", "not_ready"}
            assert "Traceback" not in loser.stderr
    assert asked == len(TEMPLATE_IDS)
    assert exported_step(tmp_path / "state")["status"] == "SUCCEEDED"
    assert len(artifacts(tmp_path / "state", "*.png")) == len(TEMPLATE_IDS)


# Different runs at once, on the same accounts.


class Crowd:
    """Six runs of five charts on three accounts that allow eight calls each."""

    def __init__(self, folder: Path) -> None:
        document = a_flow_run({STEP_ID: a_step(inputs=an_input(FIVE_TEMPLATE_IDS, 0))})
        with serving(slowly(0.05)) as server:
            variables = real(server, requestsPerSecond=RATE, dailyLimit=DAILY_LIMIT)
            calls = [one_of_many(folder, number, document, variables) for number in range(6)]
            self.ended = call_at_once(calls)
            self.arrivals = server.arrivals()
        self.state = folder / "state"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    return Crowd(tmp_path_factory.mktemp("crowd"))


def test_many_runs_on_the_same_accounts_all_end(crowd: Crowd) -> None:
    assert [(one.code, one.summary()["status"]) for one in crowd.ended] == [(0, "SUCCEEDED")] * 6


def test_no_account_is_called_more_often_than_its_day_allows(crowd: Crowd) -> None:
    counts = {key: len(moments) for key, moments in crowd.arrivals.items()}
    assert counts == dict.fromkeys(KEYS.values(), DAILY_LIMIT)


def test_what_the_accounts_did_not_allow_is_a_failure_with_the_limit_code(crowd: Crowd) -> None:
    drawn = sum(one.summary()["itemsCount"] for one in crowd.ended)
    assert drawn == DAILY_LIMIT * len(KEYS)
    uris = [one.summary()["outputsManifestGcsUri"] for one in crowd.ended]
    codes = Counter(failure["error"]["code"] for uri in uris for failure in manifest(crowd.state, uri)["failures"])
    assert codes == {"CHART_API_LIMIT_EXCEEDED": 30 - drawn}


def test_calls_of_a_key_keep_their_distance(crowd: Crowd) -> None:
    """A call may start late by the tolerance, the next in its slot: only that much closer may two calls come."""
    least = 1.1 / RATE - LATE_SECONDS
    for key, moments in crowd.arrivals.items():
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert min(gaps) >= 0.9 * least, (key, gaps)


def test_no_second_sees_more_calls_of_a_key_than_its_rate(crowd: Crowd) -> None:
    for key, moments in crowd.arrivals.items():
        spans = [later - earlier for earlier, later in zip(moments, moments[RATE:], strict=False)]
        assert min(spans) >= 0.9, (key, spans)


def test_usage_documents_count_the_calls_that_were_made(crowd: Crowd) -> None:
    counted = {account: usage["usageToday"] for account, usage in usages(crowd.state).items()}
    assert counted == {account: len(crowd.arrivals[key]) for account, key in KEYS.items()}


# Killed at any moment.

PICTURE = a_png(padding=b"large" * 400_000)
MOMENTS = (
    "local_run_started",
    "ready_step_selected",
    "claim_attempt",
    "chart_api_call_started",
    "chart_api_call_finished",
    "png_written",
    "manifest_written",
)


def a_large_picture(asked: Asked) -> Reply:
    return Reply(200, PICTURE, "image/png")


def kill_after(event: str, made: Call) -> int:
    """Start the call and kill it as soon as its log has the event; return its exit code."""
    process = start(made)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line)["event"] == event:
                break
    finally:
        process.kill()
        ended = finish(process)
    return ended.code


class Killed:
    """Runs on one state directory, each killed at another moment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        with serving(slowly(0.1, a_large_picture)) as server:
            self.variables = real(server, requestsPerSecond=20, dailyLimit=1000)
            calls = [one_of_many(folder, number, a_flow_run(), self.variables) for number in range(len(MOMENTS))]
            with ThreadPoolExecutor(3) as threads:
                self.codes = dict(zip(MOMENTS, threads.map(kill_after, MOMENTS, calls), strict=True))
            self.again = {
                moment: call(made.folder, *made.arguments, variables=made.variables)
                for moment, made in zip(MOMENTS, calls, strict=True)
                if moment in {"chart_api_call_started", "png_written"}
            }
            self.after = finish(start(one_of_many(folder, 59, a_flow_run(), self.variables)))
            self.asked = Counter(one.key for one in server.asked)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


def test_the_documents_are_whole_after_kill_9(killed: Killed) -> None:
    assert set(killed.codes.values()) <= {-9, 0}
    assert list(killed.codes.values()).count(-9) >= 5
    connection = sqlite3.connect(killed.state / "documents.sqlite3")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    bodies = [json.loads(body) for (body,) in connection.execute("SELECT body FROM documents")]
    connection.close()
    statuses = [one["steps"][STEP_ID]["status"] for one in bodies if "steps" in one]
    assert len(statuses) >= 6
    assert set(statuses) <= {"READY", "RUNNING", "SUCCEEDED"}


def test_no_file_is_half_written_after_kill_9(killed: Killed) -> None:
    files = [path for path in artifacts(killed.state) if not path.name.startswith(".writing-")]
    pictures = [path for path in files if path.suffix == ".png"]
    assert len(pictures) >= 2
    for path in pictures:
        data = path.read_bytes()
        assert png_size(data) is not None, path
        assert data == PICTURE, path
    for path in files:
        if path.suffix == ".json":
            assert json.loads(path.read_text("utf-8"))["items"], path
    assert {path.suffix for path in files} == {".png", ".json"}
    for path in (killed.state / "flow_runs").glob("[!.]*"):
        assert json.loads(path.read_text("utf-8"))["steps"], path


def test_a_step_whose_worker_was_killed_is_left_alone_while_its_lease_lasts(killed: Killed) -> None:
    codes = {moment: one.code for moment, one in killed.again.items()}
    assert codes == dict.fromkeys(killed.again, 2)


def test_others_work_on_as_if_nothing_had_happened(killed: Killed) -> None:
    assert (killed.after.code, killed.after.summary()["itemsCount"]) == (0, len(TEMPLATE_IDS))


def test_no_call_of_a_killed_worker_went_uncounted(killed: Killed) -> None:
    counted = {account: usage["usageToday"] for account, usage in usages(killed.state).items()}
    for account, key in KEYS.items():
        assert counted.get(account, 0) >= killed.asked[key]


# Interrupted by a person.


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_a_run_that_is_interrupted_ends_its_step(tmp_path: Path, delay: float) -> None:
    told = Event()
    with serving(when_told(told)) as server:
        made = run_local(tmp_path, a_flow_run(), variables=real(server, requestsPerSecond=50))
        ended = interrupt_after("chart_api_call_started", delay, made)
        told.set()
    assert "Traceback" not in ended.stderr
    assert ended.code == 1
    step = exported_step(tmp_path / "state")
    assert (step["status"], step["error"]["code"]) == ("FAILED", "INTERNAL_ERROR")


def interrupt_after(event: str, delay: float, made: Call) -> Ended:
    """Start the call and press Ctrl-C a moment after its log has the event."""
    process = start(made)
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if json.loads(line)["event"] == event:
            break
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    return Ended(ended.code, ended.stdout, seen + ended.stderr)
