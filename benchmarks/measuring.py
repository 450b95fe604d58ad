"""Repeated measurements, and what is said of them: the median, and how far the middle half of them spreads.

Owns the arithmetic and the clocks. Must not know what is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Spread:
    """What many measurements of one thing come to."""

    least: float
    low: float
    """A quarter of them is below."""
    median: float
    high: float
    """A quarter of them is above."""

    def text(self, digits: int = 0, scale: float = 1.0) -> str:
        """Return the median, and the middle half in brackets."""
        low, median, high = (f"{one * scale:,.{digits}f}" for one in (self.low, self.median, self.high))
        return f"{median} ({low}-{high})"


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of the values, of which there is at least one."""
    quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    low, median, high = quarters
    return Spread(min(values), low, median, high)


def repeated(act: Callable[[], float], times: int) -> Spread:
    """Return the spread of what the function returns."""
    return spread([act() for _ in range(times)])


def wall_seconds(act: Callable[[], object]) -> float:
    """Return how long it took."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return how long a core of this machine was at work for this process: others at work do not show."""
    started = time.process_time()
    act()
    return time.process_time() - started


def process_cpu_seconds(pid: int) -> float:
    """Return how long a core has been at work for another process, to the hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_bytes(pid: int | str, name: str) -> int:
    """Return a line of what the kernel knows of a process's memory, such as VmRSS, VmHWM or Pss."""
    file = "smaps_rollup" if name == "Pss" else "status"
    lines = Path(f"/proc/{pid}/{file}").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
