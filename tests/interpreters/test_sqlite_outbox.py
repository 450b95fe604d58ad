"""The outbox of the SQLite store: a change and the news of it are one commit, and news is never lost."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.documents import Change, Decision, Documents, ReplaceDocument, UpdateDocument
from interpreters.documents.sqlite import SqliteDocuments

pytestmark = pytest.mark.timeout(60)

RUN, OTHER_RUN = "flow_runs/a", "flow_runs/b"
ELSEWHERE = "chart_usage/acc1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "documents.sqlite3"


@pytest.fixture
def store(file: Path) -> Iterator[SqliteDocuments]:
    opened = SqliteDocuments(file, announced="flow_runs")
    yield opened
    opened.close()


def put(store: SqliteDocuments, path: str, document: dict[str, Any]) -> None:
    commit(store, ReplaceDocument(path=path, document=document))


def commit(store: SqliteDocuments, *changes: Change) -> None:
    store.transact(tuple(change.path for change in changes), lambda _: Decision(None, changes))


def rows(file: Path) -> list[tuple[Any, ...]]:
    """Return the outbox as another process sees it."""
    connection = sqlite3.connect(file)
    try:
        return connection.execute("SELECT path, changes, delivered FROM outbox ORDER BY path").fetchall()
    finally:
        connection.close()


def test_of_a_document_that_never_changed_there_is_no_news(store: SqliteDocuments, file: Path) -> None:
    assert store.undelivered(RUN) is None
    assert rows(file) == []


def test_every_change_has_the_next_number_and_all_are_delivered_at_once(store: SqliteDocuments) -> None:
    for number in (1, 2, 3):
        put(store, RUN, {"n": number})
        assert store.undelivered(RUN) == number
    store.delivered(RUN, 3)
    assert store.undelivered(RUN) is None
    put(store, RUN, {"n": 4})
    assert store.undelivered(RUN) == 4


def test_news_that_was_asked_for_and_not_delivered_is_still_there(store: SqliteDocuments) -> None:
    put(store, RUN, {"n": 1})
    assert [store.undelivered(RUN) for _ in range(3)] == [1, 1, 1]


def test_the_delivery_of_an_older_change_leaves_the_later_one_undelivered(store: SqliteDocuments) -> None:
    put(store, RUN, {"n": 1})
    heard = store.undelivered(RUN)
    assert heard == 1
    put(store, RUN, {"n": 2})
    store.delivered(RUN, heard)
    assert store.undelivered(RUN) == 2


def test_a_delivery_that_comes_late_takes_nothing_back(store: SqliteDocuments) -> None:
    for number in (1, 2):
        put(store, RUN, {"n": number})
    store.delivered(RUN, 2)
    store.delivered(RUN, 1)
    assert store.undelivered(RUN) is None


def test_the_delivery_of_what_nobody_changed_is_nothing(store: SqliteDocuments, file: Path) -> None:
    store.delivered(RUN, 5)
    assert rows(file) == []
    put(store, RUN, {"n": 1})
    assert store.undelivered(RUN) == 1


def test_documents_have_news_of_their_own(store: SqliteDocuments) -> None:
    put(store, RUN, {"n": 1})
    put(store, OTHER_RUN, {"n": 1})
    store.delivered(RUN, 1)
    assert (store.undelivered(RUN), store.undelivered(OTHER_RUN)) == (None, 1)


@pytest.mark.parametrize(
    "change",
    [
        ReplaceDocument(path=RUN, document={"n": 1, "map": {"x": [1, {"y": None}]}}),
        ReplaceDocument(path=RUN, document={"map": {"x": [1, {"y": None}]}, "n": 1}),
        UpdateDocument(path=RUN, assign={("n",): 1}),
        UpdateDocument(path=RUN, assign={("map", "x"): [1, {"y": None}]}, remove=(("gone",),)),
        UpdateDocument(path=RUN, assign={}),
    ],
    ids=["the same again", "in another order", "a field as it was", "and one that is not there", "nothing at all"],
)
def test_a_write_that_changes_nothing_is_no_news(store: SqliteDocuments, change: Change) -> None:
    put(store, RUN, {"n": 1, "map": {"x": [1, {"y": None}]}})
    store.delivered(RUN, 1)
    commit(store, change)
    assert store.undelivered(RUN) is None


def test_a_rule_without_changes_is_no_news(store: SqliteDocuments, file: Path) -> None:
    assert store.transact((RUN,), lambda documents: Decision(documents[RUN])) is None
    assert rows(file) == []


@pytest.mark.parametrize("after", [True, 1.0, "1", None])
def test_a_change_of_type_alone_is_news(store: SqliteDocuments, after: Any) -> None:
    put(store, RUN, {"n": 1})
    put(store, RUN, {"n": after})
    assert store.undelivered(RUN) == 2


def test_a_document_that_is_created_empty_is_news(store: SqliteDocuments) -> None:
    put(store, RUN, {})
    assert store.undelivered(RUN) == 1


@pytest.mark.parametrize(
    "path", [ELSEWHERE, "flow_runs_mock/a", "flow_run/a", "flow_runs/a/parts/b", "x/flow_runs/a"]
)
def test_changes_of_other_collections_are_no_news(store: SqliteDocuments, file: Path, path: str) -> None:
    put(store, path, {"n": 1})
    assert store.undelivered(path) is None
    assert rows(file) == []


def test_a_store_that_announces_nothing_has_no_news(file: Path) -> None:
    store = SqliteDocuments(file)
    put(store, RUN, {"n": 1})
    assert store.undelivered(RUN) is None
    store.close()


def test_changes_of_several_documents_in_one_commit_are_news_of_each(store: SqliteDocuments, file: Path) -> None:
    commit(store, *(UpdateDocument(path=path, assign={("n",): 1}) for path in (RUN, OTHER_RUN, ELSEWHERE)))
    assert rows(file) == [(RUN, 1, 0), (OTHER_RUN, 1, 0)]


def test_two_changes_of_one_document_in_one_commit_are_both_made(store: SqliteDocuments) -> None:
    first = UpdateDocument(path=RUN, assign={("x",): 1, ("gone",): 2})
    commit(store, first, UpdateDocument(path=RUN, assign={("y",): 3}, remove=(("gone",),)))
    assert store.read((RUN,)) == {RUN: {"x": 1, "y": 3}}
    assert store.undelivered(RUN) is not None


def test_a_commit_that_fails_leaves_neither_the_change_nor_the_news(store: SqliteDocuments, file: Path) -> None:
    put(store, RUN, {"n": 1})
    store.delivered(RUN, 1)
    cannot_be_stored = UpdateDocument(path=OTHER_RUN, assign={("n",): object()})
    with pytest.raises(TypeError):
        commit(store, UpdateDocument(path=RUN, assign={("n",): 2}), cannot_be_stored)
    assert store.read((RUN, OTHER_RUN)) == {RUN: {"n": 1}, OTHER_RUN: None}
    assert rows(file) == [(RUN, 1, 1)]


def test_a_change_and_its_news_are_seen_together(store: SqliteDocuments, file: Path) -> None:
    """Another connection, in the middle of the transaction, sees neither."""
    reader = SqliteDocuments(file, announced="flow_runs")
    seen: list[Any] = []

    def rule(documents: Documents) -> Decision[None]:
        seen.append((reader.read((RUN,))[RUN], reader.undelivered(RUN)))
        return Decision(None, (UpdateDocument(path=RUN, assign={("n",): 1}),))

    store.transact((RUN,), rule)
    seen.append((reader.read((RUN,))[RUN], reader.undelivered(RUN)))
    reader.close()
    assert seen == [(None, None), ({"n": 1}, 1)]


def test_news_survives_the_end_of_the_process_and_so_does_its_delivery(file: Path) -> None:
    for number, document in enumerate(({"n": 1}, {"n": 2}), 1):
        store = SqliteDocuments(file, announced="flow_runs")
        put(store, RUN, document)
        store.close()
        store = SqliteDocuments(file, announced="flow_runs")
        assert store.undelivered(RUN) == number
        store.delivered(RUN, number)
        store.close()
        store = SqliteDocuments(file, announced="flow_runs")
        assert store.undelivered(RUN) is None
        store.close()


def _change_and_die(file: Path) -> None:
    store = SqliteDocuments(file, announced="flow_runs")
    put(store, RUN, {"n": 1})

    def rule(documents: Documents) -> Decision[None]:
        store._write(RUN, documents[RUN], {"n": 2})
        os._exit(9)

    store.transact((RUN,), rule)


def test_a_process_that_dies_in_the_middle_of_a_commit_leaves_what_was_before(file: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_change_and_die, args=(file,))
    process.start()
    process.join()
    assert process.exitcode == 9
    store = SqliteDocuments(file, announced="flow_runs")
    assert store.read((RUN,)) == {RUN: {"n": 1}}
    assert store.undelivered(RUN) == 1
    store.close()


def test_two_connections_share_the_news(store: SqliteDocuments, file: Path) -> None:
    other = SqliteDocuments(file, announced="flow_runs")
    put(store, RUN, {"n": 1})
    assert other.undelivered(RUN) == 1
    put(other, RUN, {"n": 2})
    other.delivered(RUN, 1)
    assert (store.undelivered(RUN), other.undelivered(RUN)) == (2, 2)
    store.delivered(RUN, 2)
    assert other.undelivered(RUN) is None
    other.close()


def test_side_by_side_no_change_goes_unheard(file: Path) -> None:
    """Whoever hears of a change reads the document after that: the last thing read is the last thing written."""
    stores = [SqliteDocuments(file, announced="flow_runs") for _ in range(4)]

    def count_up(store: SqliteDocuments) -> None:
        for _ in range(25):
            store.transact(
                (RUN,),
                lambda documents: Decision(
                    None, (UpdateDocument(path=RUN, assign={("n",): (documents[RUN] or {"n": 0})["n"] + 1}),)
                ),
            )

    listener, *writers = stores
    heard: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(count_up, one) for one in writers]
        while True:
            is_over = all(one.done() for one in writing)
            change = listener.undelivered(RUN)
            if change is not None:
                heard.append((listener.read((RUN,))[RUN] or {})["n"])
                listener.delivered(RUN, change)
            elif is_over:
                break
    assert heard[-1] == 75
    assert heard == sorted(heard)
    assert rows(file) == [(RUN, 75, 75)]
    for one in stores:
        one.close()


def test_a_file_of_an_earlier_version_gets_its_outbox(file: Path) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("CREATE TABLE documents (path TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID")
    connection.execute("INSERT INTO documents VALUES (?, ?)", (RUN, '{"n": 1}'))
    connection.close()
    store = SqliteDocuments(file, announced="flow_runs")
    assert store.undelivered(RUN) is None
    put(store, RUN, {"n": 2})
    assert store.undelivered(RUN) == 1
    store.close()
