"""The report program: from a READY step to its report, as a pure function of outcomes (4.33).

Owns the order of phases: claim, look whether the report is there, load, ask, store, finalize; and the recovery of a RUNNING step whose
report is there. Must not know how anything is performed.
"""

from __future__ import annotations

from typing import Any

from returns.result import Failure

from core.documents import field
from core.failures import GCS_READ_FAILED, GCS_WRITE_FAILED, step_error
from core.flow.flow_run import is_usable_id
from core.flow.selection import NothingToDo
from core.flow.step_run import (
    MAX_FINALIZE_TRIES,
    Reaction,
    Reactions,
    claim_broke,
    claim_of,
    effect_broke,
    next_of,
    pause,
    reacted,
    waits_that_break,
    worker_broke,
)
from core.program import Next, Program
from core.reports.asking import ask, on_answered, on_refused
from core.reports.ending import (
    ended,
    finalize,
    finalized,
    give_up_at,
    look,
    not_finalized,
    nothing_done,
    own_execution,
    put_report,
    report_not_stored,
    reused_execution,
    store_again,
    succeed,
    try_finalize,
)
from core.reports.loading import (
    begin_reads,
    first_error,
    is_loaded,
    load,
    on_not_read,
    on_prompt,
    on_read,
    on_schema,
    on_waited,
)
from core.reports.references import STEP_TYPE, report_name
from core.reports.report_file import facts_of
from core.reports.selection import Recover, select_report
from core.reports.state import Phase, ReportInputs, ReportResult, State
from core.reports.step import parse_report_step
from effects import (
    CallModel,
    ClaimLost,
    ClaimStep,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    LoadPrompt,
    LoadSchema,
    ModelAnswered,
    ModelRefused,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectStored,
    Outcome,
    PromptLoaded,
    PutObject,
    ReadObject,
    SchemaLoaded,
    StepClaimed,
    StepFinalized,
    Wait,
    Waited,
)
from effects.word import replace


def start(inputs: ReportInputs) -> Next[State]:
    """Return the claim of the selected step, or a look at RUNNING ones, or an ended state that says why not."""
    state = State(inputs=inputs, now=inputs.now)
    chosen = select_report(inputs.flow_run, inputs.wanted_step)
    if isinstance(chosen, NothingToDo):
        return next_of(nothing_done(replace(state, step_id=inputs.wanted_step or ""), chosen.reason))
    if isinstance(chosen, Recover):
        looking = replace(state, phase=Phase.RECOVERING, waiting_ids=chosen.step_ids, idle_reason=chosen.otherwise)
        return next_of(_recover(looking))
    claim = claim_of(inputs, chosen, STEP_TYPE, in_order=True)
    return next_of(replace(state, step_id=chosen).emit(claim))


def react(state: State, outcome: Outcome) -> Next[State]:
    """Return what can begin after the outcome."""
    return reacted(state, outcome, _REACTIONS, _BREAKDOWNS, nothing_done)


def abort(state: State, error_type: str) -> Next[State]:
    """Return the finalize as FAILED that still ends a claimed step when the program broke; it is fenced."""
    error = worker_broke(error_type)
    is_tried_enough = state.phase is Phase.FINALIZING and state.tries >= MAX_FINALIZE_TRIES
    if is_tried_enough or state.phase in {Phase.ENDED, Phase.RECOVERING}:
        result = state.result or ReportResult(status="FAILED", step_id=state.step_id, error=error)
        return Next(ended(state, result))
    if state.phase is Phase.FINALIZING:
        return next_of(try_finalize(state))
    return next_of(finalize(replace(state, claimed_at=state.claimed_at or state.now), "FAILED", error))


# Recovery of a RUNNING step.


def _recover(state: State) -> State:
    """Look for the report of the next RUNNING step; one of no usable id or timeframe cannot have a name."""
    for number, step_id in enumerate(state.waiting_ids, 1):
        timeframe = field(state.inputs.flow_run, "steps", step_id, "timeframe")
        if isinstance(timeframe, str) and is_usable_id(step_id):
            left = replace(state, waiting_ids=state.waiting_ids[number:], loading_since=None)
            return look(_named(replace(left, step_id=step_id), timeframe))
    return nothing_done(replace(state, step_id=""), state.idle_reason)


def _named(state: State, timeframe: str) -> State:
    prefix = state.inputs.settings.prefix
    return replace(state, report_name=report_name(prefix, state.inputs.run_id, timeframe, state.step_id))


def _on_found_running(state: State, outcome: ObjectRead) -> State:
    return _reuse(state, outcome) or _recover(state)


def _reuse(state: State, outcome: ObjectRead) -> State | None:
    """Return the state in which the step is finalized from the report that is there, None where it is no such report."""
    facts = facts_of(outcome.content.data or b"", state.inputs.run_id, state.step_id)
    return None if facts is None else succeed(replace(state, is_reused=True), reused_execution(facts))


# A claimed step.


def _on_claimed(state: State, outcome: StepClaimed) -> State:
    state = replace(state, lease_until=outcome.lease_until, claimed_at=outcome.at)
    parsed = parse_report_step(
        outcome.flow_run, state.inputs.run_id, state.step_id, state.inputs.settings.allowed_models
    )
    if isinstance(parsed, Failure):
        return finalize(state, "FAILED", parsed.failure())
    step = parsed.unwrap()
    return look(_named(replace(state, phase=Phase.LOOKING, step=step), step.timeframe))


def _on_found(state: State, outcome: ObjectRead) -> State:
    """Finalize from the report that is there; what is there and is no report of ours is in the way."""
    if outcome.content.data is None:
        return load(state)
    return _reuse(state, outcome) or _in_the_way(state)


def _in_the_way(state: State) -> State:
    message = f"gs://{state.inputs.settings.bucket}/{state.report_name} is taken by something that is no report"
    return finalize(state, "FAILED", step_error(GCS_WRITE_FAILED, message))


def _on_not_found(state: State, outcome: ObjectNotRead) -> State:
    """Begin the work; what was in the way of a report that is written, and then was not there, is no reason to ask again."""
    if outcome.reason == "missing":
        return load(state) if state.report is None else store_again(state, "its name was taken, by nothing")
    if outcome.reason == "too_large":
        return _in_the_way(state)
    again_at = pause(state)
    if again_at < give_up_at(state, state.loading_since):
        return state.emit(Wait(until=again_at, reason="recall", chart_template_id=None))
    message = f"it could not be seen whether the report is there: {outcome.message}"
    return finalize(state, "FAILED", step_error(GCS_READ_FAILED, message))


def _then_ask(react_to: Reaction[State]) -> Reaction[State]:
    """Return the reaction followed by everything that can begin after it: more reads, or the question."""

    def react_and_go_on(state: State, outcome: Any) -> State:
        state = begin_reads(react_to(state, outcome))
        if not is_loaded(state):
            return state
        error = first_error(state)
        return ask(state) if error is None else finalize(state, "FAILED", error)

    return react_and_go_on


def _on_stored(state: State, outcome: ObjectStored) -> State:
    return succeed(state, own_execution(state))


def _on_waited_to_finalize(state: State, outcome: Waited) -> State:
    """Try again; a wait that was begun while loading has nothing to do with it."""
    return try_finalize(state) if outcome.reason == "finalize" else state


# Effects that broke in a way nobody foresaw.


def _claim_broke(state: State, outcome: EffectFailed) -> State:
    result = ReportResult(
        status="FAILED", step_id=state.step_id, error=claim_broke(outcome), is_claim_unknown=True
    )
    return ended(state, result)


def _broke(state: State, outcome: EffectFailed) -> State:
    return finalize(state, "FAILED", effect_broke(outcome))


_REACTIONS: Reactions[State] = {
    (Phase.RECOVERING, ObjectRead): _on_found_running,
    (Phase.RECOVERING, ObjectNotRead): lambda state, _: _recover(state),
    (Phase.CLAIMING, StepClaimed): _on_claimed,
    (Phase.CLAIMING, ClaimLost): lambda state, outcome: nothing_done(state, outcome.reason),
    (Phase.LOOKING, ObjectRead): _on_found,
    (Phase.LOOKING, ObjectNotRead): _on_not_found,
    (Phase.LOOKING, Waited): lambda state, _: look(state),
    (Phase.LOADING, PromptLoaded): _then_ask(on_prompt),
    (Phase.LOADING, SchemaLoaded): _then_ask(on_schema),
    (Phase.LOADING, ObjectRead): _then_ask(on_read),
    (Phase.LOADING, ObjectNotRead): _then_ask(on_not_read),
    (Phase.LOADING, Waited): _then_ask(lambda state, _: on_waited(state)),
    (Phase.ASKING, ModelAnswered): on_answered,
    (Phase.ASKING, ModelRefused): on_refused,
    (Phase.WRITING, ObjectStored): _on_stored,
    (Phase.WRITING, ObjectNotStored): report_not_stored,
    (Phase.WRITING, Waited): lambda state, _: put_report(state),
    (Phase.FINALIZING, StepFinalized): lambda state, _: finalized(state),
    (Phase.FINALIZING, FinalizeLost): lambda state, outcome: nothing_done(state, outcome.reason),
    (Phase.FINALIZING, Waited): _on_waited_to_finalize,
}
"""What each phase makes of an outcome. What is not here changes nothing: it came late, or only the log cares."""

_BREAKDOWNS: Reactions[State] = {
    (Phase.RECOVERING, ReadObject): lambda state, _: _recover(state),
    (Phase.CLAIMING, ClaimStep): _claim_broke,
    (Phase.LOOKING, ReadObject): _broke,
    (Phase.LOADING, LoadPrompt): _broke,
    (Phase.LOADING, LoadSchema): _broke,
    (Phase.LOADING, ReadObject): _broke,
    (Phase.ASKING, CallModel): _broke,
    (Phase.WRITING, PutObject): _broke,
    (Phase.FINALIZING, FinalizeStep): not_finalized,
    **waits_that_break(_REACTIONS),
}
"""What each phase makes of an effect that failed in a way nobody foresaw."""

LLM_REPORT: Program[ReportInputs, State] = Program(start=start, react=react, abort=abort)
