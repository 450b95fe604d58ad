"""The end of a chart export: manifest, minImages, finalize (§6, §7).

Owns what the step becomes and how long its last writes are tried. Must not know how pictures came about.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from core.charts.manifest import ManifestFailure, ManifestItem, build_manifest, encode_manifest
from core.charts.naming import manifest_name, object_uri
from core.charts.state import Chart, Phase, Stage, State, StepResult
from core.failures import MANIFEST_WRITE_FAILED, step_error
from core.flow.step_run import finalize_again, left_to_lease, object_give_up_at, pause
from effects import EffectFailed, FinalizeStep, PutObject, StepError, TerminalStatus, Wait, blob
from effects.word import replace


def write_manifest(state: State) -> State:
    """Return the state in which the manifest, with all requests settled, is being stored."""
    assert state.step is not None
    manifest = build_manifest(state.step, _items(state), _failures(state), state.now)
    content = blob(encode_manifest(manifest))
    writing = replace(state, phase=Phase.WRITING_MANIFEST, manifest=content, manifest_since=state.now, tries=0)
    return put_manifest(writing)


def put_manifest(state: State) -> State:
    """Return the state in which one more try to store the manifest is in flight."""
    assert state.step is not None
    assert state.manifest is not None
    return replace(state, tries=state.tries + 1).emit(
        PutObject(
            bucket=state.inputs.settings.bucket,
            name=manifest_name(state.step),
            content=state.manifest,
            content_type="application/json",
            create_only=False,
            give_up_at=_manifest_give_up_at(state),
        )
    )


def manifest_stored(state: State) -> State:
    """Return the state in which the step is being finalized by the minImages rule (§7.1)."""
    assert state.step is not None
    uri = object_uri(state.inputs.settings.bucket, manifest_name(state.step))
    stored = replace(state, manifest_uri=uri)
    if len(_items(state)) >= state.step.min_images:
        return finalize(stored, "SUCCEEDED", None)
    return finalize(stored, "FAILED", _too_few(state))


def manifest_not_stored(state: State, message: str) -> State:
    """Return the state in which the manifest is tried again, or given up and the step FAILED."""
    again_at = pause(state)
    if again_at >= _manifest_give_up_at(state):
        error = step_error(MANIFEST_WRITE_FAILED, f"the manifest could not be stored: {message}", _counts(state))
        return finalize(state, "FAILED", error)
    return state.emit(Wait(until=again_at, reason="manifest", chart_template_id=None))


def finalize(state: State, status: TerminalStatus, error: StepError | None) -> State:
    """Return the state in which the step is being ended."""
    ending = replace(state, phase=Phase.FINALIZING, final_status=status, final_error=error, tries=0)
    return try_finalize(ending)


def try_finalize(state: State) -> State:
    """Return the state in which one more try to end the step is in flight."""
    assert state.final_status is not None
    return replace(state, tries=state.tries + 1).emit(
        FinalizeStep(
            flow_run=state.inputs.flow_run_path,
            step_id=state.step_id,
            token=state.inputs.token,
            status=state.final_status,
            outputs={"outputsManifestGcsUri": state.manifest_uri},
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
    return ended(state, StepResult(status="NOOP", step_id=state.step_id or None, noop_reason=reason))


def ended(state: State, result: StepResult) -> State:
    """Return the ended state with this result."""
    return replace(state, phase=Phase.ENDED, result=result)


def _manifest_give_up_at(state: State) -> datetime:
    return object_give_up_at(state, state.manifest_since or state.now, 2 / 3)


def _items(state: State) -> list[ManifestItem]:
    return [_item(chart) for chart in state.charts.values() if chart.stage is Stage.DRAWN]


def _item(chart: Chart) -> ManifestItem:
    assert chart.template is not None
    assert chart.generated_at is not None
    assert chart.png_uri is not None
    return ManifestItem(
        chart_template_id=chart.chart_template_id,
        kind=chart.template.description,
        generated_at=chart.generated_at,
        png_gcs_uri=chart.png_uri,
    )


def _failures(state: State) -> list[ManifestFailure]:
    return [
        ManifestFailure(chart_template_id=chart.chart_template_id, error=chart.error)
        for chart in state.charts.values()
        if chart.error is not None
    ]


def _too_few(state: State) -> StepError:
    assert state.step is not None
    first = _failures(state)[0]
    message = (
        f"{len(_items(state))} of {len(state.charts)} charts were drawn, minImages is {state.step.min_images}; "
        f"{first.chart_template_id}: {first.error.message}"
    )
    return step_error(first.error.code, message, _counts(state))


def _counts(state: State) -> dict[str, dict[str, int]]:
    return {"failuresByCode": dict(Counter(failure.error.code for failure in _failures(state)))}


def _result(state: State, status: TerminalStatus, error: StepError | None) -> StepResult:
    recalled = state.recalled
    return StepResult(
        status=status,
        step_id=state.step_id,
        manifest_uri=state.manifest_uri,
        items_count=len(_items(state) if recalled is None else recalled["items"]),
        failures_count=len(_failures(state) if recalled is None else recalled.get("failures", ())),
        min_images=state.step.min_images if state.step else None,
        reused_count=_reused(state) if recalled is None else len(recalled["items"]),
        error=error,
    )


def _reused(state: State) -> int:
    return sum(chart.stage is Stage.DRAWN and bool(chart.found) for chart in state.charts.values())
