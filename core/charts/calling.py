"""Calls of the chart API and what comes of them (§13.4, §13.5).

Owns what each refusal means for the request and its account. Must not know how an answer is read.
"""

from __future__ import annotations

from collections.abc import Callable

from core.backoff import backoff
from core.charts.answers import Meaning, meaning_of
from core.charts.failing import api_failed, fail, is_recorded
from core.charts.naming import png_fixture_name
from core.charts.reserving import assigned, is_stale, release, start_by
from core.charts.state import Chart, Stage, State
from core.failures import CHART_API_MOCK_MISSING, step_error
from effects import CallChartApi, ChartRefused, ChartRendered, ExhaustAccount, RecordReply, SetAccountAside
from effects.moments import floor_second
from effects.word import replace


def begin_calls(state: State) -> State:
    """Start calls in request order; a slot that cannot be kept any more is given back for another."""
    for chart in state.due(Stage.HOLDING):
        if not state.free_places:
            return state
        state = release(state, chart) if is_stale(state, chart) else _call(state, chart)
    return state


def _call(state: State, chart: Chart) -> State:
    settings = state.inputs.settings
    assert state.step is not None
    effect = CallChartApi(
        chart_template_id=chart.chart_template_id,
        account_id=assigned(chart).account_id,
        mode=settings.mode,
        replay=chart.replay,
        fixture_key=None if settings.mode == "real" else chart.fixture_key,
        timeframe=state.step.timeframe,
        body=chart.body,
        start_by=start_by(state, chart),
        timeout_seconds=settings.call_timeout_seconds,
        ends_by=state.inputs.calls_end,
    )
    return state.with_chart(replace(chart, stage=Stage.CALLING)).emit(effect)


def on_rendered(state: State, outcome: ChartRendered) -> State:
    """Return the state with a picture that is to be stored."""
    chart = state.chart_at(outcome.chart_template_id, Stage.CALLING)
    if chart is None:
        return state
    drawn = replace(
        chart,
        stage=Stage.NEEDS_STORE,
        refusal=None,
        complaint=None,
        image=outcome.image,
        generated_at=floor_second(outcome.at),
        store_since=state.now,
    )
    state = state.with_chart(drawn)
    if not is_recorded(state, chart):
        return state
    return state.emit(RecordReply(fixture_name=png_fixture_name(chart.fixture_key or ""), content=outcome.image))


def on_refused(state: State, outcome: ChartRefused) -> State:
    """Return the state in which the request goes on, tries again later, or has failed (§13.5)."""
    chart = state.chart_at(outcome.chart_template_id, Stage.CALLING)
    if chart is None:
        return state
    meaning = meaning_of(outcome)
    if meaning is Meaning.SLOT_MISSED:
        return release(state, chart)
    complaint = chart.complaint if meaning is Meaning.LIMIT else outcome
    refused = replace(chart, refusal=outcome, complaint=complaint)
    return _CONSEQUENCES[meaning](state, refused, outcome)


def _move_on(state: State, chart: Chart) -> State:
    return state.with_chart(replace(chart, stage=Stage.NEEDS_ACCOUNT, assignment=None))


def _on_limit(state: State, chart: Chart, outcome: ChartRefused) -> State:
    ledger, window = state.ledgers[chart.replay], assigned(chart).window_start
    account = next(one for one in ledger.accounts if one.id == assigned(chart).account_id)
    if ledger.limited.get(account.id) != window:
        ledger = replace(ledger, limited={**ledger.limited, account.id: window})
        state = state.with_ledger(chart.replay, ledger).emit(
            ExhaustAccount(usage_collection=ledger.usage_collection, account=account, window_start=window)
        )
    return _move_on(state, chart)


def _on_key_rejected(state: State, chart: Chart, outcome: ChartRefused) -> State:
    ledger, account_id = state.ledgers[chart.replay], assigned(chart).account_id
    if account_id not in ledger.rejected:
        state = state.with_ledger(chart.replay, replace(ledger, rejected=ledger.rejected | {account_id}))
        if not chart.replay:
            state = state.emit(SetAccountAside(account_id=account_id, reason=outcome.message))
    return _move_on(state, chart)


def _on_forbidden(state: State, chart: Chart, outcome: ChartRefused) -> State:
    return _move_on(state, replace(chart, refused_by=(*chart.refused_by, outcome.account_id)))


def _on_transient(state: State, chart: Chart, outcome: ChartRefused) -> State:
    tried = replace(chart, tries=chart.tries + 1)
    if tried.tries >= state.inputs.settings.max_attempts:
        return fail(state, tried, api_failed(tried, f"after {tried.tries} tries"))
    delay = backoff(tried.tries, state.inputs.flow_run_path, state.step_id, chart.chart_template_id)
    return _move_on(state, replace(tried, resume_at=state.now + delay))


def _on_final(state: State, chart: Chart, outcome: ChartRefused) -> State:
    return fail(state, chart, api_failed(chart))


def _on_mock_missing(state: State, chart: Chart, outcome: ChartRefused) -> State:
    details = {"fixtureKey": chart.fixture_key, "symbol": chart.body.get("symbol")}
    return fail(state, chart, step_error(CHART_API_MOCK_MISSING, outcome.message, details))


_CONSEQUENCES: dict[Meaning, Callable[[State, Chart, ChartRefused], State]] = {
    Meaning.LIMIT: _on_limit,
    Meaning.KEY_REJECTED: _on_key_rejected,
    Meaning.FORBIDDEN: _on_forbidden,
    Meaning.TRANSIENT: _on_transient,
    Meaning.FINAL: _on_final,
    Meaning.MOCK_MISSING: _on_mock_missing,
}
