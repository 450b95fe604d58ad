"""Resumable uploads.

Owns the sessions: what has come of each, and when it is whole. Must not know HTTP; what is whole goes to `Contents`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any
from uuid import uuid4

from interpreters.sandbox.storage.contents import Contents
from interpreters.sandbox.storage.preconditions import Preconditions
from interpreters.sandbox.storage.refusals import (
    Refusal,
    invalid,
    no_upload,
    upload_cancelled,
    upload_expired,
)
from interpreters.sandbox.storage.stored import Content, StoredObject

KEPT_MULTIPLE = 256 * 1024
"""Of a chunk that is not the last one, only whole multiples of this are kept."""
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of an upload, and where they belong; without bytes, a question how far it has come."""

    data: bytes
    start: int
    total: int | None
    """How long the whole is, if known by now."""


@dataclass(slots=True)
class _Session:
    bucket: str
    name: str
    metadata: Mapping[str, Any]
    preconditions: Preconditions
    data: bytearray = field(default_factory=bytearray)
    stored: StoredObject | None = None
    ended: Refusal | None = None


class Uploads:
    """The upload sessions of a server."""

    def __init__(self, contents: Contents) -> None:
        """Hand what is whole to the contents."""
        self._contents = contents
        self._lock = RLock()
        self._sessions: dict[str, _Session] = {}

    def begin(self, bucket: str, name: str, metadata: Mapping[str, Any], preconditions: Preconditions) -> str:
        """Return the id of a new session, if the upload could succeed at this moment."""
        self._contents.check(bucket, name, preconditions)
        upload_id = uuid4().hex
        with self._lock:
            self._sessions[upload_id] = _Session(bucket, name, metadata, preconditions)
        return upload_id

    def send(self, upload_id: str, chunk: Chunk, declared: Mapping[str, str]) -> StoredObject | int:
        """Take a chunk; return the object once it is whole, else how many bytes are kept."""
        with self._lock:
            session = self._open(upload_id)
            if session.stored is None:
                _append(session.data, chunk)
                if chunk.total == len(session.data):
                    self._finish(session, declared)
            return session.stored or len(session.data)

    def cancel(self, upload_id: str) -> None:
        """End a session at its client's wish."""
        with self._lock:
            self._open(upload_id).ended = upload_cancelled()

    def expire(self) -> int:
        """End all sessions that are not complete, as a week's wait would; return how many."""
        with self._lock:
            waiting = [one for one in self._sessions.values() if one.stored is None and one.ended is None]
            for session in waiting:
                session.ended = upload_expired()
            return len(waiting)

    def _open(self, upload_id: str) -> _Session:
        session = self._sessions.get(upload_id)
        if session is None:
            raise no_upload()
        if session.ended is not None:
            raise session.ended
        return session

    def _finish(self, session: _Session, declared: Mapping[str, str]) -> None:
        metadata = {**session.metadata, **declared}
        content = Content(bytes(session.data))
        try:
            content.check(session.metadata)
            session.stored = self._contents.put(
                session.bucket, session.name, content, metadata, session.preconditions
            )
        except Refusal as refusal:
            session.ended = refusal
            raise
        finally:
            session.data.clear()


def parse_chunk(content_range: str | None, body: bytes) -> Chunk:
    """Return the chunk that a request carries; without a range, it is the whole."""
    if content_range is None:
        return Chunk(body, 0, len(body))
    found = _CONTENT_RANGE.fullmatch(content_range.strip())
    if found is None:
        message = f"Failed to parse Content-Range header: {content_range}"
        raise invalid(message)
    start, end, total = found.groups()
    whole = None if total == "*" else int(total)
    if start is None:
        return Chunk(b"", 0, whole)
    if int(end) - int(start) + 1 != len(body):
        message = f"Content-Range {content_range} does not fit {len(body)} bytes."
        raise invalid(message)
    return Chunk(body, int(start), whole)


def _append(data: bytearray, chunk: Chunk) -> None:
    """Keep what is new of the chunk; what comes twice is ignored, what leaves a gap is not kept."""
    if chunk.start > len(data):
        return
    data += chunk.data[len(data) - chunk.start :]
    if chunk.total is not None and len(data) > chunk.total:
        message = f"More bytes than the {chunk.total} announced."
        raise invalid(message)
    if chunk.data and chunk.total != len(data):
        del data[len(data) // KEPT_MULTIPLE * KEPT_MULTIPLE :]
