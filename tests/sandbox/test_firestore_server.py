"""The server around the database: listeners, faults, latency, counters, life and death."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import firestore

from interpreters.sandbox.firestore import Change, FirestoreServer
from tests.sandbox.firestore_world import World, firestore_world, name, update


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with firestore_world(monkeypatch) as one:
        yield one


def numbers(changes: list[Change]) -> list[tuple[int | None, int | None]]:
    return [
        tuple(None if one is None else one.fields["n"].integer_value for one in (change.old, change.new))
        for change in changes
    ]


def test_listeners_get_old_and_new_and_what_changed(world: World) -> None:
    document = world.client.document("c/one")
    document.set({"n": 1, "steps": {"charts:1M": {"status": "READY", "kept": 1}}})
    document.update({"n": 2, "steps.`charts:1M`.status": "RUNNING"})
    document.delete()
    assert numbers(world.changes) == [(None, 1), (1, 2), (2, None)]
    assert [change.name for change in world.changes] == [name("c/one")] * 3
    assert [change.update_mask for change in world.changes] == [(), ("n", "steps.`charts:1M`.status"), ()]
    times = [change.commit_time for change in world.changes]
    assert times == sorted(set(times))


def test_a_commit_makes_one_event_for_each_changed_document(world: World) -> None:
    world.commit(update("c/one", n=1), update("c/two", n=1), update("c/one", n=2))
    assert numbers(world.changes) == [(None, 2), (None, 1)]
    assert len({change.commit_time for change in world.changes}) == 1


def test_listeners_hear_of_commits_in_their_order(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: world.commit(update("c/one", n=number)), range(1, 41)))
    while len(world.changes) < 40:
        time.sleep(0.001)
    steps = numbers(world.changes)
    assert [old for old, _ in steps[1:]] == [new for _, new in steps[:-1]]


def test_a_listener_may_write_and_is_told_of_it_afterwards(world: World) -> None:
    def echo(change: Change) -> None:
        if change.name == name("c/one"):
            world.client.document("c/two").set({"n": 2})

    world.server.database.subscribe(echo)
    world.client.document("c/one").set({"n": 1})
    assert [change.name for change in world.changes] == [name("c/one"), name("c/two")]


def test_a_failing_listener_harms_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(change: Change) -> None:
        raise KeyError(change.name)

    world.server.database.subscribe(fail)
    later: list[Change] = []
    world.server.database.subscribe(later.append)
    with caplog.at_level(logging.ERROR):
        world.client.document("c/one").set({"n": 1})
    assert len(later) == 1
    assert "a listener failed" in caplog.text


def test_a_listener_can_leave(world: World) -> None:
    heard: list[Change] = []
    leave = world.server.database.subscribe(heard.append)
    leave()
    world.client.document("c/one").set({"n": 1})
    assert heard == []


def test_a_fault_before_applies_nothing_and_the_client_tries_again(world: World) -> None:
    world.server.faults.add(method="Commit", when="before", code=grpc.StatusCode.UNAVAILABLE)
    world.client.document("c/one").set({"n": 1})
    assert world.server.calls["Commit"] == 2
    assert len(world.changes) == 1
    assert world.server.faults.remaining() == 0


def test_a_fault_after_applies_and_loses_the_answer(world: World) -> None:
    world.server.faults.add("Commit", when="after", code=grpc.StatusCode.INTERNAL)
    with pytest.raises(exceptions.InternalServerError, match="a fault on purpose"):
        world.client.document("c/one").set({"n": 1})
    assert numbers(world.changes) == [(None, 1)]


def test_a_lost_answer_to_create_shows_up_as_a_conflict(world: World) -> None:
    world.server.faults.add("Commit", when="after")
    with pytest.raises(exceptions.AlreadyExists):
        world.client.document("c/one").create({"n": 1})
    assert world.server.calls["Commit"] == 2


def test_a_lost_answer_to_a_guarded_update_shows_up_as_a_failed_precondition(world: World) -> None:
    document = world.client.document("c/one")
    first = document.set({"n": 1}).update_time
    world.server.faults.add("Commit", when="after")
    with pytest.raises(exceptions.FailedPrecondition):
        document.update({"n": 2}, option=world.client.write_option(last_update_time=first))
    assert document.get().to_dict() == {"n": 2}


def test_a_lost_answer_to_a_transaction_shows_up_as_an_invalid_id(world: World) -> None:
    document = world.client.document("c/one")

    @firestore.transactional
    def write(transaction: firestore.Transaction) -> None:
        transaction.set(document, {"n": 1})

    world.server.faults.add("Commit", when="after")
    with pytest.raises(exceptions.InvalidArgument, match="no longer valid"):
        write(world.client.transaction())
    assert document.get().to_dict() == {"n": 1}


def test_faults_meet_only_the_requests_they_match_in_the_order_they_were_planned(world: World) -> None:
    def is_about_two(request: object) -> bool:
        return any(write.update.name == name("c/two") for write in request.writes)  # type: ignore[attr-defined]

    faults = world.server.faults
    faults.add("Commit", code=grpc.StatusCode.ABORTED, times=2, matching=is_about_two)
    faults.add("*", code=grpc.StatusCode.INTERNAL, matching=is_about_two)
    world.commit(update("c/one", n=1))
    for kind in [exceptions.Aborted, exceptions.Aborted, exceptions.InternalServerError]:
        with pytest.raises(kind):
            world.commit(update("c/two", n=1))
    world.commit(update("c/two", n=1))


def test_faults_can_be_cleared(world: World) -> None:
    world.server.faults.add("Commit", times=100)
    world.server.faults.clear()
    world.commit(update("c/one", n=1))


def test_a_fault_in_a_stream_reaches_the_reader(world: World) -> None:
    world.server.faults.add("BatchGetDocuments", code=grpc.StatusCode.ABORTED)
    with pytest.raises(exceptions.Aborted):
        world.client.document("c/one").get()


def test_a_fault_without_a_code_is_only_a_delay(world: World) -> None:
    world.server.faults.add("Commit", code=None, delay_seconds=0.1)
    started = time.monotonic()
    world.commit(update("c/one", n=1))
    assert time.monotonic() - started >= 0.1


def test_a_call_that_outlives_its_deadline_is_applied_all_the_same(world: World) -> None:
    world.server.faults.add("Commit", when="after", code=None, delay_seconds=1.0)
    with pytest.raises(exceptions.DeadlineExceeded):
        world.client.document("c/one").set({"n": 1}, retry=None, timeout=0.5)
    assert world.client.document("c/one").get().to_dict() == {"n": 1}


def test_latency_is_added_to_every_call(world: World) -> None:
    world.client.document("c/one").get()
    world.server.latency_seconds = 0.05
    started = time.monotonic()
    world.client.document("c/one").get()
    world.client.document("c/one").get()
    assert time.monotonic() - started >= 0.1


def test_calls_and_documents_are_counted(world: World) -> None:
    world.client.document("c/one").set({"n": 1})
    world.client.document("c/one").get()
    list(world.client.get_all([world.client.document("c/one"), world.client.document("c/two")]))
    assert world.server.calls == {"Commit": 1, "BatchGetDocuments": 2}
    assert world.server.documents_read == {"BatchGetDocuments": 3}
    assert world.server.documents_written == {"Commit": 1}


def test_a_server_can_be_stopped_twice_and_started_again_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FirestoreServer()
    with server:
        address = server.address
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", address)
        client = firestore.Client(project="sandbox")
        client.document("c/one").set({"n": 1})
    server.stop()
    with server:
        assert server.address == address
        assert client.document("c/one").get().to_dict() == {"n": 1}
        client.close()


def test_a_port_in_use_is_not_shared() -> None:
    with FirestoreServer() as first:
        second = FirestoreServer(port=int(first.address.rsplit(":")[1]))
        with pytest.raises(RuntimeError):
            second.start()
