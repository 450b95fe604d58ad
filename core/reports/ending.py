"""The end of a report run: the report stored, the step finalized, or nothing done.

Owns what the step becomes and how long its last writes are tried. Must not know how the report came about.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from core.failures import GCS_WRITE_FAILED, step_error
from core.flow.step_run import finalize_again, left_to_lease, object_give_up_at, pause
from core.reports.report_file import ReportFacts
from core.reports.state import Phase, ReportResult, State
from effects import (
    EffectFailed,
    FinalizeStep,
    ObjectNotStored,
    PutObject,
    ReadObject,
    StepError,
    TerminalStatus,
    Wait,
)
from effects.moments import rfc3339
from effects.word import replace

MAX_REPORT_BYTES = 8 * 1024 * 1024


def give_up_at(state: State, since: datetime | None) -> datetime:
    """Return when to give an object up: after 30 s, and with time left to finalize."""
    return object_give_up_at(state, since or state.now, 2 / 3)


def look(state: State) -> State:
    """Return the state in which the step's report is looked for."""
    looking = replace(state, tries=state.tries + 1, loading_since=state.loading_since or state.now)
    return looking.emit(
        ReadObject(
            bucket=state.inputs.settings.bucket,
            name=state.report_name,
            max_bytes=MAX_REPORT_BYTES,
            give_up_at=give_up_at(state, looking.loading_since),
        )
    )


def put_report(state: State) -> State:
    """Return the state in which one more try to store the report is in flight."""
    assert state.report is not None
    since = state.writing_since or state.now
    writing = replace(state, phase=Phase.WRITING, tries=state.tries + 1, writing_since=since)
    return writing.emit(
        PutObject(
            bucket=state.inputs.settings.bucket,
            name=state.report_name,
            content=state.report,
            content_type="application/json",
            create_only=True,
            give_up_at=give_up_at(state, since),
        )
    )


def report_not_stored(state: State, outcome: ObjectNotStored) -> State:
    """Return the state in which the report is tried again, looked for where its name is taken, or given up."""
    if outcome.reason == "name_taken":
        return look(replace(state, phase=Phase.LOOKING, tries=0, loading_since=None))
    return store_again(state, outcome.message)


def store_again(state: State, why: str) -> State:
    """Return the state in which the report is tried again after a pause, or given up."""
    again_at = pause(state)
    if again_at >= give_up_at(state, state.writing_since):
        return finalize(state, "FAILED", step_error(GCS_WRITE_FAILED, f"the report could not be stored: {why}"))
    waiting = replace(state, phase=Phase.WRITING)
    return waiting.emit(Wait(until=again_at, reason="store", chart_template_id=None))


def succeed(state: State, execution: dict[str, Any]) -> State:
    """Return the state in which the step is being ended as SUCCEEDED, with its report."""
    uri = f"gs://{state.inputs.settings.bucket}/{state.report_name}"
    return finalize(replace(state, report_uri=uri, execution=execution), "SUCCEEDED", None)


def own_execution(state: State) -> dict[str, Any]:
    """Return what the outputs say of this execution."""
    assert state.answer is not None
    started = state.claimed_at or state.inputs.now
    answer = state.answer
    facts = ReportFacts(
        finish_reason=answer.finish_reason,
        model_version=answer.model_version,
        usage=answer.usage,
        started_at=started,
        finished_at=state.now,
    )
    said = _execution(facts)
    return {**said, "llm": {**said["llm"], "attempts": {"total": state.attempts}}}


def reused_execution(facts: ReportFacts) -> dict[str, Any]:
    """Return what the outputs say where the report was there already."""
    return {**_execution(facts), "reused": True}


def _execution(facts: ReportFacts) -> dict[str, Any]:
    took = max(facts.finished_at - facts.started_at, timedelta(0))
    return {
        "timing": {
            "startedAt": rfc3339(facts.started_at),
            "finishedAt": rfc3339(facts.finished_at),
            "durationMs": round(took.total_seconds() * 1000),
        },
        "llm": {
            "finishReason": facts.finish_reason,
            "modelVersion": facts.model_version,
            "usageMetadata": facts.usage,
        },
    }


def finalize(state: State, status: TerminalStatus, error: StepError | None) -> State:
    """Return the state in which the step is being ended."""
    ending = replace(state, phase=Phase.FINALIZING, final_status=status, final_error=error, tries=0)
    return try_finalize(ending)


def try_finalize(state: State) -> State:
    """Return the state in which one more try to end the step is in flight; a recovered step keeps its token."""
    assert state.final_status is not None
    return replace(state, tries=state.tries + 1).emit(
        FinalizeStep(
            flow_run=state.inputs.flow_run_path,
            step_id=state.step_id,
            token=None if state.claimed_at is None else state.inputs.token,
            status=state.final_status,
            outputs={"gcs_uri": state.report_uri},
            execution=state.execution,
            error=state.final_error,
        )
    )


def finalized(state: State) -> State:
    """Return the ended state of a step that has its terminal status."""
    assert state.final_status is not None
    return ended(state, _result(state, state.final_status, state.final_error))


def not_finalized(state: State, outcome: EffectFailed) -> State:
    """Return the state in which finalizing is tried again, or left to the lease."""
    return finalize_again(state) or ended(state, _result(state, "FAILED", left_to_lease(outcome.error_type)))


def nothing_done(state: State, reason: str) -> State:
    """Return the ended state of a run that changed nothing, or whose step is another's by now."""
    return ended(state, ReportResult(status="NOOP", step_id=state.step_id or None, noop_reason=reason))


def ended(state: State, result: ReportResult) -> State:
    """Return the ended state with this result."""
    return replace(state, phase=Phase.ENDED, result=result)


def _result(state: State, status: TerminalStatus, error: StepError | None) -> ReportResult:
    return ReportResult(
        status=status,
        step_id=state.step_id,
        report_uri=state.report_uri,
        error=error,
        attempts=state.attempts,
        is_reused=state.is_reused,
    )
