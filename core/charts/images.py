"""Whether bytes are a PNG.

Owns the check of signature and IHDR. Must not decode pixels.
"""

from __future__ import annotations

import struct
import zlib

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER_END = 33


def png_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG whose signature and IHDR are right, else None."""
    if len(data) < _HEADER_END or not data.startswith(PNG_SIGNATURE):
        return None
    length, kind, width, height = struct.unpack(">I4sII", data[8:24])
    (checksum,) = struct.unpack(">I", data[29:33])
    is_header = length == 13 and kind == b"IHDR" and checksum == zlib.crc32(data[12:29])  # noqa: PLR2004
    return (width, height) if is_header and width and height else None
