"""Transactions: what they lock, who waits, who gives way, and when an id is worth nothing any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import firestore

from interpreters.sandbox.firestore import Limits
from tests.sandbox.firestore_world import DATABASE, World, firestore_world, name, update

CONTENTION = "Too much contention on these documents"
EXPIRED = "The referenced transaction has expired or is no longer valid"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with firestore_world(monkeypatch, Limits(lock_wait_seconds=5.0)) as one:
        yield one


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with firestore_world(monkeypatch, Limits(lock_wait_seconds=0.1)) as one:
        yield one


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as one:
        yield one


def value(world: World, path: str) -> Any:
    return world.client.document(path).get().to_dict()


def increment(world: World, pause: float = 0.0) -> None:
    document = world.client.document("c/one")

    @firestore.transactional
    def add_one(transaction: firestore.Transaction) -> None:
        number = document.get(transaction=transaction).get("n")
        time.sleep(pause)
        transaction.update(document, {"n": number + 1})

    add_one(world.client.transaction(max_attempts=20))


def test_a_transaction_reads_decides_and_writes(world: World) -> None:
    world.client.document("c/one").set({"n": 1})
    increment(world)
    assert value(world, "c/one") == {"n": 2}


def test_two_racing_transactions_lose_no_increment(world: World, pool: ThreadPoolExecutor) -> None:
    world.client.document("c/one").set({"n": 0})
    list(pool.map(lambda _: [increment(world) for _ in range(10)], range(2)))
    assert value(world, "c/one") == {"n": 20}


def test_a_crowd_of_transactions_loses_no_increment(world: World, pool: ThreadPoolExecutor) -> None:
    world.client.document("c/one").set({"n": 0})
    list(pool.map(lambda _: increment(world, pause=0.005), range(8)))
    assert value(world, "c/one") == {"n": 8}


def test_moves_between_three_documents_lose_nothing_and_leave_no_lock(
    world: World, pool: ThreadPoolExecutor
) -> None:
    documents = [world.client.document(f"c/{number}") for number in range(3)]
    for document in documents:
        document.set({"n": 100})

    def move(number: int) -> None:
        source, target = documents[number % 3], documents[(number + 1 + number // 3 % 2) % 3]

        @firestore.transactional
        def move_one(transaction: firestore.Transaction) -> None:
            there = source.get(transaction=transaction).get("n")
            here = target.get(transaction=transaction).get("n")
            transaction.update(source, {"n": there - 1})
            transaction.update(target, {"n": here + 1})

        move_one(world.client.transaction(max_attempts=50))

    list(pool.map(move, range(48)))
    assert [document.get().get("n") for document in documents] == [100, 100, 100]
    assert len(world.changes) == 3 + 2 * 48
    locks = world.server.database._locks
    assert (locks._readers, locks._waiting) == (set(), [])


def test_of_two_transactions_that_read_one_document_the_younger_is_aborted_at_once(
    world: World, pool: ThreadPoolExecutor
) -> None:
    older, younger = world.begin(), world.begin()
    world.read("c/one", older)
    world.read("c/one", younger)
    started = time.monotonic()
    losing = pool.submit(world.commit, update("c/one", n=2), transaction=younger)
    time.sleep(0.05)
    world.commit(update("c/one", n=1), transaction=older)
    with pytest.raises(exceptions.Aborted, match=CONTENTION):
        losing.result()
    assert time.monotonic() - started < 4.0
    assert value(world, "c/one") == {"n": 1}


def test_a_retried_transaction_is_as_old_as_the_first_try(world: World, pool: ThreadPoolExecutor) -> None:
    first, rival = world.begin(), world.begin()
    world.api.rollback(request={"database": DATABASE, "transaction": first})
    retried = world.begin(read_write={"retry_transaction": first})
    world.read("c/one", rival)
    world.read("c/one", retried)
    losing = pool.submit(world.commit, update("c/one", n=1), transaction=rival)
    time.sleep(0.05)
    world.commit(update("c/one", n=2), transaction=retried)
    with pytest.raises(exceptions.Aborted):
        losing.result()


def test_a_commit_that_waits_too_long_for_a_reader_is_aborted(hasty: World) -> None:
    reader, writer = hasty.begin(), hasty.begin()
    hasty.read("c/one", reader)
    started = time.monotonic()
    with pytest.raises(exceptions.Aborted, match=CONTENTION):
        hasty.commit(update("c/one", n=1), transaction=writer)
    assert time.monotonic() - started >= 0.1
    assert value(hasty, "c/one") is None


def test_a_read_waits_for_a_commit_that_waits_and_may_be_aborted(world: World, pool: ThreadPoolExecutor) -> None:
    reader, writer, late = world.begin(), world.begin(), world.begin()
    world.read("c/one", reader)
    waiting = pool.submit(world.commit, update("c/one", n=1), transaction=writer)
    time.sleep(0.05)
    reading = pool.submit(world.read, "c/one", late)
    time.sleep(0.05)
    assert not reading.done()
    world.commit(transaction=reader)
    waiting.result()
    (answer,) = reading.result()
    assert answer.found.fields["n"].integer_value == 1


def test_a_plain_write_waits_for_the_transaction_that_read_the_document(
    world: World, pool: ThreadPoolExecutor
) -> None:
    reader = world.begin()
    world.read("c/one", reader)
    writing = pool.submit(world.commit, update("c/one", n=2))
    time.sleep(0.05)
    assert not writing.done()
    world.commit(update("c/one", n=1), transaction=reader)
    writing.result()
    assert value(world, "c/one") == {"n": 2}


def test_a_plain_write_that_waits_too_long_is_aborted(hasty: World) -> None:
    hasty.read("c/one", hasty.begin())
    with pytest.raises(exceptions.Aborted, match=CONTENTION):
        hasty.commit(update("c/one", n=1))


def test_a_plain_read_waits_for_nobody(world: World) -> None:
    world.client.document("c/one").set({"n": 1})
    world.read("c/one", world.begin())
    assert value(world, "c/one") == {"n": 1}


def test_transactions_on_other_documents_do_not_meet(world: World) -> None:
    world.read("c/one", world.begin())
    world.commit(update("c/two", n=1))
    assert value(world, "c/two") == {"n": 1}


def test_locks_in_opposite_order_end_in_one_commit_and_one_abort(world: World, pool: ThreadPoolExecutor) -> None:
    meeting = Barrier(2)

    def cross(first: str, second: str) -> bool:
        transaction = world.begin()
        world.read(first, transaction)
        meeting.wait()
        try:
            world.commit(update(second, n=1), transaction=transaction)
        except exceptions.Aborted:
            return False
        return True

    assert sorted(pool.map(cross, ["c/one", "c/two"], ["c/two", "c/one"])) == [False, True]


def test_a_lock_ends_with_a_rollback(world: World) -> None:
    transaction = world.begin()
    world.read("c/one", transaction)
    world.api.rollback(request={"database": DATABASE, "transaction": transaction})
    world.commit(update("c/one", n=1))
    assert value(world, "c/one") == {"n": 1}


def test_a_commit_after_a_query_whose_result_moved_is_aborted(world: World) -> None:
    world.client.document("c/one").set({"n": 1})
    transaction = world.client.transaction()
    transaction._begin()
    query = world.client.collection("c").where(filter=firestore.FieldFilter("n", ">", 0))
    assert len(list(query.stream(transaction=transaction))) == 1
    world.client.document("c/two").set({"n": 2})
    transaction.set(world.client.document("c/sum"), {"sum": 1})
    with pytest.raises(exceptions.Aborted, match=CONTENTION):
        transaction._commit()
    assert value(world, "c/sum") is None


def test_a_commit_after_a_query_whose_result_stands_is_applied(world: World) -> None:
    documents = [world.client.document("c/one"), world.client.document("c/two")]
    for document in documents:
        document.set({"n": 1})

    @firestore.transactional
    def raise_all(transaction: firestore.Transaction) -> None:
        for snapshot in world.client.collection("c").stream(transaction=transaction):
            transaction.update(snapshot.reference, {"n": 2})

    raise_all(world.client.transaction())
    assert [document.get().to_dict() for document in documents] == [{"n": 2}, {"n": 2}]


def test_a_query_in_a_read_only_transaction_sees_its_moment(world: World) -> None:
    world.client.document("c/one").set({"n": 1})
    transaction = world.client.transaction(read_only=True)
    transaction._begin()
    world.client.document("c/two").set({"n": 1})
    assert [one.id for one in world.client.collection("c").stream(transaction=transaction)] == ["one"]
    transaction._commit()


def test_what_a_query_found_in_a_transaction_is_locked(hasty: World) -> None:
    hasty.client.document("c/one").set({"n": 1})
    transaction = hasty.client.transaction()
    transaction._begin()
    list(hasty.client.collection("c").stream(transaction=transaction))
    with pytest.raises(exceptions.Aborted):
        hasty.client.document("c/one").set({"n": 2})
    transaction._rollback()


@pytest.mark.parametrize("end", ["committed", "rolled back", "failed", "never begun"])
def test_an_id_that_is_not_under_way_is_worth_nothing(world: World, end: str) -> None:
    transaction = world.begin()
    if end == "committed":
        world.commit(transaction=transaction)
    elif end == "rolled back":
        world.api.rollback(request={"database": DATABASE, "transaction": transaction})
    elif end == "failed":
        with pytest.raises(exceptions.NotFound):
            world.commit({"delete": name("c/x"), "current_document": {"exists": True}}, transaction=transaction)
    else:
        transaction = b"unheard of"
    with pytest.raises(exceptions.InvalidArgument, match=EXPIRED):
        world.commit(update("c/one", n=1), transaction=transaction)
    with pytest.raises(exceptions.InvalidArgument, match=EXPIRED):
        world.read("c/one", transaction)
    assert value(world, "c/one") is None


def test_an_id_is_worth_nothing_in_another_database(world: World) -> None:
    transaction = world.begin()
    other = DATABASE.replace("sandbox", "other")
    with pytest.raises(exceptions.InvalidArgument, match=EXPIRED):
        world.api.commit(request={"database": other, "transaction": transaction})


def test_a_transaction_that_was_aborted_can_still_be_rolled_back(hasty: World) -> None:
    """So the client's own error reaches the caller: it rolls back whatever failed."""
    document = hasty.client.document("c/one")
    document.set({"n": 1})
    hasty.read("c/one", hasty.begin())

    @firestore.transactional
    def write(transaction: firestore.Transaction) -> None:
        transaction.set(document, {"n": 2})

    with pytest.raises(ValueError, match="Failed to commit transaction in 1 attempts"):
        write(hasty.client.transaction(max_attempts=1))


def test_a_committed_transaction_cannot_be_rolled_back(world: World) -> None:
    transaction = world.begin()
    world.commit(transaction=transaction)
    with pytest.raises(exceptions.InvalidArgument, match=EXPIRED):
        world.api.rollback(request={"database": DATABASE, "transaction": transaction})


def test_a_failing_callable_rolls_back_and_frees_the_document(world: World) -> None:
    document = world.client.document("c/one")

    @firestore.transactional
    def fail(transaction: firestore.Transaction) -> None:
        document.get(transaction=transaction)
        message = "no"
        raise KeyError(message)

    with pytest.raises(KeyError):
        fail(world.client.transaction())
    document.set({"n": 1})
    assert world.server.calls["Rollback"] == 1


def test_a_read_only_transaction_sees_one_moment_locks_nothing_and_writes_nothing(world: World) -> None:
    document = world.client.document("c/one")
    document.set({"n": 1})
    transaction = world.begin(read_only={})
    document.set({"n": 2})
    (answer,) = world.read("c/one", transaction)
    assert answer.found.fields["n"].integer_value == 1
    with pytest.raises(exceptions.InvalidArgument, match="read-only transaction"):
        world.commit(update("c/one", n=3), transaction=transaction)


def test_a_read_can_begin_its_transaction(hasty: World) -> None:
    request = {"database": DATABASE, "documents": [name("c/one")], "new_transaction": {"read_write": {}}}
    begun, missing = hasty.api.batch_get_documents(request=request)
    assert missing.missing == name("c/one")
    with pytest.raises(exceptions.Aborted):
        hasty.commit(update("c/one", n=1))
    hasty.commit(update("c/one", n=2), transaction=begun.transaction)
    assert value(hasty, "c/one") == {"n": 2}


def test_an_empty_read_can_begin_a_transaction(world: World) -> None:
    request = {"database": DATABASE, "new_transaction": {"read_only": {}}}
    (begun,) = world.api.batch_get_documents(request=request)
    assert begun.transaction


def test_a_query_can_begin_its_transaction(world: World) -> None:
    query = {"from_": [{"collection_id": "c"}]}
    parent = f"{DATABASE}/documents"
    request = {"parent": parent, "structured_query": query, "new_transaction": {"read_write": {}}}
    begun, empty = world.api.run_query(request=request)
    assert begun.transaction
    assert empty.read_time
    world.commit(transaction=begun.transaction)


@pytest.mark.parametrize(
    "limits",
    [Limits(lock_wait_seconds=0.05, idle_seconds=0.5), Limits(lock_wait_seconds=0.05, lifetime_seconds=0.5)],
    ids=["idle", "old"],
)
def test_a_transaction_expires_and_lets_go(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    with firestore_world(monkeypatch, limits) as world:
        transaction = world.begin()
        world.read("c/one", transaction)
        with pytest.raises(exceptions.Aborted):
            world.commit(update("c/one", n=1))
        time.sleep(0.5)
        world.commit(update("c/one", n=2))
        with pytest.raises(exceptions.InvalidArgument, match=EXPIRED):
            world.commit(update("c/one", n=3), transaction=transaction)


def test_a_transaction_in_use_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    with firestore_world(monkeypatch, Limits(idle_seconds=1.5)) as world:
        transaction = world.begin()
        for _ in range(4):
            time.sleep(0.5)
            world.read("c/one", transaction)
        world.commit(update("c/one", n=1), transaction=transaction)
