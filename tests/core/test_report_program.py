"""The report program in a scripted world: what it does, in which order, and what becomes of the step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.failures import error_document
from core.flow.leases import LEASE_MARGIN_SECONDS
from core.reports.program import LLM_REPORT
from core.reports.report_file import report_problems
from core.reports.state import Phase
from core.reports.user_input import MAX_IMAGE_BYTES, MAX_JSON_BYTES
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
    Outcome,
    PutObject,
    ReadObject,
    RecordReply,
    StepClaimed,
    StepFinalized,
    Wait,
    Waited,
    blob,
)
from tests.builders import NOW, RUN_PATH, a_claim, a_png
from tests.report_world import (
    CANDLES_ID,
    CANDLES_NAME,
    CHART_IDS,
    GOOD,
    MANIFEST_NAME,
    OLD_ID,
    OLD_NAME,
    OLD_REPORT,
    PROMPT_ID,
    REPORT_ID,
    REPORT_NAME,
    SCHEMA_ID,
    ReportWorld,
    a_json_schema,
    a_manifest,
    a_profile,
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
    uri_of,
    with_profile,
)

BAD = {"text": "not JSON"}


def names(world: ReportWorld) -> list[str]:
    return [type(effect).__name__ for _, effect, _ in world.trace]


def failing(error_type: str = "OSError") -> Callable[[Effect, datetime], Outcome]:
    """Return a reply that fails in a way nobody foresaw."""
    return lambda effect, now: EffectFailed(effect=effect, error_type=error_type, message="scripted", at=now)


def failed_world(**changes: Any) -> ReportWorld:
    """Return a world whose step has failed, and was asked for nothing more."""
    world = ReportWorld(**changes)
    result = world.run()
    assert (result.status, world.step["status"]) == ("FAILED", "FAILED")
    assert result.error is not None
    assert world.step["error"] == error_document(result.error)
    assert world.effects(PutObject) == [] or result.error.code == "GCS_WRITE_FAILED"
    assert "gcs_uri" not in world.step["outputs"]
    assert result.report_uri is None
    return world


# The whole way.


def test_a_report_is_claimed_looked_for_loaded_asked_for_stored_and_finalized() -> None:
    world = ReportWorld()
    result = world.run()
    assert (result.status, result.step_id, result.report_uri) == ("SUCCEEDED", REPORT_ID, uri_of(REPORT_NAME))
    assert (result.attempts, result.is_reused, result.error) == (1, False, None)
    assert names(world) == [
        "ClaimStep",
        "ReadObject",
        "LoadPrompt",
        "LoadSchema",
        *["ReadObject"] * 4,
        "CallModel",
        "PutObject",
        "FinalizeStep",
    ]


def test_the_step_s_outputs_are_those_of_the_facts() -> None:
    world = ReportWorld(latency={CallModel: timedelta(seconds=40)})
    world.run()
    outputs = dict(world.step["outputs"])
    execution = dict(outputs.pop("execution"))
    assert outputs == {"gcs_uri": uri_of(REPORT_NAME)}
    assert execution.pop("claim")["token"] == "token-1"
    assert execution == {
        "timing": {
            "startedAt": "2025-12-15T10:25:30.001000Z",
            "finishedAt": "2025-12-15T10:26:10.005000Z",
            "durationMs": 40_004,
        },
        "llm": {
            "finishReason": "STOP",
            "modelVersion": "gemini-2.5-pro-001",
            "usageMetadata": {"promptTokenCount": 100, "totalTokenCount": 120},
            "attempts": {"total": 1},
        },
    }


def test_4_15_the_stored_report_conforms_to_its_schema() -> None:
    world = ReportWorld()
    world.run()
    assert report_problems(world.report) == ()
    assert world.report["output"] == json.loads(GOOD)


def test_4_2_no_step_but_the_claimed_one_is_changed() -> None:
    flow_run = a_report_flow_run({**report_steps(), "z": a_report_step()}, extra={"kept": 1})
    world = ReportWorld(some_report_inputs(flow_run))
    world.run()
    after = world.documents[RUN_PATH]
    assert {**after, "steps": {**after["steps"], REPORT_ID: flow_run["steps"][REPORT_ID]}} == flow_run


def test_4_7_one_invocation_takes_one_step() -> None:
    steps = {"z": a_report_step(), **report_steps()}
    world = ReportWorld(some_report_inputs(a_report_flow_run(steps)))
    world.run()
    assert [one.step_id for one in world.effects(ClaimStep)] == [REPORT_ID]
    assert world.documents[RUN_PATH]["steps"]["z"]["status"] == "READY"


def test_the_lease_holds_longer_than_the_invocation() -> None:
    world = ReportWorld()
    world.run()
    (claim,) = world.effects(ClaimStep)
    assert (claim.lease_seconds, claim.step_type) == (780 + LEASE_MARGIN_SECONDS, "LLM_REPORT")


# What the model is asked.


def question(**changes: Any) -> CallModel:
    world = ReportWorld(**changes)
    world.run()
    effect: CallModel = world.effects(CallModel)[0]
    return effect


def test_4_12_pictures_are_attached_as_bytes_in_the_manifest_s_order() -> None:
    assert [one.data for one in question().images] == [a_png(padding=one.encode()) for one in CHART_IDS]


def test_4_8_prompt_and_context_are_what_the_model_is_told() -> None:
    previous = report_inputs(previousReportStepIds=[OLD_ID])
    effect = question(inputs=some_report_inputs(changed_step(inputs=previous)))
    assert effect.system.data == b"You are an analyst."
    assert effect.user.data is not None
    assert effect.user.data.startswith(b"Write about the month.\n\n## UserInput\n\n### Scope")
    assert OLD_REPORT in effect.user.data


def test_4_10_the_profile_is_sent_as_it_is() -> None:
    profile = {"topK": 3, "candidateCount": 1, "stopSequences": ["X"], "novel": 1}
    effect = question(inputs=some_report_inputs(changed_step(inputs=with_profile(**profile))))
    assert effect.model == "gemini-2.5-pro"
    assert effect.generation == {
        "temperature": 0.2,
        "topK": 3,
        "stopSequences": ["X"],
        "candidateCount": 1,
        "responseMimeType": "application/json",
    }
    assert effect.json_schema == a_json_schema()


def test_4_23_prompt_and_schema_are_read_by_the_very_ids_of_the_step() -> None:
    world = ReportWorld()
    world.run()
    assert world.effects(LoadPrompt) == [LoadPrompt(prompt_id=PROMPT_ID)]
    assert world.effects(LoadSchema) == [LoadSchema(schema_id=SCHEMA_ID)]


def test_4_26_the_report_has_the_registry_s_hash_and_not_the_step_s() -> None:
    spec = {"schemaId": SCHEMA_ID, "kind": "LLM_REPORT_OUTPUT", "schemaSha256": "of the step"}
    inputs = some_report_inputs(changed_step(inputs=with_profile(structuredOutput=spec)))
    world = ReportWorld(inputs, schemas={SCHEMA_ID: a_schema(sha256="of the registry")})
    world.run()
    assert world.report["metadata"]["llm"]["schemaSha256"] == "of the registry"


def test_two_artifacts_of_one_name_in_two_buckets_are_not_mixed_up() -> None:
    previous = [
        {"gcs_uri": uri_of("same.json")},
        {"gcs_uri": "gs://other/same.json"},
        {"gcs_uri": uri_of("same.json")},
    ]
    world = ReportWorld(some_report_inputs(changed_step(inputs=report_inputs(previousReports=previous))))
    world.store({"same.json": b'"mine"'})
    world.objects.objects["gs://other/same.json"] = b'"theirs"'
    world.run()
    text = world.effects(CallModel)[0].user.data.decode()
    assert [text.count('"mine"'), text.count('"theirs"')] == [2, 1]
    assert text.index('"mine"') < text.index('"theirs"') < text.rindex('"mine"')


# What is wrong with the input.


def code_of(**changes: Any) -> str:
    code: str = failed_world(**changes).error["code"]
    return code


def test_4_24_a_missing_prompt_is_prompt_not_found_and_the_model_is_not_asked() -> None:
    world = failed_world(prompts={})
    assert world.error["code"] == "PROMPT_NOT_FOUND"
    assert world.effects(CallModel) == []


def test_a_prompt_that_is_not_valid_is_an_invalid_input() -> None:
    assert code_of(prompts={PROMPT_ID: a_prompt(schemaVersion=2)}) == "INVALID_STEP_INPUTS"
    assert code_of(prompts={PROMPT_ID: None}) == "INVALID_STEP_INPUTS"


@pytest.mark.parametrize("schemas", [{}, {SCHEMA_ID: a_schema(jsonSchema={})}, {SCHEMA_ID: a_schema("other")}])
def test_4_25_a_missing_or_invalid_schema_is_llm_profile_invalid(schemas: Any) -> None:
    world = failed_world(schemas=schemas)
    assert world.error["code"] == "LLM_PROFILE_INVALID"
    assert world.effects(CallModel) == []


def test_a_model_that_is_not_allowed_is_not_asked() -> None:
    inputs = some_report_inputs(variables={"GEMINI_ALLOWED_MODELS": "another"})
    assert code_of(inputs=inputs) == "LLM_PROFILE_INVALID"


def test_a_step_that_is_not_valid_fails_before_anything_is_read() -> None:
    world = failed_world(inputs=some_report_inputs(changed_step(inputs={})))
    assert names(world) == ["ClaimStep", "FinalizeStep"]


OF_LIMIT = b'"' + b"x" * (MAX_JSON_BYTES - 2) + b'"'


@pytest.mark.parametrize("name", [CANDLES_NAME, MANIFEST_NAME, OLD_NAME, f"{CHART_IDS[0]}.png"])
@pytest.mark.parametrize("content", [None, b"{", b"x" * (MAX_IMAGE_BYTES + 1)])
def test_context_that_cannot_be_used_is_invalid_step_inputs(name: str, content: bytes | None) -> None:
    objects = {one: data for one, data in {**stored_objects(), name: content}.items() if data is not None}
    inputs = some_report_inputs(changed_step(inputs=report_inputs(previousReportStepIds=[OLD_ID])))
    world = failed_world(inputs=inputs, given=objects)
    assert world.error["code"] == "INVALID_STEP_INPUTS"
    assert name in world.error["message"]
    assert world.effects(CallModel) == []


def test_4_12_candles_of_just_the_limit_are_shown() -> None:
    assert OF_LIMIT in (question(given={**stored_objects(), CANDLES_NAME: OF_LIMIT}).user.data or b"")
    assert code_of(given={**stored_objects(), CANDLES_NAME: OF_LIMIT + b" "}) == "INVALID_STEP_INPUTS"


def test_4_12_a_picture_of_just_the_limit_is_attached() -> None:
    largest = a_png(padding=b"x" * (MAX_IMAGE_BYTES - len(a_png())))
    name = f"{CHART_IDS[0]}.png"
    assert question(given={**stored_objects(), name: largest}).images[0].data == largest
    larger = a_png(padding=b"x" * (MAX_IMAGE_BYTES - len(a_png()) + 1))
    assert code_of(given={**stored_objects(), name: larger}) == "INVALID_STEP_INPUTS"


def test_a_manifest_whose_pictures_have_no_usable_uri_is_refused() -> None:
    items = json.loads(a_manifest())["items"]
    manifest = a_manifest(items=[{**items[0], "png_gcs_uri": "gs://no-object"}])
    assert code_of(given={**stored_objects(), MANIFEST_NAME: manifest}) == "INVALID_STEP_INPUTS"


def test_a_manifest_without_pictures_attaches_none() -> None:
    assert question(given={**stored_objects(), MANIFEST_NAME: a_manifest(items=[], minImages=0)}).images == ()


def test_everything_that_is_wrong_is_said_at_once_under_the_code_that_comes_first() -> None:
    world = failed_world(prompts={}, schemas={}, given={})
    assert world.error["code"] == "PROMPT_NOT_FOUND"
    assert [one["code"] for one in world.error["details"]["errors"]] == [
        "PROMPT_NOT_FOUND",
        "LLM_PROFILE_INVALID",
        "INVALID_STEP_INPUTS",
        "INVALID_STEP_INPUTS",
    ]


def unreadable(name: str, times: int) -> dict[type, Any]:
    """Return replies in which an object cannot be read so many times."""
    left = [times]

    def read(effect: ReadObject, now: datetime) -> Outcome:
        if effect.name == name and left[0] > 0:
            left[0] -= 1
            return ObjectNotRead(name=name, reason="failed", message="503", at=now)
        data = stored_objects().get(effect.name)
        if data is None:
            return ObjectNotRead(name=effect.name, reason="missing", message="gone", at=now)
        return ObjectRead(name=effect.name, content=blob(data), at=now)

    return {ReadObject: read}


@pytest.mark.parametrize("name", [CANDLES_NAME, MANIFEST_NAME, f"{CHART_IDS[1]}.png", REPORT_NAME])
def test_4_18_what_cannot_be_read_is_read_again(name: str) -> None:
    world = ReportWorld(replies=unreadable(name, 2))
    assert world.run().status == "SUCCEEDED"
    assert len([one for one in world.effects(ReadObject) if one.name == name]) == 3


@pytest.mark.parametrize("name", [CANDLES_NAME, REPORT_NAME])
def test_what_can_never_be_read_is_given_up_after_30_seconds(name: str) -> None:
    world = failed_world(replies=unreadable(name, 1_000))
    assert world.error["code"] == "GCS_READ_FAILED"
    assert timedelta(seconds=20) < world.trace[-1][0] - NOW < timedelta(seconds=31)


def test_one_pause_serves_all_that_could_not_be_read() -> None:
    def read(effect: ReadObject, now: datetime) -> Outcome:
        is_first = now < NOW + timedelta(milliseconds=400) and effect.name in {CANDLES_NAME, MANIFEST_NAME}
        if is_first:
            return ObjectNotRead(name=effect.name, reason="failed", message="503", at=now)
        return world.hoped(effect, now)

    world = ReportWorld(replies={ReadObject: read})
    assert world.run().status == "SUCCEEDED"
    assert len(world.effects(Wait)) == 1


# What the model answers.


def test_4_27_a_good_answer_is_not_asked_for_twice() -> None:
    world = ReportWorld(answers=["good", "good"])
    assert world.run().attempts == 1


@pytest.mark.parametrize(
    "answer", [BAD, {"text": "{}"}, {"text": f"```json\n{GOOD}\n```"}, "MAX_TOKENS", "STOP", {}, a_response("")]
)
def test_4_13_an_answer_that_cannot_be_used_is_repaired_once(answer: Any) -> None:
    world = ReportWorld(answers=[answer, "good"])
    result = world.run()
    assert (result.status, result.attempts) == ("SUCCEEDED", 2)
    assert [one.purpose for one in world.effects(CallModel)] == ["primary", "repair"]
    assert world.step["outputs"]["execution"]["llm"]["attempts"] == {"total": 2}


def test_4_13_the_repair_is_the_same_question_with_the_answer_and_what_is_wrong() -> None:
    world = ReportWorld(answers=[BAD, "good"])
    world.run()
    primary, repair = world.effects(CallModel)
    assert repair.user.data.startswith(primary.user.data + b"\n\n### Repair\n\n")
    assert b"Your answer was:\n\nnot JSON" in repair.user.data
    assert (repair.system, repair.images, repair.generation) == (
        primary.system,
        primary.images,
        primary.generation,
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (BAD, "json_parse"),
        ({"text": "{}"}, "schema_validation"),
        ("STOP", "missing_text"),
        ("OTHER", "finish_reason"),
    ],
)
def test_4_27_after_one_repair_an_answer_that_cannot_be_used_is_the_end(answer: Any, kind: str) -> None:
    world = failed_world(answers=[BAD, answer])
    assert (world.error["code"], world.error["details"]["kind"]) == ("INVALID_STRUCTURED_OUTPUT", kind)
    assert "also after the one repair" in world.error["message"]
    assert len(world.effects(CallModel)) == 2


def test_4_28_safety_is_a_block_and_is_not_repaired() -> None:
    world = failed_world(answers=["SAFETY", "good"])
    assert world.error["code"] == "LLM_SAFETY_BLOCK"
    assert len(world.effects(CallModel)) == 1


def test_4_28_a_repair_can_be_blocked_too() -> None:
    assert code_of(answers=[BAD, "SAFETY"]) == "LLM_SAFETY_BLOCK"


def test_4_28_a_blocked_prompt_is_a_block() -> None:
    world = failed_world(answers=[{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}])
    assert world.error["code"] == "LLM_SAFETY_BLOCK"
    assert "PROHIBITED_CONTENT" in world.error["message"]


REFUSALS = [
    ("429 RESOURCE_EXHAUSTED too many", "RATE_LIMITED"),
    ("429  too many", "RATE_LIMITED"),
    ("503 RESOURCE_EXHAUSTED busy", "RATE_LIMITED"),
    ("400 INVALID_ARGUMENT bad schema", "LLM_PROFILE_INVALID"),
    ("401 UNAUTHENTICATED who", "LLM_PROFILE_INVALID"),
    ("403 PERMISSION_DENIED no", "LLM_PROFILE_INVALID"),
    ("404 NOT_FOUND no such model", "LLM_PROFILE_INVALID"),
    ("499 CANCELLED gone", "LLM_PROFILE_INVALID"),
    ("500 INTERNAL oops", "GEMINI_REQUEST_FAILED"),
    ("503 UNAVAILABLE busy", "GEMINI_REQUEST_FAILED"),
    ("504 DEADLINE_EXCEEDED slow", "GEMINI_REQUEST_FAILED"),
    ("302  elsewhere", "GEMINI_REQUEST_FAILED"),
    ("timeout", "GEMINI_REQUEST_FAILED"),
    ("network", "GEMINI_REQUEST_FAILED"),
    ("missing", "GEMINI_REQUEST_FAILED"),
]


@pytest.mark.parametrize(("script", "code"), REFUSALS)
def test_4_27_a_refusal_has_its_code_and_no_second_primary_call(script: str, code: str) -> None:
    world = failed_world(answers=[script, "good"])
    assert world.error["code"] == code
    assert len(world.effects(CallModel)) == 1


@pytest.mark.parametrize("script", [script for script, _ in REFUSALS])
def test_a_repair_that_is_refused_leaves_the_answer_that_could_not_be_used(script: str) -> None:
    def answer(effect: CallModel, now: datetime) -> Outcome:
        return replace(world, answers=[script if effect.purpose == "repair" else BAD])._answer(effect, now)

    world = ReportWorld(replies={CallModel: answer})
    world.run()
    assert world.error["code"] == "INVALID_STRUCTURED_OUTPUT"
    assert "the repair failed" in world.error["message"]
    assert len(world.effects(CallModel)) == 2


def test_4_27_an_answer_that_comes_twice_asks_for_nothing_twice() -> None:
    world = ReportWorld(answers=[BAD, "good"])
    world.run_until_killed(9)
    assert world.state is not None
    (_, effect, answered), again = world.trace[-1], world.state
    assert isinstance(answered, ModelAnswered)
    assert LLM_REPORT.react(again, answered).effects == ()
    refused = ModelRefused(
        purpose="primary", kind="network", http_status=None, status=None, message="x", duration_ms=0, at=NOW
    )
    assert LLM_REPORT.react(again, refused).effects == ()
    assert isinstance(effect, CallModel)


# Time.


def late(seconds: float, **changes: Any) -> ReportWorld:
    """Return a world in which loading took so long."""
    return ReportWorld(latency={LoadSchema: timedelta(seconds=seconds)}, **changes)


def test_4_32_a_call_ends_before_the_reserve_and_within_its_own_timeout() -> None:
    world = late(300)
    world.run()
    (effect,) = world.effects(CallModel)
    assert effect.ends_by == NOW + timedelta(seconds=780 - 120)
    assert effect.timeout_seconds == pytest.approx(360, abs=0.1)
    assert question().timeout_seconds == 600


@pytest.mark.parametrize(("seconds", "calls"), [(658, 1), (659.1, 0), (660, 0), (700, 0)])
def test_4_32_no_call_begins_when_the_reserve_is_touched(seconds: float, calls: int) -> None:
    world = late(seconds)
    result = world.run()
    assert len(world.effects(CallModel)) == calls
    if not calls:
        assert result.error is not None
        assert (result.error.code, world.step["status"]) == ("TIME_BUDGET_EXCEEDED", "FAILED")


def test_4_32_a_repair_is_not_begun_when_the_reserve_is_touched() -> None:
    world = ReportWorld(answers=[BAD, "good"], latency={CallModel: timedelta(seconds=659.5)})
    result = world.run()
    assert len(world.effects(CallModel)) == 1
    assert result.error is not None
    assert result.error.code == "INVALID_STRUCTURED_OUTPUT"
    assert "no time was left for a repair" in result.error.message


def test_nothing_is_emitted_after_the_lease() -> None:
    world = ReportWorld(latency={CallModel: timedelta(seconds=2_000)})
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", "lease_expired")
    assert names(world)[-1] == "CallModel"


def test_a_finalize_that_landed_after_the_lease_has_landed() -> None:
    world = ReportWorld(latency={FinalizeStep: timedelta(seconds=2_000)})
    assert world.run().status == "SUCCEEDED"


# Storing.


def not_stored(reason: Any, times: int) -> Any:
    left = [times]

    def put(effect: PutObject, now: datetime) -> Outcome | None:
        if left[0] == 0:
            return None
        left[0] -= 1
        return ObjectNotStored(name=effect.name, reason=reason, message="scripted", at=now)

    return put


def storing(reason: Any, times: int, **changes: Any) -> ReportWorld:
    """Return a world in which the report is not stored so many times."""
    put = not_stored(reason, times)
    world = ReportWorld(**changes)
    world.replies = {PutObject: lambda effect, now: put(effect, now) or world.hoped(effect, now)}
    return world


def test_4_18_the_report_is_written_create_only() -> None:
    world = ReportWorld()
    world.run()
    (put,) = world.effects(PutObject)
    assert (put.create_only, put.content_type, put.name) == (True, "application/json", REPORT_NAME)


def test_4_18_a_write_that_failed_is_tried_again_and_the_model_is_not_asked_again() -> None:
    world = storing("failed", 2)
    assert world.run().status == "SUCCEEDED"
    assert (len(world.effects(PutObject)), len(world.effects(CallModel))) == (3, 1)


def test_4_19_a_report_that_cannot_be_stored_is_gcs_write_failed() -> None:
    world = storing("failed", 1_000)
    result = world.run()
    assert result.error is not None
    assert (result.status, result.error.code) == ("FAILED", "GCS_WRITE_FAILED")
    assert world.step["error"]["code"] == "GCS_WRITE_FAILED"
    assert world.trace[-1][0] - NOW < timedelta(seconds=31)


def taken_by(content: bytes) -> ReportWorld:
    """Return a world in which another worker has stored something while the model was asked."""
    world = ReportWorld()

    def put(effect: PutObject, now: datetime) -> Outcome:
        world.store({REPORT_NAME: content})
        return world.hoped(effect, now)

    world.replies = {PutObject: put}
    return world


def test_4_18_a_name_that_is_taken_is_settled_by_reading_it() -> None:
    world = taken_by(report_bytes())
    result = world.run()
    assert (result.status, result.is_reused, result.attempts) == ("SUCCEEDED", True, 1)
    assert names(world)[-3:] == ["PutObject", "ReadObject", "FinalizeStep"]
    assert world.stored()[REPORT_NAME] == report_bytes()
    execution = world.step["outputs"]["execution"]
    assert (execution["reused"], execution["timing"]["durationMs"]) == (True, 40_000)


@pytest.mark.parametrize("content", [b"text", report_bytes(stepId="another"), b"x" * (8 * 1024 * 1024 + 1)])
def test_a_name_taken_by_something_that_is_no_report_is_gcs_write_failed(content: bytes) -> None:
    world = taken_by(content)
    result = world.run()
    assert result.error is not None
    assert (result.error.code, world.step["status"]) == ("GCS_WRITE_FAILED", "FAILED")
    assert world.stored()[REPORT_NAME] == content


def test_a_name_that_was_taken_and_is_free_again_is_written_and_the_model_is_not_asked_again() -> None:
    world = storing("name_taken", 1)
    assert world.run().status == "SUCCEEDED"
    assert (len(world.effects(CallModel)), len(world.effects(PutObject))) == (1, 2)


def test_a_name_that_is_always_taken_by_nothing_is_given_up() -> None:
    world = storing("name_taken", 1_000)
    result = world.run()
    assert result.error is not None
    assert result.error.code == "GCS_WRITE_FAILED"
    assert len(world.effects(CallModel)) == 1


# Reuse and recovery.


def test_4_33_a_report_that_is_there_is_reused_without_a_call() -> None:
    world = ReportWorld(given={**stored_objects(), REPORT_NAME: report_bytes()})
    result = world.run()
    assert (result.status, result.is_reused, result.attempts) == ("SUCCEEDED", True, 0)
    assert names(world) == ["ClaimStep", "ReadObject", "FinalizeStep"]
    execution = dict(world.step["outputs"]["execution"])
    assert execution.pop("claim")["token"] == "token-1"
    assert execution == {
        "timing": {
            "startedAt": "2025-12-15T10:00:00Z",
            "finishedAt": "2025-12-15T10:00:40Z",
            "durationMs": 40_000,
        },
        "llm": {
            "finishReason": "STOP",
            "modelVersion": "gemini-2.5-pro-001",
            "usageMetadata": {"totalTokenCount": 7},
        },
        "reused": True,
    }


def test_what_is_there_and_is_no_report_is_in_the_way() -> None:
    for content in (b"text", b"x" * (8 * 1024 * 1024 + 1)):
        world = ReportWorld(given={**stored_objects(), REPORT_NAME: content})
        assert world.run().status == "FAILED"
        assert world.step["error"]["code"] == "GCS_WRITE_FAILED"
        assert world.effects(CallModel) == []


def running(**objects: bytes) -> ReportWorld:
    """Return a world whose report step is RUNNING under another worker's token."""
    flow_run = changed_step(status="RUNNING", outputs=a_claim(lease_until="2025-12-15T10:39:00Z"))
    return ReportWorld(some_report_inputs(flow_run), given={**stored_objects(), **objects})


def test_4_33_a_running_step_whose_report_is_there_is_finalized_under_the_token_in_the_document() -> None:
    world = running(**{REPORT_NAME: report_bytes()})
    result = world.run()
    assert (result.status, result.step_id, result.is_reused) == ("SUCCEEDED", REPORT_ID, True)
    assert names(world) == ["ReadObject", "FinalizeStep"]
    (finalize,) = world.effects(FinalizeStep)
    assert finalize.token is None
    assert world.step["outputs"]["execution"]["claim"]["token"] == "theirs"
    assert world.step["outputs"]["execution"]["reused"] is True


def test_4_33_the_first_worker_then_sees_already_final_and_writes_nothing() -> None:
    first = ReportWorld()

    def finalize(effect: FinalizeStep, now: datetime) -> Outcome:
        """Let another worker recover the step just before its own finalizes it."""
        second = ReportWorld(some_report_inputs(first.documents[RUN_PATH], token="token-2"), given=first.stored())
        assert second.run().is_reused
        first.documents[RUN_PATH] = second.documents[RUN_PATH]
        return first.hoped(effect, now)

    first.replies = {FinalizeStep: finalize}
    result = first.run()
    assert (result.status, result.noop_reason) == ("NOOP", "already_final")
    assert first.step["status"] == "SUCCEEDED"
    execution = first.step["outputs"]["execution"]
    assert (execution["reused"], execution["claim"]["token"]) == (True, "token-1")


@pytest.mark.parametrize("objects", [{}, {REPORT_NAME: b"text"}, {REPORT_NAME: report_bytes(stepId="another")}])
def test_4_33_a_running_step_without_a_report_costs_exactly_one_look(objects: dict[str, bytes]) -> None:
    world = running(**objects)
    before = world.documents[RUN_PATH]
    result = world.run()
    assert (result.status, result.noop_reason, result.step_id) == ("NOOP", "no_ready_step", None)
    assert names(world) == ["ReadObject"]
    assert world.effects(ReadObject)[0].name == REPORT_NAME
    assert world.documents[RUN_PATH] == before


def test_of_several_running_steps_the_one_with_a_report_is_recovered() -> None:
    steps = {one: a_report_step(status="RUNNING") for one in ("a", "b", "c", "x/y")}
    steps["a"]["timeframe"] = None
    world = ReportWorld(some_report_inputs(a_report_flow_run(steps)), given={})
    world.store({f"{world.inputs.run_id}/1M/c.json": report_bytes(stepId="c")})
    result = world.run()
    assert (result.step_id, result.status) == ("c", "SUCCEEDED")
    assert [one.name.rpartition("/")[2] for one in world.effects(ReadObject)] == ["b.json", "c.json"]


@pytest.mark.parametrize(
    "reply", [failing(), lambda e, at: ObjectNotRead(name=e.name, reason="failed", message="", at=at)]
)
def test_a_look_at_a_running_step_that_fails_is_a_no_op(reply: Any) -> None:
    world = running()
    world.replies = {ReadObject: reply}
    assert world.run().noop_reason == "no_ready_step"
    assert names(world) == ["ReadObject"]


def test_4_33_a_duplicate_of_the_event_does_nothing_more() -> None:
    first = ReportWorld()
    first.run()
    done = first.documents[RUN_PATH]
    again = ReportWorld(some_report_inputs(done, token="token-2"), given=first.stored())
    assert again.run().noop_reason == "no_ready_step"
    stale = ReportWorld(some_report_inputs(token="token-3"), given=first.stored())
    stale.documents[RUN_PATH] = done
    assert stale.run().noop_reason == "not_ready"
    assert (names(again), names(stale)) == ([], ["ClaimStep"])
    assert stale.documents[RUN_PATH] == done


# No-ops and lost races.


def test_4_22_1_a_claim_that_was_lost_is_no_failure() -> None:
    world = ReportWorld(replies={ClaimStep: lambda _, now: ClaimLost(reason="not_ready", at=now)})
    result = world.run()
    assert (result.status, result.noop_reason, names(world)) == ("NOOP", "not_ready", ["ClaimStep"])


@pytest.mark.parametrize("reason", ["already_final", "not_running", "claimed_by_another"])
def test_4_22_2_a_finalize_that_was_lost_is_no_failure(reason: str) -> None:
    world = ReportWorld(replies={FinalizeStep: lambda _, now: FinalizeLost(reason=reason, at=now)})
    result = world.run()
    assert (result.status, result.noop_reason) == ("NOOP", reason)
    assert len(world.effects(FinalizeStep)) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "CANCELLED"}, "flow_run_not_running"),
        ({"status": None}, "flow_run_invalid"),
        ({"steps": {}}, "no_ready_step"),
        ({"steps": {**report_steps(), CANDLES_ID: a_report_step(status="FAILED")}}, "dependency_not_succeeded"),
    ],
)
def test_4_7_where_there_is_nothing_to_do_nothing_is_emitted(changes: dict[str, Any], reason: str) -> None:
    following = LLM_REPORT.start(some_report_inputs({**a_report_flow_run(), **changes}))
    assert following.effects == ()
    assert following.state.result is not None
    assert (following.state.result.status, following.state.result.noop_reason) == ("NOOP", reason)


def test_an_outcome_after_the_end_changes_nothing() -> None:
    ended = LLM_REPORT.start(some_report_inputs(a_report_flow_run({}))).state
    following = LLM_REPORT.react(ended, Waited(reason="store", chart_template_id=None, at=NOW))
    assert (following.effects, following.state.result) == ((), ended.result)


def test_an_outcome_that_nobody_waits_for_changes_nothing() -> None:
    state = LLM_REPORT.start(some_report_inputs()).state
    following = LLM_REPORT.react(state, StepFinalized(status="FAILED", at=NOW))
    assert (following.effects, following.state) == ((), state)


def test_what_is_read_that_nobody_asked_for_changes_nothing() -> None:
    world = ReportWorld()
    world.run_until_killed(2)
    assert world.state is not None
    for outcome in (
        ObjectRead(name="other", content=blob(b""), at=NOW),
        ObjectNotRead(name="other", reason="missing", message="", at=NOW),
    ):
        assert LLM_REPORT.react(world.state, outcome).effects == ()


# What breaks.


def test_a_claim_that_broke_is_not_known_and_nothing_more_is_done() -> None:
    world = ReportWorld(replies={ClaimStep: failing()})
    result = world.run()
    assert (result.status, result.is_claim_unknown, names(world)) == ("FAILED", True, ["ClaimStep"])
    assert result.error is not None
    assert result.error.code == "INTERNAL_ERROR"


@pytest.mark.parametrize("kind", [ReadObject, LoadPrompt, LoadSchema, CallModel, PutObject])
def test_an_effect_that_broke_fails_the_step(kind: type) -> None:
    world = ReportWorld(replies={kind: failing()})
    world.run()
    assert (world.step["status"], world.error["code"]) == ("FAILED", "INTERNAL_ERROR")
    assert world.error["message"] == f"{kind.__name__} failed unexpectedly: OSError"


def test_a_read_that_broke_while_loading_fails_the_step() -> None:
    def read(effect: ReadObject, now: datetime) -> Outcome:
        return (failing() if effect.name == CANDLES_NAME else world.hoped)(effect, now)

    world = ReportWorld(replies={ReadObject: read})
    world.run()
    assert world.error["code"] == "INTERNAL_ERROR"


def test_a_wait_that_broke_is_over() -> None:
    world = storing("failed", 1)
    world.replies = {**world.replies, Wait: failing()}
    assert world.run().status == "SUCCEEDED"


def test_finalizing_is_tried_a_few_times() -> None:
    world = ReportWorld()
    tries = [3]

    def finalize(effect: FinalizeStep, now: datetime) -> Outcome:
        tries[0] -= 1
        return world.hoped(effect, now) if tries[0] < 0 else failing()(effect, now)

    world.replies = {FinalizeStep: finalize}
    assert world.run().status == "SUCCEEDED"
    assert len(world.effects(FinalizeStep)) == 4


def test_a_step_that_cannot_be_finalized_is_left_to_its_lease() -> None:
    world = ReportWorld(replies={FinalizeStep: failing()})
    result = world.run()
    assert result.error is not None
    assert (result.status, result.error.code, world.step["status"]) == ("FAILED", "INTERNAL_ERROR", "RUNNING")
    assert len(world.effects(FinalizeStep)) == 4


@pytest.mark.parametrize("outcomes", range(1, 11))
def test_a_program_that_breaks_after_its_claim_still_ends_its_step(outcomes: int) -> None:
    world = ReportWorld()
    world.run_until_killed(outcomes)
    assert world.state is not None
    (effect,) = LLM_REPORT.abort(world.state, "ZeroDivisionError").effects
    assert isinstance(effect, FinalizeStep)
    assert effect.token == "token-1"
    assert effect.status == ("SUCCEEDED" if outcomes == 10 else "FAILED")


def test_a_program_that_breaks_while_it_claims_ends_the_step_if_it_is_its_own() -> None:
    state = LLM_REPORT.start(some_report_inputs()).state
    (effect,) = LLM_REPORT.abort(state, "X").effects
    assert isinstance(effect, FinalizeStep)
    assert (effect.token, effect.status) == ("token-1", "FAILED")


def test_a_program_that_breaks_after_many_tries_to_store_still_ends_its_step() -> None:
    world = storing("failed", 1_000)
    world.run_until_killed(20)
    assert world.state is not None
    assert (world.state.phase, world.state.tries > 4) == (Phase.WRITING, True)
    (effect,) = LLM_REPORT.abort(world.state, "X").effects
    assert isinstance(effect, FinalizeStep)


def test_a_program_that_breaks_while_it_looks_after_another_s_step_leaves_it_alone() -> None:
    state = running().program.start(running().inputs).state
    following = LLM_REPORT.abort(state, "X")
    assert following.effects == ()
    assert following.state.result is not None
    assert following.state.result.status == "FAILED"


def test_a_program_that_breaks_after_its_end_keeps_its_result() -> None:
    world = ReportWorld()
    result = world.run()
    assert world.state is not None
    assert LLM_REPORT.abort(world.state, "X").state.result == result


def test_a_program_that_breaks_after_its_last_try_to_finalize_gives_up() -> None:
    world = ReportWorld(replies={FinalizeStep: failing()})
    world.run()
    assert world.state is not None
    state = replace(world.state, phase=Phase.FINALIZING, result=None)
    following = LLM_REPORT.abort(state, "X")
    assert (following.effects, following.state.phase) == ((), Phase.ENDED)


# Recording and replay.

KEY = f"BTCUSDT__1M__{PROMPT_ID}__gemini-2.5-pro__{SCHEMA_ID}"


@pytest.mark.parametrize(
    ("mode", "key", "replay"), [("real", None, False), ("mock", KEY, True), ("record", KEY, False)]
)
def test_where_the_answer_comes_from(mode: str, key: str | None, replay: bool) -> None:
    effect = question(inputs=some_report_inputs(variables={"LLM_API_MODE": mode}))
    assert (effect.mode, effect.fixture_key, effect.replay) == (mode, key, replay)


def test_what_is_recorded_already_is_replayed_and_not_recorded_again() -> None:
    inputs = some_report_inputs(variables={"LLM_API_MODE": "record"}, fixtures=frozenset({KEY}))
    world = ReportWorld(inputs, answers=[BAD, "good"])
    world.run()
    assert [one.replay for one in world.effects(CallModel)] == [True, False]
    assert [one.fixture_name for one in world.effects(RecordReply)] == [f"{KEY}__repair.json"]


def test_answers_are_recorded_as_they_came() -> None:
    world = ReportWorld(some_report_inputs(variables={"LLM_API_MODE": "record"}))
    world.run()
    (record,) = world.effects(RecordReply)
    assert (record.fixture_name, json.loads(record.content.data)) == (f"{KEY}.json", a_response(GOOD))


def test_refusals_are_recorded_under_their_status() -> None:
    world = ReportWorld(
        some_report_inputs(variables={"LLM_API_MODE": "record"}), answers=["429 RESOURCE_EXHAUSTED no"]
    )
    world.run()
    (record,) = world.effects(RecordReply)
    assert record.fixture_name == f"{KEY}__429_RESOURCE_EXHAUSTED.json"
    expected = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no"}}
    assert json.loads(record.content.data) == expected


@pytest.mark.parametrize("script", ["timeout", "network"])
def test_what_did_not_answer_is_not_recorded(script: str) -> None:
    world = ReportWorld(some_report_inputs(variables={"LLM_API_MODE": "record"}), answers=[script])
    world.run()
    assert world.effects(RecordReply) == []


def test_a_recording_that_broke_does_not_fail_the_step() -> None:
    inputs = some_report_inputs(variables={"LLM_API_MODE": "record"})
    assert ReportWorld(inputs, replies={RecordReply: failing()}).run().status == "SUCCEEDED"


def test_the_claimed_document_is_what_the_work_is_based_on() -> None:
    world = ReportWorld()
    world.documents[RUN_PATH] = changed_step(inputs=with_profile(modelName="another"))
    world.run()
    assert world.effects(CallModel)[0].model == "another"
    assert isinstance(world.trace[0][2], StepClaimed)
    assert a_profile()["modelName"] != "another"
