"""Whatever the world answers, in whatever order, a report run ends, with at most two calls, and a claimed step is finalized."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.reports import program
from core.reports.state import State
from effects import (
    CallModel,
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    LoadPrompt,
    LoadSchema,
    ModelAnswered,
    ModelRefused,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectStored,
    Outcome,
    PromptLoaded,
    PutObject,
    ReadObject,
    RecordReply,
    ReplyRecorded,
    SchemaLoaded,
    StepClaimed,
    StepFinalized,
    Wait,
    Waited,
    blob,
)
from tests.builders import NOW, a_claim
from tests.report_world import (
    GOOD,
    OLD_ID,
    PROMPT_ID,
    REPORT_NAME,
    SCHEMA_ID,
    a_prompt,
    a_report_flow_run,
    a_report_step,
    a_response,
    a_schema,
    changed_step,
    report_bytes,
    report_inputs,
    report_steps,
    some_report_inputs,
    stored_objects,
)

MOST_STEPS = 2_000
MOST_CALLS = 2
STORED = stored_objects()
KEY = f"BTCUSDT__1M__{PROMPT_ID}__gemini-2.5-pro__{SCHEMA_ID}"

FLOW_RUNS = [
    a_report_flow_run(),
    a_report_flow_run(),
    changed_step(inputs=report_inputs(previousReportStepIds=[OLD_ID, OLD_ID])),
    changed_step(inputs={}),
    changed_step(status="RUNNING", outputs=a_claim()),
    a_report_flow_run({**report_steps(status="RUNNING"), "a": a_report_step(status="RUNNING")}),
]


@dataclass
class Luck:
    """A world that is in trouble now and then; drawn from a seed, for choices drawn one by one rarely go well for long."""

    random: Random
    trouble: float

    def fails(self) -> bool:
        return self.random.random() < self.trouble

    def pick(self, right: Any, *wrong: Any) -> Any:
        return self.random.choice(wrong) if self.fails() else right

    def delay(self) -> timedelta:
        often = self.random.choice([0, 0, 1, 40])
        return timedelta(milliseconds=self.pick(often, 2_000, 31_000, 200_000, 600_000, 659_500, 86_400_000))


lucks = st.builds(Luck, st.randoms(use_true_random=True), st.sampled_from([0, 0.02, 0.1, 0.1, 0.3, 0.6]))


def outcomes(effect: Effect, luck: Luck, at: datetime) -> Outcome:
    """Return any outcome that the effect could have."""
    if luck.random.random() < luck.trouble / 10:
        return EffectFailed(effect=effect, error_type="OSError", message="scripted", at=at)
    outcome: Outcome = _OUTCOMES[type(effect)](effect, luck, at)
    return outcome


def _claim(effect: ClaimStep, luck: Luck, at: datetime) -> Outcome:
    if luck.random.random() < luck.trouble / 4:
        return ClaimLost(reason="not_ready", at=at)
    lease_until = at + timedelta(seconds=effect.lease_seconds)
    flow_run = luck.pick(FLOW_RUNS[1], FLOW_RUNS[2], FLOW_RUNS[2], FLOW_RUNS[3])
    return StepClaimed(flow_run=flow_run, attempt=1, first_claimed_at=at, lease_until=lease_until, at=at)


def _document(kind: Any, right: Any) -> Any:
    def load(effect: Effect, luck: Luck, at: datetime) -> Outcome:
        document = luck.pick(right, right, None, [], {"schemaVersion": 2})
        is_missing = luck.random.random() < luck.trouble / 10
        outcome: Outcome = kind(content=None if is_missing else blob(json.dumps(document).encode()), at=at)
        return outcome

    return load


def _read(effect: ReadObject, luck: Luck, at: datetime) -> Outcome:
    is_report = effect.name.endswith(REPORT_NAME.rpartition("/")[2]) or effect.name.endswith("/a.json")
    right = report_bytes() if is_report else STORED.get(effect.name, b"")
    usual = luck.random.choice(["missing", "missing", right]) if is_report else right
    found = luck.pick(usual, "failed", "failed", "failed", "missing", "too_large", b"{", b"")
    if isinstance(found, bytes):
        return ObjectRead(name=effect.name, content=blob(found), at=at)
    reason: Any = found
    return ObjectNotRead(name=effect.name, reason=reason, message="scripted", at=at)


_RESPONSES = [
    a_response(GOOD),
    a_response("{", GOOD[1:]),
    a_response("{"),
    a_response("{}"),
    a_response(f"```json\n{GOOD}\n```"),
    a_response(finish="MAX_TOKENS"),
    a_response(finish="SAFETY"),
    a_response(),
    {},
]


def _call(effect: CallModel, luck: Luck, at: datetime) -> Outcome:
    answer = luck.pick(luck.random.choice([*_RESPONSES, a_response(GOOD)]), None, None)
    if answer is not None:
        response = json.dumps(answer).encode()
        return ModelAnswered(purpose=effect.purpose, response=blob(response), duration_ms=1, at=at)
    kind: Any = luck.random.choice(["http", "timeout", "network", "fixture_missing"])
    status = luck.random.choice([400, 401, 404, 429, 500, 503]) if kind == "http" else None
    name = luck.random.choice([None, "RESOURCE_EXHAUSTED", "INTERNAL"])
    return ModelRefused(
        purpose=effect.purpose, kind=kind, http_status=status, status=name, message="x", duration_ms=1, at=at
    )


def _put(effect: PutObject, luck: Luck, at: datetime) -> Outcome:
    reason: Any = luck.random.choice([None, None, "name_taken", "failed"])
    if reason is None:
        return ObjectStored(name=effect.name, uri=f"gs://b/{effect.name}", at=at)
    return ObjectNotStored(name=effect.name, reason=reason, message="scripted", at=at)


def _finalize(effect: FinalizeStep, luck: Luck, at: datetime) -> Outcome:
    if luck.fails():
        return FinalizeLost(reason="already_final", at=at)
    return StepFinalized(status=effect.status, at=at)


_OUTCOMES: dict[type, Any] = {
    ClaimStep: _claim,
    LoadPrompt: _document(PromptLoaded, a_prompt()),
    LoadSchema: _document(SchemaLoaded, a_schema()),
    ReadObject: _read,
    CallModel: _call,
    PutObject: _put,
    FinalizeStep: _finalize,
    Wait: lambda effect, luck, at: Waited(
        reason=effect.reason, chart_template_id=effect.chart_template_id, at=max(at, effect.until)
    ),
    RecordReply: lambda effect, luck, at: ReplyRecorded(fixture_name=effect.fixture_name, at=at),
}


class Watch:
    """What must hold after every single outcome."""

    def __init__(self) -> None:
        self.in_flight: list[Effect] = []
        self.begun: list[Effect] = []

    def begin(self, effects: tuple[Effect, ...], state: State) -> None:
        self.in_flight += effects
        self.begun += effects
        calls = [one for one in self.begun if isinstance(one, CallModel)]
        assert [one.purpose for one in calls] in ([], ["primary"], ["primary", "repair"])
        assert sum(isinstance(one, FinalizeStep | PutObject | CallModel) for one in self.in_flight) <= 1
        for effect in effects:
            if isinstance(effect, CallModel):
                assert state.now + timedelta(seconds=effect.timeout_seconds) <= state.inputs.calls_end
                assert effect.timeout_seconds > 0
            if isinstance(effect, FinalizeStep):
                is_claimed = any(isinstance(one, ClaimStep) for one in self.begun)
                assert effect.token == (state.inputs.token if is_claimed else None)
            if state.lease_until is not None:
                assert state.now < state.lease_until


@settings(max_examples=400)
@given(
    luck=lucks,
    mode=st.sampled_from(["real", "mock", "record"]),
    flow_run=st.sampled_from(FLOW_RUNS),
    fixtures=st.sampled_from([frozenset(), frozenset({KEY})]),
)
def test_4_27_a_run_ends_with_at_most_two_calls_for_every_sequence_of_outcomes(
    luck: Luck, mode: str, flow_run: dict[str, Any], fixtures: frozenset[str]
) -> None:
    inputs = some_report_inputs(flow_run, variables={"LLM_API_MODE": mode}, fixtures=fixtures)
    watch = Watch()
    following = program.start(inputs)
    watch.begin(following.effects, following.state)
    at, steps = NOW, 0
    while watch.in_flight:
        steps += 1
        assert steps < MOST_STEPS, "the run does not end"
        effect = watch.in_flight.pop(luck.random.randrange(len(watch.in_flight)))
        at += luck.delay()
        following = program.react(following.state, outcomes(effect, luck, at))
        watch.begin(following.effects, following.state)
    result = following.state.result
    assert result is not None
    was_claimed = following.state.lease_until is not None
    was_finalized = any(isinstance(effect, FinalizeStep) for effect in watch.begun)
    assert was_finalized or not was_claimed or result.noop_reason == "lease_expired"
    assert (result.status == "NOOP") == (result.noop_reason is not None)
    assert (result.status == "FAILED") == (result.error is not None)
    assert result.status != "SUCCEEDED" or result.report_uri is not None
    assert result.attempts <= sum(isinstance(effect, CallModel) for effect in watch.begun) <= MOST_CALLS


@settings(max_examples=200)
@given(luck=lucks, error_type=st.sampled_from(["ZeroDivisionError", "KeyboardInterrupt"]))
def test_a_program_that_breaks_anywhere_after_its_claim_still_finalizes_the_step(
    luck: Luck, error_type: str
) -> None:
    following = program.start(some_report_inputs())
    in_flight, begun, at = [*following.effects], [*following.effects], NOW
    for _ in range(luck.random.randrange(1, 30)):
        if not in_flight:
            return
        effect = in_flight.pop(0)
        at = max(at, effect.until) if isinstance(effect, Wait) else at
        following = program.react(following.state, outcomes(effect, luck, at))
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
        following = program.react(following.state, _OUTCOMES[type(effect)](effect, luck, at))
        in_flight += following.effects
        begun += following.effects
    result = following.state.result
    assert result is not None
    assert any(isinstance(effect, FinalizeStep) for effect in begun) or result.noop_reason == "lease_expired"


@settings(max_examples=200)
@given(luck=lucks, flow_run=st.sampled_from(FLOW_RUNS))
def test_4_33_outcomes_that_come_twice_or_late_cost_no_further_call(luck: Luck, flow_run: dict[str, Any]) -> None:
    following = program.start(some_report_inputs(flow_run))
    in_flight, begun, at = [*following.effects], [*following.effects], NOW
    seen: list[Outcome] = []
    while in_flight:
        if seen and luck.random.random() < 0.5:
            following = program.react(following.state, luck.random.choice(seen))
            in_flight += following.effects
            begun += following.effects
        effect = in_flight.pop(0)
        at = max(at, effect.until) if isinstance(effect, Wait) else at
        outcome = outcomes(effect, luck, at)
        seen = [outcome, *seen][:5]
        following = program.react(following.state, outcome)
        in_flight += following.effects
        begun += following.effects
        assert len(in_flight) < 100
    assert following.state.result is not None
    assert sum(isinstance(effect, CallModel) for effect in begun) <= MOST_CALLS
