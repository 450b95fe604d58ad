"""Several orchestrators and workers at once on one flow_run, on every store; judged by the history of its commits."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from core.cloud import Concurrency
from core.documents import Decision, ReplaceDocument
from core.events import LogEvent
from core.flow.orchestrator import AdvanceResult
from core.flow.settings import LOCAL_DEFAULTS, parse_flow_settings
from effects import ClaimStep, FinalizeStep, StepClaimed, StepFinalized
from interpreters.clock import SystemClock
from interpreters.documents.firestore import FirestoreDocuments
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.orchestrator import Orchestrator, orchestrator_on
from interpreters.performers import Interpreter
from interpreters.ports import DocumentStore
from interpreters.sandbox.firestore import Change
from tests.builders import RUN_ID, RUN_PATH, a_flow_run, a_plain_step
from tests.emulators import MODES, firestore_on, our_firestore

pytestmark = pytest.mark.timeout(60)

DEPENDS_ON: dict[str, tuple[str, ...]] = {
    "a": (),
    "b:1": ("a",),
    "b:2": ("a",),
    "b:3": ("a",),
    "c": ("b:1", "b:2", "b:3"),
    "d": ("c", "alone"),
    "alone": (),
}
LIFE = ["PENDING", "READY", "RUNNING", "SUCCEEDED"]
RUN_LIFE = ["PENDING", "RUNNING", "SUCCEEDED"]
PATIENCE_SECONDS = 40
PAUSE_SECONDS = 0.002
FORKSERVER = multiprocessing.get_context("forkserver")
# All tests of a process share one forkserver, and who sets the list last sets it for all.
FORKSERVER.set_forkserver_preload([__name__, "tests.end_to_end.test_kill_and_resume"])

OpenStore = Callable[[], DocumentStore]


class Silence:
    """A log that nobody reads."""

    def write(self, event: LogEvent) -> None:
        """Write nothing."""


@dataclass
class Place:
    """A store that any number of workers and orchestrators can open, and what was ever committed to it."""

    open: OpenStore
    history: Callable[[], list[dict[str, Any]]]
    """The flow_run after each commit, in order."""
    results: list[AdvanceResult] = field(default_factory=list)


def an_orchestrator(store: DocumentStore) -> Orchestrator:
    return orchestrator_on(parse_flow_settings({}, LOCAL_DEFAULTS).unwrap(), store, SystemClock())


def put_flow_run(store: DocumentStore) -> None:
    steps = {one: a_plain_step("PENDING", ids) for one, ids in DEPENDS_ON.items()}
    flow_run = a_flow_run(steps, status="PENDING")
    store.transact((RUN_PATH,), lambda _: Decision(None, (ReplaceDocument(path=RUN_PATH, document=flow_run),)))


def is_over(store: DocumentStore) -> bool:
    flow_run = store.read((RUN_PATH,))[RUN_PATH]
    assert flow_run is not None
    return flow_run["status"] not in {"PENDING", "RUNNING"}


def orchestrate(store: DocumentStore) -> list[AdvanceResult]:
    """Move the run on, again and again, until it has ended; return what each pass came to."""
    orchestrator, results = an_orchestrator(store), []
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not is_over(store) and time.monotonic() < ends_at:
        results.append(orchestrator.advance(RUN_ID, Silence()))
        time.sleep(PAUSE_SECONDS)
    return results


def work(store: DocumentStore) -> list[str]:
    """Take every READY step that can be had until the run has ended; return the steps that were."""
    interpreter, taken = Interpreter(documents=store, clock=SystemClock()), []
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not is_over(store) and time.monotonic() < ends_at:
        flow_run = store.read((RUN_PATH,))[RUN_PATH]
        assert flow_run is not None
        ready = sorted(one for one, step in flow_run["steps"].items() if step["status"] == "READY")
        taken += [step_id for step_id in ready if _do(interpreter, step_id)]
        time.sleep(PAUSE_SECONDS)
    return taken


def _do(interpreter: Interpreter, step_id: str) -> bool:
    token = uuid.uuid4().hex
    claim = ClaimStep(flow_run=RUN_PATH, step_id=step_id, step_type="CHART_EXPORT", token=token, lease_seconds=600)
    if not isinstance(interpreter.perform(claim), StepClaimed):
        return False
    finalize = FinalizeStep(
        flow_run=RUN_PATH, step_id=step_id, token=token, status="SUCCEEDED", outputs={}, error=None
    )
    assert isinstance(interpreter.perform(finalize), StepFinalized)
    return True


# The places.


@contextmanager
def sqlite_place(folder: Path) -> Iterator[Place]:
    """Give a file in which every commit leaves a copy of the document, and which each racer opens for itself."""
    file, opened = folder / "documents.sqlite3", []  # type: Path, list[SqliteDocuments]

    def open_store() -> DocumentStore:
        opened.append(SqliteDocuments(file, announced="flow_runs"))
        return opened[-1]

    open_store()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE history (number INTEGER PRIMARY KEY, body TEXT)")
        connection.execute(
            "CREATE TRIGGER keep AFTER INSERT ON documents BEGIN INSERT INTO history (body) VALUES (new.body); END"
        )

        def history() -> list[dict[str, Any]]:
            rows = connection.execute("SELECT body FROM history ORDER BY number").fetchall()
            return [json.loads(body) for (body,) in rows]

        yield Place(open_store, history)
    for store in opened:
        store.close()


@contextmanager
def firestore_place(concurrency: Concurrency) -> Iterator[Place]:
    changes: list[Change] = []
    with our_firestore() as server, firestore_on(server.address) as client:
        server.database.subscribe(changes.append)
        yield Place(
            lambda: FirestoreDocuments(lambda: client, concurrency),
            lambda: [_decoded(change.new.fields) for change in changes if change.new],
        )


def _decoded(fields: Any) -> dict[str, Any]:
    return {name: _value(value) for name, value in fields.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    if kind == "map_value":
        return _decoded(value.map_value.fields)
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return None if kind == "null_value" else getattr(value, kind)


PLACES = ["sqlite", *MODES]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    chosen = sqlite_place(tmp_path) if request.param == "sqlite" else firestore_place(request.param)
    with chosen as place:
        yield place


# The races.


def race(place: Place, orchestrators: int, workers: int = 3) -> list[str]:
    """Let all race, each on a store of its own; return the steps that workers took."""
    put_flow_run(place.open())
    with ThreadPoolExecutor(orchestrators + workers) as threads:
        advancing = [threads.submit(orchestrate, place.open()) for _ in range(orchestrators)]
        working = [threads.submit(work, place.open()) for _ in range(workers)]
        place.results += chain.from_iterable(one.result() for one in advancing)
        return list(chain.from_iterable(one.result() for one in working))


def moves(history: list[dict[str, Any]], *path: str) -> list[str]:
    """Return the values that a field had one after the other."""
    values = []
    for document in history:
        found: Any = document
        for key in path:
            found = found[key]
        values.append(found)
    return [values[0], *(after for before, after in pairwise(values) if after != before)]


def check_history(history: list[dict[str, Any]]) -> None:
    """Assert that every step and the run went through their lives once, forwards, and never too early."""
    for step_id in DEPENDS_ON:
        assert moves(history, "steps", step_id, "status") == LIFE
    assert moves(history, "status") == RUN_LIFE
    for document in history:
        steps = document["steps"]
        for step_id, ids in DEPENDS_ON.items():
            if steps[step_id]["status"] != "PENDING":
                assert all(steps[one]["status"] == "SUCCEEDED" for one in ids)
    assert all(before != after for before, after in pairwise(history))
    assert all(step["outputs"]["execution"]["claim"]["attempt"] == 1 for step in history[-1]["steps"].values())


def check_progress(history: list[dict[str, Any]]) -> None:
    """Assert that the counts are those of the steps wherever an orchestrator wrote, and at the end."""
    for before, after in pairwise(history):
        if after.get("updatedAt") != before.get("updatedAt"):
            counted = Counter(step["status"].lower() for step in after["steps"].values())
            counts = after["progress"]["stepCounts"]
            assert {name: count for name, count in counts.items() if count and name != "total"} == dict(counted)
    last = history[-1]
    assert last["progress"]["stepCounts"]["succeeded"] == len(DEPENDS_ON)
    assert last["progress"].get("currentStepId") is None
    assert last["finishedAt"] == last["updatedAt"]


@pytest.mark.parametrize("orchestrators", [2, 4])
def test_racing_orchestrators_move_every_step_on_exactly_once(place: Place, orchestrators: int) -> None:
    taken = race(place, orchestrators)
    assert sorted(taken) == sorted(DEPENDS_ON)
    history = place.history()
    check_history(history)
    check_progress(history)
    promoted = Counter(
        change.path[1]
        for result in place.results
        for change in result.changes
        if change.path[0] == "steps" and change.after == "READY"
    )
    assert promoted == dict.fromkeys(DEPENDS_ON, 1)
    assert {result.status for result in place.results} <= {"CHANGED", "UNCHANGED"}
    ended = [one for one in place.results if one.run_status == "SUCCEEDED"]
    assert len(ended) == 1


def test_orchestrators_write_nothing_where_nothing_changes(place: Place) -> None:
    race(place, 2)
    before = place.history()
    orchestrators = [an_orchestrator(place.open()) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        passes = list(threads.map(lambda one: [one.advance(RUN_ID, Silence()) for _ in range(4)], orchestrators))
    assert {(one.status, one.reason) for one in chain.from_iterable(passes)} == {
        ("UNCHANGED", "nothing_to_change")
    }
    assert place.history() == before


def test_orchestrators_that_wait_for_workers_write_once(place: Place) -> None:
    store = place.open()
    put_flow_run(store)
    orchestrators = [an_orchestrator(place.open()) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        passes = list(threads.map(lambda one: [one.advance(RUN_ID, Silence()) for _ in range(3)], orchestrators))
    assert Counter(one.status for one in chain.from_iterable(passes)) == {"CHANGED": 1, "UNCHANGED": 11}
    assert len(place.history()) == 2


# Processes.


def orchestrate_file(file: Path) -> None:
    _on_file(file, orchestrate)


def work_on_file(file: Path) -> None:
    _on_file(file, work)


def _on_file(file: Path, do: Callable[[DocumentStore], object]) -> None:
    store = SqliteDocuments(file, announced="flow_runs")
    do(store)
    store.close()


def test_processes_that_share_a_file_race_as_well(tmp_path: Path) -> None:
    with sqlite_place(tmp_path) as place:
        put_flow_run(place.open())
        file = (tmp_path / "documents.sqlite3",)
        targets = [orchestrate_file, orchestrate_file, work_on_file, work_on_file]
        processes = [FORKSERVER.Process(target=one, args=file) for one in targets]
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE_SECONDS)
            assert process.exitcode == 0
            process.close()
        check_history(place.history())
        check_progress(place.history())
