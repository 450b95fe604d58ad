"""What a person at a terminal sees: one live line a chart, or a step of a whole flow, and the log above it; or one bar.

Owns the display. Must not know anything that effects and outcomes do not say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from core.documents import field
from core.events import LogEvent
from core.flow.picture import steps_in_order
from effects import (
    CallChartApi,
    ChartRefused,
    ChartRendered,
    Document,
    Effect,
    LoadTemplates,
    ObjectStored,
    Outcome,
    PutObject,
    Wait,
)

CONSOLE = Console(stderr=True)
_STYLES = {"DEBUG": "dim", "INFO": "", "WARNING": "yellow", "ERROR": "bold red"}
_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"}
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


def show_report(content: bytes | None) -> None:
    """Show the Markdown of a report, where there is one."""
    try:
        markdown = field(json.loads(content or b"null"), "output", "summary", "markdown")
    except (ValueError, RecursionError):
        return
    if isinstance(markdown, str):
        CONSOLE.print(Panel(Markdown(markdown), title="report", border_style="dim"))


class _LiveLines:
    """A live line for each of some things, by name."""

    def __init__(self, console: Console) -> None:
        """Show nothing yet."""
        self._progress = Progress(
            SpinnerColumn(finished_text="•"),
            TextColumn("{task.fields[name]}", markup=False),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )
        self._lines: dict[str, TaskID] = {}

    def _add(self, name: str, text: str) -> None:
        self._lines[name] = self._progress.add_task(text, total=1, name=name)

    def _say(self, name: str, text: str, completed: int = 0) -> None:
        line = self._lines.get(name)
        if line is not None:
            self._progress.update(line, description=text, completed=completed)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state of each line on the screen."""
        self._progress.stop()


class ChartProgress(_LiveLines):
    """A live line a chart."""

    def begun(self, effect: Effect) -> None:
        """Show that something begins for a chart."""
        match effect:
            case LoadTemplates():
                for one in effect.chart_template_ids:
                    self._add(one, "waiting for an account")
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


class FlowProgress(_LiveLines):
    """A live line a step."""

    def show(self, flow_run: Document) -> None:
        """Show how each step stands."""
        for step_id in steps_in_order(flow_run):
            step = flow_run["steps"][step_id]
            if step_id not in self._lines:
                self._add(step_id, "")
            status = str(field(step, "status"))
            code = field(step, "error", "code")
            if status != "RUNNING":
                self._say(step_id, f"{status} {code}" if code else status, completed=int(status in _ENDED))

    def watcher(self, step_id: str) -> StepWatcher:
        """Return who shows how far the drawing of a step is."""
        return StepWatcher(partial(self._say, step_id))


class StepWatcher:
    """Says how many charts of one step are stored."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Have nothing to say yet."""
        self._say = say
        self._wanted = 0
        self._stored = 0

    def begun(self, effect: Effect) -> None:
        """Take note of what is wanted."""
        if isinstance(effect, LoadTemplates):
            self._wanted = len(effect.chart_template_ids)
            self._say(f"RUNNING, 0 of {self._wanted} charts")

    def done(self, effect: Effect, outcome: Outcome) -> None:
        """Count what is stored."""
        if isinstance(effect, PutObject) and effect.create_only and isinstance(outcome, ObjectStored):
            self._stored += 1
            self._say(f"RUNNING, {self._stored} of {self._wanted} charts")


def bar(console: Console, what: str, total: int) -> tuple[Progress, Callable[[int], None]]:
    """Return a bar that is gone when it is left, and who says how much is done."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(what, total=total)
    return progress, lambda done: progress.update(task, completed=done)
