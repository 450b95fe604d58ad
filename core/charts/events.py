"""Log events of a chart export, computed from effects and outcomes alone (§10, §12.1, §13.4).

Owns their names and fields. Must not know any sink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.charts.answers import Meaning, meaning_of
from core.charts.naming import object_uri
from core.charts.state import StepResult
from core.charts.usage import is_global_exhaustion
from core.events import LogEvent, Severity
from core.failures import CHART_API_FAILED, CHART_API_LIMIT_EXCEEDED, CHART_API_MOCK_MISSING
from core.flow.events import claim_lost, claim_succeeded, effect_failed, finalize_lost, step_selected
from effects import (
    AccountsExhausted,
    AccountsReserved,
    CallChartApi,
    ChartRefused,
    ChartRendered,
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeLost,
    ListObjects,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PutObject,
    ReadObject,
    ReserveAccount,
    SetAccountAside,
    StepClaimed,
    Wait,
)

_ERROR_CODES = {
    Meaning.LIMIT: CHART_API_LIMIT_EXCEEDED,
    Meaning.MOCK_MISSING: CHART_API_MOCK_MISSING,
}


def events_begun(effect: Effect) -> tuple[LogEvent, ...]:
    """Return what the log says when an effect begins."""
    say = _BEGUN.get(type(effect))
    return say(effect) if say else ()


def events_done(effect: Effect, outcome: Outcome) -> tuple[LogEvent, ...]:
    """Return what the log says when an effect has its outcome."""
    if isinstance(outcome, EffectFailed):
        return (effect_failed(outcome),)
    say = _DONE.get(type(outcome))
    return say(effect, outcome) if say else ()


def events_of_result(result: StepResult) -> tuple[LogEvent, ...]:
    """Return what the log says at the end of a run."""
    if result.status == "NOOP":
        return (
            LogEvent("step_noop", f"nothing done: {result.noop_reason}", fields={"reason": result.noop_reason}),
        )
    code = result.error.code if result.error else None
    said = f": {result.error.message}" if result.error else ""
    if result.is_claim_unknown:
        lost = {"stepId": result.step_id, "claimed": False, "reason": "store_failed", "errorCode": code}
        return (LogEvent("claim_attempt", f"did not claim {result.step_id}{said}", "ERROR", lost),)
    fields = {
        "status": result.status,
        "itemsCount": result.items_count,
        "failuresCount": result.failures_count,
        "minImages": result.min_images,
        "errorCode": code,
        "outputsManifestGcsUri": result.manifest_uri,
        **({"reusedCount": result.reused_count} if result.reused_count else {}),
    }
    message = f"{result.step_id} {result.status}, {result.items_count} pictures{said}"
    return (LogEvent("step_completed", message, "ERROR" if code else "INFO", fields),)


def _call_started(effect: CallChartApi) -> tuple[LogEvent, ...]:
    message = f"drawing {effect.chart_template_id} with {effect.account_id}"
    return (LogEvent("chart_api_call_started", message, fields=_call_fields(effect, "started")),)


def _call_rendered(effect: CallChartApi, outcome: ChartRendered) -> tuple[LogEvent, ...]:
    fields = _call_fields(effect, "ok", 200, None, outcome.duration_ms)
    message = f"drew {effect.chart_template_id} in {outcome.duration_ms} ms"
    return (LogEvent("chart_api_call_finished", message, fields={**fields, "imageBytes": outcome.image.size}),)


def _call_refused(effect: CallChartApi, outcome: ChartRefused) -> tuple[LogEvent, ...]:
    meaning = meaning_of(outcome)
    code = _ERROR_CODES.get(meaning, CHART_API_FAILED)
    fields = _call_fields(effect, "refused", outcome.http_status, code, outcome.duration_ms)
    message = f"{effect.chart_template_id} was not drawn: {outcome.message}"
    severity: Severity = "ERROR" if meaning is Meaning.KEY_REJECTED else "WARNING"
    finished = LogEvent("chart_api_call_finished", message, severity, {**fields, "reason": outcome.message})
    if meaning is not Meaning.MOCK_MISSING:
        return (finished,)
    missing = {"chartsApi": fields["chartsApi"], "chartTemplateId": effect.chart_template_id, "errorCode": code}
    return finished, LogEvent("chart_api_mock_missing", outcome.message, "WARNING", missing)


def _call_fields(
    effect: CallChartApi,
    status: str,
    http_status: int | None = None,
    error_code: str | None = None,
    duration_ms: int | None = None,
) -> dict[str, Any]:
    fixture = {"fixtureKey": effect.fixture_key} if effect.fixture_key else {}
    return {
        "chartsApi": {"mode": effect.mode, **fixture},
        "accountId": effect.account_id,
        "symbol": effect.body.get("symbol"),
        "timeframe": effect.timeframe,
        "chartTemplateId": effect.chart_template_id,
        "status": status,
        "httpStatus": http_status,
        "errorCode": error_code,
        "durationMs": duration_ms,
    }


def _reserved(effect: ReserveAccount, outcome: AccountsReserved | AccountsExhausted) -> tuple[LogEvent, ...]:
    """Say once that every account is used up; the program asks no more after that."""
    if not is_global_exhaustion(outcome, len(effect.accounts)):
        return ()
    message = f"all Chart-IMG accounts are at their daily limit: {', '.join(outcome.exhausted_accounts)}"
    fields = {
        "error": {"code": CHART_API_LIMIT_EXCEEDED, "message": message},
        "errorCode": CHART_API_LIMIT_EXCEEDED,
        "exhaustedAccounts": list(outcome.exhausted_accounts),
    }
    return (LogEvent("chart_api_limit_exceeded", message, "ERROR", fields),)


def _account_set_aside(effect: SetAccountAside) -> tuple[LogEvent, ...]:
    message = f"the key of account {effect.account_id} was rejected; it is not used again by this process"
    fields = {"accountId": effect.account_id, "reason": effect.reason}
    return (LogEvent("chart_api_key_rejected", message, "ERROR", fields),)


def _stored(effect: PutObject, outcome: ObjectStored) -> tuple[LogEvent, ...]:
    event = "png_written" if effect.create_only else "manifest_written"
    fields = {"gcsUri": outcome.uri, "sizeBytes": effect.content.size}
    return (LogEvent(event, f"stored {outcome.uri}", fields=fields),)


def _not_stored(effect: PutObject, outcome: ObjectNotStored) -> tuple[LogEvent, ...]:
    message = f"did not store {effect.name}: {outcome.message}"
    fields = {"objectName": effect.name, "reason": outcome.reason}
    return (LogEvent("object_not_written", message, "WARNING", fields),)


def _listed(effect: ListObjects, outcome: ObjectsListed) -> tuple[LogEvent, ...]:
    message = f"an earlier attempt stored {len(outcome.sizes)} objects"
    return (LogEvent("gcs_list_finished", message, fields={"objectsCount": len(outcome.sizes)}),)


def _read(effect: ReadObject, outcome: ObjectRead) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": object_uri(effect.bucket, effect.name), "sizeBytes": outcome.content.size}
    return (LogEvent("gcs_read_finished", f"read {effect.name}", fields=fields),)


def _not_read(effect: ReadObject | ListObjects, outcome: ObjectNotRead) -> tuple[LogEvent, ...]:
    fields = {"objectName": outcome.name, "reason": outcome.reason}
    return (LogEvent("gcs_read_finished", f"did not read {outcome.name}: {outcome.message}", "WARNING", fields),)


def _waiting(effect: Wait) -> tuple[LogEvent, ...]:
    fields = {"reason": effect.reason, "chartTemplateId": effect.chart_template_id}
    return (LogEvent("wait_started", f"waiting ({effect.reason})", "DEBUG", fields),)


_BEGUN: dict[type, Callable[[Any], tuple[LogEvent, ...]]] = {
    ClaimStep: step_selected,
    CallChartApi: _call_started,
    SetAccountAside: _account_set_aside,
    Wait: _waiting,
}

_DONE: dict[type, Callable[[Any, Any], tuple[LogEvent, ...]]] = {
    StepClaimed: claim_succeeded,
    ClaimLost: claim_lost,
    AccountsReserved: _reserved,
    AccountsExhausted: _reserved,
    ChartRendered: _call_rendered,
    ChartRefused: _call_refused,
    ObjectStored: _stored,
    ObjectNotStored: _not_stored,
    ObjectsListed: _listed,
    ObjectRead: _read,
    ObjectNotRead: _not_read,
    FinalizeLost: finalize_lost,
}
