"""Rules of the chart-export program, each in a world where everything else goes as hoped."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from core.charts import program
from core.charts.answers import SLOT_MISSED, read_answer
from core.charts.reserving import begin_reservations
from core.charts.state import Chart, Inputs, Ledger, Stage, State
from core.charts.usage import usage_path
from core.flow.step_run import MAX_FINALIZE_TRIES
from effects import (
    AccountAssignment,
    AccountsReserved,
    CallChartApi,
    ChartRefused,
    ClaimLost,
    ClaimStep,
    EffectFailed,
    ExhaustAccount,
    FinalizeLost,
    FinalizeStep,
    LoadTemplates,
    ObjectNotStored,
    ObjectStored,
    PutObject,
    RecordReply,
    ReserveAccount,
    SetAccountAside,
    StepClaimed,
    TemplatesLoaded,
    Wait,
)
from effects.moments import utc_day
from tests.builders import (
    NOW,
    STEP_ID,
    TEMPLATE_IDS,
    a_configuration,
    a_flow_run,
    a_step,
    an_account,
    an_input,
    real_configuration,
    some_inputs,
    templates,
)
from tests.world import World, answered

A, B, C = TEMPLATE_IDS


def run_of(count: int, min_images: int = 1) -> dict[str, Any]:
    return a_flow_run({STEP_ID: a_step(inputs=an_input([f"t{i}" for i in range(count)], min_images))})


def broken(effect: Any, now: datetime) -> EffectFailed:
    return EffectFailed(effect=effect, error_type="OSError", message="No space left on device", at=now)


def not_stored(effect: PutObject, now: datetime) -> ObjectNotStored:
    return ObjectNotStored(name=effect.name, reason="failed", message="No space left on device", at=now)


# The claim.


def test_the_program_works_on_the_document_as_read_by_the_claim() -> None:
    stale, fresh = a_flow_run(), a_flow_run(scope={"symbol": "ETHUSDT"})
    world = World(some_inputs(flow_run=stale))
    world.documents[world.inputs.flow_run_path] = fresh
    world.run()
    assert {call.body["symbol"] for call in world.effects(CallChartApi)} == {"BINANCE:ETHUSDT"}


def test_a_lost_claim_does_nothing_more() -> None:
    world = World(some_inputs(), replies={ClaimStep: lambda _, now: ClaimLost(reason="not_ready", at=now)})
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", "not_ready")
    assert len(world.trace) == 1


def test_the_lease_outlives_the_invocation_by_a_minute() -> None:
    world = World(some_inputs(a_configuration(INVOCATION_TIMEOUT_SECONDS="100")))
    world.run()
    (claimed,) = world.outcomes(StepClaimed)
    assert claimed.lease_until == claimed.at + timedelta(seconds=160)


def test_a_claim_that_broke_ends_the_run_without_another_effect() -> None:
    world = World(some_inputs(), replies={ClaimStep: broken})
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "INTERNAL_ERROR")
    assert len(world.trace) == 1


def test_a_worker_that_wakes_up_after_its_lease_changes_nothing() -> None:
    world = World(some_inputs(real_configuration()), latency={CallChartApi: timedelta(seconds=601)})
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", "lease_expired")
    assert world.effects(PutObject) == []
    assert world.effects(FinalizeStep) == []


def test_a_worker_whose_claim_was_answered_after_its_lease_begins_nothing() -> None:
    world = World(some_inputs(real_configuration()), replies={ClaimStep: claimed_long_ago})
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", "lease_expired")
    assert len(world.trace) == 1


def claimed_long_ago(effect: ClaimStep, now: datetime) -> StepClaimed:
    return StepClaimed(flow_run=a_flow_run(), attempt=1, first_claimed_at=now, lease_until=now, at=now)


# After the claim, always a finalize.


@pytest.mark.parametrize("kind", [LoadTemplates, ReserveAccount, CallChartApi, PutObject])
def test_an_effect_nobody_expected_to_break_ends_as_failed_with_its_type(kind: type) -> None:
    world = World(some_inputs(), replies={kind: broken})
    result = world.run()
    assert result.status == "FAILED"
    assert result.error is not None
    assert result.error.code == "INTERNAL_ERROR"
    assert "OSError" in result.error.message
    assert "No space left" not in result.error.message
    assert world.step["status"] == "FAILED"


def test_a_finalize_that_breaks_is_tried_again() -> None:
    tries = []

    def sometimes(effect: FinalizeStep, now: datetime) -> Any:
        tries.append(effect)
        return broken(effect, now) if len(tries) < 3 else world.hoped(effect, now)

    world = World(some_inputs(), replies={FinalizeStep: sometimes})
    assert world.run().status == "SUCCEEDED"
    assert len(tries) == 3
    assert world.step["status"] == "SUCCEEDED"


def test_a_finalize_that_keeps_breaking_is_left_to_the_lease() -> None:
    world = World(some_inputs(), replies={FinalizeStep: broken})
    result = world.run()
    assert (result.status, result.error and result.error.code) == ("FAILED", "INTERNAL_ERROR")
    assert len(world.effects(FinalizeStep)) == MAX_FINALIZE_TRIES


def test_a_finalize_that_is_lost_is_no_success() -> None:
    world = World(
        some_inputs(), replies={FinalizeStep: lambda _, now: FinalizeLost(reason="claimed_by_another", at=now)}
    )
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", "claimed_by_another")


def test_a_program_that_broke_after_its_claim_finalizes_the_step() -> None:
    following = program.start(some_inputs())
    claimed = StepClaimed(
        flow_run=a_flow_run(), attempt=1, first_claimed_at=NOW, lease_until=NOW + timedelta(hours=1), at=NOW
    )
    following = program.react(following.state, claimed)
    aborted = program.abort(following.state, "ZeroDivisionError")
    (finalize,) = aborted.effects
    assert isinstance(finalize, FinalizeStep)
    assert finalize.error is not None
    assert (finalize.status, finalize.error.code) == ("FAILED", "INTERNAL_ERROR")


def test_a_program_that_breaks_while_finalizing_asks_again_what_became_of_it_and_gives_up_at_last() -> None:
    aborted = program.abort(program.start(some_inputs()).state, "ZeroDivisionError")
    for _ in range(MAX_FINALIZE_TRIES - 1):
        (finalize,) = aborted.effects
        assert isinstance(finalize, FinalizeStep)
        aborted = program.abort(aborted.state, "KeyboardInterrupt")
    assert aborted.effects != ()
    aborted = program.abort(aborted.state, "KeyboardInterrupt")
    assert aborted.effects == ()
    assert aborted.state.result is not None
    assert aborted.state.result.status == "FAILED"


def test_a_program_that_breaks_while_drawing_still_writes_its_manifest() -> None:
    world = World(some_inputs())
    following = program.start(world.inputs)
    while not any(isinstance(effect, CallChartApi) for effect in following.effects):
        following = program.react(following.state, world._outcome(following.effects[0], NOW))
    aborted = program.abort(following.state, "KeyboardInterrupt")
    (wait,) = aborted.effects
    following = program.react(aborted.state, world._outcome(wait, NOW))
    (put,) = following.effects
    assert isinstance(put, PutObject)
    assert put.name.endswith("manifest.json")
    again = program.abort(aborted.state, "ZeroDivisionError")
    assert isinstance(again.effects[0], FinalizeStep)


def test_a_step_finalized_just_before_its_lease_ran_out_is_finalized() -> None:
    world = World(some_inputs(), latency={FinalizeStep: timedelta(seconds=700)})
    assert world.run().status == "SUCCEEDED"


def test_a_rejected_key_is_not_called_again_by_requests_that_hold_its_slots() -> None:
    world = World(some_inputs(real_configuration("acc1")), answers={A: ["401 Unauthorized"]})
    world.run()
    assert len(world.effects(CallChartApi)) == 1


def test_a_call_that_was_not_sent_in_its_slot_takes_another_slot_and_counts_once() -> None:
    missed: list[str] = []

    def late_once(effect: CallChartApi, now: datetime) -> Any:
        if not missed:
            missed.append(effect.chart_template_id)
            return read_answer(effect, SLOT_MISSED, (), now, now)
        return world.hoped(effect, now)

    world = World(
        some_inputs(real_configuration(), run_of(2)),
        templates=templates("t0", "t1"),
        replies={CallChartApi: late_once},
    )
    assert world.run().items_count == 2
    assert world.documents[usage_path("chart_img_accounts_usage", "acc1")]["usageToday"] == 2


def test_a_request_whose_counted_account_was_limited_meanwhile_looks_for_another() -> None:
    inputs = some_inputs(real_configuration("acc1", "acc2"))
    today = utc_day(NOW)
    held = AccountAssignment(chart_template_id=A, account_id="acc1", slot_at=NOW, window_start=today)
    ledger = Ledger(usage_collection="u", accounts=inputs.real_accounts, limited={"acc1": today})
    chart = Chart(chart_template_id=A, stage=Stage.NEEDS_ACCOUNT, held=held)
    state = begin_reservations(State(inputs=inputs, now=NOW, charts={A: chart}, ledgers={False: ledger}))
    (effect,) = state.outbox
    assert isinstance(effect, ReserveAccount)
    assert [need.holding for need in effect.for_requests] == [None]
    assert state.charts[A].reservations == 1


def test_a_call_may_start_only_within_its_slot_and_its_day() -> None:
    late = NOW.replace(hour=23, minute=59, second=59, microsecond=950_000)
    world = World(some_inputs(real_configuration(), run_of(1), now=late), templates=templates("t0"))
    world.run()
    calls = world.effects(CallChartApi)
    assert calls[0].start_by < late.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    paced = World(some_inputs(real_configuration(), run_of(1)), templates=templates("t0"))
    paced.run()
    assert paced.effects(CallChartApi)[0].start_by - NOW < timedelta(seconds=0.2)


def test_a_picture_that_came_after_a_refusal_records_no_error() -> None:
    def full(effect: PutObject, now: datetime) -> Any:
        return not_stored(effect, now) if effect.create_only else world.hoped(effect, now)

    world = World(in_mode("record"), answers={A: ["500 Oops", "png"]}, replies={PutObject: full})
    world.run()
    assert all(one.fixture_name.endswith(".png") for one in world.effects(RecordReply))


def test_half_a_surrogate_pair_in_a_template_costs_nothing() -> None:
    odd = {**templates(A), A: {**templates(A)[A], "description": "odd \ud83d"}}
    flow_run = a_flow_run({STEP_ID: a_step(inputs=an_input([A]))})
    world = World(some_inputs(flow_run=flow_run), templates=odd)
    assert world.run().status == "SUCCEEDED"
    assert manifest_of(world)["items"][0]["kind"] == "odd ?"


def test_a_program_that_broke_on_its_claim_ends_the_step_only_if_it_is_its_own() -> None:
    (finalize,) = program.abort(program.start(some_inputs()).state, "ZeroDivisionError").effects
    assert isinstance(finalize, FinalizeStep)
    assert finalize.token == "token-1"


def test_a_program_that_broke_after_its_end_keeps_its_result() -> None:
    world = World(some_inputs())
    result = world.run()
    assert world.state is not None
    aborted = program.abort(world.state, "ZeroDivisionError")
    assert (aborted.effects, aborted.state.result) == ((), result)


def test_an_outcome_after_the_end_changes_nothing() -> None:
    world = World(some_inputs())
    world.run()
    assert world.state is not None
    late = ObjectStored(name="x", uri="gs://x", at=NOW)
    assert program.react(world.state, late).effects == ()


# Accounts and slots.


def test_one_reservation_serves_the_whole_step() -> None:
    world = World(
        some_inputs(real_configuration(CHART_IMG_REQUESTS_PER_SECOND="20"), run_of(20)),
        templates=templates(*[f"t{i}" for i in range(20)]),
    )
    assert world.run().items_count == 20
    assert len(world.effects(ReserveAccount)) == 1


def test_calls_on_one_account_keep_its_rate() -> None:
    world = World(some_inputs(real_configuration(), run_of(5)), templates=templates(*[f"t{i}" for i in range(5)]))
    world.run()
    starts = sorted(begun for begun, effect, _ in world.trace if isinstance(effect, CallChartApi))
    assert all((later - earlier).total_seconds() >= 1 for earlier, later in pairwise(starts))


@pytest.mark.parametrize("latency", [0.0, 0.3, 2.5, 20.0])
def test_calls_keep_the_rate_however_slow_calls_and_commits_are(latency: float) -> None:
    """With few places and slow calls, slots are missed; a new slot is taken and nothing is counted twice."""
    slow = timedelta(seconds=latency)
    world = World(
        some_inputs(real_configuration(CHARTS_MAX_PARALLEL="2"), run_of(6)),
        templates=templates(*[f"t{i}" for i in range(6)]),
        latency={CallChartApi: slow, ReserveAccount: min(slow, timedelta(seconds=1))},
    )
    assert world.run().items_count == 6
    starts = sorted(begun for begun, effect, _ in world.trace if isinstance(effect, CallChartApi))
    assert all((later - earlier).total_seconds() >= 0.99 for earlier, later in pairwise(starts))
    assert world.documents[usage_path("chart_img_accounts_usage", "acc1")]["usageToday"] == 6


def test_an_account_set_aside_by_this_process_is_not_called() -> None:
    world = World(some_inputs(real_configuration("acc1", "acc2"), set_aside=frozenset({"acc1"})))
    world.run()
    assert {call.account_id for call in world.effects(CallChartApi)} == {"acc2"}


def test_without_any_usable_account_requests_fail_as_refused_not_as_limited() -> None:
    world = World(some_inputs(real_configuration(), set_aside=frozenset({"acc1"})))
    result = world.run()
    assert result.error is not None
    assert result.error.code == "CHART_API_FAILED"
    assert world.effects(CallChartApi) == []


def test_a_rejected_key_is_announced_once_and_its_other_requests_move_on() -> None:
    world = World(
        some_inputs(real_configuration("acc1", "acc2")),
        answers={A: ["401 Unauthorized", "png"], C: ["401 Unauthorized", "png"]},
        latency={CallChartApi: timedelta(seconds=2)},
    )
    assert world.run().items_count == 3
    (aside,) = world.effects(SetAccountAside)
    assert aside.account_id == "acc1"


def test_a_request_that_holds_an_account_set_aside_meanwhile_takes_another() -> None:
    world = World(some_inputs(real_configuration("acc1")), answers={A: ["429 Too Many Requests"]})
    result = world.run()
    assert (result.items_count, result.failures_count) == (0, 3)
    assert len(world.effects(CallChartApi)) == 1
    assert len(world.effects(ExhaustAccount)) == 1


def test_an_account_is_exhausted_once_however_many_calls_it_refuses() -> None:
    world = World(
        some_inputs(real_configuration("acc1", CHART_IMG_REQUESTS_PER_SECOND="1000")),
        answers={one: ["429 Too Many Requests"] for one in TEMPLATE_IDS},
        latency={CallChartApi: timedelta(seconds=2)},
    )
    world.run()
    assert len(world.effects(CallChartApi)) == 3
    assert len(world.effects(ExhaustAccount)) == 1
    assert world.documents[usage_path("chart_img_accounts_usage", "acc1")]["usageToday"] == 44


def test_limits_do_not_count_towards_the_attempts() -> None:
    accounts = [f"acc{i}" for i in range(6)]
    refusals = ["429 Too Many Requests", "401 No", "403 No", "429 Too Many Requests", "500 Oops", "png"]
    world = World(
        some_inputs(real_configuration(*accounts), run_of(1)), templates=templates("t0"), answers={"t0": refusals}
    )
    assert world.run().status == "SUCCEEDED"
    assert len(world.effects(CallChartApi)) == 6


@pytest.mark.parametrize("answer", ["500 x", "502 x", "503 x", "504 x", "network", "timeout"])
def test_transient_failures_are_tried_so_many_times(answer: str) -> None:
    world = World(
        some_inputs(real_configuration(CHARTS_MAX_ATTEMPTS="4"), run_of(1)),
        templates=templates("t0"),
        answers={"t0": [answer]},
    )
    result = world.run()
    assert result.error is not None
    assert result.error.code == "CHART_API_FAILED"
    assert len(world.effects(CallChartApi)) == 4
    assert world.documents[usage_path("chart_img_accounts_usage", "acc1")]["usageToday"] == 4


@pytest.mark.parametrize("answer", ["400 x", "404 x", "409 x", "422 x", "302 x", "501 x", "200 <html>"])
def test_other_failures_are_not_tried_again(answer: str) -> None:
    world = World(
        some_inputs(real_configuration(), run_of(1)), templates=templates("t0"), answers={"t0": [answer]}
    )
    result = world.run()
    assert result.error is not None
    assert result.error.code == "CHART_API_FAILED"
    assert len(world.effects(CallChartApi)) == 1


def test_backoff_grows_and_repeats_exactly() -> None:
    def waits() -> list[Any]:
        world = World(
            some_inputs(
                real_configuration(CHARTS_MAX_ATTEMPTS="5", CHART_IMG_REQUESTS_PER_SECOND="100"), run_of(1)
            ),
            templates=templates("t0"),
            answers={"t0": ["500 x"]},
        )
        world.run()
        return [
            (effect.until - begun).total_seconds() for begun, effect, _ in world.trace if isinstance(effect, Wait)
        ]

    first = waits()
    assert len(first) == 4
    assert all(0.5 * 2**i <= delay <= 2**i for i, delay in enumerate(first))
    assert waits() == first


def test_two_steps_do_not_back_off_alike() -> None:
    delays = set()
    for step_id in ("a", "b", "c", "d"):
        flow_run = a_flow_run({step_id: a_step(inputs=an_input(["t0"]))})
        world = World(
            some_inputs(real_configuration(CHART_IMG_REQUESTS_PER_SECOND="100"), flow_run),
            templates=templates("t0"),
            answers={"t0": ["500 x", "png"]},
        )
        world.run()
        delays.add(next(effect.until for effect in world.effects(Wait)))
    assert len(delays) > 1


def test_a_reservation_made_before_midnight_is_made_again_after_it() -> None:
    late = NOW.replace(hour=23, minute=59, second=59, microsecond=500_000)
    world = World(some_inputs(real_configuration(), run_of(2), now=late), templates=templates("t0", "t1"))
    assert world.run().items_count == 2
    usage = world.documents[usage_path("chart_img_accounts_usage", "acc1")]
    assert (usage["usageToday"], usage["windowStart"]) == (1, "2025-12-16T00:00:00Z")


def test_an_account_limited_yesterday_is_used_again_after_midnight() -> None:
    late = NOW.replace(hour=23, minute=59, second=58)
    world = World(
        some_inputs(real_configuration(), run_of(2), now=late),
        templates=templates("t0", "t1"),
        answers={"t0": ["429 Too Many Requests"], "t1": ["500 x", "png"]},
        latency={CallChartApi: timedelta(seconds=1.5)},
    )
    assert world.run().items_count == 1
    assert manifest_of(world)["failures"][0]["error"]["code"] == "CHART_API_LIMIT_EXCEEDED"


# Time.


def test_no_call_starts_in_the_finalize_reserve_and_what_was_not_tried_says_so() -> None:
    settings = {"INVOCATION_TIMEOUT_SECONDS": "40", "FINALIZE_BUDGET_SECONDS": "30", "CHARTS_MAX_PARALLEL": "1"}
    world = World(
        some_inputs(real_configuration(CHART_IMG_REQUESTS_PER_SECOND="100", **settings), run_of(5)),
        templates=templates(*[f"t{i}" for i in range(5)]),
        latency={CallChartApi: timedelta(seconds=4)},
    )
    result = world.run()
    starts = [begun for begun, effect, _ in world.trace if isinstance(effect, CallChartApi)]
    assert all(start < world.inputs.calls_end for start in starts)
    assert (result.status, result.items_count, result.failures_count) == ("SUCCEEDED", 3, 2)
    codes = {failure["error"]["code"] for failure in manifest_of(world)["failures"]}
    assert codes == {"TIME_BUDGET_EXCEEDED"}


def test_a_retry_that_would_come_too_late_keeps_what_the_provider_said() -> None:
    settings = {"INVOCATION_TIMEOUT_SECONDS": "31", "FINALIZE_BUDGET_SECONDS": "30"}
    world = World(
        some_inputs(real_configuration(**settings), run_of(1)),
        templates=templates("t0"),
        answers={"t0": ["500 Oops"]},
        latency={CallChartApi: timedelta(seconds=0.9)},
    )
    result = world.run()
    assert result.error is not None
    assert result.error.code == "CHART_API_FAILED"
    assert "no time left" in result.error.message


def test_a_call_knows_when_it_must_have_ended() -> None:
    world = World(some_inputs(real_configuration()))
    world.run()
    call = world.effects(CallChartApi)[0]
    assert call.timeout_seconds == 60
    assert call.ends_by == NOW + timedelta(seconds=510)


# Places.


@pytest.mark.parametrize("places", [1, 3, 8])
def test_calls_and_uploads_share_the_places(places: int) -> None:
    world = World(
        some_inputs(a_configuration(CHARTS_MAX_PARALLEL=str(places)), run_of(12)),
        templates=templates(*[f"t{i}" for i in range(12)]),
        latency={CallChartApi: timedelta(seconds=3), PutObject: timedelta(seconds=1)},
    )
    assert world.run().items_count == 12
    busy = [
        (begun, outcome.at)
        for begun, effect, outcome in world.trace
        if isinstance(effect, CallChartApi | PutObject)
    ]
    for begun, _ in busy:
        assert sum(one <= begun < end for one, end in busy) <= places


def test_a_picture_is_stored_while_others_are_still_drawn() -> None:
    world = World(some_inputs(real_configuration()), latency={CallChartApi: timedelta(seconds=5)})
    world.run()
    stores = [begun for begun, effect, _ in world.trace if isinstance(effect, PutObject)]
    calls_end = [outcome.at for _, effect, outcome in world.trace if isinstance(effect, CallChartApi)]
    assert min(stores) < max(calls_end)


def test_a_picture_whose_store_failed_waits_for_a_free_place() -> None:
    failed: list[str] = []

    def fails_once(effect: PutObject, now: datetime) -> Any:
        if effect.create_only and not failed:
            failed.append(effect.name)
            return not_stored(effect, now)
        return world.hoped(effect, now)

    world = World(
        some_inputs(a_configuration(CHARTS_MAX_PARALLEL="1"), run_of(2)),
        templates=templates("t0", "t1"),
        latency={CallChartApi: timedelta(seconds=5)},
        replies={PutObject: fails_once},
    )
    assert world.run().items_count == 2


@pytest.mark.parametrize("answer", ["500 Oops", "png"])
def test_an_answer_that_comes_twice_is_heard_once(answer: str) -> None:
    world = World(some_inputs(real_configuration(), run_of(2)), templates=templates("t0", "t1"))
    following = program.start(world.inputs)
    while not any(isinstance(effect, CallChartApi) for effect in following.effects):
        following = program.react(following.state, world._outcome(following.effects[0], NOW))
    (call,) = (effect for effect in following.effects if isinstance(effect, CallChartApi))
    outcome = answered(call, answer, NOW)
    once = program.react(following.state, outcome)
    assert program.react(once.state, outcome).state.charts == once.state.charts


# Objects.


def manifest_of(world: World) -> Any:
    put = [one for one in world.effects(PutObject) if not one.create_only][-1]
    return json.loads(put.content.data)


def test_a_name_that_is_taken_gets_the_next_second() -> None:
    taken: list[str] = []

    def once_taken(effect: PutObject, now: datetime) -> Any:
        if effect.create_only and len(taken) < 2:
            taken.append(effect.name)
            return ObjectNotStored(name=effect.name, reason="name_taken", message="other bytes", at=now)
        return world.hoped(effect, now)

    world = World(some_inputs(flow_run=run_of(1)), templates=templates("t0"), replies={PutObject: once_taken})
    world.run()
    seconds = [one.name.rpartition("/")[2][:15] for one in world.effects(PutObject) if one.create_only]
    assert seconds == ["20251215-102530", "20251215-102531", "20251215-102532"]
    (item,) = manifest_of(world)["items"]
    assert item["generatedAt"] == "2025-12-15T10:25:32Z"
    assert "20251215-102532" in item["png_gcs_uri"]


@pytest.mark.parametrize(("create_only", "code"), [(True, "GCS_WRITE_FAILED"), (False, "MANIFEST_WRITE_FAILED")])
def test_an_object_is_given_up_after_thirty_seconds(create_only: bool, code: str) -> None:
    def full(effect: PutObject, now: datetime) -> Any:
        return not_stored(effect, now) if effect.create_only is create_only else world.hoped(effect, now)

    world = World(some_inputs(flow_run=run_of(1)), templates=templates("t0"), replies={PutObject: full})
    result = world.run()
    assert result.error is not None
    assert (result.status, result.error.code) == ("FAILED", code)
    tries = [
        begun
        for begun, effect, _ in world.trace
        if isinstance(effect, PutObject) and effect.create_only is create_only
    ]
    assert timedelta(seconds=20) < max(tries) - min(tries) < timedelta(seconds=30)
    assert (result.manifest_uri is None) == (code == "MANIFEST_WRITE_FAILED")


def test_a_store_that_always_says_taken_is_given_up() -> None:
    def taken(effect: PutObject, now: datetime) -> Any:
        if effect.create_only:
            return ObjectNotStored(name=effect.name, reason="name_taken", message="other bytes", at=now)
        return world.hoped(effect, now)

    world = World(some_inputs(flow_run=run_of(1)), templates=templates("t0"), replies={PutObject: taken})
    result = world.run()
    assert result.error is not None
    assert result.error.code == "GCS_WRITE_FAILED"


def test_late_uploads_leave_time_for_manifest_and_finalize() -> None:
    settings = {"INVOCATION_TIMEOUT_SECONDS": "60", "FINALIZE_BUDGET_SECONDS": "30"}
    world = World(
        some_inputs(real_configuration(**settings), run_of(1)),
        templates=templates("t0"),
        latency={CallChartApi: timedelta(seconds=29)},
        replies={PutObject: not_stored},
    )
    world.run()
    (finalize,) = (begun for begun, effect, _ in world.trace if isinstance(effect, FinalizeStep))
    assert finalize < world.inputs.end - timedelta(seconds=9)


def test_a_failed_step_with_requests_has_its_manifest() -> None:
    world = World(
        some_inputs(real_configuration(), run_of(2, 2)), templates=templates("t0", "t1"), answers={"t1": ["400 x"]}
    )
    assert world.run().status == "FAILED"
    assert world.step["outputs"]["outputsManifestGcsUri"].endswith("/manifest.json")


def test_requested_and_failures_keep_only_the_template_id() -> None:
    requests = [{"chartTemplateId": "t0", "label": "x"}, {"chartTemplateId": "t1", "y": {"z": 1}}]
    flow_run = a_flow_run({STEP_ID: a_step(inputs={"minImages": 0, "requests": requests})})
    world = World(some_inputs(real_configuration(), flow_run), templates=templates("t0"))
    world.run()
    assert manifest_of(world)["requested"] == [{"chartTemplateId": "t0"}, {"chartTemplateId": "t1"}]
    assert [one["request"] for one in manifest_of(world)["failures"]] == [{"chartTemplateId": "t1"}]


# Modes.


def in_mode(mode: Any, **changes: Any) -> Inputs:
    configuration = a_configuration([an_account("acc1", **changes)])
    return some_inputs(replace(configuration, settings=replace(configuration.settings, mode=mode)))


def test_mock_counts_apart_and_without_limit() -> None:
    world = World(in_mode("mock"))
    assert world.run().items_count == 3
    assert set(world.documents) == {world.inputs.flow_run_path, "chart_img_accounts_usage_mock/acc1"}
    assert world.effects(Wait) == []
    assert all(call.replay for call in world.effects(CallChartApi))


def test_mock_keeps_a_limit_that_the_account_states() -> None:
    world = World(in_mode("mock", daily_limit=2))
    assert world.run().items_count == 2


def test_real_has_no_fixture_key_and_never_replays() -> None:
    world = World(in_mode("real"))
    world.run()
    assert {(call.replay, call.fixture_key) for call in world.effects(CallChartApi)} == {(False, None)}


def test_record_stores_the_final_answer_after_the_retries() -> None:
    world = World(in_mode("record"), answers={A: ["500 Oops", "png"], B: ["500 Oops"], C: ["network"]})
    world.run()
    names = sorted(one.fixture_name for one in world.effects(RecordReply))
    assert names == [f"BINANCE_BTCUSDT__4h__{A}.png", f"BINANCE_BTCUSDT__4h__{B}__500_OOPS.json"]
    (error,) = (one for one in world.effects(RecordReply) if one.fixture_name.endswith(".json"))
    assert json.loads(error.content.data) == {"status": 500, "body": {"message": "Oops"}}


def test_record_keeps_an_error_that_is_no_json_as_text() -> None:
    def html(effect: CallChartApi, now: datetime) -> ChartRefused:
        return ChartRefused(
            chart_template_id=effect.chart_template_id,
            account_id=effect.account_id,
            kind="answer",
            http_status=404,
            message="<html>",
            body="<html>",
            duration_ms=1,
            at=now,
        )

    world = World(in_mode("record"), replies={CallChartApi: html})
    world.run()
    assert json.loads(world.effects(RecordReply)[0].content.data) == {"status": 404, "body": "<html>"}


def test_record_replays_what_existed_and_records_nothing_of_it() -> None:
    inputs = replace(
        in_mode("record"), fixtures=frozenset({f"BINANCE_BTCUSDT__4h__{one}" for one in TEMPLATE_IDS})
    )
    world = World(inputs)
    world.run()
    assert world.effects(RecordReply) == []
    assert "chart_img_accounts_usage/acc1" not in world.documents


def test_a_replayed_401_does_not_set_the_real_account_aside() -> None:
    world = World(in_mode("mock"), answers={A: ["401 No"]})
    world.run()
    assert world.effects(SetAccountAside) == []


def test_a_template_that_cannot_be_read_fails_its_request() -> None:
    def unreadable(effect: LoadTemplates, now: datetime) -> TemplatesLoaded:
        return TemplatesLoaded(templates=templates(B, C), unreadable={A: "is not JSON"}, at=now)

    world = World(some_inputs(), replies={LoadTemplates: unreadable})
    assert world.run().items_count == 2
    (failure,) = manifest_of(world)["failures"]
    assert failure["error"] == {"code": "VALIDATION_FAILED", "message": f"template {A}: is not JSON"}


@pytest.mark.parametrize(("answers", "said"), [(["png"], "too slow"), (["500 Oops", "png"], "HTTP 500: Oops")])
def test_a_machine_too_slow_for_any_slot_says_so(answers: list[str], said: str) -> None:
    def always_late(effect: ReserveAccount, now: datetime) -> Any:
        outcome = world.hoped(effect, now)
        assert isinstance(outcome, AccountsReserved)
        if answers != ["png"] and effect.reservation_id.endswith("-0"):
            return outcome
        late = tuple(replace(one, slot_at=now - timedelta(seconds=1)) for one in outcome.assignments)
        return replace(outcome, assignments=late)

    world = World(
        some_inputs(real_configuration(), run_of(1)),
        templates=templates("t0"),
        replies={ReserveAccount: always_late},
        answers={"t0": answers},
    )
    result = world.run()
    assert result.error is not None
    assert said in result.error.message
    assert len(world.effects(CallChartApi)) == len(answers) - 1
