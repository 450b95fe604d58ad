from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charts.manifest import encode_manifest, fitting_manifest, manifest_problems
from core.charts.step import parse_chart_step
from effects import FinalizeStep, PutObject
from tests.builders import NOW, STEP_ID, a_flow_run, a_step, an_input, real_configuration, some_inputs, templates
from tests.world import World

ANSWERS = [
    "png",
    "400 Invalid Symbol",
    "403 Layout Forbidden",
    "500 Oops",
    "429 Limit Exceeded",
    "timeout",
    "401 No",
    "200 <html>",
]


@given(
    scripts=st.lists(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=3), min_size=1, max_size=5),
    least=st.integers(0, 5),
    missing=st.sets(st.integers(0, 4)),
)
def test_min_images_alone_decides_and_the_manifest_always_validates(
    scripts: list[list[str]], least: int, missing: set[int]
) -> None:
    ids = [f"t{i}" for i in range(len(scripts))]
    least = min(least, len(ids))
    flow_run = a_flow_run({STEP_ID: a_step(inputs=an_input(ids, least))})
    present = [one for i, one in enumerate(ids) if i not in missing]
    world = World(
        some_inputs(real_configuration("acc1", "acc2"), flow_run),
        templates=templates(*present) if present else {},
        answers=dict(zip(ids, scripts, strict=True)),
    )
    result = world.run()
    manifest = _manifest(world)
    assert manifest_problems(manifest) == ()
    assert [one["chartTemplateId"] for one in manifest["requested"]] == ids
    drawn = [one["chartTemplateId"] for one in manifest["items"]]
    failed = [one["request"]["chartTemplateId"] for one in manifest["failures"]]
    assert sorted(drawn + failed) == sorted(ids)
    assert (drawn, failed) == (sorted(drawn), sorted(failed))
    assert result.status == ("SUCCEEDED" if len(drawn) >= least else "FAILED")
    assert world.step["outputs"]["outputsManifestGcsUri"] == result.manifest_uri
    (finalize,) = world.effects(FinalizeStep)
    if result.status == "FAILED":
        assert finalize.error.code == manifest["failures"][0]["error"]["code"]
        assert sum(finalize.error.details["failuresByCode"].values()) == len(failed)
    else:
        assert finalize.error is None


@given(
    answers=st.lists(st.sampled_from(["png", "400 Invalid Symbol"]), min_size=1, max_size=4),
    least=st.integers(0, 4),
    microseconds=st.sampled_from([0, 1, 999_999]),
    change=st.sampled_from(["runId", "stepId", "symbol", "timeframe", "minImages", "requested", None]),
)
def test_a_manifest_fits_the_step_it_was_written_for_if_it_has_enough_pictures_and_no_other(
    answers: list[str], least: int, microseconds: int, change: str | None
) -> None:
    ids = [f"t{i}" for i in range(len(answers))]
    least = min(least, len(ids))
    flow_run = a_flow_run({STEP_ID: a_step(inputs=an_input(ids, least))})
    now = NOW.replace(microsecond=microseconds)
    world = World(
        some_inputs(real_configuration(), flow_run, now=now),
        templates=templates(*ids),
        answers={one: [answer] for one, answer in zip(ids, answers, strict=True)},
    )
    result = world.run()
    step = parse_chart_step(flow_run, STEP_ID).unwrap()
    content = encode_manifest(_manifest(world))
    is_enough = answers.count("png") >= least
    assert (fitting_manifest(content, step, now) is not None) == is_enough == (result.status == "SUCCEEDED")
    others: dict[str, Any] = {
        "runId": {"run_id": "20251215-102530_BTCUSDT_other"},
        "stepId": {"step_id": "other"},
        "symbol": {"symbol": "OTHER"},
        "timeframe": {"timeframe": "9h"},
        "minImages": {"min_images": least + 1},
        "requested": {"chart_template_ids": (*ids, "more")},
    }
    other = replace(step, **others[change]) if change else step
    assert (fitting_manifest(content, other, now) is not None) == (is_enough and change is None)
    assert fitting_manifest(content, step, now + timedelta(days=1)) is None


def _manifest(world: World) -> Any:
    (put,) = [one for one in world.effects(PutObject) if not one.create_only]
    return json.loads(put.content.data)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"extra": 1}, "(top)"),
        ({"runId": "x"}, "runId"),
        ({"minImages": -1}, "minImages"),
        ({"requested": []}, "requested"),
        ({"items": [{"chartTemplateId": "a"}]}, "items[0]"),
        (
            {
                "failures": [
                    {"request": {"chartTemplateId": "a"}, "error": {"code": "X", "message": "y", "details": None}}
                ]
            },
            "failures[0].error.details",
        ),
        ({"createdAt": "yesterday"}, "createdAt"),
    ],
)
def test_the_schema_refuses_what_the_facts_forbid(change: dict[str, Any], where: str) -> None:
    world = World(some_inputs())
    world.run()
    assert where in {one.where for one in manifest_problems({**_manifest(world), **change})}
