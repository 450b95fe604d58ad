"""One meaning of `put`, whatever store it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from google.cloud.storage import Client

from effects import ObjectNotStored, ObjectStored, PutObject, blob
from interpreters.objects.folder import ObjectFolder
from interpreters.objects.gcs import GcsObjects
from interpreters.objects.memory import ObjectMemory
from interpreters.ports import ObjectStore
from tests.builders import NOW
from tests.emulators import a_bucket, storage_host, storage_on

NAME = "charts/run/charts:4h:all/20251215-102530_BTCUSDT_4h_x.png"


@dataclass
class Case:
    store: ObjectStore
    bucket: str
    content: Callable[[str], bytes]

    def put(self, data: bytes, name: str = NAME, create_only: bool = True) -> ObjectStored | ObjectNotStored:
        return self.store.put(a_put(data, name, create_only, self.bucket), NOW)


@pytest.fixture(scope="session")
def storage() -> Iterator[Client]:
    with storage_host() as address, storage_on(address) as client:
        yield client


@pytest.fixture(params=["memory", "folder", "gcs"])
def case(request: pytest.FixtureRequest) -> Case:
    if request.param == "memory":
        memory = ObjectMemory()
        return Case(memory, "bucket", lambda name: memory.objects[f"gs://bucket/{name}"])
    if request.param == "folder":
        folder: Path = request.getfixturevalue("tmp_path")
        return Case(ObjectFolder(folder), "bucket", lambda name: (folder / "bucket" / name).read_bytes())
    client: Client = request.getfixturevalue("storage")
    bucket = a_bucket(client)
    return Case(
        GcsObjects(lambda: client), bucket, lambda name: client.bucket(bucket).blob(name).download_as_bytes()
    )


def a_put(data: bytes, name: str = NAME, create_only: bool = True, bucket: str = "bucket") -> PutObject:
    return PutObject(
        bucket=bucket,
        name=name,
        content=blob(data),
        content_type="image/png",
        create_only=create_only,
        give_up_at=NOW + timedelta(seconds=10),
    )


def test_what_was_put_is_there(case: Case) -> None:
    stored = case.put(b"picture")
    assert stored == ObjectStored(name=NAME, uri=f"gs://{case.bucket}/{NAME}", at=NOW)
    assert case.content(NAME) == b"picture"


def test_a_name_with_the_same_bytes_counts_as_stored(case: Case) -> None:
    case.put(b"picture")
    assert isinstance(case.put(b"picture"), ObjectStored)


def test_a_name_with_other_bytes_is_left_alone(case: Case) -> None:
    case.put(b"first")
    outcome = case.put(b"second")
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "name_taken"
    assert case.content(NAME) == b"first"


def test_without_create_only_the_new_bytes_win(case: Case) -> None:
    case.put(b"first", create_only=False)
    assert isinstance(case.put(b"second", create_only=False), ObjectStored)
    assert case.content(NAME) == b"second"


def test_of_many_creators_exactly_one_wins(case: Case) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda i: case.put(b"%d" % i), range(16)))
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
