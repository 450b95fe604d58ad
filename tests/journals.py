"""Journals that tests start from: written by the very watcher that real runs have, of programs driven by whoever answers their effects."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from core.journal.kinds import Kind
from core.journal.reading import JournalledRun, read_journal
from core.journal.replay import Replayed, replay
from core.program import Next
from effects import Effect, Outcome
from interpreters.clock import SystemClock
from interpreters.journal import Journal, Journals
from interpreters.telemetry import JsonLog
from tests.builders import NOW
from tests.world import VirtualWorld

MOST_OUTCOMES = 2_000


@dataclass
class Lines:
    """A sink that holds its lines."""

    lines: list[str] = field(default_factory=list)

    def write(self, line: str) -> None:
        self.lines.append(line)

    def close(self) -> None:
        """Hold them still."""

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def a_journal(kind: Kind[Any, Any], inputs: Any, lines: Lines, *, texts: bool = False) -> Journal:
    clock = SystemClock()
    return Journals(lambda _: lines, texts=texts).of(kind, inputs, JsonLog(io.StringIO(), clock), clock)


def journal_of(world: VirtualWorld[Any], kind: Kind[Any, Any], *, texts: bool = False) -> str:
    """Return the journal of a run in a virtual world."""
    lines = Lines()
    journal = a_journal(kind, world.inputs, lines, texts=texts)
    for effect, outcome in world.history:
        if outcome is None:
            journal.begun(effect)
        else:
            journal.done(effect, outcome)
    journal.ended(world.state)
    return lines.text


def driven(
    kind: Kind[Any, Any],
    inputs: Any,
    answer: Callable[[Effect, datetime], Outcome],
    pick: Callable[[int], int] = lambda _: 0,
    *,
    break_after: int | None = None,
    texts: bool = False,
) -> str:
    """Return the journal of a run whose effects are answered, and picked, by these functions; it may break after some outcomes."""
    lines = Lines()
    journal = a_journal(kind, inputs, lines, texts=texts)
    following = kind.program.start(inputs)
    in_flight: list[Effect] = []
    for number in range(MOST_OUTCOMES):
        in_flight += following.effects
        for effect in following.effects:
            journal.begun(effect)
        if number == break_after:
            in_flight.clear()
            journal.aborted("ZeroDivisionError")
            following = kind.program.abort(following.state, "ZeroDivisionError")
            continue
        if not in_flight:
            journal.ended(following.state)
            return lines.text
        effect = in_flight.pop(pick(len(in_flight)))
        outcome = answer(effect, NOW)
        journal.done(effect, outcome)
        following = kind.program.react(following.state, outcome)
    message = "the run does not end"
    raise AssertionError(message)


def runs_of(text: str) -> tuple[JournalledRun, ...]:
    return read_journal(text).unwrap()


def replayed(text: str, kind: Kind[Any, Any] | None = None) -> Replayed:
    """Return the replay of a journal of one run."""
    (run,) = runs_of(text)
    return replay(run, kind)


def changed(kind: Kind[Any, Any], change: Callable[[Effect], Effect | None]) -> Kind[Any, Any]:
    """Return a program that begins other effects, or some of them not at all."""

    def sabotaged(following: Next[Any]) -> Next[Any]:
        return replace(following, effects=tuple(_changed(following.effects, change)))

    program = kind.program
    return replace(
        kind,
        program=replace(
            program,
            start=lambda inputs: sabotaged(program.start(inputs)),
            react=lambda state, outcome: sabotaged(program.react(state, outcome)),
        ),
    )


def _changed(effects: tuple[Effect, ...], change: Callable[[Effect], Effect | None]) -> Iterator[Effect]:
    for effect in effects:
        other = change(effect)
        if other is not None:
            yield other
