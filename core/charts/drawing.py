"""The drawing of a step's charts: accounts, slots, calls, refusals, uploads.

Owns what happens to each request between its template and its picture or failure. Reactions note what
happened; `draw` decides what can begin. Must not know how the step ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

from core.charts.answers import Meaning, meaning_of
from core.charts.backoff import backoff
from core.charts.ending import object_give_up_at, write_manifest
from core.charts.naming import error_fixture_name, png_fixture_name, png_name
from core.charts.state import Chart, Ledger, Stage, State
from core.failures import (
    CHART_API_FAILED,
    CHART_API_LIMIT_EXCEEDED,
    CHART_API_MOCK_MISSING,
    GCS_WRITE_FAILED,
    INTERNAL_ERROR,
    TIME_BUDGET_EXCEEDED,
    step_error,
)
from effects import (
    AccountAssignment,
    AccountNeed,
    AccountsExhausted,
    AccountsReserved,
    CallChartApi,
    ChartRefused,
    ChartRendered,
    EffectFailed,
    ExhaustAccount,
    HeldAccount,
    ObjectNotStored,
    ObjectStored,
    PutObject,
    RecordReply,
    ReserveAccount,
    SetAccountAside,
    StepError,
    Wait,
    Waited,
    WaitReason,
    blob,
)
from effects.moments import floor_second, utc_day

SLOT_TOLERANCE = timedelta(milliseconds=100)
"""A call that would start later than this after its slot takes a new slot."""
LONGEST_LEAD = timedelta(seconds=1)
"""How far ahead, at most, a new slot is asked for after one was missed."""
SPARE_RESERVATIONS = 5
SPARE_SLOTS = 10
MAX_STORE_TRIES = 60
UPLOAD_SHARE = 1 / 3
"""Part of the finalize reserve that uploads may still use."""

_WAIT_REASONS: dict[Stage, WaitReason] = {
    Stage.NEEDS_ACCOUNT: "backoff",
    Stage.HOLDING: "slot",
    Stage.NEEDS_STORE: "store",
}


# What can begin now.


def draw(state: State) -> State:
    """Return the state in which everything that can begin has begun, or the manifest if all is settled."""
    for begin in (_give_up_late, _begin_stores, _begin_calls, _begin_reservations, _begin_waits):
        state = begin(state)
    return write_manifest(state) if all(chart.is_settled for chart in state.charts.values()) else state


def _give_up_late(state: State) -> State:
    """Fail what would have to call when no call may start any more."""
    for chart in state.charts.values():
        is_idle = chart.stage in {Stage.NEEDS_ACCOUNT, Stage.HOLDING} and not chart.is_waiting
        if is_idle and max(state.now, chart.resume_at or state.now) >= state.inputs.calls_end:
            state = fail(state, chart, _out_of_time(chart))
    return state


def _begin_stores(state: State) -> State:
    for chart in _due(state, Stage.NEEDS_STORE):
        if not _free_places(state):
            return state
        state = _store(state, chart)
    return state


def _begin_calls(state: State) -> State:
    """Start calls in request order; a slot that cannot be kept any more is given back for another."""
    for chart in _due(state, Stage.HOLDING):
        if not _free_places(state):
            return state
        state = _release(state, chart) if _is_stale(state, chart) else _call(state, chart)
    return state


def _begin_reservations(state: State) -> State:
    """Reserve for all requests that need an account, one commit at a time for each usage collection."""
    for replay, ledger in state.ledgers.items():
        waiting = [chart for chart in _due(state, Stage.NEEDS_ACCOUNT) if chart.replay is replay]
        state = _fail_hopeless(state, waiting, ledger)
        needy = [chart for chart in _due(state, Stage.NEEDS_ACCOUNT) if chart.replay is replay]
        is_under_way = any(
            chart.stage is Stage.RESERVING and chart.replay is replay for chart in state.charts.values()
        )
        if needy and not is_under_way:
            state = _reserve(state, needy, ledger)
    return state


def _fail_hopeless(state: State, charts: list[Chart], ledger: Ledger) -> State:
    for chart in charts:
        if chart.held is None and ledger.is_dry(state.now):
            state = fail(state, chart, _no_account(state, chart, ledger))
        elif _has_tried_enough(state, chart):
            state = fail(state, chart, _no_slot(chart))
    return state


def _has_tried_enough(state: State, chart: Chart) -> bool:
    """Bound the reservations of one request, so that every run ends whatever the world does."""
    settings = state.inputs.settings
    most = settings.max_attempts + len(state.ledgers[chart.replay].accounts) + SPARE_RESERVATIONS
    return chart.reservations >= most or chart.slots_missed >= SPARE_SLOTS + len(state.charts)


def _begin_waits(state: State) -> State:
    for chart in state.charts.values():
        if chart.resume_at is not None and not chart.is_waiting and chart.stage in _WAIT_REASONS:
            state = state.with_chart(replace(chart, is_waiting=True)).emit(
                Wait(
                    until=chart.resume_at,
                    reason=_WAIT_REASONS[chart.stage],
                    chart_template_id=chart.chart_template_id,
                )
            )
    return state


def _due(state: State, stage: Stage) -> Iterator[Chart]:
    return (chart for chart in state.charts.values() if chart.stage is stage and chart.resume_at is None)


def _free_places(state: State) -> int:
    busy = sum(chart.stage in {Stage.CALLING, Stage.STORING} for chart in state.charts.values())
    return state.inputs.settings.max_parallel - busy


# Accounts and slots.


def _reserve(state: State, charts: list[Chart], ledger: Ledger) -> State:
    effect = ReserveAccount(
        reservation_id=f"{state.inputs.token}-{state.reservations}",
        usage_collection=ledger.usage_collection,
        accounts=ledger.accounts,
        exhausted=ledger.limited_at(state.now),
        rejected=tuple(one.id for one in ledger.accounts if one.id in ledger.rejected),
        for_requests=tuple(_need(state, chart) for chart in charts),
        usable_until=state.inputs.calls_end,
    )
    for chart in charts:
        counted = 0 if chart.held else 1
        state = state.with_chart(replace(chart, stage=Stage.RESERVING, reservations=chart.reservations + counted))
    return replace(state, reservations=state.reservations + 1).emit(effect)


def _need(state: State, chart: Chart) -> AccountNeed:
    if chart.held is None:
        return AccountNeed(chart_template_id=chart.chart_template_id, not_with=chart.refused_by)
    lateness = state.now - chart.held.slot_at
    return AccountNeed(
        chart_template_id=chart.chart_template_id,
        not_with=chart.refused_by,
        holding=HeldAccount(account_id=chart.held.account_id, window_start=chart.held.window_start),
        not_before=state.now + min(2 * lateness, LONGEST_LEAD),
    )


def on_reservation(state: State, outcome: AccountsReserved | AccountsExhausted) -> State:
    """Return the state with accounts handed out, and requests without one failed."""
    replay = next(key for key, one in state.ledgers.items() if one.usage_collection == outcome.usage_collection)
    ledger = state.ledgers[replay]
    full = {**ledger.full, **dict.fromkeys(outcome.exhausted_accounts, outcome.window_start)}
    ledger = replace(ledger, full=full)
    state = state.with_ledger(replay, ledger)
    for assignment in outcome.assignments if isinstance(outcome, AccountsReserved) else ():
        state = _hold(state, assignment)
    for one in outcome.unassigned:
        chart = state.charts.get(one.chart_template_id)
        if chart is not None and chart.stage is Stage.RESERVING:
            error = _out_of_time(chart) if one.reason == "too_late" else _no_account(state, chart, ledger)
            state = fail(state, chart, error)
    return state


def _hold(state: State, assignment: AccountAssignment) -> State:
    chart = state.charts.get(assignment.chart_template_id)
    if chart is None or chart.stage is not Stage.RESERVING:
        return state
    resume_at = assignment.slot_at if assignment.slot_at > state.now else None
    return state.with_chart(
        replace(chart, stage=Stage.HOLDING, assignment=assignment, held=None, resume_at=resume_at)
    )


def _is_stale(state: State, chart: Chart) -> bool:
    assignment = _assigned(chart)
    return _must_move(state, chart) or (_paces(state, chart) and state.now - assignment.slot_at > SLOT_TOLERANCE)


def _must_move(state: State, chart: Chart) -> bool:
    """Return whether the account is no longer to be called, or was counted in a day that is over."""
    assignment, ledger = _assigned(chart), state.ledgers[chart.replay]
    is_aside = assignment.account_id in ledger.rejected or assignment.account_id in ledger.limited_at(state.now)
    return is_aside or utc_day(state.now) > assignment.window_start


def _paces(state: State, chart: Chart) -> bool:
    account_id = _assigned(chart).account_id
    accounts = state.ledgers[chart.replay].accounts
    return any(one.id == account_id and one.requests_per_second for one in accounts)


def _release(state: State, chart: Chart) -> State:
    """Return the request to where it needs an account; a missed slot keeps what is counted."""
    if _must_move(state, chart):
        return state.with_chart(replace(chart, stage=Stage.NEEDS_ACCOUNT, assignment=None))
    return state.with_chart(
        replace(
            chart,
            stage=Stage.NEEDS_ACCOUNT,
            assignment=None,
            held=chart.assignment,
            slots_missed=chart.slots_missed + 1,
        )
    )


def _assigned(chart: Chart) -> AccountAssignment:
    assert chart.assignment is not None
    return chart.assignment


# Calls and what comes of them.


def _call(state: State, chart: Chart) -> State:
    settings = state.inputs.settings
    assert state.step is not None
    effect = CallChartApi(
        chart_template_id=chart.chart_template_id,
        account_id=_assigned(chart).account_id,
        mode=settings.mode,
        replay=chart.replay,
        fixture_key=None if settings.mode == "real" else chart.fixture_key,
        timeframe=state.step.timeframe,
        body=chart.body,
        timeout_seconds=settings.call_timeout_seconds,
        ends_by=state.inputs.calls_end,
    )
    return state.with_chart(replace(chart, stage=Stage.CALLING)).emit(effect)


def on_rendered(state: State, outcome: ChartRendered) -> State:
    """Return the state with a picture that is to be stored."""
    chart = state.charts.get(outcome.chart_template_id)
    if chart is None or chart.stage is not Stage.CALLING:
        return state
    drawn = replace(
        chart,
        stage=Stage.NEEDS_STORE,
        image=outcome.image,
        generated_at=floor_second(outcome.at),
        store_since=state.now,
    )
    state = state.with_chart(drawn)
    if not _records(state, chart):
        return state
    return state.emit(RecordReply(fixture_name=png_fixture_name(chart.fixture_key or ""), content=outcome.image))


def on_refused(state: State, outcome: ChartRefused) -> State:
    """Return the state in which the request goes on, tries again later, or has failed (§13.5)."""
    chart = state.charts.get(outcome.chart_template_id)
    if chart is None or chart.stage is not Stage.CALLING:
        return state
    meaning = meaning_of(outcome)
    refused = replace(chart, refusal=outcome, only_limits=chart.only_limits and meaning is Meaning.LIMIT)
    return _CONSEQUENCES[meaning](state, refused, outcome)


def _move_on(state: State, chart: Chart) -> State:
    return state.with_chart(replace(chart, stage=Stage.NEEDS_ACCOUNT, assignment=None))


def _on_limit(state: State, chart: Chart, outcome: ChartRefused) -> State:
    ledger, window = state.ledgers[chart.replay], _assigned(chart).window_start
    account = next(one for one in ledger.accounts if one.id == _assigned(chart).account_id)
    if ledger.limited.get(account.id) != window:
        ledger = replace(ledger, limited={**ledger.limited, account.id: window})
        state = state.with_ledger(chart.replay, ledger).emit(
            ExhaustAccount(usage_collection=ledger.usage_collection, account=account, window_start=window)
        )
    return _move_on(state, chart)


def _on_key_rejected(state: State, chart: Chart, outcome: ChartRefused) -> State:
    ledger, account_id = state.ledgers[chart.replay], _assigned(chart).account_id
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
        return fail(state, tried, _api_failed(tried, f"after {tried.tries} tries"))
    delay = backoff(tried.tries, state.inputs.flow_run_path, state.step_id, chart.chart_template_id)
    return _move_on(state, replace(tried, resume_at=state.now + delay))


def _on_final(state: State, chart: Chart, outcome: ChartRefused) -> State:
    return fail(state, chart, _api_failed(chart))


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


# Uploads.


def _store(state: State, chart: Chart) -> State:
    assert state.step is not None
    assert chart.image is not None
    assert chart.store_since is not None
    effect = PutObject(
        bucket=state.inputs.settings.bucket,
        name=_object_name(state, chart),
        content=chart.image,
        content_type="image/png",
        create_only=True,
        give_up_at=object_give_up_at(state, chart.store_since, UPLOAD_SHARE),
    )
    return state.with_chart(replace(chart, stage=Stage.STORING, store_tries=chart.store_tries + 1)).emit(effect)


def _object_name(state: State, chart: Chart) -> str:
    assert state.step is not None
    assert chart.generated_at is not None
    return png_name(state.step, chart.chart_template_id, chart.generated_at)


def storing_chart(state: State, name: str) -> Chart | None:
    """Return the request whose picture is being stored under this name."""
    storing = (chart for chart in state.charts.values() if chart.stage is Stage.STORING)
    return next((chart for chart in storing if _object_name(state, chart) == name), None)


def on_stored(state: State, chart: Chart, outcome: ObjectStored) -> State:
    """Return the state with one chart drawn."""
    return state.with_chart(replace(chart, stage=Stage.DRAWN, png_uri=outcome.uri, image=None))


def on_not_stored(state: State, chart: Chart, outcome: ObjectNotStored) -> State:
    """Return the state in which the picture gets the next second's name, is tried again, or given up."""
    assert chart.generated_at is not None
    assert chart.store_since is not None
    if outcome.reason == "name_taken":
        retry = replace(chart, generated_at=chart.generated_at + timedelta(seconds=1))
        again_at = state.now
    else:
        delay = backoff(chart.store_tries, state.inputs.flow_run_path, state.step_id, chart.chart_template_id)
        again_at = state.now + delay
        retry = replace(chart, resume_at=again_at)
    is_late = again_at >= object_give_up_at(state, chart.store_since, UPLOAD_SHARE)
    if is_late or chart.store_tries >= MAX_STORE_TRIES:
        message = f"the picture could not be stored: {outcome.message}"
        return fail(state, chart, step_error(GCS_WRITE_FAILED, message))
    return state.with_chart(replace(retry, stage=Stage.NEEDS_STORE))


def on_waited(state: State, outcome: Waited) -> State:
    """Return the state in which the request goes on."""
    chart = state.charts.get(outcome.chart_template_id or "")
    if chart is None or not chart.is_waiting:
        return state
    return state.with_chart(replace(chart, is_waiting=False, resume_at=None))


# Failures.


def fail(state: State, chart: Chart, error: StepError) -> State:
    """Return the state in which the request has failed for good."""
    state = state.with_chart(replace(chart, stage=Stage.FAILED, error=error, image=None, is_waiting=False))
    refusal = chart.refusal
    if refusal is None or refusal.http_status is None or refusal.body is None or not _records(state, chart):
        return state
    name = error_fixture_name(chart.fixture_key or "", refusal.http_status, refusal.message)
    content = json.dumps({"status": refusal.http_status, "body": _json_or_text(refusal.body)}, indent=2)
    return state.emit(RecordReply(fixture_name=name, content=blob(content.encode())))


def fail_unforeseen(state: State, chart: Chart, outcome: EffectFailed) -> State:
    """Return the state in which the request failed in a way nobody foresaw."""
    message = f"{type(outcome.effect).__name__} failed unexpectedly: {outcome.error_type}"
    return fail(state, chart, step_error(INTERNAL_ERROR, message, {"errorType": outcome.error_type}))


def _records(state: State, chart: Chart) -> bool:
    return state.inputs.settings.mode == "record" and not chart.replay


def _json_or_text(body: str) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return body


def _api_failed(chart: Chart, note: str = "") -> StepError:
    """Return CHART_API_FAILED with what the provider said last."""
    refusal = chart.refusal
    assert refusal is not None
    status = f"HTTP {refusal.http_status}" if refusal.http_status else refusal.kind
    message = f"Chart-IMG: {status}: {refusal.message}" + (f" ({note})" if note else "")
    details = {"httpStatus": refusal.http_status, "kind": refusal.kind, "accountId": refusal.account_id}
    return step_error(CHART_API_FAILED, message, details)


def _no_account(state: State, chart: Chart, ledger: Ledger) -> StepError:
    exhausted = ledger.exhausted_at(state.now)
    if chart.only_limits and len(exhausted) == len(ledger.accounts):
        message = f"all Chart-IMG accounts are at their daily limit: {', '.join(exhausted)}"
        return step_error(CHART_API_LIMIT_EXCEEDED, message, {"exhaustedAccounts": list(exhausted)})
    if chart.refusal is not None:
        return _api_failed(chart, "no other account left")
    message = "no Chart-IMG account left to call with: each is at its daily limit or its key was rejected"
    return step_error(CHART_API_FAILED, message, {"exhaustedAccounts": list(exhausted)})


def _out_of_time(chart: Chart) -> StepError:
    if chart.refusal is not None:
        return _api_failed(chart, "no time left to try again")
    return step_error(TIME_BUDGET_EXCEEDED, "not tried: the time left is reserved for finalizing the step")


def _no_slot(chart: Chart) -> StepError:
    if chart.refusal is not None:
        return _api_failed(chart, "no usable slot for another try")
    return step_error(CHART_API_FAILED, "no call could be started in its time slot; this machine is too slow")
