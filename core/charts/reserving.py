"""Accounts and time slots for requests: asked for, handed out, given back.

Owns which requests need an account and whether a slot can still be kept. Must not know how usage is counted.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from core.charts.failing import fail, no_account_left, no_slot_kept, out_of_time
from core.charts.state import Chart, Ledger, Stage, State
from core.charts.usage import SLOT_MARGIN, is_global_exhaustion
from effects import (
    AccountAssignment,
    AccountNeed,
    AccountsExhausted,
    AccountsReserved,
    HeldAccount,
    ReserveAccount,
)
from effects.moments import utc_day
from effects.word import replace

SLOT_TOLERANCE = timedelta(seconds=SLOT_MARGIN / 2)
"""A call that would start later than this after its slot takes a new one; the rest of the margin is the network's."""
ROUND_TRIPS = 3
"""Begin, read and commit: what a reservation costs at most, where a read of templates costs one."""
LONGEST_LEAD = timedelta(seconds=5)
"""How far ahead, at most, a slot is asked for because commits are slow."""
SPARE_RESERVATIONS = 5
SPARE_SLOTS = 10


def begin_reservations(state: State) -> State:
    """Reserve for all requests that need an account, one commit at a time for each usage collection."""
    if not any(chart.stage is Stage.NEEDS_ACCOUNT for chart in state.charts.values()):
        return state
    for replay, ledger in state.ledgers.items():
        waiting = [chart for chart in state.due(Stage.NEEDS_ACCOUNT) if chart.replay is replay]
        state = _fail_hopeless(_drop_lost_holds(state, waiting, ledger), waiting, ledger)
        needy = [chart for chart in state.due(Stage.NEEDS_ACCOUNT) if chart.replay is replay]
        is_under_way = any(
            chart.stage is Stage.RESERVING and chart.replay is replay for chart in state.charts.values()
        )
        if needy and not is_under_way:
            state = _reserve(state, needy, ledger)
    return state


def _drop_lost_holds(state: State, charts: list[Chart], ledger: Ledger) -> State:
    """Let requests whose counted account was set aside meanwhile look for another one."""
    for chart in charts:
        if chart.held is not None and _is_lost(chart.held, ledger, state.now):
            state = state.with_chart(replace(chart, held=None))
    return state


def _fail_hopeless(state: State, charts: list[Chart], ledger: Ledger) -> State:
    for chart in (state.charts[one.chart_template_id] for one in charts):
        if chart.held is None and ledger.is_dry(state.now):
            state = fail(state, chart, no_account_left(state, chart, ledger))
        elif _has_tried_enough(state, chart):
            state = fail(state, chart, no_slot_kept(chart))
    return state


def _has_tried_enough(state: State, chart: Chart) -> bool:
    """Bound the reservations of one request, so that every run ends whatever the world does."""
    settings = state.inputs.settings
    most = settings.max_attempts + len(state.ledgers[chart.replay].accounts) + SPARE_RESERVATIONS
    return chart.reservations >= most or chart.slots_missed >= SPARE_SLOTS + len(state.charts)


def _reserve(state: State, charts: list[Chart], ledger: Ledger) -> State:
    effect = ReserveAccount(
        reservation_id=f"{state.inputs.token}-{state.reservations}",
        usage_collection=ledger.usage_collection,
        accounts=ledger.accounts,
        exhausted=ledger.limited_at(state.now),
        rejected=tuple(one.id for one in ledger.accounts if one.id in ledger.rejected),
        for_requests=tuple(_need(chart, _soonest(state, ledger)) for chart in charts),
        usable_until=state.inputs.calls_end,
    )
    for chart in charts:
        counted = 0 if chart.held else 1
        state = state.with_chart(replace(chart, stage=Stage.RESERVING, reservations=chart.reservations + counted))
    return replace(state, reservations=state.reservations + 1, asked_at=state.now).emit(effect)


def _need(chart: Chart, not_before: datetime | None) -> AccountNeed:
    held = chart.held
    return AccountNeed(
        chart_template_id=chart.chart_template_id,
        not_with=chart.refused_by,
        holding=HeldAccount(account_id=held.account_id, window_start=held.window_start) if held else None,
        not_before=not_before,
    )


def _soonest(state: State, ledger: Ledger) -> datetime | None:
    """Return the first moment that can be kept, where commits are so slow that a slot now would be missed."""
    is_paced = any(account.requests_per_second for account in ledger.accounts)
    is_slow = is_paced and state.reservation_takes > ROUND_TRIPS * SLOT_TOLERANCE / 2
    return state.now + min(1.5 * state.reservation_takes, LONGEST_LEAD) if is_slow else None


def on_reservation(state: State, outcome: AccountsReserved | AccountsExhausted) -> State:
    """Return the state with accounts handed out, and requests without one failed."""
    replay = next(key for key, one in state.ledgers.items() if one.usage_collection == outcome.usage_collection)
    ledger = state.ledgers[replay]
    full = {**ledger.full, **dict.fromkeys(outcome.exhausted_accounts, outcome.window_start)}
    is_dry = is_global_exhaustion(outcome, len(ledger.accounts))
    ledger = replace(ledger, full=full, dry_window=outcome.window_start if is_dry else ledger.dry_window)
    state = state.with_ledger(replay, ledger)
    assignments = outcome.assignments if isinstance(outcome, AccountsReserved) else ()
    state = replace(state, reservation_takes=state.now - (state.asked_at or state.now))
    for assignment in assignments:
        state = _hold(state, assignment)
    for one in outcome.unassigned:
        chart = state.chart_at(one.chart_template_id, Stage.RESERVING)
        if chart is not None:
            error = out_of_time(chart) if one.reason == "too_late" else no_account_left(state, chart, ledger)
            state = fail(state, chart, error)
    return state


def _hold(state: State, assignment: AccountAssignment) -> State:
    chart = state.chart_at(assignment.chart_template_id, Stage.RESERVING)
    if chart is None:
        return state
    return state.with_chart(
        replace(
            chart,
            stage=Stage.HOLDING,
            assignment=assignment,
            held=None,
            resume_at=assignment.slot_at if assignment.slot_at > state.now else None,
        )
    )


def is_stale(state: State, chart: Chart) -> bool:
    """Return whether the slot, or the account, is no longer to be used."""
    assignment = assigned(chart)
    return _must_move(state, chart) or (_paces(state, chart) and state.now - assignment.slot_at > SLOT_TOLERANCE)


def start_by(state: State, chart: Chart) -> datetime:
    """Return when the call must have started: within its slot's margin, and in the day it is counted in."""
    assignment = assigned(chart)
    day_ends = assignment.window_start + timedelta(days=1) - timedelta(microseconds=1)
    return min(assignment.slot_at + 2 * SLOT_TOLERANCE, day_ends) if _paces(state, chart) else day_ends


def _must_move(state: State, chart: Chart) -> bool:
    """Return whether the account is no longer to be called, or was counted in a day that is over."""
    return _is_lost(assigned(chart), state.ledgers[chart.replay], state.now)


def _is_lost(assignment: AccountAssignment, ledger: Ledger, now: datetime) -> bool:
    is_aside = assignment.account_id in ledger.rejected or assignment.account_id in ledger.limited_at(now)
    return is_aside or utc_day(now) > assignment.window_start


def _paces(state: State, chart: Chart) -> bool:
    account_id = assigned(chart).account_id
    accounts = state.ledgers[chart.replay].accounts
    return any(one.id == account_id and one.requests_per_second for one in accounts)


def release(state: State, chart: Chart) -> State:
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


def assigned(chart: Chart) -> AccountAssignment:
    """Return the account and slot that the request holds."""
    assert chart.assignment is not None
    return chart.assignment
