"""Log events of a report, computed from effects and outcomes alone.

Owns their names and fields. What is said of prompts and answers passes the log gate. Must not know any sink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.events import LogEvent, Severity
from core.flow.events import claim_lost, claim_succeeded, effect_failed, finalize_lost, step_selected
from core.reports.asking import code_of
from core.reports.log_gate import through_gate
from core.reports.output import StructuredOutputInvalid, read_response, validate_output
from core.reports.state import ReportResult
from effects import (
    CallModel,
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeLost,
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
)
from effects.word import replace

AUTH_MODE = "ai_studio_api_key"


def events_begun(effect: Effect) -> tuple[LogEvent, ...]:
    """Return what the log says when an effect begins."""
    say = _BEGUN.get(type(effect))
    return tuple(map(through_gate, say(effect))) if say else ()


def events_done(effect: Effect, outcome: Outcome) -> tuple[LogEvent, ...]:
    """Return what the log says when an effect has its outcome."""
    if isinstance(outcome, EffectFailed):
        return (through_gate(effect_failed(_withheld(outcome))),)
    say = _DONE.get(type(outcome))
    return tuple(map(through_gate, say(effect, outcome))) if say else ()


def _withheld(outcome: EffectFailed) -> EffectFailed:
    """Return the failure without what was said of it where that can quote a prompt or an answer."""
    is_told = not isinstance(outcome.effect, CallModel | LoadPrompt)
    return outcome if is_told else replace(outcome, message="what was said is withheld")


def events_of_result(result: ReportResult) -> tuple[LogEvent, ...]:
    """Return what the log says at the end of a run."""
    if result.status == "NOOP":
        reason = result.noop_reason
        return (LogEvent("step_noop", f"nothing done: {reason}", fields={"reason": reason}),)
    code = result.error.code if result.error else None
    said = f": {result.error.message}" if result.error else ""
    if result.is_claim_unknown:
        lost = {"stepId": result.step_id, "claimed": False, "reason": "store_failed", "errorCode": code}
        return (LogEvent("claim_attempt", f"did not claim {result.step_id}{said}", "ERROR", lost),)
    fields = {
        "status": result.status,
        "errorCode": code,
        "gcsUri": result.report_uri,
        "attempts": result.attempts,
        "reused": result.is_reused,
    }
    if code is not None:
        return (LogEvent("step_failed", f"{result.step_id} FAILED{said}", "ERROR", fields),)
    how = ", from the report that was there" if result.is_reused else ""
    return (LogEvent("step_completed", f"{result.step_id} SUCCEEDED{how}", fields=fields),)


def _prompt_started(effect: LoadPrompt) -> tuple[LogEvent, ...]:
    fields = {"promptId": effect.prompt_id}
    return (LogEvent("prompt_fetch_started", f"reading prompt {effect.prompt_id}", fields=fields),)


def _prompt_finished(effect: LoadPrompt, outcome: PromptLoaded) -> tuple[LogEvent, ...]:
    return (_fetched("prompt_fetch_finished", "prompt", {"promptId": effect.prompt_id}, outcome),)


def _schema_finished(effect: LoadSchema, outcome: SchemaLoaded) -> tuple[LogEvent, ...]:
    return (_fetched("schema_fetch_finished", "schema", {"schemaId": effect.schema_id}, outcome),)


def _fetched(event: str, what: str, fields: dict[str, Any], outcome: PromptLoaded | SchemaLoaded) -> LogEvent:
    name = next(iter(fields.values()))
    if outcome.content is None:
        return LogEvent(event, f"there is no {what} {name}", "WARNING", {**fields, "status": "missing"})
    return LogEvent(event, f"read {what} {name}", fields={**fields, "status": "ok", "document": outcome.content})


def _read_started(effect: ReadObject) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": f"gs://{effect.bucket}/{effect.name}"}
    return (LogEvent("gcs_read_started", f"reading {effect.name}", "DEBUG", fields),)


def _read_finished(effect: ReadObject, outcome: ObjectRead) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": f"gs://{effect.bucket}/{effect.name}", "status": "ok", "sizeBytes": outcome.content.size}
    return (LogEvent("gcs_read_finished", f"read {effect.name}", fields=fields),)


def _read_failed(effect: ReadObject, outcome: ObjectNotRead) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": f"gs://{effect.bucket}/{effect.name}", "status": outcome.reason}
    severity: Severity = "INFO" if outcome.reason == "missing" else "WARNING"
    return (LogEvent("gcs_read_finished", f"did not read {effect.name}: {outcome.message}", severity, fields),)


def _call_fields(effect: CallModel) -> dict[str, Any]:
    fixture = {"fixtureKey": effect.fixture_key} if effect.fixture_key else {}
    return {
        "llm": {
            "model": effect.model,
            "mode": effect.mode,
            "purpose": effect.purpose,
            "auth": {"mode": AUTH_MODE},
            **fixture,
        }
    }


def _call_started(effect: CallModel) -> tuple[LogEvent, ...]:
    if effect.purpose == "repair":
        fields = _call_fields(effect)
        yours = LogEvent("structured_output_repair_attempt_started", f"asking {effect.model} again", fields=fields)
    else:
        context = {**_call_fields(effect), "imagesCount": len(effect.images)}
        message = f"the context is {effect.user.size} bytes and {len(effect.images)} pictures"
        yours = LogEvent("context_resolve_finished", message, fields=context)
    sizes = {"system": effect.system, "user": effect.user, "imagesCount": len(effect.images)}
    return yours, LogEvent(
        "llm_request_started", f"asking {effect.model}", fields={**_call_fields(effect), **sizes}
    )


def _answered(effect: CallModel, outcome: ModelAnswered) -> tuple[LogEvent, ...]:
    answer = read_response(outcome.response.data or b"")
    fields = {
        **_call_fields(effect),
        "status": "ok",
        "durationMs": outcome.duration_ms,
        "finishReason": answer.finish_reason,
        "modelVersion": answer.model_version,
        "usageMetadata": answer.usage,
        "text": answer.text,
    }
    message = f"{effect.model} answered in {outcome.duration_ms} ms"
    finished = LogEvent("llm_request_finished", message, fields=fields)
    judged = validate_output(answer, effect.json_schema)
    is_valid = not isinstance(judged, StructuredOutputInvalid)
    events = [finished]
    if isinstance(judged, StructuredOutputInvalid):
        said = {
            "kind": judged.kind,
            "finishReason": judged.finish_reason,
            "textBytes": judged.text_bytes,
            "textSha256": judged.text_sha256,
        }
        events.append(
            LogEvent("structured_output_invalid", judged.message, "WARNING", {**_call_fields(effect), **said})
        )
    if effect.purpose == "repair":
        events.append(_repair_finished(effect, "ok" if is_valid else "invalid"))
    return tuple(events)


def _repair_finished(effect: CallModel, status: str) -> LogEvent:
    severity: Severity = "INFO" if status == "ok" else "WARNING"
    fields = {**_call_fields(effect), "status": status}
    return LogEvent("structured_output_repair_attempt_finished", f"the repair ended: {status}", severity, fields)


def _refused(effect: CallModel, outcome: ModelRefused) -> tuple[LogEvent, ...]:
    fields = {
        **_call_fields(effect),
        "status": "failed",
        "durationMs": outcome.duration_ms,
        "httpStatus": outcome.http_status,
        "errorCode": code_of(outcome),
        "reason": outcome.message,
    }
    message = f"{effect.model} did not answer: {outcome.message}"
    finished = LogEvent("llm_request_finished", message, "WARNING", fields)
    return (finished, _repair_finished(effect, "failed")) if effect.purpose == "repair" else (finished,)


def _write_started(effect: PutObject) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": f"gs://{effect.bucket}/{effect.name}", "sizeBytes": effect.content.size}
    return (LogEvent("gcs_write_started", f"storing {effect.name}", "DEBUG", fields),)


def _written(effect: PutObject, outcome: ObjectStored) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": outcome.uri, "status": "ok", "sizeBytes": effect.content.size}
    return (LogEvent("gcs_write_finished", f"stored {outcome.uri}", fields=fields),)


def _not_written(effect: PutObject, outcome: ObjectNotStored) -> tuple[LogEvent, ...]:
    fields = {"gcsUri": f"gs://{effect.bucket}/{effect.name}", "status": outcome.reason}
    message = f"did not store {effect.name}: {outcome.message}"
    return (LogEvent("gcs_write_finished", message, "WARNING", fields),)


def _context_started(effect: ClaimStep, outcome: StepClaimed) -> tuple[LogEvent, ...]:
    started = LogEvent("context_resolve_started", f"gathering what {effect.step_id} needs")
    return (*claim_succeeded(effect, outcome), started)


_BEGUN: dict[type, Callable[[Any], tuple[LogEvent, ...]]] = {
    ClaimStep: step_selected,
    LoadPrompt: _prompt_started,
    ReadObject: _read_started,
    CallModel: _call_started,
    PutObject: _write_started,
}

_DONE: dict[type, Callable[[Any, Any], tuple[LogEvent, ...]]] = {
    StepClaimed: _context_started,
    ClaimLost: claim_lost,
    PromptLoaded: _prompt_finished,
    SchemaLoaded: _schema_finished,
    ObjectRead: _read_finished,
    ObjectNotRead: _read_failed,
    ModelAnswered: _answered,
    ModelRefused: _refused,
    ObjectStored: _written,
    ObjectNotStored: _not_written,
    FinalizeLost: finalize_lost,
}
