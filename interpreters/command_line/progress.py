"""What a person at a terminal sees while charts are drawn: one live line a chart, and the log above it.

Owns the display. Must not know anything that effects and outcomes do not say.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from core.events import LogEvent
from effects import (
    CallChartApi,
    ChartRefused,
    ChartRendered,
    Effect,
    LoadTemplates,
    ObjectStored,
    Outcome,
    PutObject,
    Wait,
)

_STYLES = {"DEBUG": "dim", "INFO": "", "WARNING": "yellow", "ERROR": "bold red"}
_QUIET = {"chart_api_call_started", "chart_api_call_finished", "png_written"}


class TerminalLog:
    """Readable lines; what the live lines already show is left out unless something is wrong."""

    def __init__(self, console: Console, least: str = "INFO") -> None:
        """Write to the console."""
        self._console = console
        self._least = list(_STYLES).index(least)

    def write(self, event: LogEvent) -> None:
        """Write one line."""
        if list(_STYLES).index(event.severity) < self._least:
            return
        if event.event in _QUIET and event.severity == "INFO":
            return
        self._console.print(event.message, style=_STYLES[event.severity], highlight=False, markup=False)


class ChartProgress:
    """A live line a chart."""

    def __init__(self, console: Console) -> None:
        """Show nothing yet."""
        self._progress = Progress(
            SpinnerColumn(finished_text="•"),
            TextColumn("{task.fields[chart]}"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )
        self._lines: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state of each line on the screen."""
        self._progress.stop()

    def begun(self, effect: Effect) -> None:
        """Show that something begins for a chart."""
        match effect:
            case LoadTemplates():
                for one in effect.chart_template_ids:
                    self._lines[one] = self._progress.add_task("waiting for an account", total=1, chart=one)
            case Wait(chart_template_id=str(one)):
                self._say(one, f"waiting ({effect.reason})")
            case CallChartApi():
                self._say(effect.chart_template_id, f"drawing with {effect.account_id}")
            case PutObject():
                self._say(self._chart_of(effect), "storing")

    def done(self, effect: Effect, outcome: Outcome) -> None:
        """Show what came of it."""
        match effect, outcome:
            case _, ChartRendered():
                self._say(outcome.chart_template_id, "drawn")
            case _, ChartRefused():
                self._say(outcome.chart_template_id, f"refused: {outcome.message}")
            case PutObject(), ObjectStored():
                size = (effect.content.size or 0) / 1024
                self._say(self._chart_of(effect), f"stored, {size:.0f} KiB", completed=1)

    def _chart_of(self, effect: PutObject) -> str:
        """Return the chart whose picture has this name; the longest, where one id ends like another."""
        named = [one for one in self._lines if effect.name.endswith(f"_{one}.png")]
        return max(named, key=len, default="")

    def _say(self, chart_template_id: str, text: str, completed: int = 0) -> None:
        line = self._lines.get(chart_template_id)
        if line is not None:
            self._progress.update(line, description=text, completed=completed)
