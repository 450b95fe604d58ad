"""The loop that runs a program: begin effects, feed each outcome back, tell the watchers.

Owns timers and the ending of a run. Must not know any program, effect (but `Wait`) or port behind the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heappop, heappush
from math import inf
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, Literal, TypeVar

from core.program import Next, Program
from effects import Effect, Outcome, Wait
from interpreters.ports import Clock, Pool, Watcher

StateT = TypeVar("StateT")
InputsT = TypeVar("InputsT")
Perform = Callable[[Effect], Outcome]

_LONGEST_WAIT_SECONDS = 1.0
"""A person's interrupt that comes just before a wait does not wake it: it is noticed between two."""


class ThreadPool:
    """A bounded pool of daemon threads."""

    def __init__(self, perform: Perform, clock: Clock, places: int) -> None:
        """Start with no thread; each effect may start one, up to the number of places."""
        self._perform = perform
        self._clock = clock
        self._places = places
        self._threads = 0
        self._busy = 0
        self._begun: SimpleQueue[Effect | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Effect, Outcome]] = SimpleQueue()

    def submit(self, effect: Effect) -> None:
        """Begin an effect, or queue it while all places are taken."""
        self._busy += 1
        if self._busy > self._threads < self._places:
            self._threads += 1
            Thread(target=self._work, daemon=True).start()
        self._begun.put(effect)

    def next(self, until: datetime | None) -> tuple[Effect, Outcome] | None:
        """Return the next outcome, or None when the moment has come first."""
        left = inf if until is None else max(0.0, (until - self._clock.now()).total_seconds())
        while True:
            some = min(left, _LONGEST_WAIT_SECONDS)
            try:
                done = self._done.get(timeout=some)
            except Empty:
                left -= some
                if left <= 0:
                    return None
            else:
                self._busy -= 1
                return done

    def close(self) -> None:
        """Let the threads end once they have nothing to do."""
        for _ in range(self._threads):
            self._begun.put(None)

    def _work(self) -> None:
        while (effect := self._begun.get()) is not None:
            self._done.put((effect, self._perform(effect)))
            del effect  # a thread that waits for the next one holds no picture


class Run(Generic[InputsT, StateT]):
    """One run of a program: whoever performs its effects hands each outcome back, until it is over."""

    def __init__(
        self,
        program: Program[InputsT, StateT],
        perform: Perform,
        begin: Callable[[Effect], None],
        watchers: Iterable[Watcher] = (),
    ) -> None:
        """Prepare a run; `begin` is told each effect that is to be performed, but waits, which are timers here."""
        self._program = program
        self._perform = perform
        self._begin = begin
        self._watchers = list(watchers)
        self._in_flight: dict[int, Effect] = {}
        self._timers: list[tuple[datetime, int, Wait]] = []
        self._timers_set = 0
        self._state: StateT | None = None

    @property
    def state(self) -> StateT:
        """Return where the program stands."""
        assert self._state is not None
        return self._state

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do and nothing in flight."""
        return not self._in_flight and not self._timers

    @property
    def wakes_at(self) -> datetime | None:
        """Return when the first timer is due, None where there is none."""
        return self._timers[0][0] if self._timers else None

    def start(self, inputs: InputsT) -> None:
        """Begin the program."""
        self._go_on(self._program.start(inputs))

    def take(self, effect: Effect, outcome: Outcome) -> None:
        """Hand an outcome to the program, and begin what comes of it; a program that breaks still ends its step."""
        self._in_flight.pop(id(effect), None)
        self._tell("done", effect, outcome)
        try:
            following = self._program.react(self.state, outcome)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - see above
            self.abort(error)
        else:
            self._go_on(following)

    def wake(self) -> None:
        """End the first wait."""
        effect = heappop(self._timers)[2]
        self.take(effect, self._perform(effect))

    def abort(self, error: BaseException) -> None:
        """Wait no more for what is in flight; only what the program still wants done is done."""
        self._in_flight.clear()
        self._timers.clear()
        self._go_on(self._program.abort(self.state, type(error).__name__))

    def _go_on(self, following: Next[StateT]) -> None:
        self._state = following.state
        try:
            self._begin_all(following.effects)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what cannot even begin breaks the program too
            self.abort(error)

    def _begin_all(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, Wait):
                self._timers_set += 1
                heappush(self._timers, (effect.until, self._timers_set, effect))
            else:
                self._in_flight[id(effect)] = effect
                self._begin(effect)
        if self._watchers:
            for effect in effects:
                self._tell("begun", effect)

    def _tell(self, what: Literal["begun", "done"], *words: Effect | Outcome) -> None:
        """Tell every watcher; one that breaks is told no more, and the work goes on."""
        for watcher in tuple(self._watchers):
            try:
                getattr(watcher, what)(*words)
            except Exception:  # noqa: BLE001 - a terminal that is gone, a disk that is full
                self._watchers.remove(watcher)


def run_to_end(
    program: Program[InputsT, StateT],
    inputs: InputsT,
    perform: Perform,
    clock: Clock,
    places: int,
    watchers: Iterable[Watcher] = (),
) -> StateT:
    """Run a program in a pool of its own; return its last state."""
    pool = ThreadPool(perform, clock, places)
    try:
        return drive(Run(program, perform, pool.submit, watchers), inputs, pool)
    finally:
        pool.close()


def drive(run: Run[InputsT, StateT], inputs: InputsT, pool: Pool) -> StateT:
    """Run a program until it is over, with what the pool performs; return its last state."""
    run.start(inputs)
    while not run.is_over:
        try:
            done = pool.next(run.wakes_at)
            if done is None:
                run.wake()
            else:
                run.take(*done)
                del done  # nor does the loop
        except KeyboardInterrupt as error:
            run.abort(error)
    return run.state
