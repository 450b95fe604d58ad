"""One meaning of `read`, `transact`, `collection` and `page`, whatever store it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import InvalidArgument

from core.cloud import Concurrency
from core.documents import Decision, Documents, ReplaceDocument, UpdateDocument
from core.hopes import Hopes
from effects import FindFlowRuns, FlowRunsFound
from interpreters.documents.firestore import FirestoreDocuments
from interpreters.documents.memory import DocumentMemory
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.ports import DocumentStore
from tests.builders import NOW
from tests.emulators import a_project, firestore_host, firestore_on

pytestmark = pytest.mark.timeout(20)

A, B = "things/a", "things/b"
FIRESTORE: dict[str, Concurrency] = {
    "firestore-transaction": "transaction",
    "firestore-precondition": "precondition",
}


@pytest.fixture(scope="session")
def firestore_address() -> Iterator[str]:
    with firestore_host() as address:
        yield address


@pytest.fixture(params=["memory", "sqlite", *FIRESTORE])
def store(request: pytest.FixtureRequest) -> Iterator[DocumentStore]:
    if request.param == "memory":
        yield DocumentMemory()
    elif request.param == "sqlite":
        sqlite = SqliteDocuments(request.getfixturevalue("tmp_path") / "state" / "documents.sqlite3")
        yield sqlite
        sqlite.close()
    else:
        address = request.getfixturevalue("firestore_address")
        with firestore_on(address, a_project()) as client:
            yield FirestoreDocuments(lambda: client, FIRESTORE[request.param])


def put(store: DocumentStore, path: str, document: dict[str, Any]) -> None:
    store.transact((path,), lambda _: Decision(None, (ReplaceDocument(path=path, document=document),)))


def update(store: DocumentStore, path: str, assign: dict[tuple[str, ...], Any], *remove: tuple[str, ...]) -> None:
    change = UpdateDocument(path=path, assign=assign, remove=remove)
    store.transact((path,), lambda _: Decision(None, (change,)))


def test_a_missing_document_reads_as_none(store: DocumentStore) -> None:
    assert store.read((A, B)) == {A: None, B: None}


def test_what_was_put_is_read_back(store: DocumentStore) -> None:
    document = {"text": "графики ✓", "number": 1, "half": 0.5, "none": None, "list": [1, {"x": []}], "map": {}}
    put(store, A, document)
    assert store.read((A, B)) == {A: document, B: None}


def test_an_update_keeps_every_field_it_does_not_name(store: DocumentStore) -> None:
    put(store, A, {"kept": 1, "map": {"kept": 2, "set": 3, "gone": 4}})
    update(store, A, {("map", "set"): 5}, ("map", "gone"))
    assert store.read((A,))[A] == {"kept": 1, "map": {"kept": 2, "set": 5}}


def test_an_update_of_a_missing_document_creates_it(store: DocumentStore) -> None:
    update(store, A, {("map", "deep", "set"): 1})
    assert store.read((A,))[A] == {"map": {"deep": {"set": 1}}}


def test_an_update_below_something_that_is_no_map_puts_a_map_there(store: DocumentStore) -> None:
    put(store, A, {"outputs": "text"})
    update(store, A, {("outputs", "execution"): 1})
    assert store.read((A,))[A] == {"outputs": {"execution": 1}}


@pytest.mark.parametrize("key", ["charts:1M:x", "with.dots", "with space", "`quoted`", "a\\b", "ключ", "1"])
def test_any_key_of_a_map_can_be_updated(store: DocumentStore, key: str) -> None:
    put(store, A, {"steps": {key: {"status": "READY", "kept": 1}, "other": 2}})
    update(store, A, {("steps", key, "status"): "RUNNING"})
    assert store.read((A,))[A] == {"steps": {key: {"status": "RUNNING", "kept": 1}, "other": 2}}


def test_a_key_that_firestore_reserves_is_kept_elsewhere_and_refused_there(store: DocumentStore) -> None:
    document = {"steps": {"__x__": 1}}
    if isinstance(store, FirestoreDocuments):
        with pytest.raises(InvalidArgument, match="__x__"):
            put(store, A, document)
        assert store.read((A,)) == {A: None}
    else:
        put(store, A, document)
        update(store, A, {("steps", "__x__"): 2})
        assert store.read((A,)) == {A: {"steps": {"__x__": 2}}}


def test_removing_what_is_not_there_changes_nothing(store: DocumentStore) -> None:
    put(store, A, {"x": 1})
    update(store, A, {}, ("y",), ("x2", "z"))
    assert store.read((A,))[A]["x"] == 1  # type: ignore[index]


def test_a_document_put_again_has_no_field_of_the_old_one(store: DocumentStore) -> None:
    put(store, A, {"gone": 1, "with.dots": 2, "map": {"gone": 3, "kept": 4}})
    put(store, A, {"new": {}, "map": {"kept": 4}})
    assert store.read((A,)) == {A: {"new": {}, "map": {"kept": 4}}}


def test_an_empty_document_can_be_put_and_put_again(store: DocumentStore) -> None:
    put(store, A, {})
    put(store, A, {})
    assert store.read((A,)) == {A: {}}


def test_of_no_documents_nothing_is_read(store: DocumentStore) -> None:
    assert store.read(()) == {}
    assert store.transact((), lambda documents: Decision(dict(documents))) == {}


def test_a_rule_sees_all_the_documents_it_asked_for(store: DocumentStore) -> None:
    put(store, A, {"x": 1})
    assert store.transact((A, B), lambda documents: Decision(dict(documents))) == {A: {"x": 1}, B: None}


def test_a_rule_that_changes_nothing_writes_nothing(store: DocumentStore) -> None:
    put(store, A, {"x": 1})
    assert store.transact((A,), lambda _: Decision("outcome")) == "outcome"
    assert store.read((A,)) == {A: {"x": 1}}


def test_changes_to_several_documents_are_committed_together(store: DocumentStore) -> None:
    changes = (UpdateDocument(path=A, assign={("x",): 1}), UpdateDocument(path=B, assign={("x",): 2}))
    store.transact((A, B), lambda _: Decision(None, changes))
    assert store.read((A, B)) == {A: {"x": 1}, B: {"x": 2}}


def test_a_rule_that_raises_leaves_everything_as_it_was(store: DocumentStore) -> None:
    put(store, A, {"x": 1})

    def broken(documents: Documents) -> Decision[None]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.transact((A,), broken)
    put(store, B, {"y": 2})
    assert store.read((A, B)) == {A: {"x": 1}, B: {"y": 2}}


def test_what_was_read_can_be_changed_without_changing_the_store(store: DocumentStore) -> None:
    put(store, A, {"map": {"x": 1}})
    store.read((A,))[A]["map"]["x"] = 2  # type: ignore[index]
    assert store.read((A,)) == {A: {"map": {"x": 1}}}


def test_a_collection_holds_its_own_documents_only(store: DocumentStore) -> None:
    for path in ("things/a", "things/b", "things_mock/a", "thing/a"):
        put(store, path, {"path": path})
    assert store.collection("things") == {A: {"path": A}, B: {"path": B}}


def test_a_collection_does_not_hold_what_is_below_its_documents(store: DocumentStore) -> None:
    for path in (A, f"{A}/things/b", f"{A}/parts/c"):
        put(store, path, {"path": path})
    assert store.collection("things") == {A: {"path": A}}
    assert store.collection("things/a/parts") == {f"{A}/parts/c": {"path": f"{A}/parts/c"}}


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0), (False, 0), ([1], [True])])
def test_a_value_that_changes_only_its_type_is_changed(store: DocumentStore, before: Any, after: Any) -> None:
    put(store, A, {"x": before})
    update(store, A, {("x",): after})
    found = (store.read((A,))[A] or {})["x"]
    assert json.dumps(found) == json.dumps(after)


# Pages.


def a_page(
    store: DocumentStore, limit: int = 10, after: str | None = None, status: str = "RUNNING", of: str = "things"
) -> dict[str, Any]:
    return dict(store.page(FindFlowRuns(collection=of, status=status, after=after, limit=limit)))


def test_a_page_holds_the_documents_of_the_status_in_order_of_their_paths(store: DocumentStore) -> None:
    statuses = {"c": "RUNNING", "a": "RUNNING", "d": "SUCCEEDED", "b": "RUNNING", "e": "PENDING"}
    for name, status in statuses.items():
        put(store, f"things/{name}", {"status": status, "name": name, "map": {"x": [1, None]}})
    page = a_page(store)
    assert list(page) == ["things/a", "things/b", "things/c"]
    assert page["things/a"] == {"status": "RUNNING", "name": "a", "map": {"x": [1, None]}}
    assert list(a_page(store, status="PENDING")) == ["things/e"]
    assert a_page(store, status="FAILED") == {}
    assert a_page(store, status="running") == {}


def test_a_page_has_no_more_than_its_limit_and_begins_after_the_last_one(store: DocumentStore) -> None:
    for name in "abcde":
        put(store, f"things/{name}", {"status": "RUNNING"})
    assert list(a_page(store, limit=2)) == ["things/a", "things/b"]
    assert list(a_page(store, limit=2, after="things/b")) == ["things/c", "things/d"]
    assert list(a_page(store, limit=5)) == [f"things/{name}" for name in "abcde"]
    assert list(a_page(store, limit=1, after="things/d")) == ["things/e"]
    assert a_page(store, after="things/e") == {}


def test_a_page_may_begin_after_a_document_that_is_gone_or_has_another_status(store: DocumentStore) -> None:
    for name in "ace":
        put(store, f"things/{name}", {"status": "RUNNING"})
    put(store, "things/d", {"status": "FAILED"})
    assert list(a_page(store, after="things/b")) == ["things/c", "things/e"]
    assert list(a_page(store, after="things/d")) == ["things/e"]


def test_a_page_is_of_its_own_collection_only(store: DocumentStore) -> None:
    for path in ("things/a", "thing/a", "things_mock/a", "things2/a", "zthings/a", "things/a/things/b"):
        put(store, path, {"status": "RUNNING"})
    assert list(a_page(store)) == ["things/a"]
    assert list(a_page(store, of="things_mock")) == ["things_mock/a"]
    assert a_page(store, of="nothing") == {}


@pytest.mark.parametrize("status", [None, 1, True, ["RUNNING"], {"RUNNING": 1}, "RUNNING ", "Running"])
def test_a_page_has_no_document_of_another_kind_of_status(store: DocumentStore, status: Any) -> None:
    put(store, A, {"status": status})
    put(store, B, {"steps": {"x": {"status": "RUNNING"}}})
    put(store, "things/c", {"status": "RUNNING"})
    assert list(a_page(store)) == ["things/c"]


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_all_pages_together_hold_every_document_once(store: DocumentStore, limit: int) -> None:
    names = [
        *(f"{number:02}" for number in range(16)),
        "A",
        "a-b",
        "a.b",
        "a_b",
        "a b",
        "ü",
        "日本",
        "😀",
        "ﬀ",
        "~",
    ]
    for place, name in enumerate(names):
        put(store, f"things/{name}", {"status": "FAILED" if place % 5 == 0 else "RUNNING"})
    found: list[str] = []
    while page := a_page(store, limit, found[-1] if found else None):
        assert len(page) <= limit
        found += page
    wanted = [f"things/{name}" for place, name in enumerate(names) if place % 5]
    assert found == sorted(wanted, key=str.encode)


def test_what_a_page_holds_can_be_changed_without_changing_the_store(store: DocumentStore) -> None:
    put(store, A, {"status": "RUNNING", "map": {"x": 1}})
    a_page(store)[A]["map"]["x"] = 2
    assert store.read((A,)) == {A: {"status": "RUNNING", "map": {"x": 1}}}


def test_a_document_that_changes_its_status_moves_from_page_to_page(store: DocumentStore) -> None:
    put(store, A, {"status": "RUNNING"})
    update(store, A, {("status",): "SUCCEEDED"})
    assert (list(a_page(store)), list(a_page(store, status="SUCCEEDED"))) == ([], [A])


def test_a_plan_hopes_for_the_page_that_a_store_has() -> None:
    paths = ("things/c", "things/a", "things/b", "things/a/parts/d", "things2/a")
    documents = {path: {"status": "FAILED" if path == B else "RUNNING"} for path in paths}
    hopes = Hopes(dict(documents))
    for after in (None, A, "things/c"):
        for limit in (1, 2):
            effect = FindFlowRuns(collection="things", status="RUNNING", after=after, limit=limit)
            page = DocumentMemory(documents).page(effect)
            assert hopes.outcome(effect, NOW) == FlowRunsFound(flow_runs=page, at=NOW)


def increment(documents: Documents) -> Decision[int]:
    count = (documents[A] or {"n": 0})["n"] + 1
    return Decision(count, (UpdateDocument(path=A, assign={("n",): count}),))


def test_of_many_claims_side_by_side_exactly_one_wins(store: DocumentStore) -> None:
    put(store, A, {"owner": None})

    def claim(documents: Documents, owner: int) -> Decision[bool]:
        if documents[A]["owner"] is not None:  # type: ignore[index]
            return Decision(documents[A]["owner"] == owner)  # type: ignore[index]
        return Decision(True, (UpdateDocument(path=A, assign={("owner",): owner}),))

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda owner: store.transact((A,), lambda found: claim(found, owner)), range(8)))
    assert won == [store.read((A,)) == {A: {"owner": owner}} for owner in range(8)]
    assert won.count(True) == 1


def test_transactions_side_by_side_lose_no_update(store: DocumentStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: store.transact((A,), increment), range(64)))
    assert sorted(counts) == list(range(1, 65))
    assert store.read((A,)) == {A: {"n": 64}}


def test_two_connections_to_one_sqlite_file_lose_no_update(tmp_path: Path) -> None:
    file = tmp_path / "documents.sqlite3"
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: SqliteDocuments(file), range(4)))
        list(pool.map(lambda i: stores[i % 4].transact((A,), increment), range(40)))
    assert stores[0].read((A,)) == {A: {"n": 40}}
    for one in stores:
        one.close()


def test_lone_surrogates_survive_the_file(tmp_path: Path) -> None:
    store = SqliteDocuments(tmp_path / "documents.sqlite3")
    put(store, A, json.loads(r'{"steps": {"\ud800": 1}}'))
    assert list(store.read((A,))[A]["steps"]) == ["\ud800"]  # type: ignore[index]
    store.close()
