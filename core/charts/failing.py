"""How one request ends without a picture.

Owns the errors of a request and the recording of its last answer. Must not decide when to give up.
"""

from __future__ import annotations

import json

from core.charts.naming import error_fixture_name
from core.charts.state import Chart, Ledger, Stage, State
from core.failures import (
    CHART_API_FAILED,
    CHART_API_LIMIT_EXCEEDED,
    TIME_BUDGET_EXCEEDED,
    step_error,
)
from core.flow.step_run import effect_broke
from effects import EffectFailed, RecordReply, StepError, blob
from effects.word import replace


def fail(state: State, chart: Chart, error: StepError) -> State:
    """Return the state in which the request has failed for good."""
    state = state.with_chart(replace(chart, stage=Stage.FAILED, error=error, image=None, is_waiting=False))
    refusal = chart.refusal
    if refusal is None or refusal.http_status is None or refusal.body is None or not is_recorded(state, chart):
        return state
    name = error_fixture_name(chart.fixture_key or "", refusal.http_status, refusal.message)
    content = json.dumps({"status": refusal.http_status, "body": _json_or_text(refusal.body)}, indent=2)
    return state.emit(RecordReply(fixture_name=name, content=blob(content.encode())))


def fail_unforeseen(state: State, chart: Chart, outcome: EffectFailed) -> State:
    """Return the state in which the request failed in a way nobody foresaw."""
    return fail(state, chart, effect_broke(outcome))


def is_recorded(state: State, chart: Chart) -> bool:
    """Return whether answers to the request are kept as fixtures."""
    return state.inputs.settings.mode == "record" and not chart.replay


def _json_or_text(body: str) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return body


def api_failed(chart: Chart, note: str = "") -> StepError:
    """Return CHART_API_FAILED with what the provider said last."""
    refusal = chart.complaint or chart.refusal
    assert refusal is not None
    status = f"HTTP {refusal.http_status}" if refusal.http_status else refusal.kind
    message = f"Chart-IMG: {status}: {refusal.message}" + (f" ({note})" if note else "")
    details = {"httpStatus": refusal.http_status, "kind": refusal.kind, "accountId": refusal.account_id}
    return step_error(CHART_API_FAILED, message, details)


def no_account_left(state: State, chart: Chart, ledger: Ledger) -> StepError:
    """Return the error of a request that no account can call for: the limit code only if limits alone are why."""
    exhausted = ledger.exhausted_at(state.now)
    if chart.complaint is None and len(exhausted) == len(ledger.accounts):
        message = f"all Chart-IMG accounts are at their daily limit: {', '.join(exhausted)}"
        return step_error(CHART_API_LIMIT_EXCEEDED, message, {"exhaustedAccounts": list(exhausted)})
    if chart.refusal is not None:
        return api_failed(chart, "no other account left")
    message = "no Chart-IMG account left to call with: each is at its daily limit or its key was rejected"
    return step_error(CHART_API_FAILED, message, {"exhaustedAccounts": list(exhausted)})


def out_of_time(chart: Chart) -> StepError:
    """Return the error of a request for which no time is left."""
    if chart.refusal is not None:
        return api_failed(chart, "no time left to try again")
    return step_error(TIME_BUDGET_EXCEEDED, "not tried: the time left is reserved for finalizing the step")


def no_slot_kept(chart: Chart) -> StepError:
    """Return the error of a request that was late for every slot it got."""
    if chart.refusal is not None:
        return api_failed(chart, "no usable slot for another try")
    return step_error(CHART_API_FAILED, "no call could be started in its time slot; this machine is too slow")
