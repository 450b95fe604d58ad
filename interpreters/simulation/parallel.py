"""Many runs on many cores.

Owns the chunks that runs are cut into, and the processes that work on them. What comes of it does not depend on how many there are.
Must not know how a run goes, nor who asks for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context, parent_process
from threading import Thread

from interpreters.simulation.cast import PRODUCTION, Cast
from interpreters.simulation.faults import ALL_FAULTS, Allowed
from interpreters.simulation.runs import Tally, by_seeds, exhaustive
from interpreters.simulation.sabotages import SABOTAGES
from interpreters.simulation.scenarios import Shape

CHUNK = 100
"""Seeds of a chunk."""
PARTS = 32
"""Chunks that all faults of one step are cut into."""


@dataclass(frozen=True, slots=True)
class SomeSeeds:
    """Runs by seeds, up to the first that fails."""

    seeds: range
    allowed: Allowed = ALL_FAULTS
    shape: Shape | None = None
    sabotage: str | None = None

    @property
    def size(self) -> int:
        """Return how much of the work this is."""
        return len(self.seeds)

    def run(self) -> Tally:
        """Run them."""
        return by_seeds(self.seeds, self.allowed, self.shape, cast_of(self.sabotage))


@dataclass(frozen=True, slots=True)
class SomeFaults:
    """A part of all faults of one step, up to the first run that fails."""

    shape: Shape
    part: tuple[int, int]
    allowed: Allowed = ALL_FAULTS
    sabotage: str | None = None
    size: int = 1

    def run(self) -> Tally:
        """Run them."""
        return exhaustive(self.shape, 2, self.allowed, cast_of(self.sabotage), self.part)


Chunk = SomeSeeds | SomeFaults


@dataclass(frozen=True, slots=True)
class Done:
    """What a chunk came to."""

    chunk: Chunk
    tally: Tally
    cpu_seconds: float


def cast_of(sabotage: str | None) -> Cast:
    """Return who plays: a cast itself does not travel between processes."""
    return PRODUCTION if sabotage is None else SABOTAGES[sabotage].cast


def cut(seeds: range, allowed: Allowed, shape: Shape | None, sabotage: str | None) -> list[Chunk]:
    """Return the chunks of some seeds."""
    pieces = (seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK))
    return [SomeSeeds(one, allowed, shape, sabotage) for one in pieces]


def cut_exhaustive(shapes: Sequence[Shape], allowed: Allowed, sabotage: str | None) -> list[Chunk]:
    """Return the chunks of all faults of one step of each shape."""
    return [SomeFaults(shape, (i, PARTS), allowed, sabotage) for shape in shapes for i in range(PARTS)]


@contextmanager
def working(chunks: Sequence[Chunk], jobs: int) -> Iterator[Iterator[Done]]:
    """Give what each chunk came to, in their order; those not asked for any more are not begun."""
    jobs = min(jobs, len(chunks))
    if jobs == 1:
        yield map(_timed, chunks)
        return
    # A fork has its imports made; elsewhere the default must do.
    context = get_context("fork" if "fork" in get_all_start_methods() else None)
    processes = ProcessPoolExecutor(jobs, context, initializer=_follow_parent)
    try:
        yield processes.map(_timed, chunks)
    finally:
        processes.shutdown(cancel_futures=True)


def _timed(chunk: Chunk) -> Done:
    before = time.process_time()
    return Done(chunk, chunk.run(), time.process_time() - before)


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
