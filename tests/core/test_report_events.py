"""What the log says of a report, and the gate that everything passes."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest

from core.events import LogEvent
from core.reports.answers import QUOTED_CHARACTERS, NoReply, Reply, read_reply
from core.reports.events import events_begun, events_done, events_of_result
from core.reports.log_gate import through_gate
from core.reports.planning import plan_report
from core.reports.state import ReportResult
from core.reports.summary import json_summary, text_summary
from core.secrets import Secret
from effects import (
    HOPED_BLOB,
    CallModel,
    EffectFailed,
    FinalizeStep,
    LoadPrompt,
    LoadSchema,
    ModelAnswered,
    ModelRefused,
    ObjectNotStored,
    PutObject,
    Wait,
    blob,
)
from tests.builders import NOW
from tests.report_world import (
    GEMINI_KEY,
    PROMPT_ID,
    REPORT_ID,
    REPORT_NAME,
    ReportWorld,
    a_report_flow_run,
    report_bytes,
    report_configuration,
    some_report_inputs,
    stored_objects,
    uri_of,
)

NAMES = {
    "ready_step_selected", "claim_attempt", "context_resolve_started", "context_resolve_finished",
    "prompt_fetch_started", "prompt_fetch_finished", "schema_fetch_finished", "gcs_read_started", "gcs_read_finished",
    "llm_request_started", "llm_request_finished", "structured_output_invalid",
    "structured_output_repair_attempt_started", "structured_output_repair_attempt_finished",
    "gcs_write_started", "gcs_write_finished", "step_completed", "step_failed", "step_noop", "effect_failed",
    "finalize_lost",
}  # fmt: skip


def said(world: ReportWorld) -> list[LogEvent]:
    world.run()
    return world.log()


def by_name(events: list[LogEvent], name: str) -> list[LogEvent]:
    return [one for one in events if one.event == name]


@pytest.mark.parametrize(
    "answers", [["good"], [{"text": "{"}, "good"], ["429 X no"], [{"text": "{"}, "500 X no"], ["SAFETY"]]
)
def test_4_30_event_names_are_stable(answers: Any) -> None:
    assert {one.event for one in said(ReportWorld(answers=answers))} <= NAMES


def test_4_29_every_event_has_a_name_a_message_and_a_severity() -> None:
    for one in said(ReportWorld(answers=[{"text": "{"}, "good"])):
        assert one.event
        assert one.message
        assert one.severity in {"DEBUG", "INFO", "WARNING", "ERROR"}


def test_4_30_a_call_is_said_with_model_mode_purpose_and_how_it_is_authorized() -> None:
    (started,) = by_name(said(ReportWorld()), "llm_request_started")
    assert started.fields["llm"] == {
        "model": "gemini-2.5-pro",
        "mode": "real",
        "purpose": "primary",
        "auth": {"mode": "ai_studio_api_key"},
    }


def test_a_recording_is_named_in_the_log() -> None:
    world = ReportWorld(some_report_inputs(variables={"LLM_API_MODE": "mock"}))
    (started,) = by_name(said(world), "llm_request_started")
    assert started.fields["llm"]["fixtureKey"].startswith("BTCUSDT__1M__")


def test_4_30_prompt_and_answer_are_size_and_hash() -> None:
    world = ReportWorld()
    events = said(world)
    (asked,) = world.effects(CallModel)
    (started,), (finished,) = by_name(events, "llm_request_started"), by_name(events, "llm_request_finished")
    for name in ("system", "user"):
        content = getattr(asked, name)
        assert started.fields[name] == {"bytes": content.size, "sha256": content.sha256}
    assert set(finished.fields["text"]) == {"bytes", "sha256"}
    (prompt,) = by_name(events, "prompt_fetch_finished")
    assert set(prompt.fields["document"]) == {"bytes", "sha256"}


def test_4_14_an_answer_that_cannot_be_used_is_said_with_kind_size_and_hash() -> None:
    text = '{"secret thought": '
    (invalid,) = by_name(said(ReportWorld(answers=[{"text": text}, "good"])), "structured_output_invalid")
    assert invalid.severity == "WARNING"
    assert {name: invalid.fields[name] for name in ("kind", "finishReason", "textBytes", "textSha256")} == {
        "kind": "json_parse",
        "finishReason": "STOP",
        "textBytes": len(text),
        "textSha256": hashlib.sha256(text.encode()).hexdigest(),
    }


@pytest.mark.parametrize(
    ("second", "status"), [("good", "ok"), ({"text": "{"}, "invalid"), ("500 INTERNAL oops", "failed")]
)
def test_a_repair_has_a_beginning_and_an_end(second: Any, status: str) -> None:
    events = said(ReportWorld(answers=[{"text": "{"}, second]))
    assert len(by_name(events, "structured_output_repair_attempt_started")) == 1
    (finished,) = by_name(events, "structured_output_repair_attempt_finished")
    assert finished.fields["status"] == status


def test_a_refusal_is_said_with_status_and_code() -> None:
    (finished,) = by_name(said(ReportWorld(answers=["429 RESOURCE_EXHAUSTED slow down"])), "llm_request_finished")
    assert (finished.severity, finished.fields["status"]) == ("WARNING", "failed")
    assert (finished.fields["httpStatus"], finished.fields["errorCode"]) == (429, "RATE_LIMITED")


def test_what_is_missing_is_a_warning() -> None:
    events = said(ReportWorld(prompts={}, schemas={}))
    for name in ("prompt_fetch_finished", "schema_fetch_finished"):
        (event,) = by_name(events, name)
        assert (event.severity, event.fields["status"]) == ("WARNING", "missing")


def test_a_failed_step_is_an_error_with_its_code() -> None:
    event = said(ReportWorld(answers=["SAFETY"]))[-1]
    assert (event.event, event.severity, event.fields["errorCode"]) == ("step_failed", "ERROR", "LLM_SAFETY_BLOCK")


def test_a_completed_step_says_whether_it_was_reused() -> None:
    own = said(ReportWorld())[-1]
    reused = said(ReportWorld(given={**stored_objects(), REPORT_NAME: report_bytes()}))[-1]
    assert [one.event for one in (own, reused)] == ["step_completed", "step_completed"]
    assert [one.fields["reused"] for one in (own, reused)] == [False, True]
    assert own.fields["gcsUri"] == uri_of(REPORT_NAME)


def test_a_no_op_gives_its_reason() -> None:
    (event,) = said(ReportWorld(some_report_inputs(a_report_flow_run({}))))
    assert (event.event, event.fields) == ("step_noop", {"reason": "no_ready_step"})


def test_a_claim_that_is_not_known_is_an_error() -> None:
    world = ReportWorld()
    world.run()
    result = ReportResult(status="FAILED", step_id="s", is_claim_unknown=True)
    (event,) = events_of_result(result)
    assert (event.event, event.severity, event.fields["claimed"]) == ("claim_attempt", "ERROR", False)


def test_what_is_not_stored_is_a_warning() -> None:
    put = PutObject(bucket="b", name="n", content=blob(b""), content_type="x", create_only=True, give_up_at=NOW)
    (event,) = events_done(put, ObjectNotStored(name="n", reason="name_taken", message="other bytes", at=NOW))
    assert (event.severity, event.fields["status"]) == ("WARNING", "name_taken")


def test_of_some_effects_the_log_says_nothing() -> None:
    wait = Wait(until=NOW, reason="store", chart_template_id=None)
    assert events_begun(wait) == ()
    assert events_begun(LoadSchema(schema_id="s")) == ()
    world = ReportWorld()
    world.run()
    (_, effect, outcome) = world.trace[-1]
    assert isinstance(effect, FinalizeStep)
    assert events_done(effect, outcome) == ()


@pytest.mark.parametrize(
    ("effect", "is_told"), [(LoadPrompt(prompt_id="p"), False), (LoadSchema(schema_id="s"), True)]
)
def test_4_24_what_broke_around_a_prompt_or_an_answer_is_said_by_its_type_alone(
    effect: Any, is_told: bool
) -> None:
    outcome = EffectFailed(effect=effect, error_type="ValueError", message="bad value 'quoted'", at=NOW)
    (event,) = events_done(effect, outcome)
    assert ("quoted" in event.message, "ValueError" in event.message) == (is_told, True)


# The gate.


@pytest.mark.parametrize("name", ["text", "userPrompt", "systemInstruction", "candidates", "markdown", "Output"])
@pytest.mark.parametrize("value", ["canary", ["canary"], {"x": "canary"}, b"canary", "\ud800canary"])
def test_4_30_a_field_added_without_thought_cannot_leak(name: str, value: Any) -> None:
    for fields in ({name: value}, {"deep": {"er": [{name: value}]}}):
        assert "canary" not in repr(through_gate(LogEvent("x", "y", fields=fields)))


@pytest.mark.parametrize("name", ["apiKey", "API_KEY", "key", "token", "authorization", "x-goog-api-key"])
def test_4_28_a_key_is_dropped_and_never_hashed(name: str) -> None:
    fields = {
        name: GEMINI_KEY,
        "llm": {name: GEMINI_KEY, "auth": {"mode": "m"}},
        "kept": 1,
        "held": Secret(GEMINI_KEY),
    }
    event = through_gate(LogEvent("x", "y", fields=fields))
    assert event.fields == {"llm": {"auth": {"mode": "m"}}, "kept": 1}
    assert hashlib.sha256(GEMINI_KEY.encode()).hexdigest() not in repr(event)


def test_what_is_no_text_passes_the_gate_as_it_is() -> None:
    fields = {"n": 1, "list": [1, "x", {"y": None}], "text": None, "empty": {}}
    assert through_gate(LogEvent("x", "y", fields=fields)).fields == fields


# Replies.


def an_effect() -> CallModel:
    world = ReportWorld()
    world.run()
    effect: CallModel = world.effects(CallModel)[0]
    return effect


def outcome_of(
    reply: Reply | NoReply, secrets: tuple[Secret, ...] = (Secret(GEMINI_KEY),)
) -> ModelAnswered | ModelRefused:
    return read_reply(an_effect(), reply, secrets, NOW, NOW + timedelta(seconds=2))


def test_a_reply_is_an_answer_with_its_duration() -> None:
    for secrets in ((), (Secret(GEMINI_KEY),)):
        outcome = outcome_of(Reply(b'{"a": "\xc3\xa4"}'), secrets)
        assert isinstance(outcome, ModelAnswered)
        assert (outcome.response.data, outcome.duration_ms) == (b'{"a": "\xc3\xa4"}', 2_000)


def test_4_28_a_key_in_an_answer_is_masked() -> None:
    outcome = outcome_of(Reply(json.dumps({"a": GEMINI_KEY}).encode()))
    assert isinstance(outcome, ModelAnswered)
    assert outcome.response.data == b'{"a": "***"}'


def refusal(message: str) -> str:
    outcome = outcome_of(NoReply(kind="http", http_status=400, status="INVALID_ARGUMENT", message=message))
    assert isinstance(outcome, ModelRefused)
    return outcome.message


def test_4_28_a_key_in_a_refusal_is_masked_and_the_refusal_is_bounded() -> None:
    assert refusal(f"API key {GEMINI_KEY} is\n not   valid") == "API key *** is not valid"
    assert len(refusal("x" * 5_000)) == 300


@pytest.mark.parametrize("quoted", ["You are an analyst. Write about", "Write about\n  the month. ## UserInput"])
def test_a_refusal_that_quotes_the_prompt_is_withheld(quoted: str) -> None:
    assert refusal(f"cannot parse: {quoted}") == "what was said is withheld, for it quotes the prompt"


def test_a_few_words_in_common_are_no_quotation() -> None:
    assert refusal("about the month") == "about the month"
    assert len("Write about the month. #") == QUOTED_CHARACTERS


# Summaries and the plan.


def test_a_summary_for_people_and_for_machines() -> None:
    assert (
        text_summary(ReportResult(status="NOOP", noop_reason="no_ready_step")) == "LLM_REPORT NOOP: no_ready_step"
    )
    world = ReportWorld(given={**stored_objects(), REPORT_NAME: report_bytes()})
    result = world.run()
    assert text_summary(result) == f"LLM_REPORT SUCCEEDED: report={uri_of(REPORT_NAME)}, calls=0, reused"
    failed = ReportWorld(answers=["SAFETY"]).run()
    assert text_summary(failed) == "LLM_REPORT FAILED: report=none, calls=1, error=LLM_SAFETY_BLOCK"
    assert json_summary(failed, "run", "real") == {
        "status": "FAILED",
        "runId": "run",
        "stepId": REPORT_ID,
        "reportGcsUri": None,
        "attempts": 1,
        "reused": False,
        "llmApiMode": "real",
        "errorCode": "LLM_SAFETY_BLOCK",
        "noopReason": None,
    }
    assert json_summary(result, "run", "mock")["errorCode"] is None


def test_a_plan_needs_only_the_flow_run_and_hopes_for_the_rest() -> None:
    plan = plan_report(a_report_flow_run(), NOW, report_configuration(LLM_API_MODE="record"))
    assert [type(one).__name__ for one in plan.effects] == [
        "ClaimStep",
        "ReadObject",
        "LoadPrompt",
        "LoadSchema",
        "ReadObject",
        "ReadObject",
        "CallModel",
        "RecordReply",
        "PutObject",
        "FinalizeStep",
    ]
    assert plan.result.status == "SUCCEEDED"
    call = next(one for one in plan.effects if isinstance(one, CallModel))
    assert (call.user, call.system) == (HOPED_BLOB, HOPED_BLOB)
    assert LoadPrompt(prompt_id=PROMPT_ID) in plan.effects
