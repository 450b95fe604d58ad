"""What `tda simulate` was asked for, what came of it, and how that is said: to people, and as JSON.

Owns the words. Must not know flags, nor how a run goes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interpreters.simulation.faults import ALL_FAULTS, WHAT_IT_IS, Allowed, Fault, Schedule, schedule_text
from interpreters.simulation.invariants import PROMISES
from interpreters.simulation.parallel import Chunk, Done, cast_of, cut, cut_exhaustive
from interpreters.simulation.runs import Failure, Tally, plain, smallest, with_schedule
from interpreters.simulation.sabotages import SABOTAGES
from interpreters.simulation.scenarios import Choices, Shape, choices_of
from interpreters.simulation.story import Story

NO_FAULTS = "none"
"""A schedule without faults."""
KEPT = "every promise was kept"
_BEGINNING, _ENDING = 40, 20
"""Lines of a long story that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be run."""

    seeds: range
    allowed: Allowed = ALL_FAULTS
    shape: Shape | None = None
    is_exhaustive: bool = False
    sabotage: str | None = None

    def chunks(self) -> list[Chunk]:
        """Return it in chunks, in the order they count."""
        if self.is_exhaustive:
            shapes: tuple[Shape, ...] = (self.shape,) if self.shape else ("charts", "report")
            return cut_exhaustive(shapes, self.allowed, self.sabotage)
        return cut(self.seeds, self.allowed, self.shape, self.sabotage)

    def choices(self) -> Choices:
        """Return what its first run begins with."""
        return plain(self.shape or "charts") if self.is_exhaustive else choices_of(self.seeds[0], self.shape)

    def command(self, failure: Failure) -> str:
        """Return the command that repeats a run."""
        which = ["--exhaustive"] if self.is_exhaustive else ["--from", str(failure.seed), "--seeds", "1"]
        sabotage = ["--sabotage", self.sabotage] if self.sabotage else []
        only = ["--only", schedule_text(failure.schedule) or NO_FAULTS]
        return shlex.join(["tda", "simulate", *which, "--steps", failure.choices.shape, *sabotage, *only])


@dataclass(slots=True)
class Result:
    """What came of it so far."""

    wanted: Wanted
    jobs: int
    tally: Tally = field(default_factory=Tally)
    done: int = 0
    """How much of the work."""
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def add(self, done: Done) -> None:
        """Add what a chunk came to."""
        self.tally.add(done.tally)
        self.done += done.chunk.size
        self.cpu_seconds += done.cpu_seconds

    @property
    def rates(self) -> tuple[float, float]:
        """Return runs a second, and runs a CPU second."""
        return self.tally.runs / max(self.seconds, 1e-9), self.tally.runs / max(self.cpu_seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Told:
    """One run, with just the faults of a schedule, and its story."""

    failure: Failure | None
    never_happened: Schedule
    story: Sequence[str]


def tell(wanted: Wanted, schedule: Schedule, seed: int, choices: Choices) -> Told:
    """Run once, with just these faults, and take down the story."""
    story = Story()
    world, violation = with_schedule(seed, choices, schedule, cast_of(wanted.sabotage), story)
    never = {point: fault for point, fault in schedule.items() if point not in world.happened}
    failure = None if violation is None else Failure(seed, choices, dict(schedule), violation)
    return Told(failure, never, story.lines)


def tell_smallest(wanted: Wanted, failure: Failure) -> Told:
    """Run the failure again, with the fewest faults that break the same promise."""
    least = smallest(failure, cast_of(wanted.sabotage))
    return tell(wanted, least.schedule, least.seed, least.choices)


# For people.


def result_text(result: Result) -> str:
    """Return how much was run, how fast, how it ended, and what went wrong on purpose."""
    tally, (of_wall, of_cpu) = result.tally, result.rates
    processes = f"{result.jobs} process{'es' if result.jobs > 1 else ''}"
    ended = ", ".join(f"{count:,} {status}" for status, count in sorted(tally.statuses.items(), reverse=True))
    allowed = [one for one in Fault if one in result.wanted.allowed.faults]
    rows = [(one.value, f"{tally.faults[one.value]:,}", WHAT_IT_IS[one]) for one in allowed]
    size = f"{tally.runs:,} runs, {tally.effects:,} effects, in {result.seconds:.1f} s with {processes}"
    speed = f"{of_wall:,.0f} runs a second, {of_cpu:,.0f} a second per core"
    table = _aligned([("fault", "times", "what it is"), *rows], right=1)
    return "\n".join((f"{size}: {speed}", f"ended: {ended}", "", *table))


def verdict_text(result: Result) -> str:
    """Return the last line where nothing was broken."""
    if result.wanted.sabotage:
        return f"{KEPT}: the sabotage {result.wanted.sabotage} went unnoticed"
    return KEPT


def failure_text(wanted: Wanted, told: Told, *, is_whole: bool) -> str:
    """Return what was broken, the faults it takes, what happened, and the command that repeats it."""
    failure = told.failure
    assert failure is not None
    which = "all faults of one step" if wanted.is_exhaustive else f"seed {failure.seed}"
    return "\n".join(
        (
            f"BROKEN, with {which} ({failure.choices.shape}): {failure.violation}",
            "",
            *_faults_text(failure.schedule),
            "",
            *story_lines(told, is_whole=is_whole),
            "",
            "Repeat it:",
            f"  {wanted.command(failure)}",
        )
    )


def story_lines(told: Told, *, is_whole: bool = True) -> list[str]:
    """Return what happened, its middle left out where it is long and not wanted whole, and what it broke."""
    never = [f"never happened: {schedule_text(told.never_happened)}"] if told.never_happened else []
    broken = told.failure and told.failure.violation
    verdict = f"BROKEN {broken.promise}: {broken.what}" if broken else KEPT
    story, middle = told.story, len(told.story) - _BEGINNING - _ENDING
    if middle > 1 and not is_whole:
        left_out = f"… {middle} lines are left out; the command below shows them"
        story = [*story[:_BEGINNING], left_out, *story[-_ENDING:]]
    return ["What happened:", *(f"  {line}" for line in story), f"  {verdict}", *never]


def _faults_text(schedule: Schedule) -> list[str]:
    if not schedule:
        return ["It takes no fault."]
    rows = [(f"{one.actor}:{one.number}", fault.value, WHAT_IT_IS[fault]) for one, fault in schedule.items()]
    return ["The fewest faults found that break it:", *(f"  {line}" for line in _aligned(rows))]


def stopped_text(result: Result, total: int) -> str:
    """Return how far it got."""
    if result.wanted.is_exhaustive:
        return f"stopped after {result.done} of {total} parts; what was run kept every promise"
    first = result.wanted.seeds[0]
    clean = f"; seeds {first} to {first + result.done - 1} kept every promise" if result.done else ""
    further = f"--from {first + result.done} --seeds {total - result.done}"
    return f"stopped after {result.done:,} of {total:,} seeds{clean}; go on with {further}"


def list_text(what: str) -> str:
    """Return all faults, promises or sabotages, each with what it is."""
    return "\n".join(_aligned(_LISTS[what]))


_LISTS: Mapping[str, Sequence[Sequence[str]]] = {
    "faults": [(one.value, WHAT_IT_IS[one]) for one in Fault],
    "promises": [*PROMISES.items()],
    "sabotages": [(name, one.what, f"breaks {' or '.join(one.breaks)}") for name, one in SABOTAGES.items()],
}


def _aligned(rows: Iterable[Sequence[str]], right: int | None = None) -> list[str]:
    """Return the rows with their columns under each other; one of them may be of numbers."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if number == right else f"{cell:<{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# For machines.


def result_json(result: Result, told: Told | None) -> dict[str, Any]:
    """Return the same as `result_text`, and what was broken."""
    tally, (of_wall, of_cpu) = result.tally, result.rates
    return {
        "runs": tally.runs,
        "effects": tally.effects,
        "statuses": dict(sorted(tally.statuses.items())),
        "faults": {one.value: tally.faults[one.value] for one in Fault if one in result.wanted.allowed.faults},
        "seconds": round(result.seconds, 3),
        "cpuSeconds": round(result.cpu_seconds, 3),
        "runsPerSecond": round(of_wall, 1),
        "runsPerCpuSecond": round(of_cpu, 1),
        "failure": told and failure_json(result.wanted, told),
    }


def told_json(wanted: Wanted, told: Told) -> dict[str, Any]:
    """Return one run and its story."""
    return {
        "neverHappened": schedule_text(told.never_happened),
        "story": [*told.story],
        "failure": failure_json(wanted, told),
    }


def failure_json(wanted: Wanted, told: Told) -> Mapping[str, Any] | None:
    """Return what was broken, the faults it takes, what happened, and the command that repeats it."""
    failure = told.failure
    if failure is None:
        return None
    return {
        "seed": failure.seed,
        "steps": failure.choices.shape,
        "promise": failure.violation.promise,
        "what": failure.violation.what,
        "schedule": [
            {"point": f"{one.actor}:{one.number}", "fault": fault.value} for one, fault in failure.schedule.items()
        ],
        "story": [*told.story],
        "command": wanted.command(failure),
    }
