"""Reading one artifact by its URI, for people who want to look at it.

Owns nothing but the way from a URI to bytes. Must not be used by workers: they read by effects.
"""

from __future__ import annotations

from datetime import timedelta

from returns.result import Failure

from core.reports.references import parse_uri
from effects import ObjectRead, ReadObject
from interpreters.ports import Clock, ObjectStore

MAX_BYTES = 64 * 1024 * 1024
PATIENCE = timedelta(seconds=30)


def read_artifact(objects: ObjectStore, uri: str, clock: Clock) -> bytes | None:
    """Return the bytes of an artifact, None where it cannot be read."""
    parsed = parse_uri(uri, "uri")
    if isinstance(parsed, Failure):
        return None
    where, now = parsed.unwrap(), clock.now()
    effect = ReadObject(bucket=where.bucket, name=where.name, max_bytes=MAX_BYTES, give_up_at=now + PATIENCE)
    outcome = objects.read(effect, now)
    return outcome.content.data if isinstance(outcome, ObjectRead) else None
