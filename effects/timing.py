"""Words about time.

Owns waiting. Must not know who waits, but for the name of the request.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from effects.word import word

WaitReason = Literal["slot", "backoff", "store", "recall", "manifest", "finalize"]


@word
class Wait:
    """Do nothing until a moment."""

    until: datetime
    """The moment."""
    reason: WaitReason
    """What for."""
    chart_template_id: str | None
    """The request that waits; None where the step does."""


@word
class Waited:
    """The moment has come."""

    reason: WaitReason
    """What for."""
    chart_template_id: str | None
    """The request that waited."""
    at: datetime
    """When it happened."""
