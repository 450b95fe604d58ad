"""Worker processes: each with its own clock, at work on what events tell it, gone when it crashes.

Owns how the effects of a program take their time, and where faults strike them. The program, the runtime and the performers are
those of production. Must not know what must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from core.charts import events as chart_events
from core.charts.state import chart_inputs
from core.charts.step import STEP_TYPE as CHART_EXPORT
from core.flow.events import given_step_events, orchestrator_events
from core.flow.flow_run import FLOW_RUNS_COLLECTION
from core.flow.given import GivenInputs
from core.flow.orchestrator import AdvanceInputs
from core.flow.reaper import ReapInputs
from core.flow.selection import NothingToDo, select_step
from core.program import Program
from core.reports import events as report_events
from core.reports.selection import select_report
from core.reports.state import ReportInputs
from effects import (
    CallChartApi,
    CallModel,
    Document,
    Effect,
    EffectFailed,
    FinalizeStep,
    Outcome,
    blob,
)
from effects.word import replace
from interpreters.performers import AccountsAside
from interpreters.runtime import Perform, Run
from interpreters.simulation.chance import choose
from interpreters.simulation.faults import CLOCK_FAULTS, FAULTS_OF, Fault
from interpreters.simulation.providers import SECOND
from interpreters.simulation.scenarios import (
    BUCKET,
    CANDLES,
    CANDLES_ID,
    GIVEN_FILE,
    GIVEN_TYPE,
    INVOCATION_SECONDS,
    RUN_PATH,
    Kind,
)
from interpreters.telemetry import LogWatcher

if TYPE_CHECKING:
    from interpreters.simulation.invariants import Invariants
    from interpreters.simulation.world import Delivery, World

SKEW = 2 * SECOND
"""How far a clock that is wrong is off."""
_SENT = {Fault.SENT_LATE, Fault.SENT_PAST_BUDGET, Fault.SENT_PAST_LEASE, Fault.SENT_PAST_MIDNIGHT}
_ANSWERED = {
    Fault.ANSWERED_LATE,
    Fault.ANSWERED_PAST_BUDGET,
    Fault.ANSWERED_PAST_LEASE,
    Fault.ANSWERED_PAST_MIDNIGHT,
}
_RAISING = {Fault.BROKEN, Fault.ANSWER_LOST}
"""Faults that are exceptions; no other effect may end in one."""
_LATENCY = {CallChartApi: 600_000, CallModel: 3 * SECOND}
_SOON = 40_000
"""Most of what an effect takes to be done, in microseconds; a call's answer takes longer."""


class Process:
    """One process."""

    def __init__(self, world: World, kind: Kind, name: str, index: int) -> None:
        """Start; nothing is done before an event comes."""
        self.world = world
        self.kind = kind
        self.name = name
        self.index = index
        self.points = 0
        self.tokens = 0
        self.skew = self._skew()
        self._read_at, self._reading = world.now, world.moment(world.now + self.skew)
        self.restart()

    def _skew(self) -> int:
        fault = self.world.fault_at(self.name, self.index, self.next_point(), CLOCK_FAULTS)[0]
        return SKEW if fault is Fault.CLOCK_FAST else -SKEW if fault is Fault.CLOCK_SLOW else 0

    def restart(self) -> None:
        """Begin anew, with nothing in memory."""
        self.active: list[Active] = []
        self.aside = AccountsAside()
        self._perform: Perform | None = None

    def next_point(self) -> int:
        """Return the number of the next point at which something can go wrong."""
        number = self.points
        self.points = number + 1
        return number

    @property
    def perform(self) -> Perform:
        """Return how the process performs effects."""
        if self._perform is None:
            self._perform = self.world.performer(self)
        return self._perform

    def now(self) -> datetime:
        """Return this moment by the process's clock."""
        now = self.world.now
        if now != self._read_at:
            self._read_at, self._reading = now, self.world.moment(now + self.skew)
        return self._reading

    def token(self) -> str:
        """Return a token that nobody else has."""
        self.tokens += 1
        return f"{self.name}-{self.tokens}"

    def crash(self) -> None:
        """Die; what was being handled is told to somebody else later, and a new process takes this one's place."""
        gone, now = self.active, self.world.now
        for active in gone:
            active.is_dead = True
        self.restart()
        for active in gone:
            if active.delivery is not None:
                self.world.redeliver(active.delivery, now)

    def handle(self, delivery: Delivery) -> None:
        """Do what the change asks for."""
        _HANDLERS[self.kind](self, delivery)

    def run(self, program: Program[Any, Any], inputs: Any, delivery: Delivery | None) -> None:
        """Run a program."""
        active = Active(self, delivery, getattr(inputs, "token", ""))
        log = self.world.log
        watchers = () if log is None else (LogWatcher(log, *_SAID_OF[self.kind]),)
        active.run = UnbrokenRun(self.world.invariants, program, self.perform, active.begin, watchers)
        self.active.append(active)
        active.run.start(inputs)
        active.go_on()


class UnbrokenRun(Run[Any, Any]):
    """A run whose program must not break: in production its step would still be ended, here it is a bug."""

    def __init__(self, invariants: Invariants, *words: Any) -> None:
        """Tell the invariants."""
        super().__init__(*words)
        self._invariants = invariants

    def abort(self, error: BaseException) -> None:
        """Take note that the program broke, and go on as production does."""
        self._invariants.broke(f"a program raised {type(error).__name__}: {error}")
        super().abort(error)


@dataclass(slots=True, eq=False)
class Active:
    """One run of a program in a process."""

    process: Process
    delivery: Delivery | None
    token: str
    run: Run[Any, Any] = field(init=False)
    is_dead: bool = False
    failed_finalizes: int = 0
    _wakes: int = -1

    def begin(self, effect: Effect) -> None:
        """Send an effect on its way."""
        process = self.process
        world, number = process.world, process.next_point()
        fault, bits = world.fault_at(process.name, process.index, number, FAULTS_OF[type(effect)])
        world.invariants.begun(self, effect)
        delay = choose(bits >> 32, _SOON)
        answer = choose(bits >> 48, most) + 1 if (most := _LATENCY.get(type(effect))) else 0
        if fault is not None:
            if fault in _SENT:
                delay += world.delay(fault, bits)
            elif fault in _ANSWERED:
                answer += world.delay(fault, bits)
            elif fault is Fault.TIMEOUT:
                answer = 20 * SECOND
        world.at(world.now + delay, self._apply, effect, fault, answer, bits >> 63)

    def _apply(self, effect: Effect, fault: Fault | None, answer: int, is_on_its_way: int) -> None:
        if self.is_dead and not is_on_its_way:
            return
        process = self.process
        world = process.world
        if fault is Fault.CRASH_BEFORE and not self.is_dead:
            world.note(self, effect, "", fault)
            process.crash()
            return
        world.acting, world.fault, world.effect = self, fault, effect
        outcome = process.perform(effect)
        world.fault = None
        world.effects += 1
        if type(outcome) is EffectFailed and fault not in _RAISING:
            world.invariants.broke(f"{type(effect).__name__} raised {outcome.error_type}")
        world.note(self, effect, outcome, fault)
        if self.is_dead:
            return
        if fault is Fault.CRASH_AFTER:
            process.crash()
        elif answer:
            world.at(world.now + answer, self._answered, effect, outcome)
        else:
            self._take(effect, outcome)

    def _answered(self, effect: Effect, outcome: Outcome) -> None:
        if not self.is_dead:
            self._take(effect, replace(outcome, at=self.process.now()))

    def _take(self, effect: Effect, outcome: Outcome) -> None:
        if type(outcome) is EffectFailed and type(effect) is FinalizeStep:
            self.failed_finalizes += 1
        self.run.take(effect, outcome)
        self.go_on()

    def go_on(self) -> None:
        """Set the next timer, or end."""
        run = self.run
        if run.is_over:
            self.process.active.remove(self)
            self.process.world.ended(self)
            return
        wakes_at = run.wakes_at
        if wakes_at is not None:
            wakes = max(self.process.world.now, self.process.world.ticks(wakes_at) - self.process.skew)
            if wakes != self._wakes:
                self._wakes = wakes
                self.process.world.at(wakes, self._wake)

    def _wake(self) -> None:
        if self.is_dead or self.run.is_over:
            return
        now = self.process.now()
        self._wakes = -1
        if (wakes_at := self.run.wakes_at) is not None and wakes_at <= now:
            self.run.wake()
        self.go_on()


def asks_for(kind: Kind, flow_run: Document) -> bool:
    """Return whether the change, as an event tells of it, asks a worker of this kind for anything."""
    return not isinstance(_CHOICES[kind](flow_run), NothingToDo)


_CHOICES: Mapping[Kind, Callable[[Document], object]] = {
    "charts": lambda flow_run: select_step(flow_run, CHART_EXPORT),
    "reports": select_report,
    "given": lambda flow_run: select_step(flow_run, GIVEN_TYPE),
    "orchestrator": lambda _: None,
}


def _handle_charts(process: Process, delivery: Delivery) -> None:
    inputs = chart_inputs(
        process.world.scenario.charts,
        delivery.flow_run,
        RUN_PATH,
        None,
        now=process.now(),
        token=process.token(),
        set_aside=process.aside.ids(),
    )
    process.run(process.world.cast.programs["charts"], inputs, delivery)


def _handle_reports(process: Process, delivery: Delivery) -> None:
    inputs = ReportInputs(
        flow_run=delivery.flow_run,
        flow_run_path=RUN_PATH,
        wanted_step=None,
        settings=process.world.scenario.reports.settings,
        fixtures=frozenset(),
        now=process.now(),
        token=process.token(),
    )
    process.run(process.world.cast.programs["reports"], inputs, delivery)


def _handle_given(process: Process, delivery: Delivery) -> None:
    inputs = GivenInputs(
        flow_run_path=RUN_PATH,
        step_id=CANDLES_ID,
        step_type=GIVEN_TYPE,
        bucket=BUCKET,
        file_name=GIVEN_FILE,
        content=blob(CANDLES),
        token=process.token(),
        now=process.now(),
    )
    process.run(process.world.cast.programs["given"], inputs, delivery)


def _handle_flow(process: Process, delivery: Delivery) -> None:
    """Move the run on: by what the event says, as the dispatcher does, or by what is stored, as the service does."""
    cast = process.world.cast
    known = delivery.flow_run if process.world.scenario.choices.is_promoted else None
    inputs = AdvanceInputs(flow_run_path=RUN_PATH, flow_run=known, leases=cast.leases, now=process.now())
    process.run(cast.programs["orchestrator"], inputs, delivery)


def reap(process: Process) -> None:
    """Look through all RUNNING flow_runs, as a scheduler asks for."""
    cast = process.world.cast
    ends_at = process.now() + timedelta(seconds=INVOCATION_SECONDS)
    inputs = ReapInputs(collection=FLOW_RUNS_COLLECTION, leases=cast.reaping, ends_at=ends_at)
    process.run(cast.programs["reaper"], inputs, None)


_SAID_OF: Mapping[Kind, tuple[Any, Any]] = {
    "charts": (chart_events.events_begun, chart_events.events_done),
    "reports": (report_events.events_begun, report_events.events_done),
    "given": (lambda _: (), given_step_events),
    "orchestrator": (lambda _: (), orchestrator_events),
}
"""What the log says of effects that begin, and of outcomes."""
_HANDLERS = {
    "charts": _handle_charts,
    "reports": _handle_reports,
    "given": _handle_given,
    "orchestrator": _handle_flow,
}
