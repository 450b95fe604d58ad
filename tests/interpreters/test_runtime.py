from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from core.program import Next, Program
from effects import (
    AccountSetAside,
    Effect,
    Outcome,
    SetAccountAside,
    Wait,
    Waited,
)
from interpreters.clock import SystemClock
from interpreters.runtime import Run, ThreadPool

CLOCK = SystemClock()


def work(name: str) -> SetAccountAside:
    return SetAccountAside(account_id=name, reason="test")


def perform(effect: Effect) -> Outcome:
    if isinstance(effect, Wait):
        return Waited(reason=effect.reason, chart_template_id=effect.chart_template_id, at=CLOCK.now())
    assert isinstance(effect, SetAccountAside)
    if effect.account_id.startswith("slow"):
        time.sleep(0.2)
    return AccountSetAside(account_id=effect.account_id, at=CLOCK.now())


@dataclass
class Script:
    """Begins with some effects and follows with others; may break on an outcome."""

    first: tuple[Effect, ...]
    following: dict[str, tuple[Effect, ...]]
    breaks_on: str = ""
    last: tuple[Effect, ...] = ()

    def program(self) -> Program[None, list[str]]:
        return Program(start=self.start, react=self.react, abort=self.abort)

    def start(self, inputs: None) -> Next[list[str]]:
        return Next([], self.first)

    def react(self, state: list[str], outcome: Outcome) -> Next[list[str]]:
        name = outcome.account_id if isinstance(outcome, AccountSetAside) else type(outcome).__name__
        if name == self.breaks_on:
            raise KeyboardInterrupt if name == "interrupt" else ZeroDivisionError
        return Next([*state, name], self.following.get(name, ()))

    def abort(self, state: list[str], error_type: str) -> Next[list[str]]:
        return Next([*state, error_type], self.last)


class Notes:
    def __init__(self) -> None:
        self.begun_effects: list[Effect] = []
        self.outcomes: list[Outcome] = []

    def begun(self, effect: Effect) -> None:
        self.begun_effects.append(effect)

    def done(self, effect: Effect, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def run(program: Script, places: int = 2, notes: Notes | None = None) -> list[str]:
    pool = ThreadPool(perform, CLOCK, places)
    try:
        return Run(program.program(), perform, pool, [notes] if notes else []).to_end(None)
    finally:
        pool.close()


def soon(seconds: float) -> Wait:
    return Wait(until=CLOCK.now() + timedelta(seconds=seconds), reason="backoff", chart_template_id=None)


def test_a_program_without_effects_is_over_at_once() -> None:
    assert run(Script((), {})) == []


def test_outcomes_are_fed_back_until_nothing_is_left() -> None:
    notes = Notes()
    program = Script((work("a"), work("b")), {"a": (work("c"),), "c": (soon(0.01),)})
    assert sorted(run(program, notes=notes)) == ["Waited", "a", "b", "c"]
    assert len(notes.begun_effects) == len(notes.outcomes) == 4


def test_effects_run_side_by_side_up_to_the_places() -> None:
    started = time.monotonic()
    run(Script(tuple(work(f"slow{i}") for i in range(4)), {}), places=4)
    assert time.monotonic() - started < 0.7
    threads = [one for one in threading.enumerate() if one.daemon and "_work" in one.name]
    assert len(threads) <= 8


def test_no_more_effects_run_at_once_than_there_are_places() -> None:
    running: list[int] = []
    most: list[int] = []

    def counted(effect: Effect) -> Outcome:
        running.append(1)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()
        return AccountSetAside(account_id="x", at=CLOCK.now())

    pool = ThreadPool(counted, CLOCK, 3)
    Run(Script(tuple(work(str(i)) for i in range(12)), {}).program(), counted, pool).to_end(None)
    pool.close()
    assert max(most) <= 3


def test_a_wait_holds_no_place_in_the_pool() -> None:
    program = Script((*(soon(0.3) for _ in range(20)), work("a")), {})
    names = run(program, places=1)
    assert names[0] == "a"
    assert names.count("Waited") == 20


def test_waits_end_in_the_order_of_their_moments() -> None:
    late, early = soon(0.2), replace(soon(0.05), reason="slot")
    notes = Notes()
    run(Script((late, early), {}), notes=notes)
    assert [outcome.reason for outcome in notes.outcomes if isinstance(outcome, Waited)] == ["slot", "backoff"]


def test_a_program_that_breaks_is_aborted_and_what_it_still_wants_is_done() -> None:
    program = Script((work("a"), work("slow")), {}, breaks_on="a", last=(work("finalize"),))
    started = time.monotonic()
    assert run(program) == ["ZeroDivisionError", "finalize"]
    assert time.monotonic() - started < 0.19


def test_a_person_s_interrupt_aborts_the_program_too() -> None:
    program = Script((work("interrupt"), soon(30)), {}, breaks_on="interrupt", last=(work("finalize"),))
    assert run(program) == ["KeyboardInterrupt", "finalize"]


def test_an_interrupt_that_does_not_wake_the_wait_ends_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that comes just before a wait does not wake it; nor does one that another thread is given."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interpreters.runtime._LONGEST_WAIT_SECONDS", 0.1)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        pool = ThreadPool(perform, CLOCK, 1)
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            pool.next(None)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_watcher_that_breaks_is_told_no_more_and_the_work_goes_on() -> None:
    class Broken(Notes):
        def done(self, effect: Effect, outcome: Outcome) -> None:
            super().done(effect, outcome)
            raise OSError

    notes, broken = Notes(), Broken()
    script = Script((work("a"),), {"a": (work("b"),)})
    pool = ThreadPool(perform, CLOCK, 1)
    assert Run(script.program(), perform, pool, [broken, notes]).to_end(None) == ["a", "b"]
    pool.close()
    assert (len(broken.outcomes), len(notes.outcomes)) == (1, 2)


def test_a_timer_in_the_past_is_due_at_once() -> None:
    assert run(Script((soon(-5),), {})) == ["Waited"]


@pytest.mark.parametrize("ahead", [None, timedelta(seconds=30)])
def test_the_next_outcome_comes_before_any_later_moment(ahead: timedelta | None) -> None:
    pool = ThreadPool(perform, CLOCK, 1)
    pool.submit(work("a"))
    assert pool.next(ahead and CLOCK.now() + ahead) is not None
    pool.close()
