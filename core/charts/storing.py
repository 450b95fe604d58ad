"""Pictures on their way into the bucket (§5.1).

Owns their names, the next second where a name is taken, and when to give up. Must not know where objects are kept.
"""

from __future__ import annotations

from datetime import timedelta

from core.backoff import backoff
from core.charts.failing import fail
from core.charts.naming import png_name
from core.charts.state import Chart, Stage, State
from core.failures import GCS_WRITE_FAILED, step_error
from core.flow.step_run import object_give_up_at
from effects import ObjectNotStored, ObjectStored, PutObject
from effects.word import replace

MAX_STORE_TRIES = 60
UPLOAD_SHARE = 1 / 3
"""Part of the finalize reserve that uploads may still use."""


def begin_stores(state: State) -> State:
    """Return the state in which pictures are being stored, as far as there are places."""
    for chart in state.due(Stage.NEEDS_STORE):
        if not state.free_places:
            return state
        state = _store(state, chart)
    return state


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
