"""Bytes in a journal: size and SHA-256, and the little more that a replay decides by.

Owns what is kept of bytes, and what stands in for those that are not. A picture is never kept, only whether it is whole; a text is kept
if the person asked for it. A manifest of charts is a document, like a flow_run, and always kept. Must not know any effect.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Literal

from core.charts.images import PNG_SIGNATURE, is_whole_png, png_size
from core.charts.manifest import manifest_problems
from effects import Blob, blob
from effects.encoding import show_size

Picture = Literal["whole", "cut"]


def show_blob(content: Blob) -> dict[str, Any]:
    """Return what a journal holds of bytes."""
    return _shown(content, is_text_kept=False)


def show_text(content: Blob) -> dict[str, Any]:
    """Return what a journal holds of bytes where texts were asked for."""
    return _shown(content, is_text_kept=True)


def _shown(content: Blob, *, is_text_kept: bool) -> dict[str, Any]:
    shown, data = show_size(content), content.data
    if data is None:
        return shown
    if png_size(data):
        return {**shown, "picture": "whole" if is_whole_png(data) else "cut"}
    text = _text(data) if is_text_kept or _is_manifest(data) else None
    return shown if text is None else {**shown, "text": text}


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_manifest(data: bytes) -> bool:
    """Return whether the bytes are a manifest of charts, without an address that lets anyone in."""
    if b'"requested"' not in data or b'"signed_url"' in data:
        return False
    try:
        return not manifest_problems(json.loads(data))
    except (ValueError, RecursionError):
        return False


def read_blob(encoded: dict[str, Any]) -> Blob:
    """Return the bytes; a picture is stood in for by another, under its own size and SHA-256."""
    text, picture, size = encoded.get("text"), encoded.get("picture"), encoded["size"]
    if text is not None or size == 0:
        return blob(str(text or "").encode())
    stand_in = None if picture is None else _STAND_INS[picture]
    return Blob(data=stand_in, size=size, known_sha256=encoded["sha256"])


def _chunk(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


_HEADER = PNG_SIGNATURE + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
_STAND_INS: dict[Picture, bytes] = {"whole": _HEADER + _chunk(b"IEND"), "cut": _HEADER}
