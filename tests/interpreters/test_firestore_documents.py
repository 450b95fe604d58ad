"""Documents in Firestore when calls fail, answers are lost, and others write the same documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Lock
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import firestore

from core.charts.usage import USAGE_COLLECTION, reserve_accounts, usage_path
from core.cloud import Concurrency
from core.documents import Decision, Documents, ReplaceDocument, UpdateDocument
from core.flow.claims import claim_step, finalize_step
from effects import (
    AccountNeed,
    AccountPolicy,
    AccountsExhausted,
    AccountsReserved,
    ClaimLost,
    ClaimStep,
    FinalizeLost,
    FinalizeStep,
    ReserveAccount,
    StepClaimed,
    StepFinalized,
)
from interpreters.clock import SystemClock
from interpreters.cloud import Cloud, Once
from interpreters.documents import firestore as module
from interpreters.documents.firestore import DOUBTFUL_TRIES, FirestoreDocuments
from interpreters.sandbox.firestore import Change, FirestoreServer
from tests.builders import NOW, RUN_PATH, STEP_ID, a_flow_run, a_step
from tests.emulators import MODES, Naps, cloud_settings, firestore_on, our_firestore

pytestmark = pytest.mark.timeout(30)

A, B, C = "things/a", "things/b", "things/c"
Code = grpc.StatusCode
READ = "BatchGetDocuments"
MANIFEST = "gs://bucket/manifest.json"


@dataclass
class World:
    """A Firestore that can be made to fail, a store on it, and what was changed in it."""

    server: FirestoreServer
    client: firestore.Client
    mode: Concurrency
    naps: Naps = field(default_factory=Naps)
    changes: list[Change] = field(default_factory=list)

    @property
    def store(self) -> FirestoreDocuments:
        return FirestoreDocuments(lambda: self.client, self.mode, self.naps)

    def put(self, path: str, document: dict[str, Any]) -> None:
        self.client.document(path).set(document)
        self.changes.clear()
        self.server.tally.clear()

    def get(self, path: str) -> Any:
        return self.client.document(path).get().to_dict()

    def step(self, step_id: str = STEP_ID) -> Any:
        return self.get(RUN_PATH)["steps"][step_id]

    def claim(self, token: str = "mine", step_id: str = STEP_ID) -> StepClaimed | ClaimLost:
        effect = ClaimStep(
            flow_run=RUN_PATH, step_id=step_id, step_type="CHART_EXPORT", token=token, lease_seconds=600
        )
        return self.store.transact((RUN_PATH,), lambda found: claim_step(found, effect, NOW))

    def finalize(self, token: str = "mine", step_id: str = STEP_ID) -> StepFinalized | FinalizeLost:
        effect = FinalizeStep(
            flow_run=RUN_PATH,
            step_id=step_id,
            token=token,
            status="SUCCEEDED",
            outputs={"outputsManifestGcsUri": MANIFEST},
            error=None,
        )
        return self.store.transact((RUN_PATH,), lambda found: finalize_step(found, effect, NOW))

    def reserve(self, identifier: str = "r1", limit: int = 44) -> AccountsReserved | AccountsExhausted:
        """Reserve three calls on two accounts: two of one, as its slot comes again, and one of the other."""
        accounts = tuple(
            AccountPolicy(id=one, daily_limit=limit, requests_per_second=1.0) for one in ("acc1", "acc2")
        )
        effect = ReserveAccount(
            reservation_id=identifier,
            usage_collection=USAGE_COLLECTION,
            accounts=accounts,
            exhausted=(),
            rejected=(),
            for_requests=tuple(AccountNeed(chart_template_id=f"ctpl_{one}") for one in "abc"),
            usable_until=NOW + timedelta(hours=1),
        )
        paths = [usage_path(USAGE_COLLECTION, one.id) for one in accounts]
        return self.store.transact(paths, lambda found: reserve_accounts(found, effect, NOW))

    def usage(self) -> list[Any]:
        return [self.get(usage_path(USAGE_COLLECTION, one)) for one in ("acc1", "acc2")]

    def fail(self, method: str, code: Any, times: int = 1, when: Any = "before") -> None:
        ends = (method, code, when) == ("Commit", Code.ABORTED, "before")
        matching = self._end_transaction if ends else None
        self.server.faults.add(method, when=when, code=code, times=times, matching=matching)

    def _end_transaction(self, commit: Any) -> bool:
        """Let go of what a transaction has locked: Firestore does, where it aborts one."""
        if commit.transaction:
            self.server.database.roll_back(commit.database, commit.transaction)
        return True


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with our_firestore() as server, firestore_on(server.address) as client:
        one = World(server, client, request.param)
        end = server.database.subscribe(one.changes.append)
        yield one
        end()


def changed(world: World) -> list[str]:
    """Return the paths of all changes, one for each change."""
    return sorted("/".join(change.name.split("/")[5:]) for change in world.changes)


def increment(documents: Documents, path: str = A) -> Decision[int]:
    count = (documents[path] or {"n": 0})["n"] + 1
    return Decision(count, (UpdateDocument(path=path, assign={("n",): count}),))


def setting(path: str, **fields: Any) -> Callable[[Documents], Decision[None]]:
    return lambda _: Decision(None, (UpdateDocument(path=path, assign={(key,): fields[key] for key in fields}),))


# A commit that fails, before or after it was applied.

FAILURES = [
    (when, code)
    for when in ("before", "after")
    for code in (
        Code.UNAVAILABLE,
        Code.DEADLINE_EXCEEDED,
        Code.INTERNAL,
        Code.UNKNOWN,
        Code.CANCELLED,
        Code.RESOURCE_EXHAUSTED,
        Code.ABORTED,
        Code.INVALID_ARGUMENT,
        Code.FAILED_PRECONDITION,
        Code.ALREADY_EXISTS,
        Code.NOT_FOUND,
    )
]


@pytest.mark.parametrize(("when", "code"), FAILURES, ids=lambda one: getattr(one, "name", one))
def test_a_commit_that_failed_is_settled_and_nothing_is_applied_twice(world: World, when: str, code: Any) -> None:
    world.put(RUN_PATH, a_flow_run())

    world.fail("Commit", code, when=when)
    claimed = world.claim()
    assert isinstance(claimed, StepClaimed)
    assert claimed.attempt == 1
    assert world.step()["outputs"]["execution"]["claim"]["attempt"] == 1

    world.fail("Commit", code, when=when)
    reserved = world.reserve()
    assert isinstance(reserved, AccountsReserved)
    assert sorted(one.account_id for one in reserved.assignments) == ["acc1", "acc1", "acc2"]
    assert [one["usageToday"] for one in world.usage()] == [2, 1]
    assert [len(one["reservations"]) for one in world.usage()] == [1, 1]
    slots = [call["slotAt"] for one in world.usage() for call in one["reservations"][0]["calls"]]
    assert len(slots) == len(reserved.assignments)

    world.fail("Commit", code, when=when)
    assert world.finalize() == StepFinalized(status="SUCCEEDED", at=NOW)
    assert world.step()["outputs"]["outputsManifestGcsUri"] == MANIFEST

    assert world.server.faults.remaining() == 0
    usages = [usage_path(USAGE_COLLECTION, one) for one in ("acc1", "acc2")]
    assert changed(world) == sorted([RUN_PATH, RUN_PATH, *usages])


@pytest.mark.parametrize(
    "code", [Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.INTERNAL], ids=lambda one: one.name
)
def test_answers_lost_again_and_again_are_settled(world: World, code: Any) -> None:
    world.put(RUN_PATH, a_flow_run())
    world.fail("Commit", code, times=3, when="after")
    claimed = world.claim()
    assert isinstance(claimed, StepClaimed)
    assert claimed.attempt == 1
    assert changed(world) == [RUN_PATH]


def test_a_commit_that_the_library_sent_again_after_it_landed_is_settled_by_reading(world: World) -> None:
    world.put(RUN_PATH, a_flow_run())
    world.fail("Commit", Code.UNAVAILABLE, when="after")
    assert isinstance(world.claim(), StepClaimed)
    assert world.server.calls["Commit"] >= 2
    assert world.server.calls[READ] == 2
    assert len(world.naps.seconds) == 1


def test_a_creation_that_the_library_sent_again_after_it_landed_is_settled_by_reading(world: World) -> None:
    world.fail("Commit", Code.UNAVAILABLE, when="after")
    assert isinstance(world.reserve(), AccountsReserved)
    assert [one["usageToday"] for one in world.usage()] == [2, 1]


def test_a_claim_lost_to_another_while_the_answer_was_lost_is_lost(world: World) -> None:
    world.put(RUN_PATH, a_flow_run())
    rival = replace(world, naps=Naps())

    def rival_claims(_: float) -> None:
        assert isinstance(rival.claim("theirs"), StepClaimed)

    world.fail("Commit", Code.DEADLINE_EXCEEDED)
    outcome = FirestoreDocuments(lambda: world.client, world.mode, rival_claims).transact(
        (RUN_PATH,),
        lambda found: claim_step(
            found,
            ClaimStep(
                flow_run=RUN_PATH, step_id=STEP_ID, step_type="CHART_EXPORT", token="mine", lease_seconds=600
            ),
            NOW,
        ),
    )
    assert outcome == ClaimLost(reason="not_ready", at=NOW)
    assert world.step()["outputs"]["execution"]["claim"]["token"] == "theirs"


# Other calls that fail.


@pytest.mark.parametrize(
    "code",
    [
        Code.UNAVAILABLE,
        Code.DEADLINE_EXCEEDED,
        Code.INTERNAL,
        Code.ABORTED,
        Code.RESOURCE_EXHAUSTED,
        Code.CANCELLED,
    ],
    ids=lambda one: one.name,
)
def test_a_read_that_fails_is_tried_again(world: World, code: Any) -> None:
    world.put(A, {"n": 1})
    world.fail(READ, code)
    assert world.store.read((A,)) == {A: {"n": 1}}
    world.fail(READ, code)
    assert world.store.transact((A,), increment) == 2
    world.fail("RunQuery", code)
    assert world.store.collection("things") == {A: {"n": 2}}
    assert changed(world) == [A]


def test_contention_goes_on_until_it_is_settled_though_the_library_gives_up(world: World) -> None:
    world.put(A, {"n": 1})
    world.fail("Commit", Code.ABORTED, times=12)
    assert world.store.transact((A,), increment) == 2
    assert world.server.calls["Commit"] == 13
    assert len(world.naps.seconds) == {"transaction": 2, "precondition": 12}[world.mode]


@pytest.fixture
def transactions() -> Iterator[World]:
    with our_firestore() as server, firestore_on(server.address) as client:
        yield World(server, client, "transaction")


@pytest.mark.parametrize(
    "code",
    [Code.UNAVAILABLE, Code.ABORTED, Code.CANCELLED, Code.UNKNOWN, Code.INTERNAL, Code.RESOURCE_EXHAUSTED],
    ids=lambda one: one.name,
)
def test_a_begin_that_fails_is_tried_again(transactions: World, code: Any) -> None:
    transactions.fail("BeginTransaction", code, times=2)
    assert transactions.store.transact((A,), increment) == 1
    assert transactions.server.faults.remaining() == 0


@pytest.mark.parametrize("code", [Code.PERMISSION_DENIED, Code.UNAUTHENTICATED], ids=lambda one: one.name)
def test_a_begin_that_is_refused_for_good_is_raised_at_once(transactions: World, code: Any) -> None:
    transactions.fail("BeginTransaction", code, times=1000)
    with pytest.raises((exceptions.PermissionDenied, exceptions.Unauthenticated)):
        transactions.store.transact((A,), increment)
    assert transactions.naps.seconds == []


def test_a_rollback_that_fails_hides_nothing(transactions: World) -> None:
    transactions.put(A, {"n": 1})
    transactions.fail("Rollback", Code.ABORTED, times=2, when="after")
    transactions.fail("Commit", Code.INTERNAL, times=2)
    assert transactions.store.transact((A,), increment) == 2


@pytest.mark.parametrize("method", [READ, "Commit"])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.PERMISSION_DENIED, exceptions.PermissionDenied),
        (Code.UNAUTHENTICATED, exceptions.Unauthenticated),
        (Code.UNIMPLEMENTED, exceptions.MethodNotImplemented),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_an_error_for_good_is_raised_at_once(world: World, method: str, code: Any, error: type[Exception]) -> None:
    world.fail(method, code, times=1000)
    with pytest.raises(error, match="a fault on purpose"):
        world.store.transact((A,), increment)
    assert world.naps.seconds == []
    assert world.server.calls[method] == 1


def test_an_argument_that_never_heals_is_given_up_after_a_few_tries(world: World) -> None:
    world.fail("Commit", Code.INVALID_ARGUMENT, times=1000)
    with pytest.raises(exceptions.InvalidArgument, match="a fault on purpose"):
        world.store.transact((A,), increment)
    assert world.server.calls["Commit"] == DOUBTFUL_TRIES


def test_a_document_above_one_mebibyte_is_refused_after_a_few_tries(world: World) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="exceeds the maximum allowed size"):
        world.store.transact((A,), setting(A, text="x" * 1_100_000))
    assert world.get(A) is None


@pytest.mark.parametrize("value", ["\ud800", 2**63, [[1]]], ids=["lone surrogate", "65 bits", "list in a list"])
def test_a_value_that_firestore_cannot_hold_is_refused_after_a_few_tries(world: World, value: Any) -> None:
    with pytest.raises((ValueError, exceptions.InvalidArgument)):
        world.store.transact((A,), setting(A, value=value))
    assert len(world.naps.seconds) < DOUBTFUL_TRIES


@pytest.mark.parametrize("path", ["things", "things/a/b", ""])
def test_a_path_of_no_document_is_refused_at_once(world: World, path: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        world.store.read((path,))
    with pytest.raises(ValueError, match=r"."):
        world.store.transact((path,), lambda _: Decision(None))
    assert world.naps.seconds == []


# Rules that are wrong.


@pytest.mark.parametrize("error", [ValueError("a bug"), exceptions.Aborted("a bug"), KeyError("a bug")], ids=repr)
def test_what_a_rule_raises_is_raised_as_itself_and_not_tried_again(world: World, error: Exception) -> None:
    world.put(A, {"n": 1})
    runs = []

    def broken(documents: Documents) -> Decision[None]:
        runs.append(documents)
        raise error

    with pytest.raises(type(error)) as raised:
        world.store.transact((A,), broken)
    assert raised.value is error
    assert len(runs) == 1
    world.put(A, {"n": 2})  # nothing is locked any more


def test_what_a_rule_raises_is_raised_as_itself_though_the_rollback_fails(transactions: World) -> None:
    transactions.fail("Rollback", Code.ABORTED, when="after")
    error = ValueError("a bug")

    def broken(documents: Documents) -> Decision[None]:
        raise error

    with pytest.raises(ValueError, match="a bug") as raised:
        transactions.store.transact((A,), broken)
    assert raised.value is error


# Patience.


def test_pauses_grow_to_a_second_and_no_two_are_alike(world: World) -> None:
    world.fail(READ, Code.ABORTED, times=12)
    world.store.read((A,))
    pauses = world.naps.seconds
    assert len(set(pauses)) == 12
    assert pauses[0] <= 0.05
    assert all(0.5 <= one <= 1.0 for one in pauses[6:])


def test_errors_of_the_service_are_raised_when_patience_runs_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    store = FirestoreDocuments(lambda: world.client, world.mode, lambda _: time.sleep(0.02))
    world.fail(READ, Code.CANCELLED, times=1000)
    started = time.monotonic()
    with pytest.raises(exceptions.Cancelled):
        store.transact((A,), increment)
    assert 0.2 <= time.monotonic() - started < 60
    assert world.server.calls[READ] > 1


def test_contention_is_waited_for_longer_than_errors_of_the_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    world.fail("Commit", Code.ABORTED, times=20)
    assert world.store.transact((A,), increment) == 1


# Many at once.


@pytest.fixture(params=[*zip(MODES, MODES, strict=True), MODES], ids="-and-".join)
def rivals(request: pytest.FixtureRequest) -> Iterator[tuple[World, World]]:
    """Give two worlds on one database, each with a client of its own."""
    with our_firestore() as server, firestore_on(server.address) as first, firestore_on(server.address) as second:
        modes: tuple[Concurrency, Concurrency] = request.param
        one = World(server, first, modes[0], Naps(most=10_000, share=1.0))
        end = server.database.subscribe(one.changes.append)
        yield one, World(server, second, modes[1], Naps(most=10_000, share=1.0))
        end()


def test_of_many_claims_on_one_step_exactly_one_wins(rivals: tuple[World, World]) -> None:
    rivals[0].put(RUN_PATH, a_flow_run())
    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(lambda i: rivals[i % 2].claim(f"token-{i}"), range(12)))
    (winner,) = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, StepClaimed)]
    claim = rivals[0].step()["outputs"]["execution"]["claim"]
    assert (claim["token"], claim["attempt"]) == (f"token-{winner}", 1)
    assert changed(rivals[0]) == [RUN_PATH]


def test_many_steps_of_one_document_are_claimed_and_ended_side_by_side(rivals: tuple[World, World]) -> None:
    steps = [f"charts:{i}:all" for i in range(6)]
    rivals[0].put(RUN_PATH, a_flow_run({one: a_step() for one in steps}))

    def whole(i: int) -> bool:
        here, step_id, token = rivals[i % 2], steps[i // 2], f"token-{i}"
        if isinstance(here.claim(token, step_id), ClaimLost):
            return False
        assert here.finalize(token, step_id) == StepFinalized(status="SUCCEEDED", at=NOW)
        return True

    with ThreadPoolExecutor(12) as pool:
        won = list(pool.map(whole, range(12)))
    assert [won[2 * i] + won[2 * i + 1] for i in range(6)] == [1] * 6
    for one in steps:
        step = rivals[0].step(one)
        assert (step["status"], step["outputs"]["execution"]["claim"]["attempt"]) == ("SUCCEEDED", 1)
    assert changed(rivals[0]) == [RUN_PATH] * 12


def test_no_update_is_lost_between_stores(rivals: tuple[World, World]) -> None:
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda i: rivals[i % 2].store.transact((A,), increment), range(24)))
    assert sorted(counts) == list(range(1, 25))
    assert rivals[0].get(A) == {"n": 24}


def test_reservations_side_by_side_never_pass_the_limit(rivals: tuple[World, World]) -> None:
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(lambda i: rivals[i % 2].reserve(f"r{i}", limit=6), range(6)))
    assigned = [
        one for outcome in outcomes if isinstance(outcome, AccountsReserved) for one in outcome.assignments
    ]
    assert len(assigned) == 12
    assert len({(one.account_id, one.slot_at) for one in assigned}) == 12
    assert [one["usageToday"] for one in rivals[0].usage()] == [6, 6]


# Reads, guards and writes.


def test_several_documents_are_read_in_one_call(world: World) -> None:
    world.put(B, {"n": 2})
    assert world.store.read((A, B, C)) == {A: None, B: {"n": 2}, C: None}
    assert (world.server.calls[READ], world.server.documents_read[READ]) == (1, 3)
    seen = world.store.transact((C, B, A), lambda found: Decision(dict(found)))
    assert seen == {A: None, B: {"n": 2}, C: None}
    assert (world.server.calls[READ], world.server.documents_read[READ]) == (2, 6)
    assert "GetDocument" not in world.server.calls


@dataclass
class Intruder:
    """Does something to a document the first time a rule runs, and whether it could."""

    act: Callable[[], object]
    runs: int = 0
    came_through: bool = False

    def __call__(self) -> None:
        self.runs += 1
        if self.runs == 1:
            with suppress(exceptions.Aborted):  # a transaction has what it read locked
                self.act()
                self.came_through = True


@pytest.mark.parametrize("moved", [A, B])
def test_a_rule_runs_again_if_one_of_the_documents_it_writes_has_moved(world: World, moved: str) -> None:
    for path in (A, B):
        world.put(path, {"n": 1})
    intruder = Intruder(lambda: world.client.document(moved).update({"n": 10, "theirs": True}))

    def both(documents: Documents) -> Decision[list[int]]:
        intruder()
        counts = [documents[path]["n"] + 1 for path in (A, B)]  # type: ignore[index]
        changes = [UpdateDocument(path=path, assign={("n",): n}) for path, n in zip((A, B), counts, strict=True)]
        return Decision(counts, tuple(changes))

    counts = world.store.transact((A, B), both)
    assert [world.get(path)["n"] for path in (A, B)] == counts
    assert intruder.came_through == (world.mode == "precondition")
    if intruder.came_through:
        assert intruder.runs == 2
        assert sorted(counts) == [2, 11]
        assert world.get(moved)["theirs"]


def test_a_rule_runs_again_if_the_document_it_creates_is_there_by_now(world: World) -> None:
    intruder = Intruder(lambda: world.client.document(A).create({"n": 10}))

    def create(documents: Documents) -> Decision[int]:
        intruder()
        return increment(documents)

    count = world.store.transact((A,), create)
    assert count == (11 if intruder.came_through else 1)
    assert world.get(A) == {"n": count}


def test_a_rule_runs_again_if_the_document_it_updates_is_gone_by_now(world: World) -> None:
    world.put(A, {"n": 10})
    intruder = Intruder(lambda: world.client.document(A).delete())

    def update(documents: Documents) -> Decision[int]:
        intruder()
        return increment(documents)

    count = world.store.transact((A,), update)
    assert count == (1 if intruder.came_through else 11)
    assert world.get(A) == {"n": count}


def test_fields_that_no_rule_knows_survive_a_whole_step(world: World) -> None:
    unknown = {"nested": {"a.b": [1, {"c": None}], "when": NOW}, "bytes": b"\0"}
    step = a_step(theirs=unknown, outputs={"theirs": unknown, "execution": {"theirs": unknown}})
    world.put(RUN_PATH, a_flow_run({STEP_ID: step, "other": {"theirs": unknown}}, theirs=unknown))
    world.claim()
    world.finalize()
    stored = world.get(RUN_PATH)
    ended = stored["steps"][STEP_ID]
    assert stored["theirs"] == stored["steps"]["other"]["theirs"] == unknown
    assert ended["theirs"] == ended["outputs"]["theirs"] == ended["outputs"]["execution"]["theirs"] == unknown
    assert ended["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    "step_id",
    ["charts:4h:all", "a.b.c", "with space", "`quoted`", "back\\slash", "1", "ключ ✓", "*", "a/b", "a~[]", "\t\n"],
)
def test_a_step_of_any_id_is_claimed_and_ended(world: World, step_id: str) -> None:
    steps = {step_id: a_step(), "a": {"b": {"c": {"status": "KEPT"}}}}
    world.put(RUN_PATH, a_flow_run(steps))
    assert isinstance(world.claim(step_id=step_id), StepClaimed)
    assert world.step(step_id)["status"] == "RUNNING"
    assert isinstance(world.finalize(step_id=step_id), StepFinalized)
    assert world.step(step_id)["status"] == "SUCCEEDED"
    assert world.step("a") == steps["a"]
    assert set(world.get(RUN_PATH)["steps"]) == {step_id, "a"}


def test_a_decision_without_changes_writes_nothing(world: World) -> None:
    world.put(RUN_PATH, a_flow_run({STEP_ID: a_step(status="SUCCEEDED")}))
    assert world.claim() == ClaimLost(reason="not_ready", at=NOW)
    assert world.server.documents_written.total() == 0
    assert changed(world) == []
    if world.mode == "precondition":
        assert world.server.calls == {READ: 1}


def test_a_field_set_below_a_text_makes_a_map_of_it(world: World) -> None:
    world.put(RUN_PATH, a_flow_run({STEP_ID: a_step(outputs="text")}))
    assert isinstance(world.claim(), StepClaimed)
    assert world.step()["outputs"]["execution"]["claim"]["token"] == "mine"


def test_a_replacement_removes_the_fields_that_are_gone(world: World) -> None:
    world.put(A, {"gone": 1, "`a.b`": 2, "map": {"gone": 3}, "same": {"x": 1}})
    new = {"map": {"kept": {}}, "same": {"x": 1}, "new.one": []}
    world.store.transact((A,), lambda _: Decision(None, (ReplaceDocument(path=A, document=new),)))
    assert world.get(A) == new
    assert changed(world) == [A]


@pytest.mark.parametrize("new", [{}, {"n": 1}], ids=["empty", "full"])
@pytest.mark.parametrize("old", [{}, {"n": 1}, {"m": 2}], ids=["empty", "the same", "other"])
def test_a_document_is_replaced_by_any_other(world: World, old: dict[str, Any], new: dict[str, Any]) -> None:
    world.put(A, old)
    world.store.transact((A,), lambda _: Decision(None, (ReplaceDocument(path=A, document=new),)))
    assert world.get(A) == new


def test_nothing_is_read_where_no_document_is_named(world: World) -> None:
    assert world.store.read(()) == {}
    assert world.store.transact((), lambda found: Decision(dict(found))) == {}


# Clients.


def test_a_client_is_made_at_the_first_use_and_once(world: World) -> None:
    made: list[firestore.Client] = []
    lock = Lock()

    def make() -> firestore.Client:
        time.sleep(0.05)
        with lock:
            made.append(world.client)
        return world.client

    store = FirestoreDocuments(Once(make), world.mode, world.naps)
    assert made == []
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: store.read((f"things/{i}",)), range(32)))
    assert len(made) == 1


def test_a_client_that_could_not_be_made_is_made_the_next_time() -> None:
    makes = iter([OSError("no credentials"), "client"])

    def make() -> str:
        made = next(makes)
        if isinstance(made, OSError):
            raise made
        return made

    once = Once(make)
    with pytest.raises(OSError, match="no credentials"):
        once()
    assert [once(), once()] == ["client", "client"]


def test_a_cloud_needs_no_credentials_before_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    assert Cloud(cloud_settings(), SystemClock()).name == "database (default) of project sandbox"
