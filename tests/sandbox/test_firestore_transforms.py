"""Field transforms, through the official client and as older clients send them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import firestore

from tests.sandbox.firestore_world import World, firestore_world, name, update


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with firestore_world(monkeypatch) as one:
        yield one


def transformed(world: World, before: dict[str, Any], transform: dict[str, Any]) -> dict[str, Any] | None:
    document = world.client.document("c/one")
    document.set(before)
    document.update(transform)
    body: dict[str, Any] | None = document.get().to_dict()
    return body


def test_server_timestamps_of_one_commit_are_one_moment_in_milliseconds(world: World) -> None:
    batch = world.client.batch()
    documents = [world.client.document("c/one"), world.client.document("c/two")]
    for document in documents:
        batch.set(document, {"at": firestore.SERVER_TIMESTAMP, "nested": {"at": firestore.SERVER_TIMESTAMP}})
    results = batch.commit()
    moments = {one for document in documents for one in _moments(document.get().to_dict())}
    (moment,) = moments
    assert moment.microsecond % 1000 == 0
    assert abs(datetime.now(UTC) - moment) < timedelta(seconds=10)
    assert [len(result.transform_results) for result in results] == [2, 2]


def _moments(body: dict[str, Any]) -> list[datetime]:
    return [body["at"], body["nested"]["at"]]


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        (1, 2, 3),
        (1, 0.5, 1.5),
        (1.5, 1, 2.5),
        ("text", 2, 2),
        (2**63 - 1, 5, 2**63 - 1),
        (-(2**63), -5, -(2**63)),
    ],
)
def test_increment_adds_and_saturates(world: World, before: Any, by: float, after: float) -> None:
    assert transformed(world, {"n": before}, {"n": firestore.Increment(by)}) == {"n": after}


def test_increment_of_a_missing_field_sets_it(world: World) -> None:
    assert transformed(world, {}, {"a.n": firestore.Increment(2)}) == {"a": {"n": 2}}


@pytest.mark.parametrize(
    ("before", "operand", "maximum", "minimum"),
    [(1, 2, 2, 1), (2, 1, 2, 1), (3, 3.0, 3, 3), (1, 1.5, 1.5, 1), ("text", 1, 1, 1)],
)
def test_maximum_and_minimum_take_one_of_both(
    world: World, before: Any, operand: float, maximum: float, minimum: float
) -> None:
    transforms = {"a": firestore.Maximum(operand), "b": firestore.Minimum(operand)}
    after = transformed(world, {"a": before, "b": before}, transforms)
    assert after is not None
    assert [after["a"], after["b"]] == [maximum, minimum]
    assert [type(after["a"]), type(after["b"])] == [type(maximum), type(minimum)]


def test_the_maximum_of_a_number_and_nan_is_nan(world: World) -> None:
    after = transformed(world, {"n": 1}, {"n": firestore.Maximum(math.nan)})
    assert after is not None
    assert math.isnan(after["n"])


def test_array_union_adds_what_is_missing_once(world: World) -> None:
    union = firestore.ArrayUnion([2, 2.0, "x", "x", {"k": 1}])
    assert transformed(world, {"a": [1, 2, {"k": 1}]}, {"a": union}) == {"a": [1, 2, {"k": 1}, "x"]}


def test_array_remove_removes_every_equal_element(world: World) -> None:
    assert transformed(world, {"a": [1, 2, 1, 3]}, {"a": firestore.ArrayRemove([1, 3])}) == {"a": [2]}


def test_array_transforms_of_what_is_no_array_start_empty(world: World) -> None:
    transforms = {"a": firestore.ArrayUnion([1]), "b": firestore.ArrayRemove([1])}
    assert transformed(world, {"a": "text"}, transforms) == {"a": [1], "b": []}


def test_a_transform_that_changes_nothing_is_no_change(world: World) -> None:
    document = world.client.document("c/one")
    first = document.set({"n": 1}).update_time
    assert document.update({"n": firestore.Increment(0)}).update_time == first
    assert len(world.changes) == 1


def test_a_transform_may_stand_alone_as_older_clients_send_it(world: World) -> None:
    transform = {"field_path": "n", "increment": {"integer_value": 2}}
    write = {"transform": {"document": name("c/one"), "field_transforms": [transform, transform]}}
    answer = world.commit(update("c/one", n=1), write)
    assert [value.integer_value for value in answer.write_results[1].transform_results] == [3, 5]
    assert world.client.document("c/one").get().to_dict() == {"n": 5}
    assert len(world.changes) == 1


@pytest.mark.parametrize(
    "transform", [{"field_path": "n"}, {"field_path": "n", "increment": {"string_value": "1"}}]
)
def test_a_transform_that_makes_no_sense_is_refused(world: World, transform: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.commit({**update("c/one", n=1), "update_transforms": [transform]})
