"""Queries and lists, through the official client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import firestore
from google.cloud.firestore_v1.base_query import And, Or

from tests.sandbox.firestore_world import DATABASE, World, firestore_world

BODIES: dict[str, dict[str, Any]] = {
    "a": {"n": 1, "kind": "x", "tags": ["red", "blue"], "m": {"k:1": 5}},
    "b": {"n": 2, "kind": "x", "tags": ["blue"]},
    "c": {"n": 2.0, "kind": "y", "tags": []},
    "d": {"n": 3, "kind": "y"},
    "e": {"n": "text", "kind": None},
    "f": {"n": math.nan, "kind": "z"},
    "g": {"other": 1},
    "h": {"n": None},
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with firestore_world(monkeypatch) as one:
        elsewhere = {"other/x": {"n": 1}, "c/a/below/y": {"n": 1}, "c/phantom/below/z": {"n": 2}}
        batch = one.client.batch()
        for path, body in {**{f"c/{key}": body for key, body in BODIES.items()}, **elsewhere}.items():
            batch.set(one.client.document(path), body)
        batch.commit()
        one.server.tally.clear()
        yield one


def ids(query: Any) -> str:
    return "".join(snapshot.id for snapshot in query.stream())


@pytest.mark.parametrize(
    ("field", "operator", "wanted", "found"),
    [
        ("n", "==", 2, "bc"),
        ("kind", "==", "x", "ab"),
        ("kind", "==", None, "e"),
        ("kind", "!=", None, "abcdf"),
        ("n", "==", math.nan, "f"),
        ("n", "!=", math.nan, "abcde"),
        ("n", "!=", 2, "fade"),
        ("n", "<", 2, "fa"),
        ("n", "<=", 2, "fabc"),
        ("n", ">", 1, "bcd"),
        ("n", ">=", 2, "bcd"),
        ("n", ">=", "a", "e"),
        ("kind", "in", ["x", "z"], "abf"),
        ("n", "not-in", [1, 3], "fbce"),
        ("n", "not-in", [1, None], ""),
        ("tags", "array_contains", "blue", "ab"),
        ("tags", "array_contains_any", ["red", "green"], "a"),
        ("m.`k:1`", "==", 5, "a"),
    ],
)
def test_filters_let_through_what_the_documentation_says(
    world: World, field: str, operator: str, wanted: Any, found: str
) -> None:
    query = world.client.collection("c").where(filter=firestore.FieldFilter(field, operator, wanted))
    assert ids(query) == found


def test_filters_are_joined_by_and_and_or(world: World) -> None:
    x = firestore.FieldFilter("kind", "==", "x")
    y = firestore.FieldFilter("kind", "==", "y")
    big = firestore.FieldFilter("n", ">=", 2)
    collection = world.client.collection("c")
    assert ids(collection.where(filter=And([x, big]))) == "b"
    assert ids(collection.where(filter=Or([x, y]))) == "abcd"
    assert ids(collection.where(filter=And([Or([x, y]), big]))) == "bcd"
    assert ids(collection.where(filter=x).where(filter=big)) == "b"


def test_order_is_by_type_then_value_then_name_and_leaves_out_what_lacks_the_field(world: World) -> None:
    collection = world.client.collection("c")
    assert ids(collection.order_by("n")) == "hfabcde"
    assert ids(collection.order_by("n", direction="DESCENDING")) == "edcbafh"
    assert ids(collection.order_by("kind").order_by("n", direction="DESCENDING")) == "ebadcf"
    assert ids(collection) == "abcdefgh"
    assert ids(collection.order_by("__name__", direction="DESCENDING")) == "hgfedcba"


def test_limit_offset_and_the_last_few(world: World) -> None:
    ordered = world.client.collection("c").order_by("n")
    assert ids(ordered.limit(3)) == "hfa"
    assert ids(ordered.offset(2).limit(3)) == "abc"
    assert ids(ordered.offset(20)) == ""
    assert "".join(snapshot.id for snapshot in ordered.limit_to_last(2).get()) == "de"


def test_cursors_start_and_end_where_they_say(world: World) -> None:
    ordered = world.client.collection("c").order_by("n")
    assert ids(ordered.start_at({"n": 2})) == "bcde"
    assert ids(ordered.start_after({"n": 2})) == "de"
    assert ids(ordered.end_at({"n": 2})) == "hfabc"
    assert ids(ordered.end_before({"n": 2})) == "hfa"
    assert ids(ordered.start_at({"n": 1}).end_before({"n": 3})) == "abc"
    descending = world.client.collection("c").order_by("n", direction="DESCENDING")
    assert ids(descending.start_at({"n": 2}).end_at({"n": 1})) == "cba"


def test_pages_follow_snapshots(world: World) -> None:
    query = world.client.collection("c").order_by("n").limit(3)
    found = ""
    page = list(query.stream())
    while page:
        found += "".join(snapshot.id for snapshot in page)
        page = list(query.start_after(page[-1]).stream())
    assert found == "hfabcde"


def test_a_query_by_name_compares_references(world: World) -> None:
    collection = world.client.collection("c")
    after = firestore.FieldFilter("__name__", ">=", collection.document("f"))
    some = firestore.FieldFilter("__name__", "in", [collection.document("a"), collection.document("x")])
    assert ids(collection.where(filter=after)) == "fgh"
    assert ids(collection.where(filter=some)) == "a"


def test_a_projection_keeps_only_its_fields(world: World) -> None:
    query = world.client.collection("c").where(filter=firestore.FieldFilter("n", "==", 1))
    (snapshot,) = query.select(["kind", "m.`k:1`"]).stream()
    assert snapshot.to_dict() == {"kind": "x", "m": {"k:1": 5}}
    (snapshot,) = query.select([]).stream()
    assert snapshot.to_dict() == {}


def test_a_collection_group_finds_documents_at_any_depth(world: World) -> None:
    assert sorted(ids(world.client.collection_group("below"))) == ["y", "z"]
    assert ids(world.client.document("c/a").collection("below")) == "y"


def test_documents_read_by_queries_are_counted_at_least_one_a_query(world: World) -> None:
    ids(world.client.collection("c").limit(3))
    ids(world.client.collection("none"))
    assert world.server.documents_read == {"RunQuery": 4}


def test_documents_are_listed_page_by_page_with_those_that_only_have_documents_below(world: World) -> None:
    references = list(world.client.collection("c").list_documents(page_size=3))
    assert [one.id for one in references] == [*"abcdefgh", "phantom"]
    assert world.server.calls == {"ListDocuments": 3}


def test_documents_are_listed_with_their_fields(world: World) -> None:
    request = {"parent": f"{DATABASE}/documents", "collection_id": "c", "mask": {"field_paths": ["kind"]}}
    listed = list(world.api.list_documents(request=request))
    assert [one.name[-1] for one in listed] == [*"abcdefgh"]
    assert listed[0].fields["kind"].string_value == "x"


def test_collections_are_listed(world: World) -> None:
    assert [one.id for one in world.client.collections()] == ["c", "other"]
    assert [one.id for one in world.client.document("c/a").collections()] == ["below"]


@pytest.mark.parametrize(
    "query",
    [
        {"where": {"composite_filter": {}}},
        {"where": {"unary_filter": {"field": {"field_path": "a"}}}},
        {"where": {"field_filter": {"field": {"field_path": "a"}}}},
        {"where": {"field_filter": {"field": {"field_path": "a"}, "op": "IN", "value": {"array_value": {}}}}},
        {"where": {}},
        {"offset": -1},
        {"start_at": {"values": [{"integer_value": 1}, {"integer_value": 2}]}},
    ],
)
def test_a_query_that_makes_no_sense_is_refused(world: World, query: dict[str, Any]) -> None:
    whole = {"from_": [{"collection_id": "c"}], **query}
    with pytest.raises(exceptions.InvalidArgument):
        list(world.api.run_query(request={"parent": f"{DATABASE}/documents", "structured_query": whole}))


@pytest.mark.parametrize(
    "query",
    [
        {"parent": "projects/sandbox"},
        {"parent": "projects/sandbox/databases/(default)/elsewhere"},
        {"parent": f"{DATABASE}/documents/c"},
        {"parent": f"{DATABASE}/documents", "page_token": "x"},
    ],
)
def test_a_list_that_makes_no_sense_is_refused(world: World, query: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.api.list_documents(request={"collection_id": "c", **query})


def test_calls_beyond_the_servers_reach_say_so(world: World) -> None:
    with pytest.raises(exceptions.MethodNotImplemented, match="RunAggregationQuery"):
        world.client.collection("c").count().get()
    with pytest.raises(exceptions.MethodNotImplemented, match="in another order"):
        world.api.list_documents(
            request={"parent": f"{DATABASE}/documents", "collection_id": "c", "order_by": "n"}
        )
    with pytest.raises(exceptions.MethodNotImplemented, match="PartitionQuery"):
        list(world.client.collection_group("c").get_partitions(2))
