"""A step claimed again: what an earlier attempt stored is not drawn again, and only what is its own counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.charts import program
from core.charts.events import events_done, events_of_result
from core.charts.manifest import manifest_problems
from core.charts.naming import manifest_name, object_uri, png_name
from core.charts.recalling import MAX_MANIFEST_BYTES
from core.charts.settings import ChartConfiguration
from core.charts.state import Phase
from core.charts.step import ChartStep, parse_chart_step
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION, usage_path
from effects import (
    CallChartApi,
    ChartRendered,
    EffectFailed,
    FinalizeStep,
    ListObjects,
    LoadTemplates,
    ObjectNotRead,
    ObjectRead,
    ObjectsListed,
    Outcome,
    PutObject,
    ReadObject,
    RecordReply,
    ReserveAccount,
    StepClaimed,
    Wait,
    blob,
)
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
    real_configuration,
    some_inputs,
    templates,
)
from tests.world import World

IDS = ("t0", "t1", "t2", "t3", "t4")
FIRST_CLAIM = NOW - timedelta(minutes=20)
"""When the first attempt began; the lease it had is over by NOW."""
DRAWN_AT = FIRST_CLAIM + timedelta(seconds=7)
SECOND = timedelta(seconds=1)
PICTURE = a_png(padding=b"of an earlier attempt")


def a_claim(attempt: int = 1, first: datetime | None = FIRST_CLAIM) -> dict[str, Any]:
    """Return the claim that an earlier attempt left behind."""
    return {
        "token": f"token-of-attempt-{attempt}",
        "attempt": attempt,
        **({"firstStartedAt": rfc3339(first)} if first else {}),
        "startedAt": rfc3339(FIRST_CLAIM),
        "leaseUntil": rfc3339(NOW - SECOND),
    }


def an_abandoned_run(
    ids: tuple[str, ...] = IDS, min_images: int = 1, claim: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a flow_run whose step was claimed once, and is READY again."""
    outputs = {"execution": {"claim": a_claim() if claim is None else claim}}
    return a_flow_run({STEP_ID: a_step(inputs=an_input(ids, min_images), outputs=outputs)})


def the_step(flow_run: Mapping[str, Any]) -> ChartStep:
    return parse_chart_step(flow_run, STEP_ID).unwrap()


STEP = the_step(an_abandoned_run())


def a_world(
    stored: Mapping[str, bytes] | None = None,
    flow_run: Mapping[str, Any] | None = None,
    configuration: ChartConfiguration | None = None,
    **more: Any,
) -> World:
    """Return the world of a second attempt, in which these objects are stored."""
    inputs = some_inputs(configuration or real_configuration(), flow_run or an_abandoned_run(), token="token-2")
    world = World(inputs, **{"templates": templates(*IDS), **more})
    world.store(stored or {})
    return world


def picture(template_id: str, drawn_at: datetime = DRAWN_AT, step: ChartStep = STEP) -> str:
    return png_name(step, template_id, drawn_at)


def pictures(*template_ids: str) -> dict[str, bytes]:
    return {picture(one): PICTURE for one in template_ids}


def a_manifest(**changes: Any) -> dict[str, Any]:
    """Return the manifest that an earlier attempt wrote, of pictures that are stored."""
    step: ChartStep = changes.pop("step", STEP)
    items: tuple[str, ...] = changes.pop("drawn", step.chart_template_ids)
    return {
        "schemaVersion": 1,
        "runId": step.run_id,
        "stepId": step.step_id,
        "createdAt": rfc3339(DRAWN_AT + SECOND),
        "symbol": step.symbol,
        "timeframe": step.timeframe,
        "minImages": step.min_images,
        "requested": [{"chartTemplateId": one} for one in step.chart_template_ids],
        "items": [
            {
                "chartTemplateId": one,
                "kind": f"about {one}",
                "generatedAt": rfc3339(DRAWN_AT),
                "png_gcs_uri": object_uri("local-artifacts", picture(one)),
            }
            for one in items
        ],
        "failures": [
            {"request": {"chartTemplateId": one}, "error": {"code": "CHART_API_FAILED", "message": "no"}}
            for one in step.chart_template_ids
            if one not in items
        ],
        **changes,
    }


def with_manifest(manifest: Mapping[str, Any] | bytes | None = None, drawn: tuple[str, ...] = IDS) -> Any:
    content = manifest if isinstance(manifest, bytes) else json.dumps(manifest or a_manifest()).encode()
    return {manifest_name(STEP): content, **pictures(*drawn)}


def written_manifest(world: World) -> Any:
    manifest = json.loads(world.stored()[manifest_name(STEP)])
    assert manifest_problems(manifest) == ()
    return manifest


def called(world: World) -> list[str]:
    return [call.chart_template_id for call in world.effects(CallChartApi)]


def reads(world: World) -> list[str]:
    return [read.name for read in world.effects(ReadObject)]


def counted(world: World) -> int:
    """Return what this attempt's calls added to the usage of all accounts."""
    paths = [usage_path(one, "acc1") for one in (USAGE_COLLECTION, MOCK_USAGE_COLLECTION)]
    documents = [world.documents.get(path) for path in paths]
    return sum(one["usageToday"] for one in documents if one)


def not_read(effect: Any, now: datetime) -> ObjectNotRead:
    name = effect.prefix if isinstance(effect, ListObjects) else effect.name
    return ObjectNotRead(name=name, reason="failed", message="503 backend error", at=now)


def broken(effect: Any, now: datetime) -> EffectFailed:
    return EffectFailed(effect=effect, error_type="OSError", message="it broke", at=now)


class Failing:
    """A reply that goes wrong the first so many times it is asked for what is meant."""

    def __init__(
        self, times: int, meant: Callable[[Any], bool] = lambda effect: True, reply: Any = not_read
    ) -> None:
        self.left, self.meant, self.reply = times, meant, reply
        self.world: World | None = None

    def __call__(self, effect: Any, now: datetime) -> Outcome:
        assert self.world is not None
        if self.left and self.meant(effect):
            self.left -= 1
            outcome: Outcome = self.reply(effect, now)
            return outcome
        return self.world.hoped(effect, now)

    def of(self, world: World) -> World:
        self.world = world
        return world


def is_manifest(effect: ReadObject) -> bool:
    return effect.name == manifest_name(STEP)


def is_picture(effect: ReadObject) -> bool:
    return not is_manifest(effect)


FOREVER = 10_000


def configurations() -> dict[str, ChartConfiguration]:
    mock = a_configuration([an_account("acc1")])
    return {mode: replace(mock, settings=replace(mock.settings, mode=mode)) for mode in ("mock", "real", "record")}  # type: ignore[arg-type]


any_mode = pytest.mark.parametrize("configuration", configurations().values(), ids=configurations())


# Pictures that are there.


@any_mode
def test_with_three_of_five_pictures_stored_only_the_other_two_are_drawn(
    configuration: ChartConfiguration,
) -> None:
    world = a_world(pictures("t0", "t2", "t4"), an_abandoned_run(min_images=5), configuration)
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 5, 3)
    assert sorted(called(world)) == ["t1", "t3"]
    (reservation,) = world.effects(ReserveAccount)
    assert [one.chart_template_id for one in reservation.for_requests] == ["t1", "t3"]
    assert counted(world) == 2
    items = written_manifest(world)["items"]
    assert [one["chartTemplateId"] for one in items] == list(IDS)
    assert [items[place]["generatedAt"] for place in (0, 2, 4)] == [rfc3339(DRAWN_AT)] * 3
    assert [items[place]["png_gcs_uri"] for place in (0, 2, 4)] == [
        f"gs://local-artifacts/{picture(one)}" for one in ("t0", "t2", "t4")
    ]
    assert {items[place]["generatedAt"] for place in (1, 3)}.isdisjoint({rfc3339(DRAWN_AT)})
    assert [one["kind"] for one in items] == [f"about {one}" for one in IDS]
    assert len([put for put in world.effects(PutObject) if put.create_only]) == 2
    assert world.step["status"] == "SUCCEEDED"


@any_mode
def test_with_all_pictures_stored_nothing_is_drawn_and_the_manifest_is_written(
    configuration: ChartConfiguration,
) -> None:
    world = a_world(pictures(*IDS), an_abandoned_run(min_images=5), configuration)
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 5, 5)
    for kind in (CallChartApi, ReserveAccount, RecordReply):
        assert world.effects(kind) == []
    assert len(written_manifest(world)["items"]) == 5


@any_mode
def test_a_first_attempt_always_draws(configuration: ChartConfiguration) -> None:
    first = a_flow_run({STEP_ID: a_step(inputs=an_input(IDS))})
    stored = {picture(one, NOW + SECOND): PICTURE for one in IDS}
    world = a_world({**stored, **with_manifest(a_manifest(createdAt=rfc3339(NOW + SECOND)))}, first, configuration)
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 5, 0)
    assert len(called(world)) == 5
    assert world.effects(ListObjects) == world.effects(ReadObject) == []


def test_with_nothing_stored_a_second_attempt_draws_everything() -> None:
    world = a_world()
    assert world.run().items_count == 5
    assert len(called(world)) == 5
    assert reads(world) == []
    (listing,) = world.effects(ListObjects)
    assert (listing.bucket, listing.prefix) == ("local-artifacts", f"charts/{STEP.run_id}/{STEP_ID}/")


def test_of_several_pictures_the_latest_is_taken() -> None:
    newest = picture("t0", DRAWN_AT + 5 * SECOND)
    stored = {picture("t0"): PICTURE, newest: PICTURE, picture("t0", DRAWN_AT + SECOND): PICTURE}
    world = a_world(stored, an_abandoned_run(("t0",)))
    assert world.run().reused_count == 1
    (item,) = written_manifest(world)["items"]
    assert item["png_gcs_uri"] == f"gs://local-artifacts/{newest}"
    assert item["generatedAt"] == rfc3339(DRAWN_AT + 5 * SECOND)
    assert reads(world) == [newest]


BROKEN = {
    "truncated": PICTURE[:-1],
    "without its end": PICTURE[:-12],
    "only a header": PICTURE[:33],
    "with one bit turned": PICTURE[:60] + bytes([PICTURE[60] ^ 1]) + PICTURE[61:],
    "with something behind it": PICTURE + b"\0",
    "empty": b"",
    "a page of HTML": b"<html>",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_picture_that_is_not_whole_is_not_taken_but_the_next_older_one_is(data: bytes) -> None:
    stored = {picture("t0", DRAWN_AT + SECOND): data, picture("t0"): PICTURE}
    world = a_world(stored, an_abandoned_run(("t0",)))
    assert world.run().reused_count == 1
    assert called(world) == []
    assert written_manifest(world)["items"][0]["generatedAt"] == rfc3339(DRAWN_AT)


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_request_whose_pictures_are_all_broken_is_drawn(data: bytes) -> None:
    stored = {picture("t0", DRAWN_AT + SECOND): data, picture("t0"): data, picture("t1"): PICTURE}
    world = a_world(stored, an_abandoned_run(("t0", "t1")))
    result = world.run()
    assert (result.items_count, result.reused_count) == (2, 1)
    assert called(world) == ["t0"]
    assert len(reads(world)) == 3


def test_a_picture_larger_than_is_allowed_now_is_not_taken() -> None:
    allowed = real_configuration(CHARTS_MAX_IMAGE_BYTES=str(len(PICTURE)))
    larger = a_png(padding=b"of an earlier attempt!")
    stored = {picture("t0"): PICTURE, picture("t1"): larger, picture("t1", DRAWN_AT - SECOND): PICTURE}
    world = a_world(stored, an_abandoned_run(("t0", "t1")), allowed)
    assert world.run().reused_count == 2
    assert [len(outcome.content.data) for outcome in world.outcomes(ObjectRead)] == [len(PICTURE)] * 2
    assert {read.max_bytes for read in world.effects(ReadObject)} == {len(PICTURE)}


def test_a_picture_that_was_listed_and_is_gone_is_drawn() -> None:
    def gone(effect: ReadObject, now: datetime) -> ObjectNotRead:
        return ObjectNotRead(name=effect.name, reason="missing", message="there is no such object", at=now)

    world = a_world(pictures("t0"), an_abandoned_run(("t0",)), replies={ReadObject: gone})
    assert world.run().status == "SUCCEEDED"
    assert called(world) == ["t0"]


NOT_OURS = {
    "a second older than the first claim": picture("t0", FIRST_CLAIM - SECOND),
    "of an id that ends alike": picture("x_t0"),
    "of an id that begins alike": picture("t0_x"),
    "of another symbol": picture("t0", step=replace(STEP, symbol="ETHUSDT")),
    "of a symbol that ends alike": picture("t0", step=replace(STEP, symbol="XBTCUSDT")),
    "of another timeframe": picture("t0", step=replace(STEP, timeframe="14h")),
    "of another step": picture("t0", step=replace(STEP, step_id="charts:4h:all2")),
    "of another run": picture("t0", step=replace(STEP, run_id="20251215-102530_BTCUSDT_k3f7b")),
    "in a folder below": picture("t0").replace("/2025", "/below/2025"),
    "with another ending": picture("t0").replace(".png", ".PNG"),
    "with a second of no clock": picture("t0").replace("-1005", "-1065"),
    "without a second": f"charts/{STEP.run_id}/{STEP_ID}/_BTCUSDT_4h_t0.png",
    "with more before it": picture("t0").replace("/2025", "/x2025"),
    "with more behind it": f"{picture('t0')}.png",
    "still being written": picture("t0").replace("/2025", "/.writing-2025"),
}


@pytest.mark.parametrize("name", NOT_OURS.values(), ids=NOT_OURS)
def test_a_picture_that_is_not_this_request_s_own_is_not_even_read(name: str) -> None:
    assert name != picture("t0")
    world = a_world({name: PICTURE}, an_abandoned_run(("t0",)))
    result = world.run()
    assert (result.status, result.reused_count) == ("SUCCEEDED", 0)
    assert reads(world) == []
    assert called(world) == ["t0"]


def test_one_id_that_ends_like_another_does_not_get_its_picture() -> None:
    ids = ("v1", "4h_v1", "x_4h_v1")
    for drawn in ids:
        world = a_world({picture(drawn): PICTURE}, an_abandoned_run(ids), templates=templates(*ids))
        world.run()
        assert sorted(called(world)) == sorted(set(ids) - {drawn})


@pytest.mark.parametrize("microseconds", [0, 1, 999_999])
def test_a_picture_of_the_second_of_the_first_claim_is_its_own(microseconds: int) -> None:
    claim = a_claim(first=FIRST_CLAIM + timedelta(microseconds=microseconds))
    world = a_world({picture("t0", FIRST_CLAIM): PICTURE}, an_abandoned_run(("t0",), claim=claim))
    assert world.run().reused_count == 1


def test_a_claim_of_an_older_worker_that_states_only_its_own_start_counts_from_there() -> None:
    flow_run = an_abandoned_run(("t0", "t1"), claim=a_claim(first=None))
    world = a_world({picture("t0", FIRST_CLAIM): PICTURE, picture("t1", FIRST_CLAIM - SECOND): PICTURE}, flow_run)
    assert world.run().reused_count == 1
    assert called(world) == ["t1"]


def test_a_stored_picture_of_a_template_that_is_gone_is_no_item() -> None:
    world = a_world(pictures("t0", "t1"), an_abandoned_run(("t0", "t1")), templates=templates("t1"))
    result = world.run()
    assert (result.items_count, result.failures_count, result.reused_count) == (1, 1, 1)
    assert reads(world) == [picture("t1")]


def following(world: World, after: timedelta = timedelta(minutes=11)) -> World:
    """Return the world of the next attempt: the lease ran out, and the step was returned to READY."""
    documents = dict(world.documents)
    flow_run = json.loads(json.dumps(documents.pop(world.inputs.flow_run_path)))
    flow_run["steps"][STEP_ID]["status"] = "READY"
    inputs = replace(world.inputs, flow_run=flow_run, now=world.inputs.now + after, token="token-next")
    return World(inputs, templates=world.templates, usage=documents, objects=world.objects)


def test_a_third_attempt_uses_what_the_first_and_the_second_one_stored() -> None:
    flow_run = an_abandoned_run(("t0", "t1", "t2"), min_images=3)
    second = a_world(pictures("t0"), flow_run)
    second.run_until_killed(after_the_first_put(a_world(pictures("t0"), flow_run)))
    assert len(second.stored()) == 2
    third = following(second)
    result = third.run()
    (claimed,) = third.outcomes(StepClaimed)
    assert (claimed.attempt, claimed.first_claimed_at) == (3, FIRST_CLAIM)
    assert (result.items_count, result.reused_count) == (3, 2)
    assert called(third) == ["t2"]
    assert third.step["outputs"]["execution"]["claim"]["firstStartedAt"] == rfc3339(FIRST_CLAIM)


def after_the_first_put(world: World) -> int:
    """Return after how many effects such a world has stored something."""
    world.run()
    return [isinstance(effect, PutObject) for _, effect, _ in world.trace].index(True) + 1


def test_killed_after_any_effect_the_next_attempt_calls_only_for_what_is_not_stored() -> None:
    flow_run = a_flow_run({STEP_ID: a_step(inputs=an_input(IDS, 5))})
    whole = a_world(flow_run=flow_run)
    whole.run()
    numbers = []
    for after in range(1, len(whole.trace)):
        first = a_world(flow_run=flow_run)
        first.run_until_killed(after)
        drawn = sum(name.endswith(".png") for name in first.stored())
        second = following(first)
        result = second.run()
        assert (result.status, result.items_count) == ("SUCCEEDED", 5)
        assert (result.reused_count, len(called(second))) == (drawn, 5 - drawn)
        assert counted(second) == counted(first) + 5 - drawn
        assert len(written_manifest(second)["items"]) == 5
        numbers.append(drawn)
    assert set(numbers) == {0, 1, 2, 3, 4, 5}


# The manifest that is there.


@any_mode
def test_a_fitting_manifest_is_finalized_from_without_anything_drawn(configuration: ChartConfiguration) -> None:
    world = a_world(with_manifest(), configuration=configuration)
    before = world.stored()
    result = world.run()
    assert (result.status, result.items_count, result.failures_count) == ("SUCCEEDED", 5, 0)
    assert (result.reused_count, result.min_images) == (5, 1)
    assert [type(effect).__name__ for _, effect, _ in world.trace] == [
        "ClaimStep",
        "ListObjects",
        "ReadObject",
        "FinalizeStep",
    ]
    assert world.stored() == before
    assert result.manifest_uri == f"gs://local-artifacts/{manifest_name(STEP)}"
    assert world.step["status"] == "SUCCEEDED"
    assert world.step["outputs"]["outputsManifestGcsUri"] == result.manifest_uri
    assert counted(world) == 0


def test_a_manifest_with_failures_and_enough_pictures_is_fitting() -> None:
    manifest = a_manifest(drawn=("t1", "t3"))
    world = a_world(with_manifest(manifest, drawn=("t1", "t3")))
    result = world.run()
    assert (result.status, result.items_count, result.failures_count, result.reused_count) == (
        "SUCCEEDED",
        2,
        3,
        2,
    )
    assert called(world) == []


def test_a_manifest_without_failures_at_all_is_fitting() -> None:
    manifest = a_manifest()
    del manifest["failures"]
    assert a_world(with_manifest(manifest)).run().failures_count == 0


@pytest.mark.parametrize(
    "created_at", ["2025-12-15T10:05:30Z", "2025-12-15T10:05:30.000000Z", "2025-12-15T10:05:30.999999Z"]
)
def test_a_manifest_of_the_second_of_the_first_claim_is_not_older(created_at: str) -> None:
    claim = a_claim(first=FIRST_CLAIM + timedelta(microseconds=500_000))
    world = a_world(with_manifest(a_manifest(createdAt=created_at)), an_abandoned_run(claim=claim))
    assert world.run().reused_count == 5
    assert world.effects(LoadTemplates) == []


UNFIT: dict[str, Mapping[str, Any] | bytes] = {
    "older than the first claim": a_manifest(createdAt=rfc3339(FIRST_CLAIM - timedelta(microseconds=1))),
    "of no moment": a_manifest(createdAt="2025-13-45T10:05:30Z"),
    "of another run": a_manifest(runId="20251215-102530_BTCUSDT_k3f7b"),
    "of another step": a_manifest(stepId="charts:4h:all2"),
    "of another symbol": a_manifest(symbol="ETHUSDT"),
    "of another timeframe": a_manifest(timeframe="1h"),
    "of another minImages": a_manifest(minImages=0),
    "of a later schema": a_manifest(schemaVersion=2),
    "with other requests": a_manifest(requested=[{"chartTemplateId": one} for one in ("t0", "t1")]),
    "with the requests in another order": a_manifest(
        requested=[{"chartTemplateId": one} for one in reversed(IDS)]
    ),
    "with too few items": a_manifest(drawn=()),
    "with items of other templates alone": a_manifest(
        items=[{**a_manifest()["items"][0], "chartTemplateId": "x"}]
    ),
    "that is no JSON": b'{"schemaVersion": 1, "items": [',
    "that is empty": b"",
    "that is no text": b"\xff\xfe\x00",
    "that is a list": b"[]",
    "that is null": b"null",
    "that is nested deeper than can be read": b"[" * 100_000,
    "with a number of too many digits": b"1" * 10_000,
    "without items": {key: value for key, value in a_manifest().items() if key != "items"},
    "with a field more": a_manifest(extra=1),
    "with a picture that is not stored": a_manifest(
        items=[{**one, "png_gcs_uri": f"{one['png_gcs_uri']}.png"} for one in a_manifest()["items"]]
    ),
    "with a picture of another bucket": a_manifest(
        items=[
            {**one, "png_gcs_uri": one["png_gcs_uri"].replace("local-", "other-")} for one in a_manifest()["items"]
        ]
    ),
    "that is too large": b" " * MAX_MANIFEST_BYTES + json.dumps(a_manifest()).encode(),
}


@pytest.mark.parametrize("manifest", UNFIT.values(), ids=UNFIT)
def test_a_manifest_that_does_not_fit_is_not_finalized_from(manifest: Mapping[str, Any] | bytes) -> None:
    world = a_world(with_manifest(manifest, drawn=("t0", "t1", "t2")))
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 5, 3)
    assert sorted(called(world)) == ["t3", "t4"]
    assert len(written_manifest(world)["items"]) == 5


def test_a_manifest_with_one_picture_twice_has_one() -> None:
    flow_run = an_abandoned_run(("t0", "t1"), min_images=2)
    item = a_manifest()["items"][0]
    manifest = a_manifest(step=the_step(flow_run), items=[item, item], failures=[])
    world = a_world(with_manifest(manifest, drawn=("t0",)), flow_run)
    assert world.run().items_count == 2
    assert called(world) == ["t1"]


def test_a_manifest_whose_pictures_are_gone_in_part_is_not_finalized_from() -> None:
    world = a_world(with_manifest(drawn=("t0", "t1", "t2", "t3")))
    assert world.run().items_count == 5
    assert called(world) == ["t4"]


def test_a_manifest_of_exactly_the_largest_size_is_read() -> None:
    content = json.dumps(a_manifest()).encode()
    world = a_world(with_manifest(content + b" " * (MAX_MANIFEST_BYTES - len(content))))
    assert world.run().reused_count == 5
    assert world.effects(LoadTemplates) == []


def test_a_manifest_that_was_listed_and_is_gone_is_none() -> None:
    def gone(effect: ReadObject, now: datetime) -> Outcome:
        if is_manifest(effect):
            return ObjectNotRead(name=effect.name, reason="missing", message="there is no such object", at=now)
        return world.hoped(effect, now)

    world = a_world(with_manifest(), replies={ReadObject: gone})
    assert (world.run().reused_count, called(world)) == (5, [])
    assert len(world.effects(LoadTemplates)) == 1


def test_a_manifest_below_minimages_lets_only_the_missing_ones_be_drawn() -> None:
    flow_run = an_abandoned_run(min_images=5)
    manifest = a_manifest(step=the_step(flow_run), drawn=("t0", "t1"))
    world = a_world(with_manifest(manifest, drawn=("t0", "t1")), flow_run)
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 5, 2)
    assert sorted(called(world)) == ["t2", "t3", "t4"]


def test_a_step_that_is_not_valid_looks_for_nothing() -> None:
    flow_run = an_abandoned_run()
    flow_run["steps"][STEP_ID]["inputs"] = {}
    world = a_world(with_manifest(), flow_run)
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "VALIDATION_FAILED")
    assert world.effects(ListObjects) == []


# Stores that cannot.


@pytest.mark.parametrize("kind", [ListObjects, ReadObject], ids=["listing", "manifest"])
def test_a_recall_that_fails_is_tried_again_after_growing_waits(kind: type) -> None:
    failing = Failing(3)
    world = failing.of(a_world(with_manifest(), replies={kind: failing}))
    result = world.run()
    assert (result.status, result.reused_count) == ("SUCCEEDED", 5)
    assert called(world) == []
    assert len(world.effects(kind)) == 4
    waits = [
        (effect.until - begun).total_seconds() for begun, effect, _ in world.trace if isinstance(effect, Wait)
    ]
    assert [(effect.reason, effect.chart_template_id) for effect in world.effects(Wait)] == [("recall", None)] * 3
    assert all(longest / 2 <= one <= longest for one, longest in zip(waits, (1, 2, 4), strict=True))


@pytest.mark.parametrize("kind", [ListObjects, ReadObject], ids=["listing", "manifest"])
def test_a_recall_that_keeps_failing_fails_the_step_within_thirty_seconds(kind: type) -> None:
    world = a_world(with_manifest(), replies={kind: not_read})
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "GCS_READ_FAILED")
    assert result.error is not None
    assert "503 backend error" in result.error.message
    assert world.step["status"] == "FAILED"
    assert world.step["error"]["code"] == "GCS_READ_FAILED"
    assert len(world.effects(kind)) >= 4
    assert max(outcome.at for _, _, outcome in world.trace) <= NOW + timedelta(seconds=31)
    assert all(effect.give_up_at <= NOW + timedelta(seconds=31) for effect in world.effects(kind))
    assert called(world) == []
    assert world.stored() == with_manifest()


def test_a_picture_that_fails_is_tried_again_after_growing_waits_while_others_go_on() -> None:
    failing = Failing(3, lambda effect: effect.name == picture("t0"))
    world = failing.of(
        a_world(pictures("t0", "t1"), an_abandoned_run(("t0", "t1", "t2")), replies={ReadObject: failing})
    )
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 3, 2)
    assert called(world) == ["t2"]
    waits = [one for one in world.effects(Wait) if one.reason == "recall"]
    assert [one.chart_template_id for one in waits] == ["t0"] * 3
    stored_at = min(outcome.at for _, effect, outcome in world.trace if isinstance(effect, PutObject))
    assert stored_at < waits[-1].until


def test_a_picture_that_keeps_failing_fails_only_its_request() -> None:
    failing = Failing(FOREVER, lambda effect: effect.name == picture("t0"))
    stored = {**pictures("t0", "t1"), picture("t0", DRAWN_AT - SECOND): PICTURE}
    world = failing.of(a_world(stored, an_abandoned_run(("t0", "t1", "t2")), replies={ReadObject: failing}))
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 2, 1)
    assert called(world) == ["t2"]
    (failure,) = written_manifest(world)["failures"]
    assert failure["request"]["chartTemplateId"] == "t0"
    assert failure["error"]["code"] == "GCS_READ_FAILED"
    assert "503 backend error" in failure["error"]["message"]
    assert max(outcome.at for _, _, outcome in world.trace) <= NOW + timedelta(seconds=31)


def test_every_picture_has_thirty_seconds_of_its_own() -> None:
    failing = Failing(3, lambda effect: effect.name == picture("t1"))
    world = failing.of(
        a_world(
            pictures("t0", "t1"),
            an_abandoned_run(("t0", "t1")),
            real_configuration(CHARTS_MAX_PARALLEL="1"),
            replies={ReadObject: failing},
            latency={LoadTemplates: timedelta(seconds=25), ReadObject: timedelta(seconds=5)},
        )
    )
    result = world.run()
    assert (result.items_count, result.reused_count) == (2, 2)


def test_an_older_picture_has_thirty_seconds_of_its_own_too() -> None:
    newer = picture("t0", DRAWN_AT + SECOND)
    outcomes = iter([not_read] * 4 + [None, not_read, None])

    def sometimes(effect: ReadObject, now: datetime) -> Outcome:
        return (next(outcomes) or world.hoped)(effect, now)

    world = a_world(
        {picture("t0"): PICTURE, newer: PICTURE[:-1]},
        an_abandoned_run(("t0",)),
        replies={ReadObject: sometimes},
        latency={ReadObject: timedelta(seconds=3)},
    )
    assert world.run().reused_count == 1
    assert reads(world) == [newer] * 5 + [picture("t0")] * 2
    waits = [effect.until - begun for begun, effect, _ in world.trace if isinstance(effect, Wait)]
    assert waits[-1] <= SECOND < waits[-2]
    first, *_, last = world.effects(ReadObject)
    assert last.give_up_at > first.give_up_at


@pytest.mark.parametrize(("kind", "meant"), [(ListObjects, bool), (ReadObject, is_manifest)])
def test_a_recall_that_breaks_fails_the_step_with_its_type(kind: type, meant: Callable[[Any], bool]) -> None:
    failing = Failing(FOREVER, meant, broken)
    world = failing.of(a_world(with_manifest(), replies={kind: failing}))
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "INTERNAL_ERROR")
    assert result.error is not None
    assert "OSError" in result.error.message
    assert "it broke" not in result.error.message
    assert len(world.effects(kind)) == 1
    assert world.step["status"] == "FAILED"


def test_a_picture_whose_reading_breaks_fails_only_its_request() -> None:
    failing = Failing(1, is_picture, broken)
    world = failing.of(
        a_world(pictures("t0", "t1"), an_abandoned_run(("t0", "t1")), replies={ReadObject: failing})
    )
    result = world.run()
    assert (result.status, result.items_count, result.failures_count) == ("SUCCEEDED", 1, 1)
    assert [one["error"]["code"] for one in written_manifest(world)["failures"]] == ["INTERNAL_ERROR"]


@pytest.mark.parametrize("kind", [ListObjects, ReadObject], ids=["listing", "picture"])
def test_a_wait_for_a_recall_that_breaks_counts_as_over(kind: type) -> None:
    failing = Failing(2)
    replies = {kind: failing, Wait: broken}
    world = failing.of(a_world(pictures("t0"), an_abandoned_run(("t0",)), replies=replies))
    assert world.run().reused_count == 1


def test_templates_that_break_fail_every_request_though_pictures_are_stored() -> None:
    world = a_world(pictures(*IDS), replies={LoadTemplates: broken})
    result = world.run()
    assert (result.status, result.failures_count) == ("FAILED", 5)
    assert world.step["status"] == "FAILED"


# Time and places.


@pytest.mark.parametrize("kind", [ListObjects, ReadObject])
def test_a_worker_whose_lease_ends_while_it_looks_changes_nothing(kind: type) -> None:
    world = a_world(with_manifest(), latency={kind: timedelta(seconds=601)})
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", "lease_expired")
    assert world.effects(FinalizeStep) == []
    assert world.stored() == with_manifest()


@pytest.mark.parametrize("places", [1, 2, 3])
def test_reads_calls_and_uploads_share_the_places(places: int) -> None:
    world = a_world(
        pictures("t0", "t2", "t4"),
        configuration=a_configuration(CHARTS_MAX_PARALLEL=str(places)),
        latency={kind: timedelta(seconds=1) for kind in (ReadObject, CallChartApi, PutObject)},
    )
    assert world.run().items_count == 5
    moments = [
        moment
        for begun, effect, outcome in world.trace
        if isinstance(effect, ReadObject | CallChartApi) or (isinstance(effect, PutObject) and effect.create_only)
        for moment in ((begun, 1), (outcome.at, -1))
    ]
    busy, most = 0, 0
    for _, change in sorted(moments):
        busy += change
        most = max(most, busy)
    assert most == places


def test_what_is_missing_is_drawn_while_stored_pictures_are_still_being_read() -> None:
    world = a_world(pictures("t0"), an_abandoned_run(("t0", "t1")), latency={ReadObject: timedelta(seconds=20)})
    assert world.run().reused_count == 1
    read_at = next(outcome.at for outcome in world.outcomes(ObjectRead))
    assert next(outcome.at for outcome in world.outcomes(ChartRendered)) < read_at


def test_a_slot_missed_because_reads_took_all_places_is_exchanged_and_not_counted_again() -> None:
    world = a_world(
        pictures("t0", "t1", "t2"),
        an_abandoned_run(("t0", "t1", "t2", "t3")),
        real_configuration(CHARTS_MAX_PARALLEL="1"),
        latency={ReadObject: timedelta(seconds=4)},
    )
    assert world.run().items_count == 4
    assert called(world) == ["t3"]
    assert counted(world) == 1


def short(seconds: int = 40, reserve: int = 30) -> ChartConfiguration:
    return real_configuration(INVOCATION_TIMEOUT_SECONDS=str(seconds), FINALIZE_BUDGET_SECONDS=str(reserve))


def test_where_no_time_is_left_to_draw_what_is_stored_still_counts() -> None:
    world = a_world(
        pictures("t0", "t1"),
        an_abandoned_run(("t0", "t1", "t2")),
        short(),
        latency={LoadTemplates: timedelta(seconds=12)},
    )
    result = world.run()
    assert (result.status, result.items_count, result.reused_count) == ("SUCCEEDED", 2, 2)
    assert called(world) == []
    assert [one["error"]["code"] for one in written_manifest(world)["failures"]] == ["TIME_BUDGET_EXCEEDED"]


def test_a_broken_picture_found_when_no_call_may_start_any_more_says_so() -> None:
    world = a_world(
        {picture("t0"): PICTURE[:-1]},
        an_abandoned_run(("t0",)),
        short(),
        latency={ReadObject: timedelta(seconds=12)},
    )
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "TIME_BUDGET_EXCEEDED")
    assert called(world) == []


@pytest.mark.parametrize("kind", [ListObjects, ReadObject])
def test_a_recall_leaves_time_for_manifest_and_finalize(kind: type) -> None:
    world = a_world(pictures("t0"), an_abandoned_run(("t0",)), short(33, 30), replies={kind: not_read})
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "GCS_READ_FAILED")
    latest = NOW + timedelta(seconds=3 + 10)
    assert all(effect.give_up_at <= latest for effect in world.effects(kind))
    assert max(outcome.at for _, _, outcome in world.trace) <= latest + SECOND


# A program that breaks, and outcomes that come twice.


def test_a_program_that_breaks_while_it_looks_finalizes_the_step_however_often_it_looked() -> None:
    world = a_world(replies={ListObjects: not_read})
    world.run_until_killed(after=10)
    assert world.state is not None
    assert (world.state.phase, world.state.tries >= 4) == (Phase.RECALLING, True)
    (finalize,) = program.abort(world.state, "ZeroDivisionError").effects
    assert isinstance(finalize, FinalizeStep)
    assert finalize.status == "FAILED"


def test_a_program_that_breaks_after_a_long_look_for_the_manifest_still_writes_one() -> None:
    failing = Failing(5, is_manifest)
    stored = {manifest_name(STEP): b"", **pictures("t0")}
    world = failing.of(a_world(stored, replies={ReadObject: failing}))
    world.run_until_killed(after=14)
    assert world.state is not None
    assert world.state.phase is Phase.DRAWING
    (wait,) = program.abort(world.state, "ZeroDivisionError").effects
    assert isinstance(wait, Wait)


def test_an_outcome_of_a_look_that_comes_twice_is_heard_once() -> None:
    stored = {picture("t0"): PICTURE, picture("t1"): PICTURE[:-1]}
    world = a_world(stored, an_abandoned_run(("t0", "t1")))
    ahead = program.start(world.inputs)
    in_flight, now = [*ahead.effects], NOW
    begun = [*in_flight]
    while in_flight:
        effect = in_flight.pop(0)
        now = max(now, effect.until) if isinstance(effect, Wait) else now + timedelta(milliseconds=1)
        outcome = world.hoped(effect, now)
        for _ in range(2 if isinstance(outcome, ObjectsListed | ObjectRead) else 1):
            ahead = program.react(ahead.state, outcome)
            in_flight += ahead.effects
            begun += ahead.effects
    assert ahead.state.result is not None
    assert (ahead.state.result.items_count, ahead.state.result.reused_count) == (2, 1)
    assert sum(isinstance(effect, CallChartApi) for effect in begun) == 1
    late = ObjectNotRead(name=picture("t0"), reason="failed", message="late", at=now)
    assert program.react(ahead.state, late).effects == ()


@pytest.mark.parametrize(
    "late",
    [
        ObjectNotRead(name="another", reason="failed", message="late", at=NOW),
        ObjectRead(name="another", content=blob(PICTURE), at=NOW),
        EffectFailed(
            effect=ReadObject(bucket="b", name="another", max_bytes=1, give_up_at=NOW),
            error_type="OSError",
            message="late",
            at=NOW,
        ),
    ],
    ids=["not read", "read", "broken"],
)
def test_an_outcome_for_a_picture_nobody_reads_changes_nothing(late: Outcome) -> None:
    world = a_world(pictures("t0"), an_abandoned_run(("t0",)))
    world.run_until_killed(after=3)
    assert world.state is not None
    assert world.state.phase is Phase.DRAWING
    after = program.react(world.state, late)
    assert after.effects == ()
    assert after.state.charts == world.state.charts


# What the log says.


def test_the_log_tells_what_was_found_and_used() -> None:
    world = a_world({manifest_name(STEP): b"{}", **pictures("t0")}, an_abandoned_run(("t0", "t1")))
    result = world.run()
    said = [event for _, effect, outcome in world.trace for event in events_done(effect, outcome)]
    assert [event.message for event in said if event.event == "gcs_list_finished"] == [
        "an earlier attempt stored 2 objects"
    ]
    assert [event.fields["gcsUri"] for event in said if event.event == "gcs_read_finished"] == [
        f"gs://local-artifacts/{manifest_name(STEP)}",
        f"gs://local-artifacts/{picture('t0')}",
    ]
    (completed,) = events_of_result(result)
    assert completed.fields["reusedCount"] == 1
    (failed,) = events_done(world.effects(ReadObject)[0], not_read(world.effects(ReadObject)[0], NOW))
    assert (failed.severity, failed.fields) == (
        "WARNING",
        {"objectName": manifest_name(STEP), "reason": "failed"},
    )
