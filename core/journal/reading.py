"""A journal read back: its runs, or the line that is wrong and why.

Owns the checks of lines and of their order. A file may end anywhere, for a worker can be killed anywhere: the run is then cut. Must not
know what a program would do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cattrs import transform_error
from returns.result import Result, Success

from core.journal.kinds import KINDS, Kind
from core.journal.lines import FORMAT, WITHOUT_TEXTS
from core.problems import Problems, kind_of, problem
from effects import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An effect began."""

    line: int
    number: int
    effect: Mapping[str, Any]
    """The effect as it is encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An effect had its outcome."""

    line: int
    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The program broke, or was interrupted."""

    line: int
    error_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run ended."""

    line: int
    result: Any


Entry = Begun | Done | Aborted | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledRun:
    """One run as its journal tells it."""

    line: int
    """Where it begins."""
    kind: Kind[Any, Any]
    texts: bool
    inputs: Any
    entries: tuple[Entry, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Return whether its end is missing."""
        return not self.entries or not isinstance(self.entries[-1], Ended)


@dataclass(slots=True)
class _Reading:
    """A run as far as it is read."""

    run: JournalledRun
    entries: list[Entry] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    """Effects that have begun."""
    over: str | None = None
    """What ended it; nothing comes after that."""

    def read(self) -> JournalledRun:
        return replace(self.run, entries=tuple(self.entries))


class _LineError(Exception):
    """A line is wrong."""


_OURS = re.compile(r'\{"run": "([^"]*)"')
_BEGINNING = '{"run": "'


def read_journal(text: str) -> Result[tuple[JournalledRun, ...], Problems]:
    """Return the runs in the order they began, or the first line that is wrong."""
    runs: dict[str, _Reading] = {}
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                _add(runs, number, line)
        except _LineError as error:
            return problem(f"line {number}", str(error))
    found = tuple(one.read() for one in runs.values())
    return Success(found) if found else problem("line 1", "there is no run in this file")


def _add(runs: dict[str, _Reading], number: int, line: str) -> None:
    """Add what a line says to its run."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        _tear(runs, number, line, str(error))
        return
    run = said.get("run") if isinstance(said, dict) else None
    if not isinstance(run, str):
        message = f"is {kind_of(said)}; must be an object that names its run"
        raise _LineError(message)
    if "journal" in said and run not in runs:
        runs[run] = _Reading(_header(number, said))
        return
    if run not in runs or runs[run].over:
        message = f"comes after {runs[run].over}" if run in runs else f"the first line of run {run} is not here"
        raise _LineError(message)
    runs[run].entries.append(_entry(runs[run], number, said))


def _tear(runs: dict[str, _Reading], number: int, line: str, why: str) -> None:
    """Take a line that was not written to its end for the end of its run."""
    if not line.startswith(_BEGINNING) and not _BEGINNING.startswith(line):
        message = f"is not JSON: {why}"
        raise _LineError(message)
    ours = _OURS.match(line)
    if ours and ours[1] in runs:
        runs[ours[1]].over = f"line {number} of its run, which is not JSON"


def _header(number: int, said: Mapping[str, Any]) -> JournalledRun:
    if said["journal"] != FORMAT:
        message = f"is of a journal of version {said['journal']!r}; this is version {FORMAT} of the format"
        raise _LineError(message)
    kind = KINDS.get(str(said.get("program")))
    if kind is None:
        message = f"is of the program {said.get('program')!r}; known are {', '.join(KINDS)}"
        raise _LineError(message)
    inputs = _decoded(said.get("inputs"), kind.inputs, f"the inputs are not those of {kind.name}")
    return JournalledRun(line=number, kind=kind, texts=said.get("texts") is True, inputs=inputs)


def _entry(run: _Reading, number: int, said: Mapping[str, Any]) -> Entry:
    """Return what the line says, by the first of the words that it has."""
    word = next((one for one in _ENTRIES if one in said), None)
    if word is None:
        message = f"says nothing of {', '.join(_ENTRIES)}"
        raise _LineError(message)
    return _ENTRIES[word](run, number, said)


def _begun(run: _Reading, line: int, said: Mapping[str, Any]) -> Begun:
    effect = said.get("effect")
    if not isinstance(effect, dict) or not isinstance(effect.get("effect"), str):
        message = "has no effect"
        raise _LineError(message)
    number = _number(said["begun"])
    run.numbers.add(number)
    return Begun(line=line, number=number, effect=effect)


def _done(run: _Reading, line: int, said: Mapping[str, Any]) -> Done:
    number = _number(said["done"])
    if number not in run.numbers:
        message = f"is the outcome of effect {number}, which has not begun"
        raise _LineError(message)
    outcome = _decoded(said.get("outcome"), Outcome, "the outcome is not one that is known")
    return Done(line=line, number=number, outcome=outcome)


def _number(value: object) -> int:
    if isinstance(value, int):
        return value
    message = f"numbers its effect with {kind_of(value)}"
    raise _LineError(message)


def _aborted(run: _Reading, line: int, said: Mapping[str, Any]) -> Aborted:
    return Aborted(line=line, error_type=str(said["aborted"]))


def _ended(run: _Reading, line: int, said: Mapping[str, Any]) -> Ended:
    run.over = f"line {line}, the end of its run"
    return Ended(line=line, result=said["ended"])


_ENTRIES: Mapping[str, Callable[[_Reading, int, Mapping[str, Any]], Entry]] = {
    "begun": _begun,
    "done": _done,
    "aborted": _aborted,
    "ended": _ended,
}


def _decoded(encoded: Any, kind: Any, otherwise: str) -> Any:
    try:
        return WITHOUT_TEXTS.decode(encoded, kind)
    except Exception as error:
        message = f"{otherwise}: {'; '.join(transform_error(error))}"
        raise _LineError(message) from error
