"""Lists of objects.

Owns prefixes, delimiters and pages. Must not know where the objects are kept.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interpreters.sandbox.storage.preconditions import parse_number
from interpreters.sandbox.storage.refusals import invalid
from interpreters.sandbox.storage.stored import StoredObject

_LARGEST_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the list: an object, or a prefix that stands for several."""

    key: bytes
    prefix: str | None
    stored: StoredObject


def list_page(objects: Sequence[StoredObject], query: Mapping[str, str], origin: str) -> dict[str, Any]:
    """Return the page of the list that the query asks for, in JSON form."""
    wanted = [one for one in objects if _is_wanted(one.name, query)]
    entries = _entries(wanted, query.get("prefix", ""), query.get("delimiter", ""))
    after = _parse_token(query.get("pageToken"))
    left = [one for one in entries if after is None or one.key > after]
    page = left[: _page_size(query)]
    answer: dict[str, Any] = {"kind": "storage#objects"}
    if items := [one.stored.resource(origin) for one in page if one.prefix is None]:
        answer["items"] = items
    if prefixes := [one.prefix for one in page if one.prefix is not None]:
        answer["prefixes"] = prefixes
    if len(page) < len(left):
        answer["nextPageToken"] = base64.urlsafe_b64encode(page[-1].key).decode()
    return answer


def _is_wanted(name: str, query: Mapping[str, str]) -> bool:
    start, end = query.get("startOffset", ""), query.get("endOffset", "")
    return (
        name.startswith(query.get("prefix", ""))
        and name.encode() >= start.encode()
        and (not end or name.encode() < end.encode())
    )


def _entries(objects: Sequence[StoredObject], prefix: str, delimiter: str) -> list[_Entry]:
    found: dict[bytes, _Entry] = {}
    for one in objects:
        folder = _folder(one.name, prefix, delimiter)
        key = (folder or one.name).encode()
        found.setdefault(key, _Entry(key, folder, one))
    return [found[key] for key in sorted(found)]


def _folder(name: str, prefix: str, delimiter: str) -> str | None:
    before, delimiting, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
    return prefix + before + delimiting if delimiting else None


def _page_size(query: Mapping[str, str]) -> int:
    return min(parse_number(query, "maxResults") or _LARGEST_PAGE, _LARGEST_PAGE)


def _parse_token(token: str | None) -> bytes | None:
    if not token:
        return None
    try:
        return base64.urlsafe_b64decode(token)
    except binascii.Error as error:
        message = f"Invalid page token: {token}"
        raise invalid(message) from error
