"""Tables of results, in Markdown: as readable on a terminal as in a file.

Owns their form, and the running of one benchmark. Must not know what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

QUICK = "--quick"
"""Asks for the smallest sizes: to see that a benchmark works, not what anything costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The answer to one question."""

    title: str
    reach: str
    """What was asked for."""
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Return the table under its title, columns in line."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        rule = tuple("-" * width for width in widths)
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
            for row in (self.columns, rule, *self.rows)
        ]
        notes = [line for note in self.notes for line in ("", note)]
        return "\n".join([f"## {self.title}", "", f"Reach: {self.reach}.", "", *lines, *notes, ""])


def held(value: float, limit: float, digits: int = 2) -> str:
    """Return whether the value, as it is shown, is at most the limit."""
    return "yes" if round(value, digits) <= limit else "no"


def show(measure: Callable[[bool], Sequence[Table]]) -> None:
    """Measure, and print the tables."""
    for table in measure(QUICK in sys.argv[1:]):
        print(table.markdown(), flush=True)
