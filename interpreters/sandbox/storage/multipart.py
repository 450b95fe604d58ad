"""The body of a multipart upload.

Owns taking it apart into metadata and bytes. Must not know what becomes of them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from interpreters.sandbox.storage.refusals import invalid

_BOUNDARY = re.compile(r'boundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE)
_PARTS = 2


def parse_multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the metadata and the bytes; the content type of the bytes goes into metadata that has none."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        message = "Multipart upload without a boundary."
        raise invalid(message)
    parts = _parts(body, (found[1] or found[2]).encode())
    if len(parts) != _PARTS:
        message = f"Multipart upload must have two parts, not {len(parts)}."
        raise invalid(message)
    (_, first), (headers, data) = parts
    metadata = parse_json(first)
    if part_type := headers.get("content-type"):
        metadata.setdefault("contentType", part_type)
    return metadata, data


def parse_json(body: bytes) -> dict[str, Any]:
    """Return a JSON object; nothing is an empty one."""
    try:
        value = json.loads(body) if body.strip() else {}
    except ValueError as error:
        message = "Parse Error"
        raise invalid(message) from error
    if not isinstance(value, dict):
        message = "A JSON object is required."
        raise invalid(message)
    return value


def _parts(body: bytes, boundary: bytes) -> list[tuple[dict[str, str], bytes]]:
    mark = b"\r\n--" + boundary
    pieces = (b"\r\n" + body).split(mark)
    if not pieces[-1].startswith(b"--"):
        message = "Multipart upload without an end."
        raise invalid(message)
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> tuple[dict[str, str], bytes]:
    head, _, data = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n"))
    return {name.strip().lower(): value.strip() for name, _, value in lines}, data
