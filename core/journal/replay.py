"""A program run against its journal: where, if anywhere, today's code would decide differently.

Owns the following of a journal: every outcome is fed to the program in the order it came, and what the program begins after it is compared with
what it began then. A difference does not end that; the journal is followed as far as the program can be made to. A decision that rests on a text which the
journal does not hold is not called different. Pure: nothing is performed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from core.journal.comparing import differences, shown
from core.journal.kinds import Kind
from core.journal.lines import WITH_TEXTS, as_read, encoded_result
from core.journal.reading import Aborted, Begun, Done, Ended, JournalledRun
from core.program import Next
from effects import Blob, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What the program did then, and what it does now."""

    line: int
    what: str
    """The effect and its field, or the reaction."""
    was: str
    now: str
    is_certain: bool
    """It cannot come of a text that the journal does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """An outcome whose text the journal does not hold: what was made of it cannot be checked."""

    line: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay."""

    run: JournalledRun
    decisions: int = 0
    """How many reactions of the program were looked at."""
    doubts: tuple[Doubt, ...] = ()
    found: tuple[Difference, ...] = ()
    """Everything that is not as it was, certain or not."""
    stopped: int | None = None
    """The line that the program could not be made to follow; nothing was looked at after it."""

    @property
    def certain(self) -> tuple[Difference, ...]:
        """Return what differs for certain."""
        return tuple(one for one in self.found if one.is_certain)

    @property
    def uncertain(self) -> tuple[Difference, ...]:
        """Return what differs, and may do so for want of a text."""
        return tuple(one for one in self.found if not one.is_certain)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Something that the program reacts to, and what it began then."""

    cause: Done | Aborted | None
    """None is the start."""
    line: int
    begun: tuple[Begun, ...] = ()


@dataclass(frozen=True, slots=True)
class _Broke:
    """The program broke."""

    error_type: str


def replay(run: JournalledRun, kind: Kind[Any, Any] | None = None) -> Replayed:
    """Return where the program, or another of this kind, decides differently from the journal."""
    kind = kind or run.kind
    turns = _turns(run)
    replayed, state = Replayed(run=run), None
    for turn, following in zip(turns, (*turns[1:], None), strict=True):
        came = _react(kind, state, run.inputs, turn)
        replayed = _doubting(replayed, turn)
        replayed = replace(replayed, decisions=replayed.decisions + 1)
        broke = _break_after(turn, following)
        if broke is not None:
            replayed, counts = _compare_break(replayed, turn, came, broke)
        elif isinstance(came, _Broke):
            return replace(_broken(replayed, turn, came), stopped=turn.line)
        else:
            replayed, counts = _compare(replayed, turn, came, is_end=following is None and run.is_cut), True
        state = came.state if counts and isinstance(came, Next) else state
    return replayed if run.is_cut else _compare_result(replayed, kind, state)


def _turns(run: JournalledRun) -> tuple[_Turn, ...]:
    turns = [_Turn(None, run.line)]
    for entry in run.entries:
        if isinstance(entry, Begun):
            turns[-1] = replace(turns[-1], begun=(*turns[-1].begun, entry))
        elif not isinstance(entry, Ended):
            turns.append(_Turn(entry, entry.line))
    return tuple(turns)


def _react(kind: Kind[Any, Any], state: Any, inputs: Any, turn: _Turn) -> Next[Any] | _Broke:
    program, cause = kind.program, turn.cause
    try:
        if cause is None:
            return program.start(inputs)
        if isinstance(cause, Done):
            return program.react(state, cause.outcome)
        return program.abort(state, cause.error_type)
    except Exception as error:  # noqa: BLE001 - a program that breaks is what a replay may find
        return _Broke(type(error).__name__)


def _doubting(replayed: Replayed, turn: _Turn) -> Replayed:
    """Return the replay with a doubt, where the outcome came without its text."""
    if not isinstance(turn.cause, Done) or not _lacks_text(turn.cause.outcome):
        return replayed
    doubt = Doubt(line=turn.line, outcome=type(turn.cause.outcome).__name__)
    return replace(replayed, doubts=(*replayed.doubts, doubt))


def _lacks_text(outcome: Outcome) -> bool:
    values = (getattr(outcome, one.name) for one in fields(outcome))
    return any(isinstance(one, Blob) and one.data is None for one in values)


# A program that broke then.


def _break_after(turn: _Turn, following: _Turn | None) -> str | None:
    """Return the exception that then came of the reaction, or of what interrupted it; None where there was none."""
    is_broken = following is not None and isinstance(following.cause, Aborted) and not turn.begun
    return following.cause.error_type if is_broken else None  # type: ignore[union-attr]


def _compare_break(replayed: Replayed, turn: _Turn, came: Next[Any] | _Broke, broke: str) -> tuple[Replayed, bool]:
    """Return the replay, and whether the reaction counts.

    It does where it begins nothing: the program was interrupted while it waited. One that was interrupted before it was told of the outcome looks
    like one that broke, so an interruption is no difference.
    """
    if isinstance(came, Next) and not came.effects:
        return replayed, True
    if broke == "KeyboardInterrupt" or came == _Broke(broke):
        return replayed, False
    return _with(replayed, turn.line, _what(turn), _says(_Broke(broke)), _says(came)), False


def _broken(replayed: Replayed, turn: _Turn, came: _Broke) -> Replayed:
    began = _listed([str(one.effect["effect"]) for one in turn.begun])
    return _with(replayed, turn.line, _what(turn), began, _says(came))


# What begins.


def _compare(replayed: Replayed, turn: _Turn, came: Next[Any], *, is_end: bool) -> Replayed:
    """Return the replay with all differences between what began then and what begins now; a journal that is cut may lack some of it."""
    now = [as_read(WITH_TEXTS.effect(effect)) for effect in came.effects]
    then = list(turn.begun)
    for one in turn.begun:
        same = next((i for i, effect in enumerate(now) if not differences(one.effect, effect)), None)
        if same is not None:
            now.pop(same)
            then.remove(one)
    for one in then:
        alike = next((i for i, effect in enumerate(now) if effect["effect"] == one.effect["effect"]), None)
        replayed = _with_fields(replayed, one, None if alike is None else now.pop(alike))
    for effect in () if is_end else now:
        replayed = _with(replayed, turn.line, _what(turn), f"no {effect['effect']}", shown(effect))
    return replayed


def _with_fields(replayed: Replayed, one: Begun, now: Mapping[str, Any] | None) -> Replayed:
    name = f"{one.effect['effect']}, effect {one.number}"
    if now is None:
        return _with(replayed, one.line, name, shown(one.effect), "does not begin")
    for found in differences(one.effect, now):
        replayed = _with(replayed, one.line, f"{name}: {found.path}", found.was, found.now)
    return replayed


def _compare_result(replayed: Replayed, kind: Kind[Any, Any], state: Any) -> Replayed:
    *_, end = replayed.run.entries
    assert isinstance(end, Ended)
    for found in differences({"result": end.result}, {"result": as_read(encoded_result(kind, state))}):
        replayed = _with(replayed, end.line, found.path, found.was, found.now)
    return replayed


def _with(replayed: Replayed, line: int, what: str, was: str, now: str) -> Replayed:
    difference = Difference(line=line, what=what, was=was, now=now, is_certain=not replayed.doubts)
    return replace(replayed, found=(*replayed.found, difference))


# Words.


def _what(turn: _Turn) -> str:
    cause = turn.cause
    if cause is None:
        return "at the start"
    if isinstance(cause, Done):
        return f"after {type(cause.outcome).__name__} of effect {cause.number}"
    return f"after the abort ({cause.error_type})"


def _says(came: Next[Any] | _Broke) -> str:
    if isinstance(came, _Broke):
        return f"breaks with {came.error_type}"
    return _listed([type(one).__name__ for one in came.effects])


def _listed(names: Sequence[str]) -> str:
    return f"begins {', '.join(names)}" if names else "begins nothing"
