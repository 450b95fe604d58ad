from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.flow.given import GIVEN, GivenInputs, GivenState, abort, artifact_name, react, start
from core.program import Next
from effects import (
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    ObjectNotStored,
    ObjectStored,
    Outcome,
    PutObject,
    StepClaimed,
    StepFinalized,
    Waited,
    blob,
)
from tests.builders import NOW, RUN_ID, RUN_PATH, a_flow_run

STEP_ID = "candles:4h"
NAME = f"runs/{RUN_ID}/{STEP_ID}/candles.json"
URI = f"gs://bucket/{NAME}"
LEASE_SECONDS = 120


def inputs(file_name: str = "candles.json") -> GivenInputs:
    return GivenInputs(
        flow_run_path=RUN_PATH,
        step_id=STEP_ID,
        step_type="OHLCV_EXPORT",
        bucket="bucket",
        file_name=file_name,
        content=blob(b"[]"),
        token="token-1",
        now=NOW,
    )


CLAIM = ClaimStep(
    flow_run=RUN_PATH, step_id=STEP_ID, step_type="OHLCV_EXPORT", token="token-1", lease_seconds=LEASE_SECONDS
)
CLAIMED = StepClaimed(
    flow_run=a_flow_run(),
    attempt=1,
    first_claimed_at=NOW,
    lease_until=NOW + timedelta(seconds=LEASE_SECONDS),
    at=NOW,
)
STORED = ObjectStored(name=NAME, uri=URI, at=NOW)
NOT_STORED = ObjectNotStored(name=NAME, reason="failed", message="disk full", at=NOW)
FINALIZED = StepFinalized(status="SUCCEEDED", at=NOW)


def broken(effect: Effect) -> EffectFailed:
    return EffectFailed(effect=effect, error_type="OSError", message="scripted", at=NOW)


def fed(*outcomes: Outcome, file_name: str = "candles.json") -> Next[GivenState]:
    following = start(inputs(file_name))
    for outcome in outcomes:
        following = react(following.state, outcome)
    return following


def put_of(following: Next[GivenState]) -> PutObject:
    (effect,) = following.effects
    assert isinstance(effect, PutObject)
    return effect


def finalize_of(following: Next[GivenState]) -> FinalizeStep:
    (effect,) = following.effects
    assert isinstance(effect, FinalizeStep)
    assert (effect.flow_run, effect.step_id, effect.token) == (RUN_PATH, STEP_ID, "token-1")
    return effect


def test_the_step_is_claimed_first() -> None:
    following = fed()
    assert (following.effects, following.state.phase) == ((CLAIM,), "claiming")


def test_the_claim_holds_longer_than_storing_may_take() -> None:
    put = put_of(fed(CLAIMED))
    assert put.give_up_at < CLAIMED.lease_until


def test_a_claimed_step_gets_its_file_under_a_name_of_run_step_and_file() -> None:
    put = put_of(fed(CLAIMED))
    assert (put.bucket, put.name, put.content, put.content_type) == (
        "bucket",
        NAME,
        blob(b"[]"),
        "application/json",
    )
    assert not put.create_only  # an attempt that was killed may have stored it
    assert artifact_name(RUN_ID, STEP_ID, "candles.json") == NAME


def test_a_file_that_is_not_json_is_bytes() -> None:
    assert put_of(fed(CLAIMED, file_name="candles.parquet")).content_type == "application/octet-stream"


def test_a_stored_file_makes_the_step_succeed_with_its_address() -> None:
    finalize = finalize_of(fed(CLAIMED, STORED))
    assert (finalize.status, finalize.outputs, finalize.error) == ("SUCCEEDED", {"gcs_uri": URI}, None)
    assert fed(CLAIMED, STORED, FINALIZED).state.phase == "ended"


def test_a_file_that_could_not_be_stored_fails_the_step() -> None:
    finalize = finalize_of(fed(CLAIMED, NOT_STORED))
    assert finalize.error is not None
    assert (finalize.status, finalize.outputs) == ("FAILED", {"gcs_uri": None})
    assert (finalize.error.code, finalize.error.message) == (
        "GCS_WRITE_FAILED",
        "the file could not be stored: disk full",
    )


def test_a_store_that_broke_fails_the_step() -> None:
    finalize = finalize_of(fed(CLAIMED, broken(put_of(fed(CLAIMED)))))
    assert finalize.error is not None
    assert (finalize.error.code, finalize.error.details) == ("INTERNAL_ERROR", {"errorType": "OSError"})


def test_after_its_lease_a_worker_begins_nothing_more() -> None:
    late = CLAIMED.lease_until
    for outcomes in (
        (replace(CLAIMED, at=late),),
        (CLAIMED, replace(STORED, at=late)),
        (CLAIMED, replace(NOT_STORED, at=late)),
        (CLAIMED, EffectFailed(effect=CLAIM, error_type="OSError", message="scripted", at=late)),
    ):
        following = fed(*outcomes)
        assert (following.effects, following.state.phase) == ((), "ended")


def test_a_claim_that_was_lost_ends_the_run() -> None:
    following = fed(ClaimLost(reason="not_ready", at=NOW))
    assert following == Next(GivenState(inputs=inputs(), phase="ended"))


def test_a_claim_that_broke_can_be_tried_again() -> None:
    following = fed(broken(CLAIM))
    assert (following.effects, following.state.phase, following.state.is_claim_unknown) == ((), "ended", True)


def test_a_finalize_that_was_lost_or_broke_leaves_the_step_to_others() -> None:
    finalize = finalize_of(fed(CLAIMED, STORED))
    for outcome in (FinalizeLost(reason="claimed_by_another", at=NOW), broken(finalize)):
        following = fed(CLAIMED, STORED, outcome)
        assert (following.effects, following.state.phase, following.state.is_claim_unknown) == ((), "ended", False)


@pytest.mark.parametrize(
    ("outcomes", "is_finalized"),
    [((), False), ((CLAIMED,), True), ((CLAIMED, STORED), False), ((CLAIMED, STORED, FINALIZED), False)],
    ids=["claiming", "storing", "ending", "ended"],
)
def test_a_program_that_breaks_ends_the_step_it_has_claimed(
    outcomes: tuple[Outcome, ...], is_finalized: bool
) -> None:
    following = abort(fed(*outcomes).state, "KeyboardInterrupt")
    assert [type(one) for one in following.effects] == [FinalizeStep] * is_finalized
    if is_finalized:
        error = finalize_of(following).error
        assert error is not None
        assert (error.code, error.message) == ("INTERNAL_ERROR", "the worker broke: KeyboardInterrupt")


def every_outcome() -> list[Outcome]:
    """Return each outcome that a given step can meet, and one that it cannot."""
    put, finalize = put_of(fed(CLAIMED)), finalize_of(fed(CLAIMED, STORED))
    return [
        CLAIMED,
        ClaimLost(reason="not_ready", at=NOW),
        STORED,
        NOT_STORED,
        FINALIZED,
        FinalizeLost(reason="claimed_by_another", at=NOW),
        *map(broken, (CLAIM, put, finalize)),
        Waited(reason="backoff", chart_template_id=None, at=NOW),
    ]


def answers_to(effect: Effect) -> list[Outcome]:
    """Return every outcome that the effect can have."""
    kinds: dict[type, list[Any]] = {
        ClaimStep: [StepClaimed, ClaimLost],
        PutObject: [ObjectStored, ObjectNotStored],
        FinalizeStep: [StepFinalized, FinalizeLost],
    }
    wanted = kinds[type(effect)]
    return [*(one for one in every_outcome() if type(one) in wanted), broken(effect)]


def test_whatever_the_world_answers_the_run_ends_and_a_claimed_step_is_finalized_once() -> None:
    ways = [(GIVEN.start(inputs()), [])]  # type: list[tuple[Next[GivenState], list[Effect]]]
    ended = 0
    while ways:
        following, done = ways.pop()
        if not following.effects:
            ended += 1
            assert following.state.phase == "ended"
            kinds = [type(one) for one in done]
            assert kinds in ([ClaimStep], [ClaimStep, PutObject, FinalizeStep])
            continue
        (effect,) = following.effects
        ways += [(react(following.state, one), [*done, effect]) for one in answers_to(effect)]
    assert ended == 1 + 1 + 3 * 3


def test_outcomes_in_any_order_and_twice_never_begin_anything_twice() -> None:
    """Walk through everything that can be reached by any outcomes: how the run stands, and what it has begun."""
    ways = [(start(inputs()).state, (ClaimStep,))]  # type: list[tuple[GivenState, tuple[type, ...]]]
    reached = set()
    while ways:
        state, begun = ways.pop()
        if (state.phase, state.is_claim_unknown, begun) in reached:
            continue
        reached.add((state.phase, state.is_claim_unknown, begun))
        for outcome in every_outcome():
            following = react(state, outcome)
            ways.append((following.state, (*begun, *(type(one) for one in following.effects))))
    whole = (ClaimStep, PutObject, FinalizeStep)
    assert reached == {
        ("claiming", False, whole[:1]),
        ("ended", False, whole[:1]),
        ("ended", True, whole[:1]),
        ("storing", False, whole[:2]),
        ("ending", False, whole),
        ("ended", False, whole),
    }
