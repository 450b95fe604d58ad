from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest

from core.documents import Decision, Documents, ReplaceDocument
from core.events import LogEvent
from core.failures import step_error
from core.flow.settings import LOCAL_DEFAULTS, parse_flow_settings
from effects import ClaimStep, Document, FinalizeStep, LeasePolicy, StepClaimed, StepFinalized
from interpreters.clock import SystemClock
from interpreters.dispatcher import MAX_TELLINGS, POLL_SECONDS, SIDE_BY_SIDE, Dispatcher, Worker
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.orchestrator import orchestrator_on
from interpreters.performers import Interpreter
from interpreters.ports import DocumentStore, StoreUnusableError
from tests.builders import RUN_ID, RUN_PATH, a_claim, a_flow_run, a_plain_step
from tests.emulators import Naps

pytestmark = pytest.mark.timeout(20)

LEASES = LeasePolicy(max_attempts=3)
FILE = "documents.sqlite3"


@dataclass
class Notes:
    """A log that remembers."""

    events: list[LogEvent] = field(default_factory=list)

    def write(self, event: LogEvent) -> None:
        self.events.append(event)


class CountedDocuments(SqliteDocuments):
    """Counts how often the dispatcher looks; may forget to take note that a change was delivered, as a crash would."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, announced="flow_runs")
        self.reads = 0
        self.looks = 0
        self.crashes_before_delivered = 0

    def read(self, paths: Sequence[str]) -> Documents:
        self.reads += 1
        return super().read(paths)

    def undelivered(self, path: str) -> int | None:
        self.looks += 1
        return super().undelivered(path)

    def delivered(self, path: str, change: int) -> None:
        if self.crashes_before_delivered:
            self.crashes_before_delivered -= 1
            raise SystemExit(137)
        super().delivered(path, change)


@dataclass
class Hands:
    """Workers of a store: each claims its step, does what it is told, and ends it."""

    documents: DocumentStore
    do: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """Per step, what is done between claim and finalize."""
    failing: frozenset[str] = frozenset()
    taken: list[str] = field(default_factory=list)
    most: int = 0
    _now: int = 0
    _lock: Any = field(default_factory=Lock)

    def work(self, step_id: str) -> bool:
        interpreter, token = Interpreter(documents=self.documents, clock=SystemClock()), uuid.uuid4().hex
        claim = ClaimStep(
            flow_run=RUN_PATH, step_id=step_id, step_type="CHART_EXPORT", token=token, lease_seconds=600
        )
        if not isinstance(interpreter.perform(claim), StepClaimed):
            return False
        with self._lock:
            self.taken.append(step_id)
            self._now += 1
            self.most = max(self.most, self._now)
        self.do.get(step_id, lambda: None)()
        with self._lock:
            self._now -= 1
        error = step_error("CHART_API_FAILED", "scripted") if step_id in self.failing else None
        finalize = FinalizeStep(
            flow_run=RUN_PATH,
            step_id=step_id,
            token=token,
            status="FAILED" if error else "SUCCEEDED",
            outputs={},
            error=error,
        )
        assert isinstance(interpreter.perform(finalize), StepFinalized)
        return False


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[CountedDocuments]:
    store = CountedDocuments(tmp_path / FILE)
    yield store
    store.close()


@pytest.fixture
def elsewhere(tmp_path: Path, documents: CountedDocuments) -> Iterator[SqliteDocuments]:
    """Another connection to the same file, as another process has it."""
    store = SqliteDocuments(tmp_path / FILE, announced="flow_runs")
    yield store
    store.close()


def put(store: DocumentStore, steps: Mapping[str, Any], **changes: Any) -> None:
    flow_run = a_flow_run(steps, **{"status": "PENDING", **changes})
    store.transact((RUN_PATH,), lambda _: Decision(None, (ReplaceDocument(path=RUN_PATH, document=flow_run),)))


def pending(**depends_on: Sequence[str]) -> dict[str, Any]:
    return {one: a_plain_step("PENDING", ids) for one, ids in depends_on.items()}


def a_dispatcher(
    documents: SqliteDocuments, worker: Callable[[str], bool] | None = None, **changes: Any
) -> Dispatcher:
    """Return a dispatcher whose worker serves CHART_EXPORT steps."""
    work = worker or Hands(documents).work

    def worker_of(step_id: str, step_type: str) -> Worker | None:
        return (lambda _: work(step_id)) if step_type == "CHART_EXPORT" else None

    orchestrator = orchestrator_on(parse_flow_settings({}, LOCAL_DEFAULTS).unwrap(), documents, SystemClock())
    return Dispatcher(
        **{
            "run_id": RUN_ID,
            "documents": documents,
            "outbox": documents,
            "orchestrator": orchestrator,
            "worker_of": worker_of,
            "log": Notes(),
            "show": lambda _: None,
            "sleep": Naps(),
            **changes,
        }
    )


def statuses(flow_run: Document) -> dict[str, str]:
    return {step_id: step["status"] for step_id, step in flow_run["steps"].items()}


def wait_for(happened: Event) -> None:
    assert happened.wait(10)


# A run.


def test_a_run_is_driven_from_change_to_change_to_its_end(documents: CountedDocuments) -> None:
    hands, shown = Hands(documents), list[str]()
    put(documents, pending(a=(), b=("a",), c=("a",), d=("b", "c")))
    ended = a_dispatcher(documents, hands.work, show=lambda one: shown.append(one["status"])).to_end(LEASES)
    assert (ended["status"], set(statuses(ended).values())) == ("SUCCEEDED", {"SUCCEEDED"})
    assert (hands.taken[0], sorted(hands.taken[1:3]), hands.taken[3]) == ("a", ["b", "c"], "d")
    assert (shown[0], shown[-1]) == ("RUNNING", "SUCCEEDED")
    assert documents.undelivered(RUN_PATH) is None


def test_the_document_returned_is_the_one_stored(documents: CountedDocuments) -> None:
    put(documents, pending(a=(), b=("a",)))
    assert a_dispatcher(documents).to_end(LEASES) == documents.read((RUN_PATH,))[RUN_PATH]


def test_a_run_that_has_ended_is_left_alone(documents: CountedDocuments) -> None:
    put(documents, {"a": a_plain_step("READY")}, status="CANCELLED")
    hands = Hands(documents)
    ended = a_dispatcher(documents, hands.work).to_end(LEASES)
    assert (ended["status"], statuses(ended), hands.taken) == ("CANCELLED", {"a": "READY"}, [])


def test_a_step_whose_holder_is_gone_is_taken_again_at_once(documents: CountedDocuments) -> None:
    held = a_plain_step("RUNNING", outputs=a_claim(1, "2999-01-01T00:00:00Z"))
    put(documents, {"a": held}, status="RUNNING")
    ended = a_dispatcher(documents).to_end(LeasePolicy(max_attempts=3, holders_gone=True))
    assert ended["status"] == "SUCCEEDED"
    assert ended["steps"]["a"]["outputs"]["execution"]["claim"]["attempt"] == 2


def test_a_run_that_waits_for_a_step_nobody_serves_returns(documents: CountedDocuments) -> None:
    put(documents, {**pending(b=("a",), c=()), "a": a_plain_step("PENDING", stepType="OHLCV_EXPORT")})
    waiting = a_dispatcher(documents).to_end(LEASES)
    assert waiting["status"] == "RUNNING"
    assert statuses(waiting) == {"a": "READY", "b": "PENDING", "c": "SUCCEEDED"}
    assert documents.undelivered(RUN_PATH) is None


# Delivery.


def test_a_change_is_delivered_again_when_the_process_dies_before_it_took_note(
    documents: CountedDocuments, elsewhere: SqliteDocuments
) -> None:
    put(documents, pending(a=(), b=("a",)))
    for _ in range(3):
        documents.crashes_before_delivered = 1
        with pytest.raises(SystemExit):
            a_dispatcher(documents, lambda _: False).to_end(LEASES)
        assert elsewhere.undelivered(RUN_PATH) is not None
    hands = Hands(elsewhere)
    assert a_dispatcher(elsewhere, hands.work).to_end(LEASES)["status"] == "SUCCEEDED"
    assert hands.taken == ["a", "b"]


def test_a_change_that_comes_while_another_is_handled_is_not_lost(
    documents: CountedDocuments, elsewhere: SqliteDocuments
) -> None:
    put(documents, {**pending(b=("a",)), "a": a_plain_step("PENDING", stepType="OHLCV_EXPORT")})

    def give(flow_run: Document) -> None:
        """End the step from elsewhere just before the dispatcher takes note of the change that made it READY."""
        if statuses(flow_run)["a"] == "READY":
            steps = {**flow_run["steps"], "a": a_plain_step("SUCCEEDED", stepType="OHLCV_EXPORT")}
            put(elsewhere, steps, status="RUNNING")

    assert a_dispatcher(documents, show=give).to_end(LEASES)["status"] == "SUCCEEDED"


def test_what_another_process_writes_is_heard_of_while_workers_work(
    documents: CountedDocuments, elsewhere: SqliteDocuments
) -> None:
    put(documents, {**pending(slow=(), b=("a",)), "a": a_plain_step("PENDING", stepType="OHLCV_EXPORT")})
    slow_begun, b_begun = Event(), Event()

    def slow() -> None:
        slow_begun.set()
        wait_for(b_begun)

    def give() -> None:
        wait_for(slow_begun)
        flow_run = elsewhere.read((RUN_PATH,))[RUN_PATH]
        assert flow_run is not None
        given = a_plain_step("SUCCEEDED", stepType="OHLCV_EXPORT")
        put(elsewhere, {**flow_run["steps"], "a": given}, status="RUNNING")

    other = Thread(target=give)
    other.start()
    hands = Hands(documents, do={"slow": slow, "b": b_begun.set})
    ended = a_dispatcher(documents, hands.work).to_end(LEASES)
    other.join()
    assert (ended["status"], hands.taken) == ("SUCCEEDED", ["slow", "b"])


def test_waiting_for_a_worker_costs_a_look_now_and_then(documents: CountedDocuments) -> None:
    put(documents, pending(a=()))
    seconds = 0.5
    hands = Hands(documents, do={"a": lambda: time.sleep(seconds)})
    used = time.process_time()
    a_dispatcher(documents, hands.work).to_end(LEASES)
    used = time.process_time() - used
    assert documents.looks <= seconds / POLL_SECONDS + 20
    assert documents.reads <= 12
    assert used < seconds / 2


# Workers.


def test_no_more_steps_are_worked_on_at_once_than_there_are_places(documents: CountedDocuments) -> None:
    steps = [f"s{number:02}" for number in range(3 * SIDE_BY_SIDE)]
    put(documents, pending(**dict.fromkeys(steps, ())))
    hands = Hands(documents, do=dict.fromkeys(steps, lambda: time.sleep(0.03)))
    assert a_dispatcher(documents, hands.work).to_end(LEASES)["status"] == "SUCCEEDED"
    assert sorted(hands.taken) == steps
    assert 1 < hands.most <= SIDE_BY_SIDE


def test_a_step_at_work_is_not_given_to_a_second_worker(documents: CountedDocuments) -> None:
    put(documents, pending(a=(), b=(), c=()))
    told: list[str] = []
    begun = Event()
    hands = Hands(documents, do={"b": begun.set})

    def work(step_id: str) -> bool:
        told.append(step_id)
        if step_id == "a":
            wait_for(begun)  # not even claimed, while the others' changes are delivered
        return hands.work(step_id)

    assert a_dispatcher(documents, work).to_end(LEASES)["status"] == "SUCCEEDED"
    assert sorted(told) == ["a", "b", "c"]


def test_a_worker_that_could_not_claim_is_told_again(documents: CountedDocuments) -> None:
    put(documents, pending(a=()))
    hands, refused, naps = Hands(documents), list[str](), Naps()

    def work(step_id: str) -> bool:
        if len(refused) < MAX_TELLINGS - 1:
            refused.append(step_id)
            return True
        return hands.work(step_id)

    assert a_dispatcher(documents, work, sleep=naps).to_end(LEASES)["status"] == "SUCCEEDED"
    assert naps.seconds == [1, 2]


@pytest.mark.parametrize("says_so", [True, False])
def test_a_worker_that_never_claims_stops_the_run(documents: CountedDocuments, says_so: bool) -> None:
    put(documents, pending(a=()))
    told: list[str] = []

    def work(step_id: str) -> bool:
        told.append(step_id)
        return says_so

    with pytest.raises(StoreUnusableError, match="step a could not be claimed, 3 times"):
        a_dispatcher(documents, work).to_end(LEASES)
    assert told == ["a"] * MAX_TELLINGS
    ready = documents.read((RUN_PATH,))[RUN_PATH]
    assert ready is not None
    assert statuses(ready) == {"a": "READY"}


def test_a_worker_that_breaks_ends_the_driving_and_the_run_can_be_resumed(documents: CountedDocuments) -> None:
    put(documents, pending(a=(), b=("a",)))

    def work(step_id: str) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        a_dispatcher(documents, work).to_end(LEASES)
    assert a_dispatcher(documents).to_end(LEASES)["status"] == "SUCCEEDED"


def test_a_failed_run_begins_nothing_more_and_waits_for_what_is_at_work(documents: CountedDocuments) -> None:
    steps = ["a", "b", "c", "d", "e", "f"]
    put(documents, pending(**dict.fromkeys(steps, ())))
    over = Event()
    hands = Hands(documents, do={one: lambda: wait_for(over) for one in "bcd"}, failing=frozenset("a"))

    def show(flow_run: Document) -> None:
        if flow_run["status"] == "FAILED":
            over.set()

    ended = a_dispatcher(documents, hands.work, show=show).to_end(LEASES)
    assert sorted(hands.taken) == ["a", "b", "c", "d"]
    assert (ended["status"], ended["error"]["code"]) == ("FAILED", "STEP_FAILED")
    assert statuses(ended) == {"a": "FAILED", **dict.fromkeys("bcd", "SUCCEEDED"), "e": "READY", "f": "READY"}
    counts = ended["progress"]["stepCounts"]
    assert (counts["succeeded"], counts["ready"], counts["running"]) == (3, 2, 0)


# Stores that fail.


def test_a_run_that_is_gone_is_said(documents: CountedDocuments) -> None:
    with pytest.raises(StoreUnusableError, match=f"{RUN_PATH} is gone"):
        a_dispatcher(documents).to_end(LEASES)


def test_a_run_that_cannot_be_moved_on_is_said(documents: CountedDocuments, tmp_path: Path) -> None:
    put(documents, pending(a=()))
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON documents BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    connection.close()
    notes = Notes()
    with pytest.raises(StoreUnusableError, match="could not be moved on: IntegrityError"):
        a_dispatcher(documents, log=notes).to_end(LEASES)
    assert [event.event for event in notes.events] == ["effect_failed"]
