"""A log event as a value: what dashboards query (§10).

Owns the shape. Must not know any sink, nor the clock: the sink adds time, service and context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


@dataclass(frozen=True)
class LogEvent:
    """One entry of the log."""

    event: str
    message: str
    severity: Severity = "INFO"
    fields: Mapping[str, Any] = field(default_factory=dict)
