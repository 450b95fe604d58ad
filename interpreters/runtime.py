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


class Run(Generic[InputsT, StateT]):
    """One run of a program."""

    def __init__(
        self,
        program: Program[InputsT, StateT],
        perform: Perform,
        pool: Pool,
        watchers: Iterable[Watcher] = (),
    ) -> None:
        """Prepare a run; nothing begins before `to_end`."""
        self._program = program
        self._perform = perform
        self._pool = pool
        self._watchers = list(watchers)
        self._in_flight: dict[int, Effect] = {}
        self._timers: list[tuple[datetime, int, Wait]] = []
        self._timers_set = 0

    def to_end(self, inputs: InputsT) -> StateT:
        """Run the program until nothing is left and nothing in flight; return its last state."""
        following = self._program.start(inputs)
        while True:
            try:
                self._begin(following)
                if not self._in_flight and not self._timers:
                    return following.state
                following = self._program.react(following.state, self._take())
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a broken program still ends its step
                following = self._abort(following.state, type(error).__name__)

    def _abort(self, state: StateT, error_type: str) -> Next[StateT]:
        """Wait no more for what is in flight; only what the program still wants done is done."""
        self._in_flight.clear()
        self._timers.clear()
        return self._program.abort(state, error_type)

    def _begin(self, following: Next[StateT]) -> None:
        for effect in following.effects:
            if isinstance(effect, Wait):
                self._timers_set += 1
                heappush(self._timers, (effect.until, self._timers_set, effect))
            else:
                self._in_flight[id(effect)] = effect
                self._pool.submit(effect)
        for effect in following.effects:
            self._tell("begun", effect)

    def _take(self) -> Outcome:
        done = self._pool.next(self._timers[0][0] if self._timers else None)
        if done is None:
            effect: Effect = heappop(self._timers)[2]
            outcome = self._perform(effect)
        else:
            effect, outcome = done
            self._in_flight.pop(id(effect), None)
        self._tell("done", effect, outcome)
        return outcome

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
        return Run(program, perform, pool, watchers).to_end(inputs)
    finally:
        pool.close()
