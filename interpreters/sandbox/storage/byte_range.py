"""Ranges of bytes.

Owns reading a Range header. Must not know what the bytes are of.
"""

from __future__ import annotations

import re

from interpreters.sandbox.storage.refusals import not_satisfiable

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def parse_range(header: str | None, size: int) -> range | None:
    """Return the places that a header asks for, or None for all; what is malformed counts as all."""
    found = _RANGE.fullmatch((header or "").strip())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        part = range(max(0, size - int(last)), size)
    else:
        part = range(int(first), min(int(last) + 1, size) if last else size)
    if not part:
        raise not_satisfiable()
    return part
