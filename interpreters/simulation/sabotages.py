"""Small, named sabotages: each breaks one thing that the system relies on, and the simulator must notice.

Owns the list, and within how many seeds each is caught. A sabotage that survives means an invariant that is missing. Must not be
used by anything but the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core.charts.naming import object_uri
from core.charts.usage import reserve_accounts
from core.documents import Decision, Documents, UpdateDocument
from core.flow.advance import advance_flow
from core.flow.claims import claim_step, finalize_step
from core.program import Next, Program
from effects import (
    AdvanceFlow,
    CallChartApi,
    CallModel,
    ChartRefused,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeStep,
    HeldAccount,
    LeasePolicy,
    ListObjects,
    LoadTemplates,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PutObject,
    ReserveAccount,
)
from effects.word import replace
from interpreters.runtime import Perform
from interpreters.simulation.cast import LEASES, PROGRAMS, AnyRule, Cast
from interpreters.simulation.faults import ALL_FAULTS, Allowed, Fault
from interpreters.simulation.scenarios import Shape

ProgramChange = Callable[[Program[Any, Any]], Program[Any, Any]]


@dataclass(frozen=True, slots=True)
class Sabotage:
    """One thing broken."""

    what: str
    cast: Cast
    breaks: tuple[str, ...]
    """The promises that are broken by it."""
    within: int
    """Seeds within which it is noticed."""
    shape: Shape | None = None
    """The runs it is looked for in."""
    faults: Allowed = ALL_FAULTS
    """The faults that bring it to light."""


# How a cast is changed.


def _rule(effect: type, rule: AnyRule) -> Cast:
    return Cast(rules={effect: rule})


def _program(kind: str, change: ProgramChange) -> Cast:
    return Cast(programs={**PROGRAMS, kind: change(PROGRAMS[kind])})


def _rewritten(rewrite: Callable[[Effect], Effect | None]) -> ProgramChange:
    """Return the change of a program that rewrites its effects, or leaves them out."""

    def through(following: Next[Any]) -> Next[Any]:
        effects = (rewrite(one) for one in following.effects)
        return Next(following.state, tuple(one for one in effects if one is not None))

    def change(program: Program[Any, Any]) -> Program[Any, Any]:
        return Program(
            start=lambda inputs: through(program.start(inputs)),
            react=lambda state, outcome: through(program.react(state, outcome)),
            abort=lambda state, error_type: through(program.abort(state, error_type)),
        )

    return change


def _with_state(change_state: Callable[[Any], Any]) -> ProgramChange:
    """Return the change of a program that forgets or mistakes something after every step."""

    def change(program: Program[Any, Any]) -> Program[Any, Any]:
        def react(state: Any, outcome: Outcome) -> Next[Any]:
            following = program.react(state, outcome)
            return Next(change_state(following.state), following.effects)

        return Program(start=program.start, react=react, abort=program.abort)

    return change


# Rules.


def _unfenced_finalize(documents: Documents, effect: FinalizeStep, now: datetime) -> Decision[Any]:
    return finalize_step(documents, replace(effect, token=None), now)


def _claim_what_runs(documents: Documents, effect: ClaimStep, now: datetime) -> Decision[Any]:
    flow_run = documents[effect.flow_run] or {}
    steps = {
        step_id: {**step, "status": "READY"} if step["status"] == "RUNNING" else step
        for step_id, step in flow_run["steps"].items()
    }
    return claim_step({effect.flow_run: {**flow_run, "steps": steps}}, effect, now)


def _finalize_what_ended(documents: Documents, effect: FinalizeStep, now: datetime) -> Decision[Any]:
    flow_run = documents[effect.flow_run] or {}
    step = {**flow_run["steps"][effect.step_id], "status": "RUNNING"}
    again = {**flow_run, "steps": {**flow_run["steps"], effect.step_id: step}}
    return finalize_step({effect.flow_run: again}, effect, now)


def _uncounted(documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
    return Decision(reserve_accounts(documents, effect, now).outcome)


def _unlimited(documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
    accounts = tuple(replace(one, daily_limit=1000) for one in effect.accounts)
    return reserve_accounts(documents, replace(effect, accounts=accounts), now)


def _never_reset(documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0).isoformat()
    stale = {path: None if one is None else {**one, "windowStart": today} for path, one in documents.items()}
    return reserve_accounts(stale, effect, now)


def _always_reset(documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
    empty = {path: None if one is None else {**one, "usageToday": 0} for path, one in documents.items()}
    return reserve_accounts(empty, effect, now)


def _forgets_reservations(documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
    forgetful = {
        path: None if one is None else {key: value for key, value in one.items() if key != "reservations"}
        for path, one in documents.items()
    }
    return reserve_accounts(forgetful, effect, now)


def _unpaced(documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
    accounts = tuple(replace(one, requests_per_second=None) for one in effect.accounts)
    return reserve_accounts(documents, replace(effect, accounts=accounts), now)


def _no_leases(documents: Documents, effect: AdvanceFlow, now: datetime) -> Decision[Any]:
    return advance_flow(documents, replace(effect, leases=replace(effect.leases, holders_gone=True)), now)


def _promotes_all(documents: Documents, effect: AdvanceFlow, now: datetime) -> Decision[Any]:
    decision = advance_flow(documents, effect, now)
    flow_run = documents[effect.flow_run] or {}
    ready: dict[tuple[str, ...], str] = {
        ("steps", step_id, "status"): "READY"
        for step_id, step in flow_run["steps"].items()
        if step["status"] == "PENDING"
    }
    changes = (*decision.changes, *([UpdateDocument(path=effect.flow_run, assign=ready)] if ready else ()))
    return Decision(decision.outcome, changes)


# Programs.


def _loses(ending: str) -> Callable[[Perform], Perform]:
    """Return performers that say of some objects that they are stored, and store them elsewhere."""

    def around(perform: Perform) -> Perform:
        def pretend(effect: Effect) -> Outcome:
            if not isinstance(effect, PutObject) or not effect.name.endswith(ending):
                return perform(effect)
            outcome = perform(replace(effect, name=f"lost/{effect.name}"))
            match outcome:
                case ObjectStored():
                    return replace(outcome, name=effect.name, uri=object_uri(effect.bucket, effect.name))
                case ObjectNotStored():
                    return replace(outcome, name=effect.name)
                case EffectFailed():
                    return replace(outcome, effect=effect)
            return outcome

        return pretend

    return around


class _LateReservation:
    """Reservations that are written only after the call that they are for."""

    def __init__(self) -> None:
        self._is_late = False

    def cast(self) -> Cast:
        return Cast(rules={ReserveAccount: self._rule}, around=self._around)

    def _rule(self, documents: Documents, effect: ReserveAccount, now: datetime) -> Decision[Any]:
        decision = reserve_accounts(documents, effect, now)
        return decision if self._is_late else Decision(decision.outcome)

    def _around(self, perform: Perform) -> Perform:
        kept: list[ReserveAccount] = []

        def late(effect: Effect) -> Outcome:
            outcome = perform(effect)
            if isinstance(effect, ReserveAccount):
                kept.append(effect)
            elif isinstance(effect, CallChartApi) and kept:
                self._is_late = True
                perform(kept.pop())
                self._is_late = False
            return outcome

        return late


def _writes_late(effect: Effect) -> Effect:
    if not isinstance(effect, PutObject):
        return effect
    return replace(effect, give_up_at=effect.give_up_at + timedelta(days=2))


def _overwrites(effect: Effect) -> Effect:
    late = _writes_late(effect)
    return replace(late, create_only=False) if isinstance(late, PutObject) else late


def _sees_nothing(perform: Perform) -> Perform:
    """Return performers that find nothing stored: no report, no picture, no manifest."""

    def blind(effect: Effect) -> Outcome:
        outcome = perform(effect)
        if isinstance(outcome, ObjectsListed):
            return replace(outcome, sizes={})
        if isinstance(outcome, ObjectRead) and outcome.name.endswith("/report.json"):
            return ObjectNotRead(name=outcome.name, reason="missing", message="not seen", at=outcome.at)
        return outcome

    return blind


def _swallows(*kinds: type) -> ProgramChange:
    """Return the change of a program that takes no note of a broken effect of these kinds."""

    def change(program: Program[Any, Any]) -> Program[Any, Any]:
        def react(state: Any, outcome: Outcome) -> Next[Any]:
            is_swallowed = isinstance(outcome, EffectFailed) and isinstance(outcome.effect, kinds)
            return Next(state) if is_swallowed else program.react(state, outcome)

        return Program(start=program.start, react=react, abort=program.abort)

    return change


def _breaks_on(kind: type) -> ProgramChange:
    """Return the change of a program that raises when it is told of such an outcome."""

    def change(program: Program[Any, Any]) -> Program[Any, Any]:
        def react(state: Any, outcome: Outcome) -> Next[Any]:
            if isinstance(outcome, kind):
                raise KeyError(kind.__name__)
            return program.react(state, outcome)

        return Program(start=program.start, react=react, abort=program.abort)

    return change


def _always_succeeds(effect: Effect) -> Effect:
    return replace(effect, status="SUCCEEDED", error=None) if isinstance(effect, FinalizeStep) else effect


def _calls_twice(program: Program[Any, Any]) -> Program[Any, Any]:
    """Return the program that makes every call of a provider twice."""

    def react(state: Any, outcome: Outcome) -> Next[Any]:
        following = program.react(state, outcome)
        again = [replace(one) for one in following.effects if isinstance(one, CallChartApi | CallModel)]
        return Next(following.state, (*following.effects, *again))

    return Program(start=program.start, react=react, abort=program.abort)


def _repairs_on(program: Program[Any, Any]) -> Program[Any, Any]:
    """Return the program that asks for one repair after another."""

    def react(state: Any, outcome: Outcome) -> Next[Any]:
        following = program.react(state, outcome)
        if any(isinstance(one, CallModel) and one.purpose == "repair" for one in following.effects):
            return Next(
                replace(following.state, invalid=None), tuple(_as_primary(one) for one in following.effects)
            )
        return following

    return Program(start=program.start, react=react, abort=program.abort)


def _as_primary(effect: Effect) -> Effect:
    return replace(effect, purpose="primary") if isinstance(effect, CallModel) else effect


def _reserves_nothing_again(program: Program[Any, Any]) -> Program[Any, Any]:
    """Return the program that calls again, after a call that failed, without a new reservation."""

    def react(state: Any, outcome: Outcome) -> Next[Any]:
        following = program.react(state, outcome)
        return Next(following.state, tuple(_held(following.state, one) for one in following.effects))

    return Program(start=program.start, react=react, abort=program.abort)


def _held(state: Any, effect: Effect) -> Effect:
    """Return a reservation in which every request that was called for already holds what it had."""
    if not isinstance(effect, ReserveAccount):
        return effect
    day = state.now.replace(hour=0, minute=0, second=0, microsecond=0)
    holding = HeldAccount(account_id=effect.accounts[0].id, window_start=day)
    needs = tuple(
        replace(one, holding=holding) if state.charts[one.chart_template_id].tries else one
        for one in effect.for_requests
    )
    return replace(effect, for_requests=needs)


_HELD_UP = Allowed([Fault.SENT_PAST_LEASE, Fault.ANSWERED_LATE])

SABOTAGES: Mapping[str, Sabotage] = {
    "no-fencing": Sabotage(
        "finalize looks at no token", _rule(FinalizeStep, _unfenced_finalize), ("fenced",), 2000, None, _HELD_UP
    ),
    "finalize-without-token": Sabotage(
        "the program finalizes in nobody's name",
        _program(
            "charts", _rewritten(lambda one: replace(one, token=None) if isinstance(one, FinalizeStep) else one)
        ),
        ("fenced",),
        2000,
        "charts",
        _HELD_UP,
    ),
    "steals-claims": Sabotage(
        "a claim takes a step that is RUNNING", _rule(ClaimStep, _claim_what_runs), ("one-claim",), 2000
    ),
    "finalizes-again": Sabotage(
        "finalize ends what has ended", _rule(FinalizeStep, _finalize_what_ended), ("forwards", "one-claim"), 2000
    ),
    "reserve-after-call": Sabotage(
        "a reservation is written after the call", _LateReservation().cast(), ("counted-first",), 100, "charts"
    ),
    "retry-uncounted": Sabotage(
        "a call that is made again is not counted again",
        _program("charts", _reserves_nothing_again),
        ("counted-first", "quota"),
        2000,
        "charts",
    ),
    "uncounted": Sabotage(
        "a reservation is not written", _rule(ReserveAccount, _uncounted), ("counted-first",), 100, "charts"
    ),
    "retry-ignores-limit": Sabotage(
        "a reservation looks at no limit", _rule(ReserveAccount, _unlimited), ("quota",), 500, "charts"
    ),
    "no-window-reset": Sabotage(
        "yesterday's calls count today", _rule(ReserveAccount, _never_reset), ("quota-used",), 500, "charts"
    ),
    "always-window-reset": Sabotage(
        "today's calls are forgotten",
        _rule(ReserveAccount, _always_reset),
        ("counted-first", "quota"),
        500,
        "charts",
    ),
    "forgets-reservations": Sabotage(
        "a reservation is not known again",
        _rule(ReserveAccount, _forgets_reservations),
        ("counted-once",),
        3000,
        "charts",
    ),
    "unpaced": Sabotage("slots are handed out at once", _rule(ReserveAccount, _unpaced), ("pace",), 500, "charts"),
    "calls-twice": Sabotage(
        "every chart is asked for twice",
        _program("charts", _calls_twice),
        ("counted-first", "quota", "pace"),
        100,
        "charts",
    ),
    "no-leases": Sabotage(
        "steps are taken from workers at once", _rule(AdvanceFlow, _no_leases), ("forwards",), 100
    ),
    "works-on-after-lease": Sabotage(
        "a worker does not look at its lease",
        _program("charts", _with_state(lambda state: replace(state, lease_until=None))),
        ("fenced", "not-again", "finalized"),
        5000,
        "charts",
    ),
    "promotes-early": Sabotage(
        "steps do not wait for each other", _rule(AdvanceFlow, _promotes_all), ("in-order",), 100, "flow"
    ),
    "no-attempt-limit": Sabotage(
        "a step is returned for ever",
        Cast(leases=LeasePolicy(max_attempts=99), reaping=LeasePolicy(max_attempts=99, retell_after_seconds=100)),
        ("attempts",),
        2000,
        None,
        Allowed([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]),
    ),
    "forgets-ready": Sabotage(
        "nobody is told again of a READY step",
        Cast(reaping=LEASES),
        ("ends",),
        500,
        "charts",
        Allowed([Fault.EVENT_LOST]),
    ),
    "manifest-lost": Sabotage(
        "the manifest is not written", Cast(around=_loses("manifest.json")), ("artifacts",), 100, "charts"
    ),
    "picture-lost": Sabotage(
        "a picture is not written", Cast(around=_loses(".png")), ("artifacts",), 100, "charts"
    ),
    "report-lost": Sabotage(
        "a report is not written", Cast(around=_loses("report.json")), ("artifacts",), 100, "report"
    ),
    "min-images-ignored": Sabotage(
        "a chart step succeeds in any case",
        _program("charts", _rewritten(_always_succeeds)),
        ("artifacts", "min-images"),
        500,
        "charts",
    ),
    "reports-overwrite": Sabotage(
        "a report may overwrite another",
        _program("reports", _rewritten(_overwrites)),
        ("written-once",),
        10000,
        "report",
    ),
    "writes-late": Sabotage(
        "a write that was held up is sent all the same",
        _program("charts", _rewritten(_writes_late)),
        ("artifacts", "min-images"),
        5000,
        "charts",
    ),
    "looks-for-nothing": Sabotage(
        "what is stored is not looked for", Cast(around=_sees_nothing), ("not-again", "written-once"), 3000
    ),
    "swallows-errors": Sabotage(
        "a broken effect goes unnoticed",
        _program("charts", _swallows(LoadTemplates, PutObject, ListObjects, CallChartApi)),
        ("finalized",),
        2000,
        "charts",
    ),
    "program-breaks": Sabotage(
        "a program raises where the provider refuses",
        _program("charts", _breaks_on(ChartRefused)),
        ("sound",),
        1000,
        "charts",
    ),
    "repairs-on": Sabotage(
        "one repair follows another",
        _program("reports", _repairs_on),
        ("attempts",),
        2000,
        "report",
        Allowed([Fault.OUTPUT_INVALID, Fault.GARBAGE]),
    ),
    "keys-shown": Sabotage(
        "what the provider says is not searched for keys", Cast(hides_keys=False), ("secret",), 1000
    ),
}
