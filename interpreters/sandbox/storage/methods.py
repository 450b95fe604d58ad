"""The methods of the JSON API.

Owns what each does with a request, and the replies. Must not know sockets, faults or how objects are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

from interpreters.sandbox.http_server import Reply, Request
from interpreters.sandbox.storage.byte_range import parse_range
from interpreters.sandbox.storage.contents import Contents
from interpreters.sandbox.storage.listing import list_page
from interpreters.sandbox.storage.multipart import parse_json, parse_multipart
from interpreters.sandbox.storage.preconditions import parse_number, parse_preconditions
from interpreters.sandbox.storage.refusals import JSON, Refusal, required
from interpreters.sandbox.storage.stored import Content, StoredObject
from interpreters.sandbox.storage.uploads import Uploads, parse_chunk

_HASH_NAMES = {"crc32c": "crc32c", "md5": "md5Hash"}


class Methods:
    """The methods, each a function of a request and the names in its path."""

    def __init__(self, contents: Contents) -> None:
        """Work on these contents."""
        self._contents = contents
        self.uploads = Uploads(contents)

    def list_buckets(self, request: Request) -> Reply:
        """Return all buckets that begin with a prefix."""
        prefix = request.query.get("prefix", "")
        found = [one for one in self._contents.buckets() if one.name.startswith(prefix)]
        return _json({"kind": "storage#buckets", "items": [one.resource(request.origin) for one in found]})

    def insert_bucket(self, request: Request) -> Reply:
        """Create a bucket."""
        name = parse_json(request.body).get("name")
        if not isinstance(name, str) or not name:
            message = "Required bucket name is missing."
            raise required(message)
        return _json(self._contents.create_bucket(name).resource(request.origin))

    def get_bucket(self, request: Request, bucket: str) -> Reply:
        """Return a bucket."""
        return _json(self._contents.bucket(bucket).resource(request.origin))

    def delete_bucket(self, _request: Request, bucket: str) -> Reply:
        """Delete an empty bucket."""
        self._contents.delete_bucket(bucket)
        return Reply(204)

    def list_objects(self, request: Request, bucket: str) -> Reply:
        """Return a page of objects."""
        return _json(list_page(self._contents.objects(bucket), request.query, request.origin))

    def get_object(self, request: Request, bucket: str, name: str) -> Reply:
        """Return an object's metadata, or its bytes."""
        if request.query.get("alt") == "media":
            return self.download(request, bucket, name)
        found = self._contents.get(bucket, name, parse_preconditions(request.query), _generation(request))
        return _resource(found, request)

    def download(self, request: Request, bucket: str, name: str) -> Reply:
        """Return an object's bytes, or a range of them; here a refusal is plain text."""
        try:
            found = self._contents.get(bucket, name, parse_preconditions(request.query), _generation(request))
            return _media(found, request)
        except Refusal as refusal:
            return Reply(refusal.status, refusal.message.encode(), "text/html; charset=UTF-8")

    def delete_object(self, request: Request, bucket: str, name: str) -> Reply:
        """Delete an object."""
        self._contents.delete(bucket, name, parse_preconditions(request.query), _generation(request))
        return Reply(204)

    def patch_object(self, request: Request, bucket: str, name: str) -> Reply:
        """Change some of an object's metadata."""
        changes, preconditions = parse_json(request.body), parse_preconditions(request.query)
        found = self._contents.patch(bucket, name, changes, preconditions, _generation(request))
        return _resource(found, request)

    def insert_media(self, request: Request, bucket: str) -> Reply:
        """Store the body under the name in the query."""
        metadata = {"contentType": request.header("content-type"), **_declared(request)}
        return self._insert(request, bucket, metadata, request.body)

    def insert_multipart(self, request: Request, bucket: str) -> Reply:
        """Store the second part of the body as the first one says."""
        metadata, data = parse_multipart(request.header("content-type") or "", request.body)
        return self._insert(request, bucket, {**metadata, **_declared(request)}, data)

    def _insert(self, request: Request, bucket: str, metadata: Mapping[str, Any], data: bytes) -> Reply:
        name, preconditions = _name(request, metadata), parse_preconditions(request.query)
        return _resource(self._contents.put(bucket, name, Content(data), metadata, preconditions), request)

    def begin_upload(self, request: Request, bucket: str) -> Reply:
        """Begin a resumable upload, and tell where its bytes go."""
        metadata = parse_json(request.body)
        if content_type := request.header("x-upload-content-type"):
            metadata.setdefault("contentType", content_type)
        preconditions = parse_preconditions(request.query)
        upload_id = self.uploads.begin(bucket, _name(request, metadata), metadata, preconditions)
        path = f"/upload/storage/v1/b/{quote(bucket)}/o?uploadType=resumable&upload_id={upload_id}"
        headers = {"Location": request.origin + path, "X-GUploader-UploadID": upload_id}
        return Reply(200, headers=headers)

    def send_upload(self, request: Request, _bucket: str) -> Reply:
        """Take bytes of a resumable upload, or tell how many there are."""
        chunk = parse_chunk(request.header("content-range"), request.body)
        result = self.uploads.send(_upload_id(request), chunk, _declared(request))
        if isinstance(result, StoredObject):
            return _resource(result, request)
        return Reply(308, headers={"Range": f"bytes=0-{result - 1}"} if result else {})

    def cancel_upload(self, request: Request, _bucket: str) -> Reply:
        """Give up a resumable upload."""
        self.uploads.cancel(_upload_id(request))
        return Reply(499)

    def copy_object(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Reply:
        """Copy an object and return the copy."""
        return _resource(self._copy(request, (bucket, name), (to_bucket, to_name)), request)

    def rewrite_object(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Reply:
        """Copy an object, always in one go."""
        copy = self._copy(request, (bucket, name), (to_bucket, to_name))
        size = str(len(copy.content.data))
        answer = {"kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size}
        return _json({**answer, "done": True, "resource": copy.resource(request.origin)})

    def _copy(self, request: Request, source: tuple[str, str], target: tuple[str, str]) -> StoredObject:
        conditions = parse_preconditions(request.query, "ifSource")
        found = self._contents.get(*source, conditions, parse_number(request.query, "sourceGeneration"))
        metadata = {**found.metadata, **parse_json(request.body)}
        return self._contents.put(*target, found.content, metadata, parse_preconditions(request.query))


def _json(value: Mapping[str, Any]) -> Reply:
    return Reply(200, json.dumps(value).encode(), JSON)


def _resource(stored: StoredObject, request: Request) -> Reply:
    return _json(stored.resource(request.origin))


def _media(stored: StoredObject, request: Request) -> Reply:
    data = stored.content.data
    encoding = stored.metadata.get("contentEncoding")
    headers = {
        "ETag": stored.etag,
        "Last-Modified": format_datetime(stored.updated, usegmt=True),
        "Accept-Ranges": "bytes",
        "x-goog-generation": str(stored.generation),
        "x-goog-metageneration": str(stored.metageneration),
        "x-goog-storage-class": "STANDARD",
        "x-goog-stored-content-encoding": encoding or "identity",
        "x-goog-stored-content-length": str(len(data)),
        **({"Content-Encoding": encoding} if encoding else {}),
    }
    if part := parse_range(request.header("range"), len(data)):
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(data)}"
        return Reply(206, data[part.start : part.stop], stored.content_type, headers)
    checksums = stored.content.checksums
    headers["x-goog-hash"] = ",".join(f"{short}={checksums[name]}" for short, name in _HASH_NAMES.items())
    return Reply(200, data, stored.content_type, headers)


def _generation(request: Request) -> int | None:
    return parse_number(request.query, "generation")


def _name(request: Request, metadata: Mapping[str, Any]) -> str:
    return str(request.query.get("name") or metadata.get("name") or "")


def _upload_id(request: Request) -> str:
    return request.query.get("upload_id", "")


def _declared(request: Request) -> dict[str, str]:
    """Return the checksums that the headers of an upload declare."""
    pairs = (one.strip().partition("=") for one in (request.header("x-goog-hash") or "").split(","))
    found = {_HASH_NAMES[short]: value for short, _, value in pairs if short in _HASH_NAMES}
    if md5 := request.header("content-md5"):
        found["md5Hash"] = md5
    return found
