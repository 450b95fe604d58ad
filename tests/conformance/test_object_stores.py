"""One meaning of `put`, whatever store it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from effects import ObjectNotStored, ObjectStored, PutObject, blob
from interpreters.objects.folder import ObjectFolder
from interpreters.objects.memory import ObjectMemory
from interpreters.ports import ObjectStore
from tests.builders import NOW

NAME = "charts/run/charts:4h:all/20251215-102530_BTCUSDT_4h_x.png"


@dataclass
class Case:
    store: ObjectStore
    content: Callable[[str], bytes]


@pytest.fixture(params=["memory", "folder"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    if request.param == "memory":
        memory = ObjectMemory()
        return Case(memory, lambda name: memory.objects[f"gs://bucket/{name}"])
    return Case(ObjectFolder(tmp_path), lambda name: (tmp_path / "bucket" / name).read_bytes())


def a_put(data: bytes, name: str = NAME, create_only: bool = True) -> PutObject:
    return PutObject(
        bucket="bucket",
        name=name,
        content=blob(data),
        content_type="image/png",
        create_only=create_only,
        give_up_at=NOW,
    )


def test_what_was_put_is_there(case: Case) -> None:
    stored = case.store.put(a_put(b"picture"), NOW)
    assert stored == ObjectStored(name=NAME, uri=f"gs://bucket/{NAME}", at=NOW)
    assert case.content(NAME) == b"picture"


def test_a_name_with_the_same_bytes_counts_as_stored(case: Case) -> None:
    case.store.put(a_put(b"picture"), NOW)
    assert isinstance(case.store.put(a_put(b"picture"), NOW), ObjectStored)


def test_a_name_with_other_bytes_is_left_alone(case: Case) -> None:
    case.store.put(a_put(b"first"), NOW)
    outcome = case.store.put(a_put(b"second"), NOW)
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "name_taken"
    assert case.content(NAME) == b"first"


def test_without_create_only_the_new_bytes_win(case: Case) -> None:
    case.store.put(a_put(b"first", create_only=False), NOW)
    assert isinstance(case.store.put(a_put(b"second", create_only=False), NOW), ObjectStored)
    assert case.content(NAME) == b"second"


def test_of_many_creators_exactly_one_wins(case: Case) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda i: case.store.put(a_put(b"%d" % i), NOW), range(16)))
    (winner,) = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, ObjectStored)]
    assert case.content(NAME) == b"%d" % winner


def test_no_half_written_file_is_left_behind(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path)
    for data in (b"first", b"second"):
        folder.put(a_put(data), NOW)
        folder.put(a_put(data, "manifest.json", create_only=False), NOW)
    names = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert names == [NAME.rpartition("/")[2], "manifest.json"]


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "bucket").write_text("a file where a folder should be")
    outcome = ObjectFolder(tmp_path).put(a_put(b"picture"), NOW)
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "failed"
    assert "File" in outcome.message or "directory" in outcome.message
