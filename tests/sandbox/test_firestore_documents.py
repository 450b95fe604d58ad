"""Single documents: written, read, merged, guarded, refused; all through the official client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from google.api_core import exceptions
from google.cloud import firestore
from google.cloud.firestore_v1.field_path import FieldPath

from tests.sandbox.firestore_world import DATABASE, World, firestore_world, name, update


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with firestore_world(monkeypatch) as one:
        yield one


def test_what_is_set_is_what_is_got(world: World) -> None:
    moment = datetime(2025, 12, 15, 10, 25, 30, 123456, tzinfo=UTC)
    document = world.client.document("flow_runs/one")
    body = {
        "null": None,
        "yes": True,
        "integer": 2**62,
        "double": 0.5,
        "moment": moment,
        "text": "grün",
        "bytes": b"\x00\xff",
        "point": firestore.GeoPoint(1.0, 2.0),
        "reference": world.client.document("a/b"),
        "array": [1, {"two": 2}],
        "map": {"charts:1M": {"empty": {}}},
    }
    document.set(body)
    assert body == document.get().to_dict()


def test_a_missing_document_is_said_to_be_missing(world: World) -> None:
    snapshot = world.client.document("flow_runs/none").get()
    assert not snapshot.exists
    assert snapshot.read_time is not None


def test_set_replaces_and_merge_keeps(world: World) -> None:
    document = world.client.document("flow_runs/one")
    document.set({"a": 1, "b": {"c": 2, "d": 3}})
    document.set({"b": {"c": 4}}, merge=True)
    assert document.get().to_dict() == {"a": 1, "b": {"c": 4, "d": 3}}
    document.set({"b": 5})
    assert document.get().to_dict() == {"b": 5}


def test_merge_creates_a_missing_document(world: World) -> None:
    document = world.client.document("flow_runs/one")
    document.set({"a": {"b": 1}}, merge=True)
    assert document.get().to_dict() == {"a": {"b": 1}}


@pytest.mark.parametrize("key", ["charts:1M:ctpl_v1", "with.dot", "with space", "tick`s", "back\\slash", "1", "é"])
def test_update_takes_quoted_field_paths(world: World, key: str) -> None:
    document = world.client.document("flow_runs/one")
    document.set({"steps": {key: {"status": "READY", "kept": 1}, "other": 2}})
    path = FieldPath("steps", key, "status").to_api_repr()
    document.update({path: "RUNNING"})
    steps = {key: {"status": "RUNNING", "kept": 1}, "other": 2}
    assert document.get().to_dict() == {"steps": steps}
    assert world.changes[-1].update_mask == (path,)


def test_a_path_below_a_value_that_is_no_map_replaces_it_with_one(world: World) -> None:
    document = world.client.document("flow_runs/one")
    document.set({"a": 1, "b": 2})
    document.update({"a.x.y": 3})
    assert document.get().to_dict() == {"a": {"x": {"y": 3}}, "b": 2}


def test_a_field_in_the_mask_but_not_in_the_document_is_deleted(world: World) -> None:
    document = world.client.document("flow_runs/one")
    document.set({"a": {"x": 1, "y": 2}, "b": 3, "c": 4})
    document.update({"a.x": firestore.DELETE_FIELD, "b": firestore.DELETE_FIELD, "c.z": firestore.DELETE_FIELD})
    assert document.get().to_dict() == {"a": {"y": 2}, "c": 4}


@pytest.mark.parametrize("path", ["", "a.", ".a", "a..b", "a-b", "`a", "`a`b", "1"])
def test_a_malformed_path_is_refused(world: World, path: str) -> None:
    write = {**update("flow_runs/one", a=1), "update_mask": {"field_paths": [path]}}
    with pytest.raises(exceptions.InvalidArgument):
        world.commit(write)


def test_update_of_a_missing_document_is_not_found(world: World) -> None:
    with pytest.raises(exceptions.NotFound, match="No document to update"):
        world.client.document("flow_runs/none").update({"a": 1})


def test_create_of_an_existing_document_is_a_conflict(world: World) -> None:
    document = world.client.document("flow_runs/one")
    document.create({"a": 1})
    with pytest.raises(exceptions.AlreadyExists, match="Document already exists"):
        document.create({"a": 2})
    assert document.get().to_dict() == {"a": 1}


def test_an_update_holds_only_at_the_update_time_it_names(world: World) -> None:
    document = world.client.document("flow_runs/one")
    first = document.set({"a": 1}).update_time
    option = world.client.write_option(last_update_time=first)
    document.update({"a": 2}, option=option)
    with pytest.raises(exceptions.FailedPrecondition):
        document.update({"a": 3}, option=option)
    assert document.get().to_dict() == {"a": 2}


def test_a_delete_holds_only_at_the_update_time_it_names(world: World) -> None:
    document = world.client.document("flow_runs/one")
    first = document.set({"a": 1}).update_time
    document.set({"a": 2})
    with pytest.raises(exceptions.FailedPrecondition):
        document.delete(option=world.client.write_option(last_update_time=first))
    document.delete(option=world.client.write_option(last_update_time=document.get().update_time))
    assert not document.get().exists


def test_an_update_time_is_never_that_of_a_missing_document(world: World) -> None:
    option = world.client.write_option(last_update_time=datetime.now(UTC))
    with pytest.raises(exceptions.FailedPrecondition):
        world.client.document("flow_runs/none").update({"a": 1}, option=option)


def test_deleting_nothing_is_fine_unless_it_must_exist(world: World) -> None:
    document = world.client.document("flow_runs/none")
    document.delete()
    with pytest.raises(exceptions.NotFound):
        document.delete(option=world.client.write_option(exists=True))
    assert world.changes == []


def test_a_commit_is_all_or_nothing_at_one_moment(world: World) -> None:
    batch = world.client.batch()
    one, two = world.client.document("c/one"), world.client.document("c/two")
    batch.set(one, {"a": 1})
    batch.set(two, {"a": 1})
    first, second = batch.commit()
    assert first.update_time == second.update_time == batch.commit_time
    failing = world.client.batch()
    failing.set(one, {"a": 2})
    failing.update(world.client.document("c/none"), {"a": 2})
    with pytest.raises(exceptions.NotFound):
        failing.commit()
    assert one.get().to_dict() == {"a": 1}
    assert len(world.changes) == 2


def test_update_times_rise_strictly_and_create_time_stays(world: World) -> None:
    document = world.client.document("flow_runs/one")
    times = [document.set({"n": number}).update_time for number in range(50)]
    assert all(earlier < later for earlier, later in pairwise(times))
    snapshot = document.get()
    assert (times[0], times[-1]) == (snapshot.create_time, snapshot.update_time)
    document.delete()
    assert document.set({"n": 0}).update_time == document.get().create_time


def test_a_write_that_changes_nothing_keeps_the_update_time_and_makes_no_event(world: World) -> None:
    document = world.client.document("flow_runs/one")
    first = document.set({"a": 1, "nan": math.nan, "m": {"x": 1, "y": 2}}).update_time
    assert document.set({"m": {"y": 2, "x": 1}, "nan": math.nan, "a": 1}).update_time == first
    assert document.update({"a": 1, "gone": firestore.DELETE_FIELD}).update_time == first
    assert document.get().update_time == first
    assert len(world.changes) == 1


def test_an_integer_that_becomes_a_double_is_a_change(world: World) -> None:
    document = world.client.document("flow_runs/one")
    first = document.set({"a": 1}).update_time
    assert document.set({"a": 1.0}).update_time > first


def test_many_documents_come_in_one_call(world: World) -> None:
    references = [world.client.document(f"c/{number}") for number in range(20)]
    for number, reference in enumerate(references[:10]):
        reference.set({"n": number})
    world.server.tally.clear()
    snapshots = {one.id: one for one in world.client.get_all(references)}
    assert [snapshots[str(number)].exists for number in range(20)] == [True] * 10 + [False] * 10
    assert world.server.calls == {"BatchGetDocuments": 1}
    assert world.server.documents_read == {"BatchGetDocuments": 20}


def test_a_mask_limits_what_is_read(world: World) -> None:
    document = world.client.document("c/one")
    document.set({"a": {"x": 1, "y": 2}, "b": 3})
    assert document.get(["a.x", "none"]).to_dict() == {"a": {"x": 1}}


def test_a_document_of_one_mebibyte_is_kept_and_one_byte_more_refused(world: World) -> None:
    document = world.client.document("c/one")
    # 16 + "c" 2 + "one" 4 for the name, 32 for the document, "b" 2 for the field's name
    most = 1_048_576 - 16 - 2 - 4 - 32 - 2
    document.set({"b": b"x" * most})
    with pytest.raises(exceptions.InvalidArgument, match=r"its size \(1,048,577 bytes\) exceeds"):
        document.set({"b": b"x" * (most + 1)})
    assert len(document.get().get("b")) == most


@pytest.mark.parametrize("fields", [{"a": [[1]]}, {"__a__": 1}, {"a": {"__b__": 1}}])
def test_what_firestore_would_not_keep_is_refused(world: World, fields: dict[str, object]) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.client.document("c/one").set(fields)


def test_maps_nested_deeper_than_twenty_levels_are_refused(world: World) -> None:
    body: dict[str, object] = {}
    for _ in range(20):
        body = {"below": body}
    with pytest.raises(exceptions.InvalidArgument, match="nested deeper"):
        world.client.document("c/one").set(body)


def test_a_commit_of_more_than_ten_mebibytes_is_refused(world: World) -> None:
    big = {"b": {"bytes_value": b"x" * 1_000_000}}
    writes = [{"update": {"name": name(f"c/{number}"), "fields": big}} for number in range(11)]
    with pytest.raises(exceptions.InvalidArgument, match="too big"):
        world.commit(*writes)


def test_a_write_that_does_nothing_and_a_database_without_a_name_are_refused(world: World) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="must be an update"):
        world.commit({})
    with pytest.raises(exceptions.InvalidArgument, match="Invalid database name"):
        world.api.commit(request={"database": "sandbox"})


def test_projects_and_databases_are_apart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [firestore.Client(project="other"), firestore.Client(project="sandbox", database="second")]
    world.client.document("c/one").set({"a": 1})
    for other in others:
        assert not other.document("c/one").get().exists
        other.close()


def test_a_name_of_another_database_is_refused(world: World) -> None:
    elsewhere = name("c/one").replace("sandbox", "other")
    with pytest.raises(exceptions.InvalidArgument, match="is not in database"):
        world.commit({"delete": elsewhere})


@pytest.mark.parametrize("path", ["c", "c/one/d", "c//d/e", "c/.."])
def test_a_name_that_is_no_documents_is_refused(world: World, path: str) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.commit(update(path, a=1))


def test_documents_are_created_updated_got_and_deleted_one_by_one(world: World) -> None:
    parent = f"{DATABASE}/documents"
    fields = {"a": {"integer_value": 1}, "b": {"integer_value": 2}}
    request = {"parent": parent, "collection_id": "c", "document_id": "one", "document": {"fields": fields}}
    assert world.api.create_document(request=request).name == name("c/one")
    with pytest.raises(exceptions.AlreadyExists):
        world.api.create_document(request=request)
    document = {"name": name("c/one"), "fields": {"a": {"integer_value": 3}}}
    mask = {"field_paths": ["a"]}
    changed = world.api.update_document(request={"document": document, "update_mask": mask, "mask": mask})
    assert {key: value.integer_value for key, value in changed.fields.items()} == {"a": 3}
    got = world.api.get_document(request={"name": name("c/one")})
    assert {key: value.integer_value for key, value in got.fields.items()} == {"a": 3, "b": 2}
    world.api.delete_document(request={"name": name("c/one")})
    with pytest.raises(exceptions.NotFound):
        world.api.get_document(request={"name": name("c/one")})


def test_a_batch_write_applies_each_write_on_its_own(world: World) -> None:
    missing = {**update("c/none", a=1), "current_document": {"exists": True}}
    answer = world.api.batch_write(request={"database": DATABASE, "writes": [missing, update("c/one", a=1)]})
    assert [status.code for status in answer.status] == [5, 0]
    assert world.client.document("c/one").get().exists


def test_a_batch_write_takes_each_document_once(world: World) -> None:
    writes = [update("c/one", a=1), update("c/one", a=2)]
    with pytest.raises(exceptions.InvalidArgument):
        world.api.batch_write(request={"database": DATABASE, "writes": writes})


def test_the_clock_of_commits_is_near_the_clock_of_the_wall(world: World) -> None:
    committed = world.client.document("c/one").set({"a": 1}).update_time
    assert abs(datetime.now(UTC) - committed) < timedelta(seconds=10)
