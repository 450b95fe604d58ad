"""Asking the model: once, and once more where the answer cannot be used (4.13, 4.27, 4.32).

Owns the time budget of calls, the one repair, and what each refusal means. Must not know any provider's client.
"""

from __future__ import annotations

import json
from datetime import timedelta

from core.failures import (
    GEMINI_REQUEST_FAILED,
    INVALID_STRUCTURED_OUTPUT,
    LLM_PROFILE_INVALID,
    LLM_SAFETY_BLOCK,
    RATE_LIMITED,
    TIME_BUDGET_EXCEEDED,
    step_error,
)
from core.reports.ending import finalize, put_report
from core.reports.loading import shown_artifacts
from core.reports.naming import answer_fixture_name, fixture_key, refusal_fixture_name
from core.reports.output import (
    Answer,
    StructuredOutputInvalid,
    is_blocked,
    read_response,
    validate_output,
)
from core.reports.report_file import build_report, encode_report
from core.reports.state import Phase, State
from core.reports.user_input import repair_text, user_text
from effects import (
    HOPED_BLOB,
    Blob,
    CallModel,
    ModelAnswered,
    ModelCallPurpose,
    ModelRefused,
    RecordReply,
    StepError,
    blob,
)
from effects.word import replace

LEAST_CALL = timedelta(seconds=1)
"""With less time than this before the reserve for finalizing, no call is begun."""
_TOO_MANY = 429
_CLIENT_ERRORS = range(400, 500)


def ask(state: State) -> State:
    """Return the state in which the model is being asked for the first time."""
    assert state.step is not None
    assert state.prompt is not None
    shown = shown_artifacts(state)
    if shown is None:
        return _call(state, "primary", None)
    text = user_text(state.prompt, state.step, shown["candles"][0], state.charts, shown["previous"])
    return _call(replace(state, asked=text), "primary", text)


def _call(state: State, purpose: ModelCallPurpose, text: str | None) -> State:
    assert state.step is not None
    assert state.prompt is not None
    assert state.schema is not None
    settings, profile = state.inputs.settings, state.step.profile
    left = state.inputs.calls_end - state.now
    if left < LEAST_CALL:
        return _out_of_time(state)
    key = fixture_key(state.step, purpose)
    is_known = settings.mode == "record" and key in state.inputs.fixtures
    effect = CallModel(
        purpose=purpose,
        model=profile.model,
        mode=settings.mode,
        replay=settings.mode == "mock" or is_known,
        fixture_key=None if settings.mode == "real" else key,
        system=_text_blob(None if text is None else state.prompt.system),
        user=_text_blob(text),
        images=tuple(one.content for one in state.of_role("image") if one.content),
        generation=profile.generation,
        json_schema=state.schema.json_schema,
        timeout_seconds=min(settings.call_timeout_seconds, left.total_seconds()),
        ends_by=state.inputs.calls_end,
    )
    return replace(state, phase=Phase.ASKING, attempts=state.attempts + 1).emit(effect)


def _text_blob(text: str | None) -> Blob:
    return HOPED_BLOB if text is None else blob(text.encode("utf-8", "replace"))


def _out_of_time(state: State) -> State:
    if state.invalid is not None:
        return finalize(state, "FAILED", _invalid_output(state.invalid, "no time was left for a repair"))
    message = "not asked: the time left is reserved for finalizing the step"
    return finalize(state, "FAILED", step_error(TIME_BUDGET_EXCEEDED, message))


# What came back.


def _is_awaited(state: State, purpose: ModelCallPurpose) -> bool:
    """Return whether the outcome is that of the call in flight: one that comes twice asks for nothing twice."""
    return purpose == ("primary" if state.invalid is None else "repair")


def on_answered(state: State, outcome: ModelAnswered) -> State:
    """Return the state in which the report is being stored, or the one repair is asked for, or the step has failed."""
    if not _is_awaited(state, outcome.purpose):
        return state
    state = _recorded(state, outcome)
    assert state.schema is not None
    if outcome.response.data is None:
        return put_report(replace(state, report=HOPED_BLOB, tries=0, answer=_HOPED_ANSWER))
    answer = read_response(outcome.response.data)
    if is_blocked(answer):
        reason = answer.finish_reason if answer.block_reason is None else answer.block_reason
        message = f"the model's answer was blocked for safety ({reason})"
        return finalize(
            state, "FAILED", step_error(LLM_SAFETY_BLOCK, message, {"finishReason": answer.finish_reason})
        )
    judged = validate_output(answer, state.schema.json_schema)
    if not isinstance(judged, StructuredOutputInvalid):
        return _write(state, answer, judged)
    if outcome.purpose == "repair":
        return finalize(state, "FAILED", _invalid_output(judged, "also after the one repair"))
    return _repair(replace(state, invalid=judged), answer, judged)


_HOPED_ANSWER = Answer(text=None, finish_reason="STOP", block_reason=None, model_version=None, usage=None)


def _repair(state: State, answer: Answer, invalid: StructuredOutputInvalid) -> State:
    return _call(state, "repair", repair_text(state.asked or "", answer.text, invalid.message))


def _write(state: State, answer: Answer, output: object) -> State:
    assert state.step is not None
    assert state.schema is not None
    assert isinstance(output, dict)
    started = state.claimed_at or state.inputs.now
    report = build_report(state.step, state.schema.sha256, answer, output, started, state.now)
    return put_report(replace(state, answer=answer, report=blob(encode_report(report)), tries=0))


def _invalid_output(invalid: StructuredOutputInvalid, note: str) -> StepError:
    details = {
        "kind": invalid.kind,
        "finishReason": invalid.finish_reason,
        "textBytes": invalid.text_bytes,
        "textSha256": invalid.text_sha256,
    }
    message = f"the model's output cannot be used ({note}): {invalid.message}"
    return step_error(INVALID_STRUCTURED_OUTPUT, message, details)


def on_refused(state: State, outcome: ModelRefused) -> State:
    """Return the state in which the step has failed: no second primary call is made."""
    if not _is_awaited(state, outcome.purpose):
        return state
    state = _refusal_recorded(state, outcome)
    if state.invalid is not None:
        note = f"and the repair failed: {outcome.message}"
        return finalize(state, "FAILED", _invalid_output(state.invalid, note))
    details = {"httpStatus": outcome.http_status, "status": outcome.status, "kind": outcome.kind}
    said = f"HTTP {outcome.http_status}" if outcome.http_status else outcome.kind
    error = step_error(code_of(outcome), f"the model was not to be had: {said}: {outcome.message}", details)
    return finalize(state, "FAILED", error)


def code_of(outcome: ModelRefused) -> str:
    """Return the error code that a refusal earns."""
    if outcome.http_status == _TOO_MANY or outcome.status == "RESOURCE_EXHAUSTED":
        return RATE_LIMITED
    is_our_fault = outcome.kind == "http" and outcome.http_status in _CLIENT_ERRORS
    return LLM_PROFILE_INVALID if is_our_fault else GEMINI_REQUEST_FAILED


# Recording.


def _is_recorded(state: State, purpose: ModelCallPurpose) -> bool:
    assert state.step is not None
    is_known = fixture_key(state.step, purpose) in state.inputs.fixtures
    return state.inputs.settings.mode == "record" and not is_known


def _recorded(state: State, outcome: ModelAnswered) -> State:
    assert state.step is not None
    if not _is_recorded(state, outcome.purpose):
        return state
    name = answer_fixture_name(fixture_key(state.step, outcome.purpose))
    return state.emit(RecordReply(fixture_name=name, content=outcome.response))


def _refusal_recorded(state: State, outcome: ModelRefused) -> State:
    assert state.step is not None
    if outcome.http_status is None or not _is_recorded(state, outcome.purpose):
        return state
    name = refusal_fixture_name(fixture_key(state.step, outcome.purpose), outcome.http_status, outcome.status)
    said = {"error": {"code": outcome.http_status, "status": outcome.status, "message": outcome.message}}
    return state.emit(RecordReply(fixture_name=name, content=blob(json.dumps(said, indent=2).encode())))
