"""Many runs: by seeds, by all faults of one step, and the smallest of those that broke a promise.

Owns which runs are made, what is counted of them, and how a failing one is made smaller. Must not know how a run goes.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from interpreters.simulation.cast import PRODUCTION, Cast
from interpreters.simulation.faults import (
    ALL_FAULTS,
    Allowed,
    Fault,
    Listed,
    Point,
    Schedule,
    Seeded,
)
from interpreters.simulation.invariants import Violation
from interpreters.simulation.scenarios import PLAIN, Choices, Kind, Shape, choices_of, scenario_of
from interpreters.simulation.story import Story
from interpreters.simulation.world import World


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that broke a promise, and the faults that it takes."""

    seed: int
    choices: Choices
    schedule: Schedule
    violation: Violation


@dataclass(slots=True)
class Tally:
    """What many runs came to."""

    runs: int = 0
    effects: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what other runs came to."""
        self.runs += other.runs
        self.effects += other.effects
        self.faults.update(other.faults)
        self.statuses.update(other.statuses)
        self.failures += other.failures

    def count(self, world: World) -> None:
        """Count one run."""
        self.runs += 1
        self.effects += world.effects
        self.statuses[world.run_status] += 1
        for fault in world.happened.values():
            self.faults[fault.value] += 1


def by_seeds(
    seeds: Iterable[int],
    allowed: Allowed = ALL_FAULTS,
    shape: Shape | None = None,
    cast: Cast = PRODUCTION,
) -> Tally:
    """Run these seeds; stop at the first failure."""
    tally = Tally()
    with _seldom_collecting():
        for seed in seeds:
            choices = choices_of(seed, shape)
            world = World(scenario_of(choices), Seeded(seed, allowed), seed, cast)
            violation = world.run()
            tally.count(world)
            if violation is not None:
                tally.failures.append(Failure(seed, choices, dict(world.happened), violation))
                break
    return tally


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Collect garbage seldom: a world is one circle of references, and short-lived."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def with_schedule(
    seed: int, choices: Choices, schedule: Schedule, cast: Cast = PRODUCTION, story: Story | None = None
) -> tuple[World, Violation | None]:
    """Run with just these faults."""
    note = None if story is None else story.note
    world = World(scenario_of(choices), Listed(schedule), seed, cast, note)
    return world, world.run()


def smallest(failure: Failure, cast: Cast = PRODUCTION) -> Failure:
    """Return the failure with faults left out, one at a time, as long as it still breaks the same promise."""
    schedule = dict(failure.schedule)
    violation = failure.violation
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for point in list(schedule):
            fewer = {one: fault for one, fault in schedule.items() if one != point}
            _, broken = with_schedule(failure.seed, failure.choices, fewer, cast)
            if broken is not None and broken.promise == violation.promise:
                schedule, violation, is_smaller = fewer, broken, True
    return Failure(failure.seed, failure.choices, schedule, violation)


def story_of(failure: Failure, cast: Cast = PRODUCTION) -> list[str]:
    """Return what happened, line by line."""
    story = Story()
    with_schedule(failure.seed, failure.choices, failure.schedule, cast, story)
    return story.lines


# All faults of one step.


FAR_OFF = frozenset({Fault.SENT_PAST_MIDNIGHT, Fault.ANSWERED_PAST_MIDNIGHT})
"""The smallest runs begin at noon, where past midnight is past the lease and nothing else: seeds that begin at night have it."""


class _Watching:
    """Chooses the faults of a list, and takes note of every point that there was, and what could have happened there."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.points: dict[Point, tuple[Fault, ...]] = {}

    def at(self, actor: str, number: int, bits: int, candidates: tuple[Fault, ...]) -> Fault | None:  # noqa: ARG002
        point = Point(actor, number)
        self.points[point] = candidates
        fault = self._schedule.get(point)
        return fault if fault in candidates else None


def exhaustive(
    shape: Shape,
    depth: int = 2,
    allowed: Allowed = ALL_FAULTS,
    cast: Cast = PRODUCTION,
    part: tuple[int, int] = (0, 1),
) -> Tally:
    """Run one step with no fault, with each single one that can befall its workers, and with each further one after it.

    Part (i, n) takes every n-th of the first faults, from the i-th on; all parts together make each run once.
    """
    tally = Tally()
    workers: Kind = "charts" if shape == "charts" else "reports"
    walk = _Walk(plain(shape), workers, allowed, cast)
    first, step = part
    with _seldom_collecting():
        for number, (point, fault) in enumerate(_run(Tally() if first else tally, walk, {}, depth)):
            if number % step == first and not tally.failures:
                _walk(tally, walk, {point: fault}, depth - 1)
    return tally


def plain(shape: Shape) -> Choices:
    """Return the smallest run of a shape."""
    return PLAIN._replace(shape=shape)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What stays the same on a walk through all faults."""

    choices: Choices
    workers: Kind
    allowed: Allowed
    cast: Cast


def _walk(tally: Tally, walk: _Walk, schedule: dict[Point, Fault], depth: int) -> None:
    for point, fault in _run(tally, walk, schedule, depth):
        _walk(tally, walk, {**schedule, point: fault}, depth - 1)
        if tally.failures:
            return


def _run(tally: Tally, walk: _Walk, schedule: Schedule, depth: int) -> Iterable[tuple[Point, Fault]]:
    """Run once; return what can go wrong next."""
    watching = _Watching(schedule)
    world = World(scenario_of(walk.choices), watching, 0, walk.cast)
    violation = world.run()
    tally.count(world)
    if violation is not None:
        tally.failures.append(Failure(0, walk.choices, dict(schedule), violation))
    return _after(watching.points, schedule, walk) if depth and violation is None else ()


def _after(
    points: Mapping[Point, tuple[Fault, ...]], schedule: Schedule, walk: _Walk
) -> Iterator[tuple[Point, Fault]]:
    """Return what can go wrong after the last fault of the schedule, in the order the points were met."""
    met = list(points)
    last = max((met.index(point) for point in schedule if point in points), default=-1)
    for point in met[last + 1 :]:
        if point.actor.startswith(walk.workers):
            possible = dict.fromkeys(walk.allowed.among(points[point]))
            yield from ((point, fault) for fault in possible if fault not in FAR_OFF)
