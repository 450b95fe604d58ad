"""The chart-export program: from a READY step to its end, as a pure function of outcomes.

Owns the order of phases: claim, recall of an earlier attempt, templates, drawing, manifest, finalize. Must not know how anything is performed.
"""

from __future__ import annotations

from collections.abc import Mapping

from returns.result import Failure

from core.charts.calling import on_refused, on_rendered
from core.charts.drawing import draw, on_waited
from core.charts.ending import (
    ended,
    finalize,
    finalized,
    manifest_not_stored,
    manifest_stored,
    not_finalized,
    nothing_done,
    put_manifest,
    try_finalize,
)
from core.charts.failing import fail, fail_unforeseen
from core.charts.naming import fixture_key
from core.charts.recalling import (
    load_templates,
    on_listed,
    on_manifest_read,
    on_not_recalled,
    on_picture_not_read,
    on_picture_read,
    reading_chart,
    recall,
    with_found,
)
from core.charts.reserving import ROUND_TRIPS, on_reservation
from core.charts.state import Chart, Inputs, Ledger, Phase, Stage, State, StepResult
from core.charts.step import STEP_TYPE, parse_chart_step
from core.charts.storing import on_not_stored, on_stored, storing_chart
from core.charts.templates import parse_template, request_body
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION
from core.failures import VALIDATION_FAILED, invalid, step_error
from core.flow.selection import NothingToDo, select_step
from core.flow.step_run import (
    MAX_FINALIZE_TRIES,
    Reaction,
    Reactions,
    claim_broke,
    claim_of,
    effect_broke,
    next_of,
    reacted,
    waits_that_break,
    worker_broke,
)
from core.program import Next, Program
from effects import (
    AccountsExhausted,
    AccountsReserved,
    CallChartApi,
    ChartRefused,
    ChartRendered,
    ClaimLost,
    ClaimStep,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    ListObjects,
    LoadTemplates,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PutObject,
    ReadObject,
    ReserveAccount,
    StepClaimed,
    StepFinalized,
    TemplatesLoaded,
    Wait,
    Waited,
)
from effects.word import replace


def start(inputs: Inputs) -> Next[State]:
    """Return the claim of the selected step, or an ended state that says why there is nothing to do."""
    state = State(inputs=inputs, now=inputs.now)
    chosen = select_step(inputs.flow_run, STEP_TYPE, inputs.wanted_step)
    if isinstance(chosen, NothingToDo):
        return next_of(nothing_done(replace(state, step_id=inputs.wanted_step or ""), chosen.reason))
    return next_of(replace(state, step_id=chosen).emit(claim_of(inputs, chosen, STEP_TYPE)))


def react(state: State, outcome: Outcome) -> Next[State]:
    """Return what can begin after the outcome."""
    return reacted(state, outcome, _REACTIONS, _BREAKDOWNS, nothing_done)


def abort(state: State, error_type: str) -> Next[State]:
    """Return what still ends the step when the program broke: its manifest, if it got that far, and a finalize as FAILED.

    The finalize is fenced, so it only hits a step that is claimed by us; run again, it says what became of the first.
    """
    error = worker_broke(error_type)
    unsettled = [chart for chart in state.charts.values() if not chart.is_settled]
    is_tried_enough = state.phase is Phase.FINALIZING and state.tries >= MAX_FINALIZE_TRIES
    if state.result is not None or is_tried_enough:
        result = state.result or StepResult(status="FAILED", step_id=state.step_id, error=error)
        return Next(ended(state, result))
    if state.phase is Phase.FINALIZING:
        return next_of(try_finalize(state))
    if state.phase is Phase.DRAWING and unsettled:
        for chart in unsettled:
            state = fail(state, chart, error)
        return next_of(state.emit(Wait(until=state.now, reason="backoff", chart_template_id=None)))
    return next_of(finalize(state, "FAILED", error))


def _on_claimed(state: State, outcome: StepClaimed) -> State:
    state = replace(
        state,
        lease_until=outcome.lease_until,
        first_claimed_at=outcome.first_claimed_at,
        reservation_takes=state.now - state.inputs.now,
    )
    parsed = parse_chart_step(outcome.flow_run, state.step_id)
    if isinstance(parsed, Failure):
        return finalize(state, "FAILED", invalid("the step's input is not valid", parsed.failure()))
    state = replace(state, step=parsed.unwrap())
    return load_templates(state) if outcome.attempt == 1 else recall(state)


def _on_claim_lost(state: State, outcome: ClaimLost) -> State:
    return nothing_done(state, outcome.reason)


def _on_templates(state: State, outcome: TemplatesLoaded) -> State:
    assert state.step is not None
    charts = {one: _chart(state, one, outcome) for one in state.step.chart_template_ids}
    drawing = replace(
        state,
        phase=Phase.DRAWING,
        charts=charts,
        ledgers=_ledgers(state.inputs),
        reservation_takes=min(state.reservation_takes, ROUND_TRIPS * (state.now - (state.asked_at or state.now))),
    )
    return draw(drawing)


def _chart(state: State, chart_template_id: str, loaded: TemplatesLoaded) -> Chart:
    assert state.step is not None
    inputs, step = state.inputs, state.step
    document = loaded.templates.get(chart_template_id)
    if document is None:
        said = loaded.unreadable.get(chart_template_id, "there is no template of this id")
        error = step_error(VALIDATION_FAILED, f"template {chart_template_id}: {said}")
        return Chart(chart_template_id=chart_template_id, stage=Stage.FAILED, error=error)
    parsed = parse_template(chart_template_id, document)
    if isinstance(parsed, Failure):
        error = invalid("the template is not valid", parsed.failure())
        return Chart(chart_template_id=chart_template_id, stage=Stage.FAILED, error=error)
    template = parsed.unwrap()
    key = fixture_key(template.chart_img_symbol(step.symbol), step.timeframe, chart_template_id)
    chart = Chart(
        chart_template_id=chart_template_id,
        stage=Stage.NEEDS_ACCOUNT,
        template=template,
        replay=inputs.settings.mode == "mock" or (inputs.settings.mode == "record" and key in inputs.fixtures),
        fixture_key=key,
        body=request_body(template, step.symbol, step.timeframe, inputs.settings.default_timezone),
    )
    return with_found(state, chart)


def _ledgers(inputs: Inputs) -> Mapping[bool, Ledger]:
    return {
        True: Ledger(usage_collection=MOCK_USAGE_COLLECTION, accounts=inputs.mock_accounts),
        False: Ledger(usage_collection=USAGE_COLLECTION, accounts=inputs.real_accounts, rejected=inputs.set_aside),
    }


def _on_png_stored(state: State, outcome: ObjectStored) -> State:
    chart = storing_chart(state, outcome.name)
    return on_stored(state, chart, outcome) if chart else state


def _on_png_not_stored(state: State, outcome: ObjectNotStored) -> State:
    chart = storing_chart(state, outcome.name)
    return on_not_stored(state, chart, outcome) if chart else state


def _on_manifest_stored(state: State, outcome: ObjectStored) -> State:
    return manifest_stored(state)


def _on_manifest_not_stored(state: State, outcome: ObjectNotStored) -> State:
    return manifest_not_stored(state, outcome.message)


def _on_recall_waited(state: State, outcome: Waited) -> State:
    return recall(state)


def _on_manifest_waited(state: State, outcome: Waited) -> State:
    return put_manifest(state)


def _on_finalize_waited(state: State, outcome: Waited) -> State:
    return try_finalize(state)


def _on_finalized(state: State, outcome: StepFinalized) -> State:
    return finalized(state)


def _on_finalize_lost(state: State, outcome: FinalizeLost) -> State:
    return nothing_done(state, outcome.reason)


def _claim_broke(state: State, outcome: EffectFailed) -> State:
    result = StepResult(status="FAILED", step_id=state.step_id, error=claim_broke(outcome), is_claim_unknown=True)
    return ended(state, result)


def _templates_broke(state: State, outcome: EffectFailed) -> State:
    assert state.step is not None
    charts = {one: Chart(chart_template_id=one, stage=Stage.LOADING) for one in state.step.chart_template_ids}
    state = replace(state, phase=Phase.DRAWING, charts=charts)
    for chart in charts.values():
        state = fail_unforeseen(state, chart, outcome)
    return draw(state)


def _reservation_broke(state: State, outcome: EffectFailed) -> State:
    assert isinstance(outcome.effect, ReserveAccount)
    for need in outcome.effect.for_requests:
        state = fail_unforeseen(state, state.charts[need.chart_template_id], outcome)
    return state


def _call_broke(state: State, outcome: EffectFailed) -> State:
    assert isinstance(outcome.effect, CallChartApi)
    return fail_unforeseen(state, state.charts[outcome.effect.chart_template_id], outcome)


def _png_put_broke(state: State, outcome: EffectFailed) -> State:
    assert isinstance(outcome.effect, PutObject)
    chart = storing_chart(state, outcome.effect.name)
    return fail_unforeseen(state, chart, outcome) if chart else state


def _recall_broke(state: State, outcome: EffectFailed) -> State:
    return finalize(state, "FAILED", effect_broke(outcome, "looking for what an earlier attempt stored"))


def _read_broke(state: State, outcome: EffectFailed) -> State:
    assert isinstance(outcome.effect, ReadObject)
    chart = reading_chart(state, outcome.effect.name)
    return fail_unforeseen(state, chart, outcome) if chart else state


def _manifest_put_broke(state: State, outcome: EffectFailed) -> State:
    return finalize(state, "FAILED", effect_broke(outcome, "storing the manifest"))


def _then_draw(react_to: Reaction[State]) -> Reaction[State]:
    """Return the reaction followed by everything that can begin after it."""
    return lambda state, outcome: draw(react_to(state, outcome))


_REACTIONS: Reactions[State] = {
    (Phase.CLAIMING, StepClaimed): _on_claimed,
    (Phase.CLAIMING, ClaimLost): _on_claim_lost,
    (Phase.RECALLING, ObjectsListed): on_listed,
    (Phase.RECALLING, ObjectRead): on_manifest_read,
    (Phase.RECALLING, ObjectNotRead): on_not_recalled,
    (Phase.RECALLING, Waited): _on_recall_waited,
    (Phase.LOADING, TemplatesLoaded): _on_templates,
    (Phase.DRAWING, ObjectRead): _then_draw(on_picture_read),
    (Phase.DRAWING, ObjectNotRead): _then_draw(on_picture_not_read),
    (Phase.DRAWING, AccountsReserved): _then_draw(on_reservation),
    (Phase.DRAWING, AccountsExhausted): _then_draw(on_reservation),
    (Phase.DRAWING, Waited): _then_draw(on_waited),
    (Phase.DRAWING, ChartRendered): _then_draw(on_rendered),
    (Phase.DRAWING, ChartRefused): _then_draw(on_refused),
    (Phase.DRAWING, ObjectStored): _then_draw(_on_png_stored),
    (Phase.DRAWING, ObjectNotStored): _then_draw(_on_png_not_stored),
    (Phase.WRITING_MANIFEST, ObjectStored): _on_manifest_stored,
    (Phase.WRITING_MANIFEST, ObjectNotStored): _on_manifest_not_stored,
    (Phase.WRITING_MANIFEST, Waited): _on_manifest_waited,
    (Phase.FINALIZING, StepFinalized): _on_finalized,
    (Phase.FINALIZING, FinalizeLost): _on_finalize_lost,
    (Phase.FINALIZING, Waited): _on_finalize_waited,
}
"""What each phase makes of an outcome. What is not here changes nothing: it came late, or only the log cares."""

_BREAKDOWNS: Reactions[State] = {
    (Phase.CLAIMING, ClaimStep): _claim_broke,
    (Phase.RECALLING, ListObjects): _recall_broke,
    (Phase.RECALLING, ReadObject): _recall_broke,
    (Phase.LOADING, LoadTemplates): _templates_broke,
    (Phase.DRAWING, ReadObject): _then_draw(_read_broke),
    (Phase.DRAWING, ReserveAccount): _then_draw(_reservation_broke),
    (Phase.DRAWING, CallChartApi): _then_draw(_call_broke),
    (Phase.DRAWING, PutObject): _then_draw(_png_put_broke),
    (Phase.WRITING_MANIFEST, PutObject): _manifest_put_broke,
    (Phase.FINALIZING, FinalizeStep): not_finalized,
    **waits_that_break(_REACTIONS),
}
"""What each phase makes of an effect that failed in a way nobody foresaw."""

CHART_EXPORT: Program[Inputs, State] = Program(start=start, react=react, abort=abort)
