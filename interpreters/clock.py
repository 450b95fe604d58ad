"""The clock of this machine."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """Tells the time in UTC."""

    def now(self) -> datetime:
        """Return this moment."""
        return datetime.now(UTC)
