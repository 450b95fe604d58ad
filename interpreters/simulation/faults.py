"""What can go wrong, where, and when it does.

Owns the names of faults, which of them can befall which effect, and the two ways to choose them: by a seed, or from a list. Must
not know how a fault is acted out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from effects import (
    AdvanceFlow,
    CallChartApi,
    CallModel,
    ClaimStep,
    ExhaustAccount,
    FinalizeStep,
    FindFlowRuns,
    ListObjects,
    LoadPrompt,
    LoadSchema,
    LoadTemplates,
    PutObject,
    ReadObject,
    ReserveAccount,
    SetAccountAside,
)
from interpreters.simulation.chance import choose, draw


class Fault(Enum):
    """One thing that goes wrong, at one point of a run."""

    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    BROKEN = "broken"
    TRANSIENT = "transient"
    ANSWER_LOST = "answer-lost"
    COMMIT_RETRIED = "commit-retried"
    CONTENTION = "contention"
    SENT_LATE = "sent-late"
    SENT_PAST_BUDGET = "sent-past-budget"
    SENT_PAST_LEASE = "sent-past-lease"
    SENT_PAST_MIDNIGHT = "sent-past-midnight"
    ANSWERED_LATE = "answered-late"
    ANSWERED_PAST_BUDGET = "answered-past-budget"
    ANSWERED_PAST_LEASE = "answered-past-lease"
    ANSWERED_PAST_MIDNIGHT = "answered-past-midnight"
    LIMIT_SAID = "429"
    SERVER_ERROR = "5xx"
    TIMEOUT = "timeout"
    GARBAGE = "garbage"
    KEY_REVOKED = "key-revoked"
    OUTPUT_INVALID = "output-invalid"
    OUTPUT_BLOCKED = "output-blocked"
    EVENT_LOST = "event-lost"
    EVENT_DOUBLED = "event-doubled"
    EVENT_LATE = "event-late"
    CLOCK_FAST = "clock-fast"
    CLOCK_SLOW = "clock-slow"

    __hash__ = object.__hash__


WHAT_IT_IS: Mapping[Fault, str] = {
    Fault.CRASH_BEFORE: "the process dies just before the effect",
    Fault.CRASH_AFTER: "the process dies just after the effect",
    Fault.BROKEN: "the effect ends in an exception nobody foresaw",
    Fault.TRANSIENT: "nothing is done, and an error says so",
    Fault.ANSWER_LOST: "it is done, and an error says it is not",
    Fault.COMMIT_RETRIED: "the commit lands, its answer is lost, the store runs the rule again",
    Fault.CONTENTION: "somebody else commits first; the rule runs again",
    Fault.SENT_LATE: "it is done seconds later",
    Fault.SENT_PAST_BUDGET: "it is done after the time budget",
    Fault.SENT_PAST_LEASE: "it is done after the lease",
    Fault.SENT_PAST_MIDNIGHT: "it is done after midnight, UTC",
    Fault.ANSWERED_LATE: "it is answered seconds later",
    Fault.ANSWERED_PAST_BUDGET: "it is answered after the time budget",
    Fault.ANSWERED_PAST_LEASE: "it is answered after the lease",
    Fault.ANSWERED_PAST_MIDNIGHT: "it is answered after midnight, UTC",
    Fault.LIMIT_SAID: "the provider says that a limit is exceeded",
    Fault.SERVER_ERROR: "the provider fails",
    Fault.TIMEOUT: "the provider does its work, and no answer comes in time",
    Fault.GARBAGE: "the provider answers with something else than asked for",
    Fault.KEY_REVOKED: "the provider takes the key no more, from here on",
    Fault.OUTPUT_INVALID: "the model's output does not match its schema",
    Fault.OUTPUT_BLOCKED: "the model's output is kept back for safety",
    Fault.EVENT_LOST: "an event never comes",
    Fault.EVENT_DOUBLED: "an event comes twice, to two workers",
    Fault.EVENT_LATE: "an event comes minutes later, after others",
    Fault.CLOCK_FAST: "a worker's clock is ahead",
    Fault.CLOCK_SLOW: "a worker's clock is behind",
}

_READ = (
    Fault.CRASH_BEFORE,
    Fault.BROKEN,
    Fault.ANSWERED_LATE,
    Fault.ANSWERED_PAST_BUDGET,
    Fault.ANSWERED_PAST_LEASE,
    Fault.ANSWERED_PAST_MIDNIGHT,
)
"""What changes nothing can as well fail after as before, and be as well answered late as sent late."""
_WRITE = (
    *_READ,
    Fault.CRASH_AFTER,
    Fault.SENT_LATE,
    Fault.SENT_PAST_BUDGET,
    Fault.SENT_PAST_LEASE,
    Fault.SENT_PAST_MIDNIGHT,
)
_COMMIT = (*_WRITE, Fault.ANSWER_LOST, Fault.COMMIT_RETRIED, Fault.CONTENTION)
_SAID = (Fault.TRANSIENT, Fault.LIMIT_SAID, Fault.SERVER_ERROR, Fault.TIMEOUT, Fault.GARBAGE)
_OFTEN = 4
"""What a provider says goes wrong so many times more often than what can go wrong with any effect."""

FAULTS_OF: Mapping[type, tuple[Fault, ...]] = {
    ClaimStep: _COMMIT,
    ReserveAccount: _COMMIT,
    ExhaustAccount: _COMMIT,
    FinalizeStep: _COMMIT,
    AdvanceFlow: _COMMIT,
    FindFlowRuns: _READ,
    LoadTemplates: _READ,
    LoadPrompt: _READ,
    LoadSchema: _READ,
    SetAccountAside: (Fault.CRASH_BEFORE, Fault.CRASH_AFTER),
    PutObject: (*_WRITE, Fault.TRANSIENT, Fault.ANSWER_LOST),
    ListObjects: (*_READ, Fault.TRANSIENT),
    ReadObject: (*_READ, Fault.TRANSIENT),
    CallChartApi: (*_WRITE, *(*_SAID, Fault.KEY_REVOKED) * _OFTEN),
    CallModel: (*_WRITE, *(*_SAID, Fault.OUTPUT_INVALID, Fault.OUTPUT_BLOCKED) * _OFTEN),
}
"""What can befall an effect."""
EVENT_FAULTS = (Fault.EVENT_LOST, Fault.EVENT_DOUBLED, Fault.EVENT_LATE)
CLOCK_FAULTS = (Fault.CLOCK_FAST, Fault.CLOCK_SLOW)


class Point(NamedTuple):
    """A place in a run where something can go wrong: the so-manieth of a process, or of the bus."""

    actor: str
    number: int


Schedule = Mapping[Point, Fault]
"""Faults by the points they happen at."""


class Faults(Protocol):
    """Whoever chooses the faults of one run."""

    def at(self, actor: str, number: int, bits: int, candidates: tuple[Fault, ...]) -> Fault | None:
        """Return what goes wrong at this point, if anything; chance is in the bits."""


@dataclass(slots=True)
class Listed:
    """The faults of a list, and no others; those that never happen are left over."""

    schedule: Schedule

    def at(self, actor: str, number: int, bits: int, candidates: tuple[Fault, ...]) -> Fault | None:  # noqa: ARG002
        """Return the listed fault, if it can happen here."""
        fault = self.schedule.get(Point(actor, number)) if self.schedule else None
        return fault if fault in candidates else None


class Allowed:
    """The faults that may happen."""

    def __init__(self, faults: Collection[Fault]) -> None:
        """Allow these."""
        self.faults = frozenset(faults)
        self._among: dict[tuple[Fault, ...], tuple[Fault, ...]] = {}

    def among(self, candidates: tuple[Fault, ...]) -> tuple[Fault, ...]:
        """Return those of the candidates that may happen."""
        if candidates not in self._among:
            self._among[candidates] = tuple(one for one in candidates if one in self.faults)
        return self._among[candidates]


ALL_FAULTS = Allowed(list(Fault))

RATES = (0, 0x0800, 0x1800, 0x4000)
"""How likely a fault is at a point, of 0x10000: never, 1 in 32, 3 in 32, 1 in 4."""
SELDOM = 2
"""Events and clocks, of which there are many, fail four times less often than effects."""
MOST_FAULTS = 6
"""Then they stop."""


@dataclass(slots=True)
class Seeded:
    """Faults by chance, of those allowed, until there were enough of them."""

    seed: int
    allowed: Allowed
    _rate: int = field(init=False)
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        bits = draw(self.seed, -1, 0)
        self._rate = RATES[bits & 3]
        self._left = 1 + choose(bits >> 16, MOST_FAULTS)

    def at(self, actor: str, number: int, bits: int, candidates: tuple[Fault, ...]) -> Fault | None:  # noqa: ARG002
        """Return what goes wrong at this point, if anything."""
        rate = self._rate >> SELDOM if candidates is EVENT_FAULTS or candidates is CLOCK_FAULTS else self._rate
        if bits & 0xFFFF >= rate or not self._left:
            return None
        possible = self.allowed.among(candidates)
        if not possible:
            return None
        self._left -= 1
        return possible[choose(bits >> 16, len(possible))]


def schedule_text(schedule: Schedule) -> str:
    """Return the schedule as one word that `parse_schedule` reads, e.g. charts-1:3:crash-after,bus:0:event-lost."""
    return ",".join(f"{point.actor}:{point.number}:{fault.value}" for point, fault in schedule.items())


def parse_schedule(text: str) -> dict[Point, Fault]:
    """Return the schedule of a text; raise ValueError that says what is wrong with it."""
    schedule = {}
    for entry in filter(None, text.split(",")):
        match entry.split(":"):
            case [actor, number, name] if number.isdecimal():
                (schedule[Point(actor, int(number))],) = _named([name])
            case _:
                message = f"{entry!r} is not like charts-1:3:crash-after"
                raise ValueError(message)
    return schedule


def parse_faults(names: Collection[str]) -> Allowed:
    """Return the faults of these names; none named means all. Raise ValueError that names what is unknown."""
    return Allowed(_named(names)) if names else ALL_FAULTS


def _named(names: Collection[str]) -> list[Fault]:
    known = {one.value: one for one in Fault}
    unknown = sorted(set(names) - set(known))
    if unknown:
        message = f"there is no fault {', '.join(unknown)}; there are: {', '.join(known)}"
        raise ValueError(message)
    return [known[name] for name in names]
