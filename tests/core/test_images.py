from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charts.images import PNG_SIGNATURE, is_whole_png, png_size
from tests.builders import a_png

PICTURE = a_png(padding=b"some text")
HEADER = struct.pack(">IIBBBBB", 8, 6, 8, 0, 0, 0, 0)


def chunk(kind: bytes, data: bytes = b"", length: int | None = None, checksum: int | None = None) -> bytes:
    size = len(data) if length is None else length
    crc = zlib.crc32(kind + data) if checksum is None else checksum
    return struct.pack(">I", size) + kind + data + struct.pack(">I", crc)


def a_file(*chunks: bytes) -> bytes:
    return PNG_SIGNATURE + chunk(b"IHDR", HEADER) + b"".join(chunks)


END = chunk(b"IEND")


def test_a_whole_png_is_whole_and_has_its_size() -> None:
    assert is_whole_png(PICTURE)
    assert png_size(PICTURE) == (8, 6)


@pytest.mark.parametrize("length", range(len(PICTURE)))
def test_a_png_cut_off_anywhere_is_not_whole(length: int) -> None:
    assert not is_whole_png(PICTURE[:length])


@given(bit=st.integers(0, len(PICTURE) * 8 - 1))
def test_a_png_with_any_one_bit_turned_is_not_whole(bit: int) -> None:
    data = bytearray(PICTURE)
    data[bit // 8] ^= 1 << bit % 8
    assert not is_whole_png(bytes(data))


@given(data=st.binary(max_size=200), is_signed=st.booleans())
def test_whatever_bytes_there_are_the_check_ends(data: bytes, is_signed: bool) -> None:
    assert not is_whole_png(PNG_SIGNATURE + data if is_signed else data)


@given(behind=st.binary(max_size=60))
def test_chunks_of_any_bytes_are_looked_at_to_their_end(behind: bytes) -> None:
    assert is_whole_png(a_file(END) + behind) == (behind == b"")
    assert not is_whole_png(a_file() + behind)


@pytest.mark.parametrize(
    "data",
    [
        a_file(),
        a_file(chunk(b"IDAT", b"pixels")),
        a_file(chunk(b"IDAT", b"pixels", checksum=0), END),
        a_file(chunk(b"IDAT", b"pixels", length=0xFFFFFFFF), END),
        a_file(chunk(b"IDAT", b"pixels", length=5), END),
        a_file(END, END),
        a_file(chunk(b"iend")),
    ],
    ids=["no end", "pixels only", "checksum", "longer than all", "shorter than it is", "two ends", "another end"],
)
def test_chunks_that_are_not_right_make_no_whole_png(data: bytes) -> None:
    assert png_size(data) == (8, 6)
    assert not is_whole_png(data)


@pytest.mark.parametrize("size", [(0, 6), (8, 0)])
def test_a_png_without_pixels_is_none(size: tuple[int, int]) -> None:
    assert png_size(a_png(*size)) is None
    assert not is_whole_png(a_png(*size))
