"""Objects in Cloud Storage when requests fail, answers are lost or cut off, and names are taken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from google.cloud import storage

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
from interpreters.cloud import Once
from interpreters.objects.gcs import GcsObjects
from interpreters.sandbox.http_server import HttpServer, Reply, Request
from interpreters.sandbox.storage import StorageServer
from interpreters.sandbox.storage.stored import Content
from tests.builders import NOW, a_png
from tests.emulators import our_storage, storage_on

pytestmark = pytest.mark.timeout(30)

BUCKET = "charts-bucket"
NAME = "charts/20251215-102530_BTCUSDT_k3f7a/charts:4h:all/20251215-102530_BTCUSDT_4h_x.png"
FOLDER = NAME[: NAME.rfind("/") + 1]
PICTURE = a_png()
LARGE = a_png(padding=b"x" * 9_000_000)
"""More than the library sends in one request."""
LONG_SECONDS = 20.0
"""Less than the server holds an answer back, and more than any machine needs to notice a deadline."""


@dataclass
class World:
    """A Cloud Storage that can be made to fail, and a store on it."""

    server: StorageServer
    client: storage.Client

    def put(
        self,
        data: bytes = PICTURE,
        name: str = NAME,
        *,
        create_only: bool = True,
        content_type: str = "image/png",
        bucket: str = BUCKET,
        seconds: float = 10.0,
    ) -> ObjectStored | ObjectNotStored:
        effect = PutObject(
            bucket=bucket,
            name=name,
            content=blob(data),
            content_type=content_type,
            create_only=create_only,
            give_up_at=NOW + timedelta(seconds=seconds),
        )
        return GcsObjects(lambda: self.client).put(effect, NOW)

    def put_until_settled(self, *args: Any, **changes: Any) -> ObjectStored | ObjectNotStored:
        """Put as the program does: a put that failed is made again."""
        outcome = self.put(*args, **changes)
        for _ in range(2):
            if isinstance(outcome, ObjectNotStored) and outcome.reason == "failed":
                outcome = self.put(*args, **changes)
        return outcome

    def list(
        self, prefix: str = FOLDER, *, bucket: str = BUCKET, seconds: float = 10.0
    ) -> ObjectsListed | ObjectNotRead:
        effect = ListObjects(bucket=bucket, prefix=prefix, give_up_at=NOW + timedelta(seconds=seconds))
        return GcsObjects(lambda: self.client).list(effect, NOW)

    def read(
        self, name: str = NAME, *, max_bytes: int = 10_000, bucket: str = BUCKET, seconds: float = 10.0
    ) -> ObjectRead | ObjectNotRead:
        until = NOW + timedelta(seconds=seconds)
        effect = ReadObject(bucket=bucket, name=name, max_bytes=max_bytes, give_up_at=until)
        return GcsObjects(lambda: self.client).read(effect, NOW)

    def look(self, how: str, **changes: Any) -> ObjectsListed | ObjectRead | ObjectNotRead:
        return self.list(**changes) if how == "list" else self.read(**changes)

    def objects(self) -> dict[str, bytes]:
        return self.server.objects(BUCKET)

    def fail(self, kind: str | None = "objects.insert", **fault: Any) -> None:
        self.server.faults.add(kind=kind, **fault)


@pytest.fixture
def world() -> Iterator[World]:
    with our_storage(BUCKET) as server, storage_on(server.address) as client:
        yield World(server, client)


def stored(name: str = NAME) -> ObjectStored:
    return ObjectStored(name=name, uri=f"gs://{BUCKET}/{name}", at=NOW)


# Names and bytes.


@pytest.mark.parametrize(
    "name", [NAME, "charts/with space/ünï ✓ #1?&=+.png", "a%2Fb", "日本/€", "charts/run/step.a/manifest.json"]
)
def test_an_object_of_any_name_is_stored(world: World, name: str) -> None:
    assert world.put(name=name) == stored(name)
    assert world.objects() == {name: PICTURE}


@pytest.mark.parametrize("content_type", ["image/png", "application/json"])
@pytest.mark.parametrize("data", [PICTURE, LARGE], ids=["small", "large"])
def test_an_object_has_its_content_type(world: World, data: bytes, content_type: str) -> None:
    assert world.put(data, content_type=content_type) == stored()
    found = world.client.bucket(BUCKET).get_blob(NAME)
    assert (found.content_type, found.size) == (content_type, len(data))


def test_no_bytes_are_an_object_too(world: World) -> None:
    assert world.put(b"") == stored()
    assert world.objects() == {NAME: b""}


@pytest.mark.parametrize("data", [PICTURE, LARGE], ids=["small", "large"])
def test_a_name_that_has_the_same_bytes_counts_as_stored_and_is_not_written_again(
    world: World, data: bytes
) -> None:
    world.put(data)
    generation = world.client.bucket(BUCKET).get_blob(NAME).generation
    assert world.put(data) == stored()
    assert world.client.bucket(BUCKET).get_blob(NAME).generation == generation


@pytest.mark.parametrize("other", [b"other bytes", b"", PICTURE[:-1]])
def test_a_name_that_has_other_bytes_is_taken_and_left_alone(world: World, other: bytes) -> None:
    world.put(other)
    assert world.put() == ObjectNotStored(
        name=NAME, reason="name_taken", message="the name has other bytes", at=NOW
    )
    assert world.objects() == {NAME: other}


def test_a_manifest_is_written_over(world: World) -> None:
    for number in (1, 2, 2):
        manifest = json.dumps({"n": number}).encode()
        assert world.put(manifest, create_only=False, content_type="application/json") == stored()
        assert world.objects() == {NAME: manifest}
    assert world.server.counts["objects.insert"] == 3


def test_of_many_that_create_one_name_exactly_one_wins(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda i: world.put(b"picture %d" % i), range(8)))
    (winner,) = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, ObjectStored)]
    assert world.objects() == {NAME: b"picture %d" % winner}
    assert [getattr(one, "reason", "") for one in outcomes].count("name_taken") == 7


# Requests that fail, and answers that are lost.

FAULTS = {
    "503 before": {"when": "before"},
    "503 after": {"when": "after"},
    "429 before": {"when": "before", "status": 429},
    "500 after": {"when": "after", "status": 500},
    "dropped before": {"when": "before", "drop_connection": True},
    "dropped after": {"when": "after", "drop_connection": True},
}


@pytest.mark.parametrize(
    ("fault", "create_only"), [*((one, True) for one in FAULTS), ("503 before", False), ("dropped after", False)]
)
def test_a_request_that_fails_once_is_healed_by_sending_it_again(
    world: World, fault: str, create_only: bool
) -> None:
    world.fail(**FAULTS[fault])
    assert world.put_until_settled(create_only=create_only) == stored()
    assert world.objects() == {NAME: PICTURE}
    assert world.server.faults.is_spent
    assert world.server.counts["objects.insert"] == 2


@pytest.mark.parametrize("kind", ["uploads.begin", "uploads.send"])
@pytest.mark.parametrize("fault", ["503 before", "503 after", "dropped after"])
def test_a_large_upload_that_fails_once_is_healed_by_sending_it_again(world: World, fault: str, kind: str) -> None:
    world.fail(kind, **FAULTS[fault])
    assert world.put_until_settled(LARGE) == stored()
    assert world.objects() == {NAME: LARGE}
    assert world.server.faults.is_spent


@pytest.mark.parametrize("fault", ["503 after", "dropped after"])
def test_bytes_of_another_are_not_taken_for_ones_own_though_answers_are_lost(world: World, fault: str) -> None:
    world.put(b"theirs")
    world.fail(**FAULTS[fault])
    outcome = world.put_until_settled()
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "name_taken"
    assert world.objects() == {NAME: b"theirs"}


def test_a_look_at_the_taken_name_that_fails_once_is_healed(world: World) -> None:
    world.put()
    world.fail("objects.get")
    assert world.put_until_settled() == stored()


def test_a_taken_name_that_is_free_again_is_not_called_stored(world: World) -> None:
    world.put(b"theirs")

    def delete(method: str, target: str) -> bool:
        world.server.contents.delete(BUCKET, NAME)
        return True

    world.fail("objects.get", status=None, matching=delete)
    outcome = world.put()
    assert isinstance(outcome, ObjectNotStored | ObjectStored)
    assert isinstance(outcome, ObjectStored) == (world.objects() == {NAME: PICTURE})


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_said_and_not_tried_again(world: World, status: int) -> None:
    world.fail(status=status, times=None)
    outcome = world.put()
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "failed"
    assert str(status) in outcome.message or "credentials" in outcome.message
    assert len(outcome.message) <= 300
    assert world.server.counts["objects.insert"] == 1


@pytest.mark.parametrize("create_only", [True, False], ids=["create only", "write over"])
def test_a_bucket_that_is_not_there_is_said(world: World, create_only: bool) -> None:
    outcome = world.put(bucket="no-such-bucket", create_only=create_only)
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "failed"
    assert "NotFound: 404" in outcome.message
    assert "bucket does not exist" in outcome.message
    assert world.server.counts["objects.insert"] == 1


# Time.


@dataclass
class Timed:
    outcome: ObjectStored | ObjectNotStored
    seconds: float


def timed(world: World, data: bytes = PICTURE, seconds: float = 1.0, patience: float = 2 * LONG_SECONDS) -> Timed:
    """Put within so many seconds; one that takes longer than patience is let go by a server that is well again."""
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(world.put, data, seconds=seconds)
        while not putting.done() and time.monotonic() - started < patience:
            time.sleep(0.01)
        took = time.monotonic() - started
        world.server.faults.clear()
        return Timed(putting.result(), took)


@pytest.mark.parametrize("data", [PICTURE, LARGE], ids=["small", "large"])
def test_a_server_that_does_not_answer_is_given_up_in_time(world: World, data: bytes) -> None:
    world.fail(None, status=None, delay_seconds=60.0, times=None)
    put = timed(world, data, seconds=1.2)
    assert isinstance(put.outcome, ObjectNotStored)
    assert put.outcome.reason == "failed"
    assert put.seconds < LONG_SECONDS


def test_a_server_that_is_never_well_is_given_up_in_time(world: World) -> None:
    world.fail(times=None)
    put = timed(world, seconds=1.5)
    assert isinstance(put.outcome, ObjectNotStored)
    assert put.outcome.reason == "failed"
    assert "503" in put.outcome.message
    assert put.seconds < LONG_SECONDS


def test_a_second_try_has_only_the_time_that_is_left(world: World) -> None:
    world.fail(delay_seconds=0.8)
    world.fail(status=None, delay_seconds=60.0, times=None)
    put = timed(world, seconds=2.0)
    assert isinstance(put.outcome, ObjectNotStored)
    assert put.seconds < LONG_SECONDS


@pytest.mark.parametrize(
    "fault", [{"status": 503}, {"status": None, "delay_seconds": 60.0}], ids=["503", "no answer"]
)
def test_a_look_at_the_taken_name_is_given_up_in_time(world: World, fault: dict[str, Any]) -> None:
    world.put()
    world.fail(delay_seconds=0.8, status=None)
    world.fail("objects.get", times=None, **fault)
    put = timed(world, seconds=1.2)
    assert isinstance(put.outcome, ObjectNotStored)
    assert put.outcome.reason == "failed"
    assert put.seconds < LONG_SECONDS


def test_an_upload_that_begins_too_late_is_still_tried_for_a_second(world: World) -> None:
    assert world.put(seconds=-5.0) == stored()


def test_nobody_at_the_address_is_said_in_time() -> None:
    with our_storage() as unused, storage_on("http://127.0.0.1:1") as client:
        started = time.monotonic()
        outcome = World(unused, client).put(seconds=1.0)
    assert isinstance(outcome, ObjectNotStored)
    assert outcome.reason == "failed"
    assert time.monotonic() - started < LONG_SECONDS


def test_a_client_is_made_at_the_first_use_and_once(world: World) -> None:
    made: list[int] = []

    def make() -> storage.Client:
        made.append(1)
        time.sleep(0.05)
        return world.client

    store = GcsObjects(Once(make))
    assert made == []
    effect = PutObject(
        bucket=BUCKET, name=NAME, content=blob(PICTURE), content_type="image/png", create_only=True, give_up_at=NOW
    )
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: store.put(effect, NOW), range(8))) == {stored()}
    assert made == [1]


# Listing and reading.

LOOKS = {"list": "objects.list", "read": "objects.get"}
FOUND = {
    "list": ObjectsListed(prefix=FOLDER, sizes={NAME: len(PICTURE)}, at=NOW),
    "read": ObjectRead(name=NAME, content=blob(PICTURE), at=NOW),
}
either = pytest.mark.parametrize("how", LOOKS)


@either
@pytest.mark.parametrize("fault", ["503 before", "429 before", "500 after", "dropped before", "dropped after"])
def test_a_look_that_fails_says_so_and_the_next_one_finds(world: World, fault: str, how: str) -> None:
    world.put()
    world.fail(None, **FAULTS[fault])
    failed = world.look(how)
    assert isinstance(failed, ObjectNotRead)
    assert (failed.name, failed.reason, failed.at) == (FOLDER if how == "list" else NAME, "failed", NOW)
    assert 0 < len(failed.message) <= 300
    assert world.server.faults.is_spent
    assert world.look(how) == FOUND[how]


@either
@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_look_that_is_refused_says_why(world: World, status: int, how: str) -> None:
    world.put()
    world.fail(None, status=status, times=None)
    refused = world.look(how)
    assert isinstance(refused, ObjectNotRead)
    assert refused.reason == "failed"
    assert str(status) in refused.message or "credentials" in refused.message


def test_a_listing_of_a_bucket_that_is_not_there_fails(world: World) -> None:
    failed = world.list(bucket="no-such-bucket")
    assert isinstance(failed, ObjectNotRead)
    assert failed.reason == "failed"
    assert "404" in failed.message


def test_a_large_object_is_read_whole_and_no_more_of_a_too_large_one_than_a_byte_above(world: World) -> None:
    world.put(LARGE)
    assert world.read(max_bytes=len(LARGE)) == ObjectRead(name=NAME, content=blob(LARGE), at=NOW)
    refused = world.read(max_bytes=1_000)
    assert isinstance(refused, ObjectNotRead)
    assert refused.reason == "too_large"


def test_a_second_page_that_fails_makes_the_whole_listing_fail(world: World) -> None:
    for number in range(1_001):
        world.server.contents.put(BUCKET, f"{FOLDER}{number:04}", Content(b"x"), {})
    world.fail(None, matching=lambda method, target: "pageToken=" in target)
    failed = world.list()
    assert isinstance(failed, ObjectNotRead)
    assert failed.reason == "failed"
    listed = world.list()
    assert isinstance(listed, ObjectsListed)
    assert len(listed.sizes) == 1_001


@either
@pytest.mark.parametrize("seconds", [1.2, 1.5])
def test_a_look_that_is_not_answered_is_given_up_in_time(world: World, seconds: float, how: str) -> None:
    world.put()
    world.fail(None, status=None, delay_seconds=60.0, times=None)
    started = time.monotonic()
    outcome = world.look(how, seconds=seconds)
    assert isinstance(outcome, ObjectNotRead)
    assert outcome.reason == "failed"
    assert time.monotonic() - started < LONG_SECONDS


@either
def test_a_look_that_begins_too_late_is_still_tried_for_a_second(world: World, how: str) -> None:
    world.put()
    assert world.look(how, seconds=-5.0) == FOUND[how]


@either
def test_a_look_where_nobody_is_fails_in_time(how: str) -> None:
    with our_storage() as unused, storage_on("http://127.0.0.1:1") as client:
        started = time.monotonic()
        outcome = World(unused, client).look(how, seconds=1.0)
    assert isinstance(outcome, ObjectNotRead)
    assert outcome.reason == "failed"
    assert time.monotonic() - started < LONG_SECONDS


LISTED = json.dumps({"items": [{"name": NAME, "size": "7"}]}).encode()
ODD_REPLIES = {
    "cut off": ("read", Reply(206, PICTURE, "image/png", cut_at=40)),
    "cut off before its first byte": ("read", Reply(206, PICTURE, "image/png", cut_at=0)),
    "a list cut off": ("list", Reply(200, LISTED, "application/json", cut_at=10)),
    "a list that is no JSON": ("list", Reply(200, b"<html>", "text/html")),
    "a moved list": ("list", Reply(302, b"", None, {"Location": "http://127.0.0.1:1/"})),
    "no such status": ("read", Reply(599, b"?", "text/plain")),
}


@pytest.mark.parametrize("reply", ODD_REPLIES.values(), ids=ODD_REPLIES)
def test_an_answer_that_is_cut_off_or_makes_no_sense_is_a_failure_to_try_again(reply: tuple[str, Reply]) -> None:
    how, said = reply

    def answer(request: Request) -> Reply:
        return said

    with our_storage() as unused, HttpServer(answer) as server, storage_on(server.address) as client:
        outcome = World(unused, client).look(how, seconds=2.0)
    assert isinstance(outcome, ObjectNotRead)
    assert outcome.reason == "failed"


def test_looks_side_by_side_see_the_same(world: World) -> None:
    world.put()
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: world.look("list" if n % 2 else "read"), range(16)))
    assert outcomes == [FOUND["read"], FOUND["list"]] * 8
