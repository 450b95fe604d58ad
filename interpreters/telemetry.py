"""The log: events of the core become JSON lines, or readable lines on a terminal.

Owns time, service, environment and context of an entry, and the stream. Must not know what any event means.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol, TextIO

from core.events import LogEvent
from effects import Effect, Outcome
from effects.moments import rfc3339
from interpreters.ports import Clock

_SEVERITIES = ("DEBUG", "INFO", "WARNING", "ERROR")
_AS_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class Log(Protocol):
    """Where events go."""

    def write(self, event: LogEvent) -> None:
        """Write one entry."""


class JsonLog:
    """One JSON object a line, as Cloud Logging reads it."""

    def __init__(
        self, stream: TextIO, clock: Clock, least: str = "INFO", context: Mapping[str, Any] | None = None
    ) -> None:
        """Write entries of at least this severity, each with the context."""
        self._stream = stream
        self._clock = clock
        self._least = _SEVERITIES.index(least)
        self._context = dict(context or {})
        self._lock = Lock()

    def bind(self, **context: Any) -> JsonLog:
        """Return a log whose entries carry this context as well."""
        least = _SEVERITIES[self._least]
        return JsonLog(self._stream, self._clock, least, {**self._context, **context})

    def write(self, event: LogEvent) -> None:
        """Write one entry; a log that cannot be written never stops the work."""
        if _SEVERITIES.index(event.severity) < self._least:
            return
        entry = {
            "time": rfc3339(self._clock.now()),
            "severity": event.severity,
            "event": event.event,
            "message": event.message,
            **self._context,
            **event.fields,
        }
        with self._lock, suppress(OSError, ValueError):
            self._stream.write(_AS_JSON.encode(entry) + "\n")
            self._stream.flush()


class LogWatcher:
    """Writes what the core says of each effect and outcome."""

    def __init__(
        self,
        log: Log,
        begun: Callable[[Effect], tuple[LogEvent, ...]],
        done: Callable[[Effect, Outcome], tuple[LogEvent, ...]],
    ) -> None:
        """Write to the log what these two functions say."""
        self._log = log
        self._begun = begun
        self._done = done

    def begun(self, effect: Effect) -> None:
        """Write the events of an effect that begins."""
        for event in self._begun(effect):
            self._log.write(event)

    def done(self, effect: Effect, outcome: Outcome) -> None:
        """Write the events of an outcome."""
        for event in self._done(effect, outcome):
            self._log.write(event)


def stderr_is_terminal() -> bool:
    """Return whether a person is likely to read what goes to stderr."""
    return sys.stderr.isatty()
