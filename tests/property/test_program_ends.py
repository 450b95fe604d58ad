"""Whatever the world answers, in whatever order, a run ends, and a claimed step is finalized."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.charts import program
from core.charts.accounts import Account
from core.charts.manifest import ManifestItem, build_manifest
from core.charts.naming import manifest_name, object_uri, png_name
from core.charts.state import State
from core.charts.step import parse_chart_step
from effects import (
    AccountAssignment,
    AccountExhausted,
    AccountSetAside,
    AccountsExhausted,
    AccountsReserved,
    CallChartApi,
    ChartRefused,
    ChartRendered,
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    ExhaustAccount,
    FinalizeLost,
    FinalizeStep,
    ListObjects,
    LoadTemplates,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PutObject,
    ReadObject,
    RecordReply,
    ReplyRecorded,
    ReserveAccount,
    SetAccountAside,
    StepClaimed,
    StepFinalized,
    TemplatesLoaded,
    UnassignedRequest,
    Wait,
    Waited,
    blob,
)
from effects.moments import utc_day
from tests.builders import (
    NOW,
    STEP_ID,
    TEMPLATE_IDS,
    a_configuration,
    a_flow_run,
    a_png,
    an_account,
    some_inputs,
    templates,
)
from tests.strategies import many

MOST_STEPS = 2_000
STATUSES = [400, 401, 403, 404, 429, 500, 503, 504, 302]
STEP = parse_chart_step(a_flow_run(), STEP_ID).unwrap()
BUCKET = "local-artifacts"
DRAWN_AT = [NOW + timedelta(seconds=seconds) for seconds in (-700, -601, -600, -599, 0)]
"""Around the first claim."""
DELAYS = st.sampled_from([0, 0, 0, 1, 40, 150, 2_000, 31_000, 200_000, 86_400_000])


def outcomes(effect: Effect, draw: st.DrawFn, at: datetime) -> Outcome:
    """Draw any outcome that the effect could have."""
    if draw(st.integers(0, 12)) == 0:
        return EffectFailed(effect=effect, error_type="OSError", message="scripted", at=at)
    return _OUTCOMES[type(effect)](effect, draw, at)


def _claim(effect: ClaimStep, draw: st.DrawFn, at: datetime) -> Outcome:
    if draw(st.integers(0, 9)) == 0:
        return ClaimLost(reason="not_ready", at=at)
    lease_until = at + timedelta(seconds=effect.lease_seconds)
    attempt = draw(st.sampled_from([1, 2, 2, 3]))
    first = at if attempt == 1 else NOW - timedelta(seconds=600)
    return StepClaimed(
        flow_run=a_flow_run(), attempt=attempt, first_claimed_at=first, lease_until=lease_until, at=at
    )


def _not_read(name: str, draw: st.DrawFn, at: datetime) -> ObjectNotRead:
    reason: Any = draw(st.sampled_from(["missing", "too_large", "failed", "failed"]))
    return ObjectNotRead(name=name, reason=reason, message="scripted", at=at)


def _list(effect: ListObjects, draw: st.DrawFn, at: datetime) -> Outcome:
    if draw(st.integers(0, 3)) == 0:
        return _not_read(effect.prefix, draw, at)
    pictures = st.builds(png_name, st.just(STEP), st.sampled_from([*TEMPLATE_IDS, "x"]), st.sampled_from(DRAWN_AT))
    names = draw(st.lists(pictures | st.just(manifest_name(STEP)) | st.just(f"{effect.prefix}other"), max_size=6))
    return ObjectsListed(prefix=effect.prefix, sizes=dict.fromkeys(names, 1), at=at)


def _read(effect: ReadObject, draw: st.DrawFn, at: datetime) -> Outcome:
    if draw(st.integers(0, 2)) == 0:
        return _not_read(effect.name, draw, at)
    if effect.name == manifest_name(STEP):
        content = draw(st.sampled_from([_a_manifest(draw), b"{}", b"{"]))
    else:
        content = draw(st.sampled_from([a_png(), a_png(), a_png()[:-1], b""]))
    return ObjectRead(name=effect.name, content=blob(content), at=at)


def _a_manifest(draw: st.DrawFn) -> bytes:
    drawn = draw(st.sets(st.sampled_from(TEMPLATE_IDS)))
    items = [
        ManifestItem(
            chart_template_id=one,
            kind="x",
            generated_at=NOW,
            png_gcs_uri=object_uri(BUCKET, png_name(STEP, one, draw(st.sampled_from(DRAWN_AT)))),
        )
        for one in sorted(drawn)
    ]
    return json.dumps(build_manifest(STEP, items, (), draw(st.sampled_from(DRAWN_AT)))).encode()


def _templates(effect: LoadTemplates, draw: st.DrawFn, at: datetime) -> Outcome:
    found = draw(st.sets(st.sampled_from(effect.chart_template_ids)))
    unreadable = {one: "is not JSON" for one in effect.chart_template_ids if one not in found}
    return TemplatesLoaded(templates=templates(*sorted(found)) if found else {}, unreadable=unreadable, at=at)


def _reservation(effect: ReserveAccount, draw: st.DrawFn, at: datetime) -> Outcome:
    assignments, unassigned = [], []
    window = utc_day(at) - timedelta(days=draw(st.sampled_from([0, 0, 0, 1])))
    for need in effect.for_requests:
        if draw(st.integers(0, 5)) == 0:
            reason: Any = draw(st.sampled_from(["no_account", "too_late"]))
            unassigned.append(UnassignedRequest(chart_template_id=need.chart_template_id, reason=reason))
            continue
        assignments.append(
            AccountAssignment(
                chart_template_id=need.chart_template_id,
                account_id=draw(st.sampled_from(effect.accounts)).id,
                slot_at=at + timedelta(milliseconds=draw(st.sampled_from([-5_000, -150, 0, 0, 1_000, 60_000]))),
                window_start=window,
            )
        )
    exhausted = draw(st.sampled_from([(), tuple(one.id for one in effect.accounts)]))
    shared: dict[str, Any] = {
        "usage_collection": effect.usage_collection,
        "unassigned": tuple(unassigned),
        "exhausted_accounts": exhausted,
        "window_start": window,
        "at": at,
    }
    if not assignments:
        return AccountsExhausted(**shared)
    return AccountsReserved(assignments=tuple(assignments), **shared)


def _call(effect: CallChartApi, draw: st.DrawFn, at: datetime) -> Outcome:
    shared: dict[str, Any] = {
        "chart_template_id": effect.chart_template_id,
        "account_id": effect.account_id,
        "duration_ms": 1,
        "at": at,
    }
    kind = draw(
        st.sampled_from(["picture", "answer", "answer", "bad_answer", "network", "timeout", "fixture_missing"])
    )
    if kind == "picture":
        return ChartRendered(image=blob(a_png()), **shared)
    status = draw(st.sampled_from(STATUSES)) if kind == "answer" else None
    return ChartRefused(kind=kind, http_status=status, message="scripted", body="{}", **shared)


def _put(effect: PutObject, draw: st.DrawFn, at: datetime) -> Outcome:
    reason = draw(st.sampled_from([None, None, "name_taken", "failed"]))
    if reason is None:
        return ObjectStored(name=effect.name, uri=f"gs://b/{effect.name}", at=at)
    return ObjectNotStored(name=effect.name, reason=reason, message="scripted", at=at)  # type: ignore[arg-type]


def _finalize(effect: FinalizeStep, draw: st.DrawFn, at: datetime) -> Outcome:
    if draw(st.integers(0, 5)) == 0:
        return FinalizeLost(reason="claimed_by_another", at=at)
    return StepFinalized(status=effect.status, at=at)


_OUTCOMES: dict[type, Any] = {
    ClaimStep: _claim,
    LoadTemplates: _templates,
    ReserveAccount: _reservation,
    CallChartApi: _call,
    PutObject: _put,
    ListObjects: _list,
    ReadObject: _read,
    FinalizeStep: _finalize,
    Wait: lambda effect, draw, at: Waited(
        reason=effect.reason, chart_template_id=effect.chart_template_id, at=max(at, effect.until)
    ),
    ExhaustAccount: lambda effect, draw, at: AccountExhausted(account_id=effect.account.id, at=at),
    SetAccountAside: lambda effect, draw, at: AccountSetAside(account_id=effect.account_id, at=at),
    RecordReply: lambda effect, draw, at: ReplyRecorded(fixture_name=effect.fixture_name, at=at),
}


class Watch:
    """What must hold after every single outcome."""

    def __init__(self, max_parallel: int) -> None:
        self.max_parallel = max_parallel
        self.in_flight: list[Effect] = []
        self.begun: list[Effect] = []
        self.reserved: dict[tuple[str, str], int] = {}

    def begin(self, effects: tuple[Effect, ...], state: State) -> None:
        self.in_flight += effects
        self.begun += effects
        work = [
            e
            for e in self.in_flight
            if isinstance(e, CallChartApi | ReadObject) or (isinstance(e, PutObject) and e.create_only)
        ]
        assert len(work) <= self.max_parallel
        assert sum(isinstance(e, FinalizeStep) for e in self.in_flight) <= 1
        for effect in effects:
            if isinstance(effect, CallChartApi):
                assert state.now < state.inputs.calls_end
                self._spend(effect)
            if state.lease_until is not None:
                assert state.now < state.lease_until

    def learn(self, outcome: Outcome) -> None:
        for one in outcome.assignments if isinstance(outcome, AccountsReserved) else ():
            key = (one.chart_template_id, one.account_id)
            self.reserved[key] = self.reserved.get(key, 0) + 1

    def _spend(self, effect: CallChartApi) -> None:
        """Every call uses up a reservation of its own."""
        key = (effect.chart_template_id, effect.account_id)
        assert self.reserved.get(key, 0) > 0
        self.reserved[key] -= 1


@many(300)
@given(data=st.data(), mode=st.sampled_from(["real", "mock", "record"]), parallel=st.integers(1, 4))
def test_a_run_ends_for_every_sequence_of_outcomes(data: st.DataObject, mode: str, parallel: int) -> None:
    accounts: list[Account] = [an_account("acc1"), an_account("acc2")]
    configuration = a_configuration(
        accounts, CHARTS_API_MODE="mock", CHARTS_MAX_PARALLEL=str(parallel), CHARTS_MAX_ATTEMPTS="3"
    )
    inputs = some_inputs(configuration, fixtures=frozenset({f"BINANCE_BTCUSDT__4h__{TEMPLATE_IDS[0]}"}))
    object.__setattr__(inputs.settings, "mode", mode)
    watch = Watch(parallel)
    following = program.start(inputs)
    watch.begin(following.effects, following.state)
    at, steps = NOW, 0
    while watch.in_flight:
        steps += 1
        assert steps < MOST_STEPS, "the run does not end"
        effect = watch.in_flight.pop(data.draw(st.integers(0, len(watch.in_flight) - 1)))
        at += timedelta(milliseconds=data.draw(DELAYS))
        outcome = outcomes(effect, data.draw, at)
        watch.learn(outcome)
        following = program.react(following.state, outcome)
        watch.begin(following.effects, following.state)
    result = following.state.result
    assert result is not None
    was_claimed = following.state.lease_until is not None
    was_finalized = any(isinstance(effect, FinalizeStep) for effect in watch.begun)
    assert was_finalized or not was_claimed or result.noop_reason == "lease_expired"
    assert (result.status == "NOOP") == (result.noop_reason is not None)
    assert result.reused_count <= result.items_count
    if result.status == "SUCCEEDED":
        assert result.items_count >= (result.min_images or 0)
        assert result.manifest_uri is not None


@many(200)
@given(data=st.data(), error_type=st.sampled_from(["ZeroDivisionError", "KeyboardInterrupt"]))
def test_a_program_that_breaks_anywhere_after_its_claim_still_finalizes_the_step(
    data: st.DataObject, error_type: str
) -> None:
    following = program.start(some_inputs(a_configuration(CHARTS_MAX_PARALLEL="2")))
    in_flight, begun, at = [*following.effects], [*following.effects], NOW
    for _ in range(data.draw(st.integers(1, 30))):
        if not in_flight:
            return
        effect = in_flight.pop(0)
        at = max(at, effect.until) if isinstance(effect, Wait) else at
        following = program.react(following.state, outcomes(effect, data.draw, at))
        in_flight += following.effects
        begun += following.effects
    if following.state.lease_until is None or following.state.result is not None:
        return
    following = program.abort(following.state, error_type)
    in_flight = [*following.effects]
    begun += in_flight
    while in_flight:
        effect = in_flight.pop(0)
        at = max(at, effect.until) if isinstance(effect, Wait) else at
        following = program.react(following.state, _OUTCOMES[type(effect)](effect, data.draw, at))
        in_flight += following.effects
        begun += following.effects
    result = following.state.result
    assert result is not None
    assert any(isinstance(effect, FinalizeStep) for effect in begun) or result.noop_reason == "lease_expired"


@given(data=st.data())
def test_outcomes_that_come_twice_or_late_change_nothing_for_the_worse(data: st.DataObject) -> None:
    inputs = some_inputs(a_configuration(CHARTS_MAX_PARALLEL="2"))
    following = program.start(inputs)
    in_flight, at = [*following.effects], NOW
    seen: list[Outcome] = []
    while in_flight:
        if seen and data.draw(st.booleans()):
            following = program.react(following.state, data.draw(st.sampled_from(seen)))
            in_flight += following.effects
        effect = in_flight.pop(0)
        outcome = outcomes(effect, data.draw, at)
        seen = [outcome, *seen][:5]
        following = program.react(following.state, outcome)
        in_flight += following.effects
        assert len(in_flight) < 50
    assert following.state.result is not None
