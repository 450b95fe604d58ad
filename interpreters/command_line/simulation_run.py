"""One call of `tda simulate`, from its flags to its exit code.

Owns checking the flags, the run with its progress, and what is printed when. Must not know how a run goes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, TypeVar

from core.problems import Problem
from interpreters.command_line.inputs import WrongCall, say
from interpreters.command_line.progress import CONSOLE, bar
from interpreters.command_line.simulation_text import (
    NO_FAULTS,
    Result,
    Told,
    Wanted,
    failure_text,
    list_text,
    result_json,
    result_text,
    stopped_text,
    story_lines,
    tell,
    tell_smallest,
    told_json,
    verdict_text,
)
from interpreters.simulation.faults import ALL_FAULTS, Schedule, parse_faults, parse_schedule
from interpreters.simulation.parallel import working
from interpreters.simulation.sabotages import SABOTAGES
from interpreters.simulation.scenarios import Shape
from interpreters.telemetry import stderr_is_terminal

DEFAULT_SEEDS = 10_000
EXIT_BROKEN = 1
EXIT_STOPPED = 130

T = TypeVar("T")


def list_all(what: str) -> None:
    """Print all faults, promises or sabotages."""
    say(list_text(what))


def simulate_runs(*, jobs: int | None, only: str | None, as_json: bool, **flags: Any) -> NoReturn:
    """Do what the flags say, and exit."""
    wanted, schedule = _read(only=only, **flags)
    if schedule is not None:
        _repeat(wanted, schedule, as_json=as_json)
    result = _run(wanted, jobs or _cores())
    failures = result.tally.failures
    told = tell_smallest(wanted, failures[0]) if failures else None
    say(json.dumps(result_json(result, told), ensure_ascii=False) if as_json else _text(result, told))
    sys.exit(EXIT_BROKEN if failures else 0)


def _read(
    *,
    first: int | None,
    seeds: int | None,
    faults: str | None,
    shape: Shape | None,
    exhaustive: bool,
    only: str | None,
    sabotage: str | None,
) -> tuple[Wanted, Schedule | None]:
    """Return what is wanted, or stop with everything that is wrong."""
    is_one = only is not None
    refusals = {
        ("--seeds, --from", "mean nothing to --exhaustive"): exhaustive and (seeds or first) is not None,
        ("--exhaustive", "is of one step: --steps charts or report"): exhaustive and shape == "flow",
        ("--exhaustive", "with --only needs --steps charts or report"): exhaustive and is_one and shape is None,
        ("--seeds", "can only be 1 with --only"): is_one and seeds not in {None, 1},
        ("--faults", "means nothing to --only, which names its own"): is_one and faults is not None,
        ("--sabotage", f"there is no {sabotage}; there are: {', '.join(SABOTAGES)}"): (
            sabotage is not None and sabotage not in SABOTAGES
        ),
    }
    problems = [Problem(*words) for words, is_wrong in refusals.items() if is_wrong]
    names = None if faults is None else [one.strip() for one in faults.split(",")]
    allowed = _checked("--faults", parse_faults, names, problems)
    schedule = _checked("--only", parse_schedule, "" if only == NO_FAULTS else only, problems)
    if problems:
        raise WrongCall(tuple(problems))
    broken = SABOTAGES[sabotage] if sabotage else None
    first = first or 0
    wanted = Wanted(
        seeds=range(first, first + (seeds or (1 if is_one else broken.within if broken else DEFAULT_SEEDS))),
        allowed=allowed or (broken.faults if broken else ALL_FAULTS),
        shape=shape or (broken.shape if broken and not exhaustive else None),
        is_exhaustive=exhaustive,
        sabotage=sabotage,
    )
    return wanted, schedule


def _checked(flag: str, read: Callable[[Any], T], given: object, problems: list[Problem]) -> T | None:
    """Return what was given, None if nothing was; take note of what is wrong with it."""
    try:
        return None if given is None else read(given)
    except ValueError as error:
        problems.append(Problem(flag, str(error)))
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(wanted: Wanted, jobs: int) -> Result:
    """Run everything, up to the first failure; on Ctrl-C say how far it got, and end."""
    chunks = wanted.chunks()
    total = sum(one.size for one in chunks)
    result, started = Result(wanted, min(jobs, len(chunks))), time.monotonic()
    try:
        # The processes are there before the bar is: it has a thread.
        with working(chunks, jobs) as finished:
            shown, show = _bar("parts" if wanted.is_exhaustive else "seeds", total)
            with shown:
                for one in finished:
                    result.add(one)
                    show(result.done)
                    if one.tally.failures:
                        break
    except KeyboardInterrupt:
        result.seconds = time.monotonic() - started
        if result.done:
            say(result_text(result) + "\n")
        say(stopped_text(result, total))
        sys.exit(EXIT_STOPPED)
    result.seconds = time.monotonic() - started
    return result


def _bar(what: str, total: int) -> tuple[AbstractContextManager[Any], Callable[[int], None]]:
    return bar(CONSOLE, what, total) if stderr_is_terminal() else (nullcontext(), lambda _: None)


def _text(result: Result, told: Told | None) -> str:
    ending = verdict_text(result) if told is None else failure_text(result.wanted, told, is_whole=False)
    return f"{result_text(result)}\n\n{ending}"


def _repeat(wanted: Wanted, schedule: Schedule, *, as_json: bool) -> NoReturn:
    """Run once, tell the story, and end."""
    told = tell(wanted, schedule, 0 if wanted.is_exhaustive else wanted.seeds[0], wanted.choices())
    if as_json:
        say(json.dumps(told_json(wanted, told), ensure_ascii=False))
    else:
        say(failure_text(wanted, told, is_whole=True) if told.failure else "\n".join(story_lines(told)))
    sys.exit(EXIT_BROKEN if told.failure else 0)
