"""One meaning of `put`, `list` and `read`, whatever store it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from google.cloud.storage import Client

from effects import (
    ListObjects,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    PutObject,
    ReadObject,
    blob,
)
from interpreters.objects.folder import ObjectFolder
from interpreters.objects.gcs import GcsObjects
from interpreters.objects.memory import ObjectMemory
from interpreters.ports import ObjectStore
from tests.builders import NOW
from tests.emulators import GIVEN_STORAGE, a_bucket, storage_host, storage_on

LATER = NOW + timedelta(seconds=10)
NAME = "charts/run/charts:4h:all/20251215-102530_BTCUSDT_4h_x.png"


@dataclass
class Case:
    store: ObjectStore
    bucket: str
    content: Callable[[str], bytes]

    def put(self, data: bytes, name: str = NAME, create_only: bool = True) -> ObjectStored | ObjectNotStored:
        return self.store.put(a_put(data, name, create_only, self.bucket), NOW)

    def list(self, prefix: str = "") -> ObjectsListed | ObjectNotRead:
        return self.store.list(ListObjects(bucket=self.bucket, prefix=prefix, give_up_at=LATER), NOW)

    def names(self, prefix: str = "") -> list[str]:
        listed = self.list(prefix)
        assert isinstance(listed, ObjectsListed)
        return list(listed.sizes)

    def read(self, name: str = NAME, max_bytes: int = 100) -> ObjectRead | ObjectNotRead:
        effect = ReadObject(bucket=self.bucket, name=name, max_bytes=max_bytes, give_up_at=LATER)
        return self.store.read(effect, NOW)


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
        give_up_at=LATER,
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


# Reading.

NAMES = [
    NAME,
    "charts/run/charts:4h:all/with space.png",
    "charts/run/шаги ✓/日本.png",
    "charts/run/a%2Fb#1?&=+/[x]*{y}.png",
    "top.json",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_put_is_read_and_listed_under_its_name(case: Case, name: str) -> None:
    case.put(b"picture", name)
    assert case.read(name) == ObjectRead(name=name, content=blob(b"picture"), at=NOW)
    folder = name[: name.rfind("/") + 1]
    assert case.list(folder) == ObjectsListed(prefix=folder, sizes={name: 7}, at=NOW)


@pytest.mark.parametrize("name", [NAME, "charts/run/charts:4h:all/other.png", "top.json"])
def test_an_object_that_is_not_there_is_missing(case: Case, name: str) -> None:
    case.put(b"picture", "charts/run/charts:4h:all/another.png")
    missing = case.read(name)
    assert isinstance(missing, ObjectNotRead)
    assert (missing.name, missing.reason, missing.at) == (name, "missing", NOW)


def test_an_empty_object_is_read_and_listed(case: Case) -> None:
    case.put(b"")
    assert case.read() == ObjectRead(name=NAME, content=blob(b""), at=NOW)
    assert case.read(max_bytes=0) == ObjectRead(name=NAME, content=blob(b""), at=NOW)
    assert case.list() == ObjectsListed(prefix="", sizes={NAME: 0}, at=NOW)


@pytest.mark.parametrize("size", [1, 2, 99, 100_000])
def test_an_object_of_exactly_the_limit_is_read_and_one_of_a_byte_more_is_too_large(case: Case, size: int) -> None:
    data = b"x" * size
    case.put(data)
    assert case.read(max_bytes=size) == ObjectRead(name=NAME, content=blob(data), at=NOW)
    assert case.read(max_bytes=size + 1) == ObjectRead(name=NAME, content=blob(data), at=NOW)
    refused = case.read(max_bytes=size - 1)
    assert isinstance(refused, ObjectNotRead)
    assert (refused.name, refused.reason, refused.at) == (NAME, "too_large", NOW)
    assert "bytes" in refused.message


def test_the_newest_bytes_are_read(case: Case) -> None:
    for data in (b"first", b"second, longer", b"3rd"):
        case.put(data, create_only=False)
        assert case.read() == ObjectRead(name=NAME, content=blob(data), at=NOW)
        assert case.list() == ObjectsListed(prefix="", sizes={NAME: len(data)}, at=NOW)


# Listing.


def test_nothing_is_listed_where_nothing_is(case: Case) -> None:
    assert case.list("charts/run/step/") == ObjectsListed(prefix="charts/run/step/", sizes={}, at=NOW)
    case.put(b"picture")
    assert case.names("charts/run/step/") == []


def test_only_what_begins_with_the_prefix_is_listed_in_order(case: Case) -> None:
    inside = ["charts/run/step/a.png", "charts/run/step/b/c.png", "charts/run/step/ü.png"]
    outside = ["charts/run/step2/a.png", "charts/run/ste/a.png", "charts/run2/step/a.png", "charts/run/step.png"]
    for name in (*reversed(inside), *outside):
        case.put(name.encode(), name)
    assert case.names("charts/run/step/") == inside
    assert case.names("charts/run/step/b") == inside[1:2]
    assert case.names("charts/run/step") == sorted([*inside, outside[0], outside[3]])
    assert case.names("charts/run/step/b/c.png") == inside[1:2]
    assert case.names("charts/run/step/b/c.png/") == []
    assert case.names() == sorted([*inside, *outside])


def test_a_prefix_is_text_and_not_a_pattern(case: Case) -> None:
    for name in ("charts/*/x", "charts/a/x", "charts/[a]/x", "charts/?/x"):
        case.put(b"x", name)
    for folder in ("charts/*/", "charts/[a]/", "charts/?/"):
        assert case.names(folder) == [f"{folder}x"]


def test_buckets_do_not_see_each_other(case: Case) -> None:
    case.put(b"picture")
    other = ListObjects(bucket=f"{case.bucket}-other", prefix="", give_up_at=LATER)
    listed = case.store.list(other, NOW)
    if isinstance(case.store, GcsObjects):
        assert isinstance(listed, ObjectNotRead)
        assert listed.reason == "failed"
    else:
        assert listed == ObjectsListed(prefix="", sizes={}, at=NOW)


def test_more_objects_than_a_page_of_cloud_storage_holds_are_all_listed(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interpreters.sandbox.storage.listing._LARGEST_PAGE", 25)
    count = 1_003 if isinstance(case.store, GcsObjects) and GIVEN_STORAGE else 60
    names = [f"charts/run/step/{number:04}.png" for number in range(count)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: case.put(b"x", name, create_only=False), names))
    assert case.names("charts/run/step/") == names


def test_what_is_listed_can_be_read(case: Case) -> None:
    for name in NAMES:
        case.put(name.encode(), name)
    assert case.names() == sorted(NAMES)
    assert [case.read(name) for name in case.names()] == [
        ObjectRead(name=name, content=blob(name.encode()), at=NOW) for name in sorted(NAMES)
    ]


def test_a_step_whose_id_is_too_long_for_a_file_system_is_listed_under_its_own_name(case: Case) -> None:
    folder = f"charts/run/{'я' * 128}/"
    case.put(b"picture", f"{folder}a.png")
    assert case.names(folder) == [f"{folder}a.png"]
    assert case.read(f"{folder}a.png") == ObjectRead(name=f"{folder}a.png", content=blob(b"picture"), at=NOW)


def test_a_listing_taken_while_others_write_has_whole_objects_only(case: Case) -> None:
    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(case.put, b"x" * 1_000, f"charts/run/step/{n}.png") for n in range(30)]
        while not all(one.done() for one in writing):
            listed = case.list("charts/run/step/")
            assert isinstance(listed, ObjectsListed)
            assert set(listed.sizes.values()) <= {1_000}
            assert all(name.endswith(".png") for name in listed.sizes)
    assert len(case.names("charts/run/step/")) == 30


# Folders.


def test_a_folder_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path)
    folder.put(a_put(b"picture", "charts/run/x.png"), NOW)
    for place in ("charts/run/loop", "charts/run/round"):
        (tmp_path / "bucket" / place).symlink_to(tmp_path / "bucket" / "charts/run/loop")
    effect = ReadObject(bucket="bucket", name="charts/run/loop", max_bytes=10, give_up_at=LATER)
    outcome = folder.read(effect, NOW)
    assert isinstance(outcome, ObjectNotRead)
    assert outcome.reason == "failed"
    assert outcome.message.startswith("OSError: ")
    listed = folder.list(ListObjects(bucket="bucket", prefix="charts/run/", give_up_at=LATER), NOW)
    assert isinstance(listed, ObjectNotRead)
    assert (listed.name, listed.reason) == ("charts/run/", "failed")


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
