"""The drawing of a step's charts: after every outcome, what can begin now.

Owns the order in which requests get places, and their waits. Reactions to outcomes live with their subject:
`recalling`, `reserving`, `calling`, `storing`. Must not know how the step ends.
"""

from __future__ import annotations

from core.charts.calling import begin_calls
from core.charts.ending import write_manifest
from core.charts.failing import fail, out_of_time
from core.charts.recalling import begin_reads
from core.charts.reserving import begin_reservations
from core.charts.state import Stage, State
from core.charts.storing import begin_stores
from effects import Wait, Waited, WaitReason
from effects.word import replace

_WAIT_REASONS: dict[Stage, WaitReason] = {
    Stage.NEEDS_READ: "recall",
    Stage.NEEDS_ACCOUNT: "backoff",
    Stage.HOLDING: "slot",
    Stage.NEEDS_STORE: "store",
}


def draw(state: State) -> State:
    """Return the state in which everything that can begin has begun, or the manifest if all is settled."""
    for begin in (_give_up_late, begin_reads, begin_stores, begin_calls, begin_reservations, _begin_waits):
        state = begin(state)
    return write_manifest(state) if all(chart.is_settled for chart in state.charts.values()) else state


def _give_up_late(state: State) -> State:
    """Fail what would have to call when no call may start any more."""
    for chart in state.charts.values():
        is_idle = chart.stage in {Stage.NEEDS_ACCOUNT, Stage.HOLDING} and not chart.is_waiting
        if is_idle and max(state.now, chart.resume_at or state.now) >= state.inputs.calls_end:
            state = fail(state, chart, out_of_time(chart))
    return state


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


def on_waited(state: State, outcome: Waited) -> State:
    """Return the state in which the request goes on."""
    chart = state.charts.get(outcome.chart_template_id or "")
    if chart is None or not chart.is_waiting:
        return state
    return state.with_chart(replace(chart, is_waiting=False, resume_at=None))
