"""The Cloud Storage server, driven by Google's own client library."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import google_crc32c
import pytest
import requests
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import (
    BadRequest,
    Conflict,
    NotFound,
    PreconditionFailed,
    ServiceUnavailable,
)
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY

from interpreters.sandbox.storage import StorageServer

BUCKET = "charts"
AWKWARD = "charts/20251215-102530_BTCUSDT_k3f7a/charts:1M:ctpl v1/größe #1?.png"
QUICK_RETRY = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.05).with_timeout(5.0)


@pytest.fixture
def server() -> Iterator[StorageServer]:
    with StorageServer(buckets=[BUCKET]) as one:
        yield one


@pytest.fixture
def client(server: StorageServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[storage.Client]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.address)
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    one = storage.Client(project="sandbox")
    yield one
    one.close()


@pytest.fixture
def bucket(client: storage.Client) -> storage.Bucket:
    return client.bucket(BUCKET)


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as one:
        yield one


def error_of(response: requests.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert error["code"] == response.status_code
    assert error["errors"][0]["message"] == error["message"]
    return error["code"], error["errors"][0]["reason"]


class TestObjects:
    @pytest.mark.parametrize("name", ["plain.json", AWKWARD, "a/b%2Fc", "percent%41 plus+", "日本/€"])
    def test_what_was_uploaded_is_downloaded_whatever_its_name(
        self, bucket: storage.Bucket, server: StorageServer, name: str
    ) -> None:
        bucket.blob(name).upload_from_string(b"bytes", content_type="image/png")
        assert server.objects(BUCKET) == {name: b"bytes"}
        assert bucket.blob(name).download_as_bytes() == b"bytes"
        assert [one.name for one in bucket.client.list_blobs(BUCKET)] == [name]

    def test_the_metadata_is_complete(self, bucket: storage.Bucket, server: StorageServer) -> None:
        blob = bucket.blob(AWKWARD)
        blob.metadata = {"runId": "k3f7a"}
        blob.cache_control = "no-store"
        blob.upload_from_string(b"bytes", content_type="image/png")
        found = bucket.get_blob(AWKWARD)
        assert found is not None
        assert (found.content_type, found.size, found.metadata) == ("image/png", 5, {"runId": "k3f7a"})
        assert (found.cache_control, found.metageneration) == ("no-store", 1)
        assert found.md5_hash == base64.b64encode(hashlib.md5(b"bytes").digest()).decode()
        assert found.crc32c == base64.b64encode(google_crc32c.value(b"bytes").to_bytes(4, "big")).decode()
        assert found.time_created == found.updated
        assert found.etag
        assert found.generation == blob.generation
        assert found.media_link.startswith(server.address)
        assert found.download_as_bytes() == b"bytes"

    def test_a_new_upload_is_a_new_generation(self, bucket: storage.Bucket) -> None:
        blob = bucket.blob("a")
        blob.upload_from_string(b"1")
        first = blob.generation
        blob.upload_from_string(b"2")
        assert blob.generation > first
        with pytest.raises(NotFound):
            bucket.blob("a", generation=first).download_as_bytes()

    def test_a_patch_is_a_new_metageneration(self, bucket: storage.Bucket) -> None:
        blob = bucket.blob("a")
        blob.metadata = {"one": "1", "two": "2"}
        blob.upload_from_string(b"1")
        generation = blob.generation
        blob.metadata = {"two": None, "three": "3"}
        blob.patch(if_metageneration_match=1)
        blob.reload()
        assert (blob.metageneration, blob.generation) == (2, generation)
        assert blob.metadata == {"one": "1", "three": "3"}
        with pytest.raises(PreconditionFailed):
            blob.patch(if_metageneration_match=1)

    def test_parts_of_an_object_are_downloaded(self, bucket: storage.Bucket, server: StorageServer) -> None:
        blob = bucket.blob("a")
        blob.upload_from_string(b"0123456789")
        assert blob.download_as_bytes(start=2, end=4) == b"234"
        assert blob.download_as_bytes(start=7) == b"789"
        with requests.get(f"{server.address}/{BUCKET}/a", headers={"Range": "bytes=-3"}, timeout=5) as response:
            assert (response.status_code, response.content) == (206, b"789")
            assert response.headers["Content-Range"] == "bytes 7-9/10"
        with requests.get(f"{server.address}/{BUCKET}/a", headers={"Range": "bytes=10-"}, timeout=5) as response:
            assert response.status_code == 416

    def test_an_empty_object_is_an_object(self, bucket: storage.Bucket) -> None:
        bucket.blob("empty").upload_from_string(b"")
        assert bucket.blob("empty").exists()
        assert bucket.blob("empty").download_as_bytes() == b""

    def test_what_is_deleted_is_gone(self, bucket: storage.Bucket) -> None:
        blob = bucket.blob(AWKWARD)
        blob.upload_from_string(b"1")
        blob.delete()
        assert not blob.exists()
        with pytest.raises(NotFound, match="No such object"):
            blob.delete()
        with pytest.raises(NotFound, match="No such object"):
            bucket.blob(AWKWARD).download_as_bytes()

    def test_a_copy_is_an_object_of_its_own(self, bucket: storage.Bucket) -> None:
        blob = bucket.blob("a b")
        blob.upload_from_string(b"1", content_type="text/plain")
        copy = bucket.copy_blob(blob, bucket, "c/d")
        assert (copy.download_as_bytes(), copy.content_type) == (b"1", "text/plain")
        token, written, total = bucket.blob("e").rewrite(blob)
        assert (token, written, total) == (None, 1, 1)

    def test_everyone_reads_an_object_by_its_public_address(self, bucket: storage.Bucket) -> None:
        blob = bucket.blob(AWKWARD)
        blob.upload_from_string(b"1", content_type="image/png")
        with requests.get(blob.public_url, timeout=5) as response:
            assert (response.content, response.headers["Content-Type"]) == (b"1", "image/png")

    def test_a_client_of_another_kind_is_served(self, server: StorageServer) -> None:
        options = ClientOptions(api_endpoint=server.address)
        client = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=options)
        client.bucket(BUCKET).blob("a").upload_from_string("text")
        assert client.bucket(BUCKET).blob("a").download_as_text() == "text"
        client.close()


class TestPreconditions:
    def test_of_two_creations_the_second_is_refused(self, bucket: storage.Bucket) -> None:
        bucket.blob("a").upload_from_string(b"1", if_generation_match=0)
        with pytest.raises(PreconditionFailed) as raised:
            bucket.blob("a").upload_from_string(b"2", if_generation_match=0)
        assert "pre-conditions you specified did not hold" in raised.value.message
        assert bucket.blob("a").download_as_bytes() == b"1"

    def test_of_many_creations_at_once_one_succeeds(self, server: StorageServer) -> None:
        def create(number: int) -> int:
            url = f"{server.address}/upload/storage/v1/b/{BUCKET}/o"
            query: dict[str, Any] = {"uploadType": "media", "name": "a", "ifGenerationMatch": 0}
            with requests.post(url, params=query, data=str(number), timeout=5) as response:
                return response.status_code

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(create, range(16))) == [200, *[412] * 15]

    def test_a_write_goes_to_the_generation_it_names(self, bucket: storage.Bucket) -> None:
        blob = bucket.blob("a")
        blob.upload_from_string(b"1")
        first = blob.generation
        bucket.blob("a").upload_from_string(b"2", if_generation_match=first)
        with pytest.raises(PreconditionFailed):
            bucket.blob("a").upload_from_string(b"3", if_generation_match=first)
        with pytest.raises(PreconditionFailed):
            bucket.blob("a").delete(if_generation_match=first)

    def test_a_write_may_demand_that_there_is_something(self, bucket: storage.Bucket) -> None:
        with pytest.raises(PreconditionFailed):
            bucket.blob("a").upload_from_string(b"1", if_generation_not_match=0)
        bucket.blob("a").upload_from_string(b"1")
        bucket.blob("a").upload_from_string(b"2", if_generation_not_match=0)

    def test_a_refused_read_leaves_the_connection_usable(
        self, bucket: storage.Bucket, server: StorageServer, session: requests.Session
    ) -> None:
        blob = bucket.blob("a")
        blob.upload_from_string(b"1")
        url = f"{server.address}/storage/v1/b/{BUCKET}/o/a"
        same = {"ifGenerationNotMatch": str(blob.generation)}
        assert session.get(url, params=same, timeout=5).status_code == 304
        assert session.get(url, params={**same, "alt": "media"}, timeout=5).status_code == 304
        assert session.get(url, params={"ifGenerationMatch": "1"}, timeout=5).status_code == 412
        assert error_of(session.get(url, params={"ifGenerationMatch": "x"}, timeout=5)) == (400, "invalid")
        assert session.get(url, timeout=5).status_code == 200

    def test_a_refusal_has_googles_form(self, server: StorageServer, session: requests.Session) -> None:
        url = f"{server.address}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=a&ifGenerationMatch=7"
        assert error_of(session.post(url, data=b"1", timeout=5)) == (412, "conditionNotMet")
        url = f"{server.address}/storage/v1/b/{BUCKET}/o/none"
        assert error_of(session.get(url, timeout=5)) == (404, "notFound")
        assert error_of(session.post(f"{server.address}/storage/v1/nothing", timeout=5)) == (404, "notFound")


class TestChecksums:
    @pytest.mark.parametrize("checksum", ["md5", "crc32c", None])
    def test_uploads_are_checked(self, bucket: storage.Bucket, checksum: str | None) -> None:
        bucket.blob("a").upload_from_string(b"1", checksum=checksum)
        assert bucket.blob("a").download_as_bytes(checksum=checksum) == b"1"

    @pytest.mark.parametrize("declared", [{"crc32c": "AAAAAA=="}, {"md5_hash": "AAAAAAAAAAAAAAAAAAAAAA=="}])
    def test_a_wrong_checksum_is_refused_and_nothing_is_stored(
        self, bucket: storage.Bucket, server: StorageServer, declared: dict[str, str]
    ) -> None:
        blob = bucket.blob("a")
        for name, value in declared.items():
            setattr(blob, name, value)
        with pytest.raises(BadRequest, match="doesn't match calculated"):
            blob.upload_from_string(b"1", checksum=None)
        assert server.objects(BUCKET) == {}

    def test_the_checksum_in_a_header_counts(self, server: StorageServer, session: requests.Session) -> None:
        url = f"{server.address}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=a"
        wrong = {"x-goog-hash": "crc32c=AAAAAA=="}
        assert error_of(session.post(url, data=b"1", headers=wrong, timeout=5)) == (400, "invalid")
        wrong = {"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}
        assert error_of(session.post(url, data=b"1", headers=wrong, timeout=5)) == (400, "invalid")


class TestResumableUploads:
    CHUNK = 256 * 1024

    def begin(self, server: StorageServer, session: requests.Session, **query: str) -> str:
        url = f"{server.address}/upload/storage/v1/b/{BUCKET}/o"
        query = {"uploadType": "resumable", "name": "big", **query}
        response = session.post(url, params=query, json={"contentType": "image/png"}, timeout=5)
        assert response.status_code == 200
        return response.headers["Location"]

    def send(self, session: requests.Session, url: str, content_range: str, data: bytes = b"") -> Any:
        headers = {"Content-Range": content_range}
        return session.put(url, data=data, headers=headers, timeout=5, allow_redirects=False)

    def test_a_large_file_comes_in_chunks(self, bucket: storage.Bucket, server: StorageServer) -> None:
        data = bytes(range(256)) * (9 * 4096) + b"tail"
        blob = bucket.blob("big", chunk_size=1024 * 1024)
        blob.upload_from_file(BytesIO(data), size=len(data), content_type="image/png", if_generation_match=0)
        assert server.objects(BUCKET)["big"] == data
        assert server.counts["uploads.send"] == 10
        assert blob.download_as_bytes() == data
        assert blob.content_type == "image/png"
        with pytest.raises(PreconditionFailed):
            blob.upload_from_file(BytesIO(data), size=len(data), if_generation_match=0)

    def test_a_stream_of_unknown_length_is_uploaded(self, bucket: storage.Bucket, server: StorageServer) -> None:
        with bucket.blob("stream", chunk_size=self.CHUNK).open("wb") as stream:
            stream.write(b"x" * (self.CHUNK * 2 + 1))
        assert len(server.objects(BUCKET)["stream"]) == self.CHUNK * 2 + 1

    def test_the_server_tells_how_far_it_has_come(self, server: StorageServer, session: requests.Session) -> None:
        url = self.begin(server, session)
        total = self.CHUNK + 10
        asked = self.send(session, url, f"bytes */{total}")
        assert (asked.status_code, asked.headers.get("Range")) == (308, None)
        sent = self.send(session, url, f"bytes 0-{self.CHUNK + 4}/{total}", b"x" * (self.CHUNK + 5))
        assert (sent.status_code, sent.headers["Range"]) == (308, f"bytes=0-{self.CHUNK - 1}")
        asked = self.send(session, url, "bytes */*")
        assert (asked.status_code, asked.headers["Range"]) == (308, f"bytes=0-{self.CHUNK - 1}")
        assert server.objects(BUCKET) == {}
        done = self.send(session, url, f"bytes {self.CHUNK}-{total - 1}/{total}", b"y" * 10)
        assert (done.status_code, done.json()["size"]) == (200, str(total))
        again = self.send(session, url, f"bytes */{total}")
        assert (again.status_code, again.json()["generation"]) == (200, done.json()["generation"])

    def test_bytes_that_come_twice_count_once(self, server: StorageServer, session: requests.Session) -> None:
        url = self.begin(server, session)
        first = b"x" * self.CHUNK
        for _ in range(2):
            self.send(session, url, f"bytes 0-{self.CHUNK - 1}/*", first)
        total = self.CHUNK + 1
        assert self.send(session, url, f"bytes {self.CHUNK}-{self.CHUNK}/{total}", b"y").status_code == 200
        assert server.objects(BUCKET) == {"big": first + b"y"}

    def test_a_gap_is_not_bridged(self, server: StorageServer, session: requests.Session) -> None:
        url = self.begin(server, session)
        sent = self.send(session, url, "bytes 5-9/10", b"56789")
        assert (sent.status_code, sent.headers.get("Range")) == (308, None)

    def test_a_wrong_checksum_at_the_end_is_refused(
        self, server: StorageServer, session: requests.Session
    ) -> None:
        url = self.begin(server, session)
        wrong = {"x-goog-hash": "crc32c=AAAAAA=="}
        assert error_of(session.put(url, data=b"1", headers=wrong, timeout=5)) == (400, "invalid")
        assert server.objects(BUCKET) == {}

    def test_the_precondition_holds_to_the_end(
        self, server: StorageServer, session: requests.Session, bucket: storage.Bucket
    ) -> None:
        url = self.begin(server, session, ifGenerationMatch="0")
        bucket.blob("big").upload_from_string(b"faster")
        assert error_of(session.put(url, data=b"slower", timeout=5)) == (412, "conditionNotMet")
        assert server.objects(BUCKET) == {"big": b"faster"}

    def test_an_abandoned_upload_leaves_nothing(self, server: StorageServer, session: requests.Session) -> None:
        cancelled, expired = self.begin(server, session), self.begin(server, session)
        assert session.delete(cancelled, timeout=5).status_code == 499
        assert server.expire_uploads() == 1
        assert self.send(session, cancelled, "bytes */*").status_code == 499
        assert self.send(session, expired, "bytes */*").status_code == 410
        assert self.send(session, expired + "x", "bytes */*").status_code == 404
        assert server.objects(BUCKET) == {}

    def test_a_range_that_does_not_fit_is_refused(self, server: StorageServer, session: requests.Session) -> None:
        url = self.begin(server, session)
        for content_range in ("bytes 0-9/10", "bites", "bytes 0-0/0"):
            assert error_of(self.send(session, url, content_range, b"1")) == (400, "invalid")


class TestLists:
    @pytest.fixture(autouse=True)
    def objects(self, bucket: storage.Bucket) -> None:
        for name in ("b", "a/1", "a/2", "a/b/3", "z", "é"):
            bucket.blob(name).upload_from_string(name)

    def names(self, client: storage.Client, **wanted: Any) -> list[str]:
        return [one.name for one in client.list_blobs(BUCKET, **wanted)]

    def test_objects_are_listed_by_name(self, client: storage.Client) -> None:
        assert self.names(client) == ["a/1", "a/2", "a/b/3", "b", "z", "é"]

    def test_a_prefix_narrows_the_list(self, client: storage.Client) -> None:
        assert self.names(client, prefix="a/") == ["a/1", "a/2", "a/b/3"]
        assert self.names(client, prefix="none") == []
        assert self.names(client, start_offset="a/2", end_offset="z") == ["a/2", "a/b/3", "b"]

    def test_a_delimiter_makes_folders(self, client: storage.Client) -> None:
        found = client.list_blobs(BUCKET, delimiter="/", prefix="a/")
        assert ([one.name for one in found], found.prefixes) == (["a/1", "a/2"], {"a/b/"})

    def test_pages_make_up_the_whole_list(self, client: storage.Client, server: StorageServer) -> None:
        assert self.names(client, page_size=4) == ["a/1", "a/2", "a/b/3", "b", "z", "é"]
        assert server.counts["objects.list"] == 2
        found = client.list_blobs(BUCKET, delimiter="/", page_size=1)
        assert ([one.name for one in found], found.prefixes) == (["b", "z", "é"], {"a/"})


class TestBuckets:
    def test_buckets_are_created_found_and_deleted(self, client: storage.Client) -> None:
        client.create_bucket("other")
        assert [one.name for one in client.list_buckets()] == [BUCKET, "other"]
        assert client.get_bucket("other").name == "other"
        with pytest.raises(Conflict):
            client.create_bucket("other")
        client.bucket("other").delete()
        assert client.lookup_bucket("other") is None

    def test_nothing_is_stored_in_a_bucket_that_is_not_there(self, client: storage.Client) -> None:
        with pytest.raises(NotFound, match="The specified bucket does not exist"):
            client.bucket("none").blob("a").upload_from_string(b"1")

    def test_a_bucket_with_objects_is_not_deleted(self, bucket: storage.Bucket) -> None:
        bucket.blob("a").upload_from_string(b"1")
        with pytest.raises(Conflict):
            bucket.delete()


class TestFaults:
    def test_a_fault_before_applies_nothing(self, bucket: storage.Bucket, server: StorageServer) -> None:
        server.faults.add("before", kind="objects.insert")
        with pytest.raises(ServiceUnavailable):
            bucket.blob("a").upload_from_string(b"1", retry=None)
        assert server.objects(BUCKET) == {}
        assert server.faults.is_spent

    def test_a_fault_after_loses_only_the_answer(self, bucket: storage.Bucket, server: StorageServer) -> None:
        server.faults.add("after", 503, matching=lambda method, target: "uploadType=multipart" in target)
        with pytest.raises(ServiceUnavailable):
            bucket.blob("a").upload_from_string(b"1", if_generation_match=0, retry=None)
        assert server.objects(BUCKET) == {"a": b"1"}

    def test_the_clients_retry_heals_a_fault_before(self, bucket: storage.Bucket, server: StorageServer) -> None:
        server.faults.add("before", 503, times=2, kind="objects.insert")
        server.faults.add("before", drop_connection=True, kind="objects.insert")
        bucket.blob("a").upload_from_string(b"1", if_generation_match=0, retry=QUICK_RETRY)
        assert server.counts["objects.insert"] == 4

    def test_the_clients_retry_after_a_lost_answer_meets_its_own_object(
        self, bucket: storage.Bucket, server: StorageServer
    ) -> None:
        server.faults.add("after", drop_connection=True, kind="objects.insert")
        with pytest.raises(PreconditionFailed):
            bucket.blob("a").upload_from_string(b"1", if_generation_match=0, retry=QUICK_RETRY)
        assert server.objects(BUCKET) == {"a": b"1"}

    def test_a_resumable_upload_survives_faults_of_both_kinds(
        self, bucket: storage.Bucket, server: StorageServer
    ) -> None:
        data = bytes(range(256)) * 4096
        for when, status in (("before", 503), ("after", 503), ("after", 500), ("before", 502)):
            server.faults.add(when, status, kind="uploads.send")  # type: ignore[arg-type]
        blob = bucket.blob("big", chunk_size=256 * 1024)
        blob.upload_from_file(BytesIO(data), retry=QUICK_RETRY, if_generation_match=0)
        assert server.objects(BUCKET) == {"big": data}
        assert server.faults.is_spent

    def test_an_answer_comes_late(self, bucket: storage.Bucket, server: StorageServer) -> None:
        server.faults.add("after", None, delay_seconds=0.5, kind="objects.insert")
        with pytest.raises(requests.exceptions.ReadTimeout):
            bucket.blob("a").upload_from_string(b"1", timeout=0.1, retry=None)
        server.faults.add("before", None, delay_seconds=0.05, kind="objects.download")
        assert bucket.blob("a").download_as_bytes() == b"1"

    def test_a_fault_may_last_until_it_is_cleared(self, bucket: storage.Bucket, server: StorageServer) -> None:
        server.faults.add(status=429, times=None)
        for _ in range(3):
            assert requests.get(f"{server.address}/{BUCKET}/a", timeout=5).status_code == 429
        server.faults.clear()
        assert requests.get(f"{server.address}/{BUCKET}/a", timeout=5).status_code == 404

    def test_every_answer_takes_its_time(self, bucket: storage.Bucket, server: StorageServer) -> None:
        server.latency_seconds = 0.1
        begun = time.monotonic()
        bucket.blob("a").exists()
        assert time.monotonic() - begun >= 0.1

    def test_a_server_that_stops_ends_what_is_delayed(self) -> None:
        server = StorageServer().start()
        server.faults.add(delay_seconds=60)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(requests.get, f"{server.address}/storage/v1/b", timeout=30)
            while not server.counts:
                time.sleep(0.01)
            server.stop()
            assert asking.exception(5) or asking.result().status_code == 503
