"""Whether bytes are a PNG.

Owns the check of signature and IHDR, and of all chunks. Must not decode pixels.
"""

from __future__ import annotations

import struct
import zlib

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER_END = 33
_CHUNK_FRAME = 12
"""Length, kind and checksum of a chunk."""


def png_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG whose signature and IHDR are right, else None."""
    if len(data) < _HEADER_END or not data.startswith(PNG_SIGNATURE):
        return None
    length, kind, width, height = struct.unpack(">I4sII", data[8:24])
    (checksum,) = struct.unpack(">I", data[29:33])
    is_header = length == 13 and kind == b"IHDR" and checksum == zlib.crc32(data[12:29])  # noqa: PLR2004
    return (width, height) if is_header and width and height else None


def is_whole_png(data: bytes) -> bool:
    """Return whether the bytes are a PNG from its signature to its IEND, with every checksum right."""
    if png_size(data) is None:
        return False
    start = len(PNG_SIGNATURE)
    kind = b""
    view = memoryview(data)  # slices of it are no copies
    while kind != b"IEND" and start + _CHUNK_FRAME <= len(data):
        (length,) = struct.unpack_from(">I", data, start)
        body = view[start + 4 : start + 8 + length]
        end = start + _CHUNK_FRAME + length
        if view[end - 4 : end] != struct.pack(">I", zlib.crc32(body)):
            return False
        kind, start = bytes(body[:4]), end
    return kind == b"IEND" and start == len(data)
