"""Whatever earlier attempts stored: no call is made for a picture that is there, and none is left out that is not."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.charts.manifest import fitting_manifest, manifest_problems
from core.charts.naming import manifest_name, png_name
from core.charts.step import ChartStep, parse_chart_step
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION, usage_path
from effects import CallChartApi, LoadTemplates, ReserveAccount
from effects.moments import rfc3339
from tests.builders import (
    NOW,
    STEP_ID,
    a_configuration,
    a_flow_run,
    a_png,
    a_step,
    an_account,
    an_input,
    some_inputs,
)
from tests.builders import templates as a_template_of_each
from tests.strategies import json_values
from tests.world import World

IDS = ("t0", "t1", "t2", "t3", "t4")
FIRST_CLAIM = NOW - timedelta(minutes=20, microseconds=1)
PICTURE = a_png(padding=b"whole")
BROKEN = (b"", PICTURE[:-1], PICTURE[:40], PICTURE + b"x", PICTURE[:50] + b"?" + PICTURE[51:])
ANSWERS = ("png", "400 Invalid Symbol", "403 Layout Forbidden")


@dataclass(frozen=True)
class Picture:
    """A picture that an earlier attempt stored, or something that looks like one."""

    template_id: str
    seconds: int
    """After the second of the first claim; before it where negative."""
    data: bytes

    def name(self, step: ChartStep) -> str:
        return png_name(
            step, self.template_id, FIRST_CLAIM.replace(microsecond=0) + timedelta(seconds=self.seconds)
        )

    @property
    def is_usable(self) -> bool:
        return self.seconds >= 0 and self.data == PICTURE


pictures = st.builds(
    Picture,
    template_id=st.sampled_from([*IDS, "x_t0", "t1_x", "4h_t2"]),
    seconds=st.integers(-3, 3),
    data=st.just(PICTURE) | st.sampled_from(BROKEN),
)


def a_run(min_images: int, attempt: int) -> dict[str, Any]:
    claim = {
        "token": "earlier",
        "attempt": attempt,
        "firstStartedAt": rfc3339(FIRST_CLAIM),
        "startedAt": rfc3339(NOW - timedelta(minutes=11)),
        "leaseUntil": rfc3339(NOW),
    }
    outputs = {"execution": {"claim": claim}}
    return a_flow_run({STEP_ID: a_step(inputs=an_input(IDS, min_images), outputs=outputs)})


def the_step(flow_run: dict[str, Any]) -> ChartStep:
    return parse_chart_step(flow_run, STEP_ID).unwrap()


@settings(max_examples=150)
@given(
    stored=st.lists(pictures, max_size=12),
    min_images=st.integers(0, 5),
    attempt=st.integers(1, 4),
    mode=st.sampled_from(["mock", "real", "record"]),
    places=st.integers(1, 4),
    answers=st.dictionaries(st.sampled_from(IDS), st.sampled_from(ANSWERS).map(lambda one: [one])),
)
def test_calls_are_made_for_exactly_the_requests_without_a_usable_picture(
    stored: list[Picture],
    min_images: int,
    attempt: int,
    mode: Any,
    places: int,
    answers: dict[str, list[str]],
) -> None:
    flow_run = a_run(min_images, attempt)
    step = the_step(flow_run)
    objects = {one.name(step): one for one in stored}
    configuration = a_configuration([an_account("acc1")], CHARTS_MAX_PARALLEL=str(places))
    configuration = replace(configuration, settings=replace(configuration.settings, mode=mode))
    world = World(some_inputs(configuration, flow_run), templates=a_template_of_each(*IDS), answers=answers)
    world.store({name: one.data for name, one in objects.items()})
    result = world.run()
    usable = {one.template_id for one in objects.values() if one.is_usable}
    missing = [one for one in IDS if one not in usable]
    drawn = [one for one in missing if answers.get(one, ["png"]) == ["png"]]
    assert sorted(call.chart_template_id for call in world.effects(CallChartApi)) == missing
    assert _counted(world) == len(missing)
    assert bool(world.effects(ReserveAccount)) == bool(missing)
    assert result.reused_count == len(IDS) - len(missing)
    assert result.items_count == len(IDS) - len(missing) + len(drawn)
    assert result.status == ("SUCCEEDED" if result.items_count >= min_images else "FAILED")
    manifest = json.loads(world.stored()[manifest_name(step)])
    assert manifest_problems(manifest) == ()
    for item in manifest["items"]:
        name = item["png_gcs_uri"].removeprefix("gs://local-artifacts/")
        if item["chartTemplateId"] in usable:
            mine = [
                one for one in objects.values() if one.template_id == item["chartTemplateId"] and one.is_usable
            ]
            assert name == max(mine, key=lambda one: one.seconds).name(step)
        else:
            assert name not in objects
    assert world.step["status"] == result.status


def _counted(world: World) -> int:
    paths = [usage_path(one, "acc1") for one in (USAGE_COLLECTION, MOCK_USAGE_COLLECTION)]
    return sum(world.documents[path]["usageToday"] for path in paths if path in world.documents)


@settings(max_examples=60)
@given(data=st.data(), min_images=st.integers(0, 5), places=st.integers(1, 4))
def test_attempts_killed_anywhere_never_call_twice_for_a_picture_that_is_stored(
    data: st.DataObject, min_images: int, places: int
) -> None:
    configuration = a_configuration([an_account("acc1")], CHARTS_MAX_PARALLEL=str(places))
    flow_run = a_flow_run({STEP_ID: a_step(inputs=an_input(IDS, min_images))})
    world = World(some_inputs(configuration, flow_run), templates=a_template_of_each(*IDS))
    for attempt in (2, 3):
        world.run_until_killed(data.draw(st.integers(1, 24)))
        if world.state is None or world.state.result is not None:
            return
        before = world.stored()
        world = _next_attempt(world, attempt)
    result = world.run()
    step = the_step(flow_run)
    drawn = {one for one in IDS if any(name.endswith(f"_{one}.png") for name in before)}
    called = [call.chart_template_id for call in world.effects(CallChartApi)]
    if manifest_name(step) in before:
        assert (called, world.effects(LoadTemplates)) == ([], [])
    else:
        assert sorted(called) == sorted(set(IDS) - drawn)
    assert (result.status, result.items_count) == ("SUCCEEDED", 5)


def _next_attempt(world: World, attempt: int) -> World:
    """Return the world after the lease ran out and the orchestrator returned the step to READY."""
    documents = dict(world.documents)
    flow_run = json.loads(json.dumps(documents.pop(world.inputs.flow_run_path)))
    flow_run["steps"][STEP_ID]["status"] = "READY"
    now = world.inputs.now + timedelta(minutes=11)
    inputs = replace(world.inputs, flow_run=flow_run, now=now, token=f"token-{attempt}")
    return World(inputs, templates=world.templates, usage=documents, objects=world.objects)


@given(content=st.binary(max_size=60) | json_values.map(lambda one: json.dumps(one).encode()))
def test_whatever_stands_in_the_place_of_a_manifest_is_none(content: bytes) -> None:
    assert fitting_manifest(content, the_step(a_run(0, 1)), NOW) is None
