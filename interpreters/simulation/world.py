"""The simulated world: one queue of what happens next, one clock, one thread.

Owns the order of events, the delivery of changes, and the reaper's schedule. Must not know what must hold: `invariants` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any

from core.events import LogEvent
from core.flow.status import ENDED_RUNS
from effects import Document, Effect
from interpreters.runtime import Perform
from interpreters.simulation.cast import PRODUCTION, Cast, ExchangedRules
from interpreters.simulation.chance import choose, draw
from interpreters.simulation.faults import EVENT_FAULTS, Fault, Faults, Point
from interpreters.simulation.invariants import Invariants, Violation
from interpreters.simulation.processes import Active, Process, asks_for, reap
from interpreters.simulation.providers import SECOND, ChartProvider, ModelProvider
from interpreters.simulation.scenarios import INVOCATION_SECONDS, KINDS, LEASE_SECONDS, RUN_PATH, Kind, Scenario
from interpreters.simulation.stores import SimulatedDocuments, SimulatedLibrary, SimulatedObjects

REAP_EVERY = 60 * SECOND
HORIZON = 2 * 3600 * SECOND
"""When a run must have ended, whatever went wrong at its beginning."""
LOGGED = 16
"""One run in so many writes its log."""
WORKERS = 2
"""Processes of a kind."""
_DAY = 86_400 * SECOND
_BUS = 63
"""The bus's number, where the processes have theirs."""
_EVENT_TAKES = 150_000
_RETOLD_AFTER = 10 * SECOND
_MOST_TELLINGS = 8


_PAST_BUDGET = {Fault.SENT_PAST_BUDGET, Fault.ANSWERED_PAST_BUDGET}
_PAST_LEASE = {Fault.SENT_PAST_LEASE, Fault.ANSWERED_PAST_LEASE}
_PAST_MIDNIGHT = {Fault.SENT_PAST_MIDNIGHT, Fault.ANSWERED_PAST_MIDNIGHT}


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A change of the flow_run, on its way to a kind of worker."""

    kind: Kind
    flow_run: Document
    tellings: int = 0


class LogLines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        """Begin with none."""
        self.lines: list[str] = []

    def write(self, event: LogEvent) -> None:
        """Keep one entry."""
        self.lines.append(f"{event.event} {event.message} {json.dumps(event.fields, default=str)}")


class World:
    """One run of everything."""

    def __init__(
        self,
        scenario: Scenario,
        faults: Faults,
        seed: int = 0,
        cast: Cast = PRODUCTION,
        trace: Callable[[int, Active | None, Any, Any, Fault | None], None] | None = None,
    ) -> None:
        """Prepare; nothing happens before `run`."""
        self.scenario = scenario
        self.cast = cast
        self.now = 0
        """Microseconds since the start."""
        self.effects = 0
        self.happened: dict[Point, Fault] = {}
        self.fault: Fault | None = None
        """What goes wrong with the effect that is being performed."""
        self.acting: Active
        self.effect: Effect
        """The effect that is being performed, and whose it is."""
        self.log = LogLines() if seed % LOGGED == 1 else None
        self._seed = seed
        self._faults = faults
        self._trace = trace
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._events = count()
        self._reapings = 0
        self._processes: dict[str, Process] = {}
        self.documents = SimulatedDocuments(self, dict(scenario.documents))
        self.objects = SimulatedObjects(self, dict(scenario.objects))
        self.chart_provider = ChartProvider(self, scenario.choices)
        self.model_provider = ModelProvider(self)
        self.library = SimulatedLibrary(self)
        self.invariants = Invariants(self)

    def run(self) -> Violation | None:
        """Let everything happen; return the first thing that must not."""
        queue = self._queue
        broken = self.invariants.broken
        self._tell(self.documents.documents[RUN_PATH])
        self.at(REAP_EVERY, self._reap)
        while queue and not broken:
            self.now, _, action, words = heappop(queue)
            action(*words)
        if not broken:
            self.invariants.at_the_end()
        return broken[0] if broken else None

    @property
    def run_status(self) -> str:
        """Return the status of the flow_run."""
        return str(self.documents.documents[RUN_PATH]["status"])

    # Time.

    def at(self, ticks: int, action: Callable[..., None], *words: Any) -> None:
        """Let something happen then."""
        heappush(self._queue, (ticks, next(self._numbers), action, words))

    def moment(self, ticks: int) -> datetime:
        """Return the moment, so many microseconds after the start."""
        return self.scenario.start + timedelta(microseconds=ticks)

    def ticks(self, moment: datetime) -> int:
        """Return how many microseconds after the start the moment is."""
        after = moment - self.scenario.start
        return (after.days * 86_400 + after.seconds) * SECOND + after.microseconds

    def delay(self, fault: Fault, bits: int) -> int:
        """Return how long the fault holds an effect up; past the lease means: just after the reaper took the step back."""
        few = choose(bits >> 40, 3 * SECOND)
        if fault in _PAST_LEASE:
            reaped = (self.now + LEASE_SECONDS * SECOND) // REAP_EVERY + 1
            return reaped * REAP_EVERY - self.now + few
        if fault in _PAST_MIDNIGHT:
            return _DAY - self._since_midnight() % _DAY + few
        return few + (INVOCATION_SECONDS * SECOND if fault in _PAST_BUDGET else 2 * SECOND)

    def _since_midnight(self) -> int:
        start = self.scenario.start
        return ((start.hour * 60 + start.minute) * 60 + start.second) * SECOND + self.now

    def day_of_call(self) -> int:
        """Return the day a call counts in; one that arrives at midnight counts in the caller's day, for its clock may be off."""
        skew = self.acting.process.skew
        return (self._since_midnight() + skew) // _DAY

    @property
    def has_skew(self) -> bool:
        """Return whether the clocks of the processes differ."""
        return any(one.skew for one in self._processes.values())

    # Faults.

    def fault_at(
        self, actor: str, index: int, number: int, candidates: tuple[Fault, ...]
    ) -> tuple[Fault | None, int]:
        """Return what goes wrong at this point, and the bits drawn for it."""
        bits = draw(self._seed, index, number)
        fault = self._faults.at(actor, number, bits, candidates)
        if fault is not None:
            self.happened[Point(actor, number)] = fault
        return fault, bits

    def note(self, active: Active | None, effect: Any, outcome: Any, fault: Fault | None) -> None:
        """Take note of what happened, where somebody reads it."""
        if self._trace is not None:
            self._trace(self.now, active, effect, outcome, fault)

    # Processes.

    def performer(self, process: Process) -> Perform:
        """Return how a process performs effects: by the performers of production, on ports of this world."""
        cast, scenario = self.cast, self.scenario
        secrets = (
            (*(one.api_key for one in scenario.charts.accounts), scenario.reports.api_key)
            if cast.hides_keys
            else ()
        )
        interpreter = ExchangedRules(
            documents=self.documents,
            objects=self.objects,
            templates=self.library,
            registry=self.library,
            chart_api=self.chart_provider,
            model=self.model_provider,
            clock=process,
            accounts_aside=process.aside,
            secrets=tuple(one for one in secrets if one is not None),
            rules=cast.rules,
        )
        return interpreter.perform if cast.around is None else cast.around(interpreter.perform)

    def _process(self, kind: Kind, number: int) -> Process:
        name = f"{kind}-{number + 1}"
        if name not in self._processes:
            self._processes[name] = Process(self, kind, name, KINDS.index(kind) * WORKERS + number)
        return self._processes[name]

    def ended(self, active: Active) -> None:
        """Take note that a run is over; where nothing was claimed and trying again can help, its event comes again."""
        self.invariants.ended(active)
        if active.delivery is not None and _wants_redelivery(active.run.state):
            self.redeliver(active.delivery, self.now)

    # Events.

    def committed(self, path: str, before: Document | None, after: Document) -> None:
        """Tell of a change."""
        self.invariants.committed(path, before, after)
        if path == RUN_PATH:
            self._tell(after)

    def _tell(self, flow_run: Document) -> None:
        for kind in self.scenario.kinds:
            number = next(self._events)
            fault, bits = self.fault_at("bus", _BUS, number, EVENT_FAULTS)
            delivery, to = Delivery(kind, flow_run), bits >> 62 & 1
            takes = choose(bits >> 32, _EVENT_TAKES)
            if fault is not None:
                self.note(None, f"change {number} to {kind}", "", fault)
            if fault is Fault.EVENT_LOST:
                continue
            if fault is Fault.EVENT_LATE:
                takes += 200 * SECOND
            self.at(self.now + takes, self._deliver, delivery, to)
            if fault is Fault.EVENT_DOUBLED:
                self.at(self.now + choose(bits >> 48, _EVENT_TAKES), self._deliver, delivery, 1 - to)

    def _deliver(self, delivery: Delivery, to: int) -> None:
        if asks_for(delivery.kind, delivery.flow_run):
            self._process(delivery.kind, to).handle(delivery)

    def redeliver(self, delivery: Delivery, now: int) -> None:
        """Tell again of a change that nobody has settled."""
        tellings = delivery.tellings + 1
        if tellings < _MOST_TELLINGS:
            again = Delivery(delivery.kind, delivery.flow_run, tellings)
            self.at(now + _RETOLD_AFTER * tellings, self._deliver, again, tellings & 1)

    def _reap(self) -> None:
        if self.documents.documents[RUN_PATH]["status"] in ENDED_RUNS:
            return
        if self.now > HORIZON:
            self.invariants.never_ended()
            return
        reap(self._process("orchestrator", self._reapings & 1))
        self._reapings += 1
        self.at(self.now + REAP_EVERY, self._reap)


def _wants_redelivery(state: Any) -> bool:
    """Return whether the service would answer 503."""
    result = getattr(state, "result", None)
    if result is None:
        return bool(getattr(state, "is_claim_unknown", False))
    return bool(getattr(result, "is_claim_unknown", False)) or (
        not hasattr(result, "is_claim_unknown") and result.status == "FAILED"
    )
