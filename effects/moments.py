"""Moments as text: RFC 3339 in UTC, the only form times have in documents.

Owns formatting and parsing. Must not know what time it is.
"""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return the moment in UTC, e.g. 2025-12-15T10:25:30Z."""
    return _in_utc(moment).isoformat()[: -len("+00:00")] + "Z"


def parse_moment(value: object) -> datetime | None:
    """Return the moment that a document's field holds, None where it holds none."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return _in_utc(moment) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def floor_second(moment: datetime) -> datetime:
    """Return the beginning of the second that the moment lies in."""
    return moment.replace(microsecond=0)


def utc_day(moment: datetime) -> datetime:
    """Return the midnight, UTC, that the moment's day began with."""
    return _in_utc(moment).replace(hour=0, minute=0, second=0, microsecond=0)


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
