"""What happened in a run, as lines for people.

Owns their form; the same run gives the same lines, byte for byte. Must not change the run.
"""

from __future__ import annotations

from typing import Any

from effects import EffectFailed
from interpreters.dry_run import describe
from interpreters.simulation.faults import WHAT_IT_IS, Fault
from interpreters.simulation.processes import Active
from interpreters.simulation.providers import SECOND

_SHOWN = ("reason", "status", "kind", "http_status", "attempt", "error_type", "noop_reason")


class Story:
    """The lines of one run."""

    def __init__(self) -> None:
        """Begin with none."""
        self.lines: list[str] = []

    def note(self, now: int, active: Active | None, effect: Any, outcome: Any, fault: Fault | None) -> None:
        """Add what was done, by whom, what came of it, and what went wrong."""
        who = "bus" if active is None else active.process.name
        what = effect if active is None else f"{type(effect).__name__} {describe(effect)}"
        came = f" -> {_outcome(outcome)}" if outcome else ""
        wrong = f"   ! {fault.value}: {WHAT_IT_IS[fault]}" if fault is not None else ""
        self.lines.append(f"{now / SECOND:10.3f} s  {who:<14} {what}{came}{wrong}")


def _outcome(outcome: Any) -> str:
    shown = [f"{value}" for name in _SHOWN if (value := getattr(outcome, name, None)) is not None]
    if isinstance(outcome, EffectFailed):
        shown = [outcome.error_type]
    return f"{type(outcome).__name__}{f' ({chr(44).join(shown)})' if shown else ''}"
