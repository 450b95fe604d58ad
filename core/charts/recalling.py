"""What an earlier attempt left: a step claimed again spends no quota on what is already there.

Owns which manifest and which pictures count: of this run, step and template, not older than the first claim, whole. Must
not know where objects are kept, nor how missing pictures are drawn.
"""

from __future__ import annotations

from datetime import datetime

from core.backoff import backoff
from core.charts.ending import finalize
from core.charts.failing import fail
from core.charts.images import is_whole_png
from core.charts.manifest import fitting_manifest
from core.charts.naming import manifest_name, object_uri, png_second, step_folder
from core.charts.state import Chart, Phase, Stage, State
from core.charts.storing import UPLOAD_SHARE
from core.failures import GCS_READ_FAILED, step_error
from core.flow.step_run import object_give_up_at
from effects import ListObjects, LoadTemplates, ObjectNotRead, ObjectRead, ObjectsListed, ReadObject, Wait
from effects.moments import floor_second
from effects.word import replace

MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def load_templates(state: State) -> State:
    """Return the state in which the templates are being loaded."""
    assert state.step is not None
    loading = replace(state, phase=Phase.LOADING, asked_at=state.now)
    return loading.emit(LoadTemplates(chart_template_ids=state.step.chart_template_ids))


# The manifest.


def recall(state: State) -> State:
    """Return the state in which we look what is stored, then at the manifest if there is one."""
    assert state.step is not None
    since = state.recall_since or state.now
    looking = replace(state, phase=Phase.RECALLING, recall_since=since, tries=state.tries + 1)
    bucket, give_up_at = state.inputs.settings.bucket, object_give_up_at(state, since, UPLOAD_SHARE)
    if state.stored_names is None:
        return looking.emit(ListObjects(bucket=bucket, prefix=step_folder(state.step), give_up_at=give_up_at))
    return looking.emit(
        ReadObject(
            bucket=bucket,
            name=manifest_name(state.step),
            max_bytes=MAX_MANIFEST_BYTES,
            give_up_at=give_up_at,
        )
    )


def on_listed(state: State, outcome: ObjectsListed) -> State:
    """Return the state in which the manifest is read, or, where there is none, the templates are loaded."""
    assert state.step is not None
    has_manifest = manifest_name(state.step) in outcome.sizes
    listed = replace(state, stored_names=tuple(outcome.sizes), tries=0)
    return recall(listed) if has_manifest else load_templates(listed)


def on_manifest_read(state: State, outcome: ObjectRead) -> State:
    """Return the state in which the step is finalized from the manifest, or its pictures are looked at."""
    assert state.step is not None
    assert state.first_claimed_at is not None
    manifest = fitting_manifest(outcome.content.data or b"", state.step, state.first_claimed_at)
    if manifest is None or not _are_stored(state, [item["png_gcs_uri"] for item in manifest["items"]]):
        return load_templates(state)
    uri = object_uri(state.inputs.settings.bucket, outcome.name)
    return finalize(replace(state, manifest_uri=uri, recalled=manifest), "SUCCEEDED", None)


def _are_stored(state: State, uris: list[str]) -> bool:
    stored = {object_uri(state.inputs.settings.bucket, name) for name in state.stored_names or ()}
    return stored.issuperset(uris)


def on_not_recalled(state: State, outcome: ObjectNotRead) -> State:
    """Return the state in which we look again, or go on without a manifest, or give the step up."""
    if outcome.reason != "failed":
        return load_templates(state)
    again_at = state.now + backoff(state.tries, state.inputs.flow_run_path, state.step_id)
    if again_at >= object_give_up_at(state, state.recall_since or state.now, UPLOAD_SHARE):
        message = f"what an earlier attempt stored could not be read: {outcome.message}"
        return finalize(state, "FAILED", step_error(GCS_READ_FAILED, message))
    return state.emit(Wait(until=again_at, reason="recall", chart_template_id=None))


# The pictures.


def with_found(state: State, chart: Chart) -> Chart:
    """Return the request with the pictures of it that an earlier attempt stored, if it did."""
    assert state.step is not None
    assert chart.stage is Stage.NEEDS_ACCOUNT
    seconds = {
        name: second
        for name in state.stored_names or ()
        if (second := png_second(state.step, chart.chart_template_id, name)) and _is_ours(state, second)
    }
    found = tuple(sorted(seconds, key=lambda name: seconds[name], reverse=True))
    return replace(chart, stage=Stage.NEEDS_READ, found=found) if found else chart


def _is_ours(state: State, second: datetime) -> bool:
    """Return whether a picture of this second is not older than the first claim; names know no smaller part."""
    assert state.first_claimed_at is not None
    return second >= floor_second(state.first_claimed_at)


def begin_reads(state: State) -> State:
    """Return the state in which stored pictures are being read, as far as there are places."""
    for chart in state.due(Stage.NEEDS_READ):
        if not state.free_places:
            return state
        state = _read(state, chart)
    return state


def _read(state: State, chart: Chart) -> State:
    since = chart.read_since or state.now
    effect = ReadObject(
        bucket=state.inputs.settings.bucket,
        name=chart.found[0],
        max_bytes=state.inputs.settings.max_image_bytes,
        give_up_at=object_give_up_at(state, since, UPLOAD_SHARE),
    )
    reading = replace(chart, stage=Stage.READING, read_since=since, read_tries=chart.read_tries + 1)
    return state.with_chart(reading).emit(effect)


def reading_chart(state: State, name: str) -> Chart | None:
    """Return the request whose stored picture of this name is being read."""
    reading = (chart for chart in state.charts.values() if chart.stage is Stage.READING)
    return next((chart for chart in reading if chart.found[0] == name), None)


def on_picture_read(state: State, outcome: ObjectRead) -> State:
    """Return the state with a chart that need not be drawn, or, where it is not whole, one that must."""
    assert state.step is not None
    chart = reading_chart(state, outcome.name)
    if chart is None:
        return state
    if not is_whole_png(outcome.content.data or b""):
        return _look_further(state, chart)
    return state.with_chart(
        replace(
            chart,
            stage=Stage.DRAWN,
            png_uri=object_uri(state.inputs.settings.bucket, outcome.name),
            generated_at=png_second(state.step, chart.chart_template_id, outcome.name),
        )
    )


def on_picture_not_read(state: State, outcome: ObjectNotRead) -> State:
    """Return the state in which the picture is tried again, passed over, or given up."""
    chart = reading_chart(state, outcome.name)
    if chart is None:
        return state
    if outcome.reason != "failed":
        return _look_further(state, chart)
    again_at = state.now + backoff(
        chart.read_tries, state.inputs.flow_run_path, state.step_id, chart.chart_template_id
    )
    if again_at >= object_give_up_at(state, chart.read_since or state.now, UPLOAD_SHARE):
        message = f"the picture of an earlier attempt could not be read: {outcome.message}"
        return fail(state, chart, step_error(GCS_READ_FAILED, message))
    return state.with_chart(replace(chart, stage=Stage.NEEDS_READ, resume_at=again_at))


def _look_further(state: State, chart: Chart) -> State:
    """Return the state in which an older picture is looked at, or a new one drawn."""
    found = chart.found[1:]
    stage = Stage.NEEDS_READ if found else Stage.NEEDS_ACCOUNT
    return state.with_chart(replace(chart, stage=stage, found=found, read_since=None, read_tries=0))
