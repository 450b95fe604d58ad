"""What the runs of all steps share: the claim, the lease, the time budget, the tries of the last write.

Owns the frame in which a worker's program works on one step. Must not know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Protocol, TypeVar

from core.backoff import backoff
from core.failures import INTERNAL_ERROR, step_error
from core.flow.leases import LEASE_MARGIN_SECONDS
from core.program import Next
from effects import (
    ClaimStep,
    Document,
    Effect,
    EffectFailed,
    FinalizeLost,
    Outcome,
    StepClaimed,
    StepError,
    StepFinalized,
    TerminalStatus,
    Wait,
    Waited,
)
from effects.word import replace

GIVE_UP_SECONDS = 30
"""An object is given up after this long."""
MAX_FINALIZE_TRIES = 4


class StepSettings(Protocol):
    """The settings that every worker has."""

    @property
    def invocation_timeout_seconds(self) -> int:
        """Return how long one run may take."""

    @property
    def finalize_budget_seconds(self) -> int:
        """Return which part of it is kept for the last writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """What every run is given."""

    flow_run: Document
    """The document as known before the claim: a hint."""
    flow_run_path: str
    """Where the document is stored."""
    wanted_step: str | None
    """The step to take; None takes the first that can be taken."""
    settings: StepSettings
    fixtures: frozenset[str]
    """Keys of the fixtures that existed when the run began (record mode)."""
    now: datetime
    token: str
    """Unique to this run."""

    @property
    def calls_end(self) -> datetime:
        """Return the moment from which no call starts or goes on: the reserve for finalizing begins."""
        return self.end - timedelta(seconds=self.settings.finalize_budget_seconds)

    @property
    def end(self) -> datetime:
        """Return the moment the invocation must be over."""
        return self.now + timedelta(seconds=self.settings.invocation_timeout_seconds)


@dataclass(frozen=True, kw_only=True)
class StepState:
    """What every run knows so far, and the effects that may begin now."""

    inputs: StepInputs
    now: datetime
    phase: Enum
    step_id: str = ""
    lease_until: datetime | None = None
    tries: int = 0
    """Tries of the write, or the look, of the present phase."""
    final_status: TerminalStatus | None = None
    final_error: StepError | None = None
    result: Any = None
    """What came of the run; there is one when it has ended."""
    outbox: tuple[Effect, ...] = ()


StateT = TypeVar("StateT", bound=StepState)
Reaction = Callable[[StateT, Any], StateT]
Reactions = Mapping[tuple[Enum, type], Reaction[StateT]]
"""What each phase makes of an outcome, or of an effect that broke, by phase and type."""


def emit(state: StateT, *effects: Effect) -> StateT:
    """Return the state with effects that may begin now."""
    return replace(state, outbox=(*state.outbox, *effects))


def next_of(state: StateT) -> Next[StateT]:
    """Return the state, and what may begin now."""
    return Next(replace(state, outbox=()), state.outbox) if state.outbox else Next(state)


def claim_of(inputs: StepInputs, step_id: str, step_type: str, *, in_order: bool = False) -> ClaimStep:
    """Return the claim of a step, for as long as an invocation takes and a little longer."""
    return ClaimStep(
        flow_run=inputs.flow_run_path,
        step_id=step_id,
        step_type=step_type,
        token=inputs.token,
        lease_seconds=inputs.settings.invocation_timeout_seconds + LEASE_MARGIN_SECONDS,
        in_order=in_order,
    )


def reacted(
    state: StateT,
    outcome: Outcome,
    reactions: Reactions[StateT],
    breakdowns: Reactions[StateT],
    nothing_done: Callable[[StateT, str], StateT],
) -> Next[StateT]:
    """Return what can begin after the outcome: by the tables, but nothing after the end or after the lease."""
    state = replace(state, now=max(state.now, outcome.at))
    if state.result is not None:
        return next_of(state)
    is_settled = isinstance(outcome, StepFinalized | FinalizeLost)
    lease_until = outcome.lease_until if isinstance(outcome, StepClaimed) else state.lease_until
    if lease_until is not None and state.now >= lease_until and not is_settled:
        return next_of(nothing_done(state, "lease_expired"))
    if isinstance(outcome, EffectFailed):
        reaction = breakdowns.get((state.phase, type(outcome.effect)))
    else:
        reaction = reactions.get((state.phase, type(outcome)))
    return next_of(reaction(state, outcome) if reaction else state)


def waits_that_break(reactions: Reactions[StateT]) -> Reactions[StateT]:
    """Return the breakdowns in which a wait that broke is taken for one that is over."""

    def over(state: StateT, outcome: EffectFailed) -> StateT:
        assert isinstance(outcome.effect, Wait)
        wait = outcome.effect
        waited = Waited(reason=wait.reason, chart_template_id=wait.chart_template_id, at=outcome.at)
        return reactions[state.phase, Waited](state, waited)

    return {(phase, Wait): over for phase, outcome in reactions if outcome is Waited}


# Pauses and ends.


def pause(state: StateT, *who: str) -> datetime:
    """Return when to try again, after as many tries as there were."""
    return state.now + backoff(state.tries, state.inputs.flow_run_path, state.step_id, *who)


def object_give_up_at(state: StepState, since: datetime, share: float) -> datetime:
    """Return when to give an object up: after 30 s, or when its share of the finalize reserve is used."""
    reserve = timedelta(seconds=state.inputs.settings.finalize_budget_seconds)
    return min(since + timedelta(seconds=GIVE_UP_SECONDS), state.inputs.calls_end + reserve * share)


def finalize_again(state: StateT) -> StateT | None:
    """Return the state in which finalizing is tried again after a pause, None where that was done often enough."""
    if state.tries >= MAX_FINALIZE_TRIES:
        return None
    return emit(state, Wait(until=pause(state), reason="finalize", chart_template_id=None))


# Errors that nobody foresaw.


def left_to_lease(error_type: str) -> StepError:
    """Return the error of a step that could not be finalized."""
    message = f"the step could not be finalized ({error_type}) and stays RUNNING until its lease runs out"
    return step_error(INTERNAL_ERROR, message)


def worker_broke(error_type: str) -> StepError:
    """Return the error of a step whose program broke."""
    return step_error(INTERNAL_ERROR, f"the worker broke: {error_type}", {"errorType": error_type})


def effect_broke(outcome: EffectFailed, what: str | None = None) -> StepError:
    """Return the error of an effect that ended in a way nobody foresaw."""
    message = f"{what or type(outcome.effect).__name__} failed unexpectedly: {outcome.error_type}"
    return step_error(INTERNAL_ERROR, message, {"errorType": outcome.error_type})


def claim_broke(outcome: EffectFailed) -> StepError:
    """Return the error of a claim of which nobody knows whether it landed; if it did, its lease will run out."""
    message = f"the claim failed: {outcome.error_type}"
    return step_error(INTERNAL_ERROR, message, {"errorType": outcome.error_type})
