from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charts.manifest import manifest_problems
from effects import FinalizeStep, PutObject
from tests.builders import STEP_ID, a_flow_run, a_step, an_input, real_configuration, some_inputs, templates
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
