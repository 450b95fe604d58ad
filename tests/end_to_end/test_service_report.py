"""The report service: what it does with each event, what that costs, and what it never tells."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from interpreters.sandbox.eventarc import Chances, Eventarc
from interpreters.sandbox.gemini import (
    BROKEN_JSON,
    CUT_OFF,
    NO_TEXT,
    RATE_LIMITED,
    SAFETY,
    SERVER_ERROR,
    WRONG_SHAPE,
    ModelFault,
)
from interpreters.sandbox.whole import BUCKET, PROJECT
from tests.builders import CANARY
from tests.end_to_end.report_world import (
    ANSWER,
    ANSWER_TEXT,
    CANDLES_TEXT,
    CHART_TEXT,
    GOOD,
    KEY,
    PICTURES,
    PLANTED,
    PROMPT,
    SAMPLE,
    SCHEMA,
    STEP_ID,
    ReportWorld,
    a_report,
    a_report_run,
    a_report_world,
    a_run_id,
    leaks,
    report_name,
)
from tests.end_to_end.service_world import (
    QUICK,
    Service,
    own_firestore,
    own_storage,
    post,
    protobuf_payload,
    wait_until,
)

pytestmark = [own_firestore, own_storage]
READS = ("BatchGetDocuments", "RunQuery", "GetDocument", "ListDocuments")


@pytest.fixture(scope="module")
def running() -> Iterator[ReportWorld]:
    with a_report_world() as world:
        yield world


@pytest.fixture
def world(running: ReportWorld) -> Iterator[ReportWorld]:
    with running.scenario() as scenario:
        yield scenario


def send(world: ReportWorld, document: dict[str, Any], service: int = 0) -> int:
    """Send the event of a document by hand; return the status of the answer."""
    path = f"flow_runs/{document['runId']}"
    return post(world.services[service].url, protobuf_payload(path, document), subject=f"documents/{path}")


def costs(world: ReportWorld) -> Counter[str]:
    """Return everything that was asked of the cloud so far."""
    firestore = Counter({f"firestore {name}": count for name, count in world.sandbox.firestore.calls.items()})
    storage = Counter({f"storage {name}": count for name, count in world.sandbox.storage.counts.items()})
    return firestore + storage + Counter({"model": len(world.sandbox.gemini.requests)})


# A report.


def test_a_ready_step_becomes_a_report(world: ReportWorld) -> None:
    world.answers(GOOD)
    run_id = world.write()
    step = world.await_end(run_id)
    assert step["status"] == "SUCCEEDED", (step.get("error"), world.said(run_id))
    outputs = step["outputs"]
    assert outputs["gcs_uri"] == f"gs://{BUCKET}/{report_name(run_id)}"
    assert set(outputs["execution"]) == {"claim", "timing", "llm"}
    assert set(outputs["execution"]["timing"]) == {"startedAt", "finishedAt", "durationMs"}
    llm = outputs["execution"]["llm"]
    assert (llm["finishReason"], llm["modelVersion"], llm["attempts"]) == (
        "STOP",
        "gemini-2.5-flash-sandbox",
        {"total": 1},
    )
    report = world.report(run_id)
    assert report["output"] == json.loads(ANSWER)
    metadata = report["metadata"]
    assert (metadata["runId"], metadata["stepId"], metadata["symbol"]) == (run_id, STEP_ID, "BTCUSDT")
    assert metadata["llm"]["schemaSha256"] == SCHEMA["sha256"]
    assert metadata["llm"]["usageMetadata"] == llm["usageMetadata"]
    assert metadata["inputs"]["charts_outputsManifestGcsUri"] == f"gs://{BUCKET}/inputs/manifest.json"
    world.await_entry("cloud_event_finished", run_id, status="ok")


def test_the_model_is_asked_with_prompt_candles_charts_and_pictures(world: ReportWorld) -> None:
    world.answers(GOOD)
    world.await_end(world.write())
    (question,) = world.questions
    assert question["systemInstruction"]["parts"][0]["text"] == PROMPT["systemInstruction"]
    text, *images = question["contents"][0]["parts"]
    assert text["text"].startswith(f"{PROMPT['userPrompt']}\n\n## UserInput\n\n### Scope")
    assert CANDLES_TEXT in text["text"]
    assert CHART_TEXT in text["text"]
    assert [base64.urlsafe_b64decode(one["inlineData"]["data"]) for one in images] == [*PICTURES.values()]
    profile = SAMPLE["steps"][STEP_ID]["inputs"]["llm"]["llmProfile"]
    config = question["generationConfig"]
    assert config.pop("responseJsonSchema") == SCHEMA["jsonSchema"]
    assert config == {name: profile[name] for name in config}
    assert set(config) == {"temperature", "maxOutputTokens", "candidateCount", "responseMimeType"}


def test_the_log_tells_sizes_and_hashes_and_the_names_that_dashboards_know(world: ReportWorld) -> None:
    world.answers(GOOD)
    run_id = world.write()
    world.await_end(run_id)
    world.await_entry("cloud_event_finished", run_id, status="ok")
    names = {one["event"] for one in world.entries(run_id=run_id)}
    assert names >= {
        "cloud_event_parsed",
        "ready_step_selected",
        "claim_attempt",
        "context_resolve_started",
        "context_resolve_finished",
        "prompt_fetch_started",
        "prompt_fetch_finished",
        "gcs_read_started",
        "gcs_read_finished",
        "llm_request_started",
        "llm_request_finished",
        "gcs_write_started",
        "gcs_write_finished",
        "step_completed",
        "cloud_event_finished",
    }
    (asked,) = world.entries("llm_request_started", run_id)
    assert set(asked["user"]) == set(asked["system"]) == {"bytes", "sha256"}
    (answered,) = world.entries("llm_request_finished", run_id)
    assert answered["text"]["bytes"] == len(ANSWER.encode())


def test_the_search_for_planted_texts_would_notice_one(world: ReportWorld) -> None:
    for text in PLANTED:
        world.service.stderr.append(f"a line with {text}\n")
        assert len(leaks(world, ())) == 1
        world.service.stderr.pop()


# Events, many of them.


def test_duplicated_and_reordered_events_make_one_call(world: ReportWorld) -> None:
    many = Eventarc(PROJECT, seed=7, chances=Chances(duplicate=1.0, reorder=0.5, held_seconds=0.2), retries=QUICK)
    world.answers(GOOD)
    with world.delivered_by(many):
        run_id = world.write()
        assert world.await_end(run_id)["status"] == "SUCCEEDED"
        assert many.drain()
    assert len(world.questions) == 1
    assert len(world.claims(run_id)) == 1


def test_the_same_event_sent_at_once_makes_one_call(world: ReportWorld) -> None:
    world.answers(GOOD)
    with world.silence():
        run_id = world.write()
        with ThreadPoolExecutor(6) as threads:
            answered = list(threads.map(lambda _: send(world, a_report_run(run_id)), range(6)))
    assert set(answered) == {200}
    assert world.step(run_id)["status"] == "SUCCEEDED"
    assert len(world.questions) == 1


def test_two_services_make_one_call() -> None:
    with a_report_world(services=2) as two, two.scenario():
        two.answers(GOOD, GOOD, GOOD)
        runs = [two.write() for _ in range(3)]
        assert {two.await_end(one)["status"] for one in runs} == {"SUCCEEDED"}
        two.drain()
        assert len(two.questions) == 3


# What the model may say.

REPAIRED: dict[str, ModelFault] = {
    "no JSON": BROKEN_JSON,
    "no JSON, with a secret in it": ModelFault(texts=(f"{ANSWER_TEXT} is no JSON",)),
    "the wrong shape": WRONG_SHAPE,
    "the wrong shape, with a secret in it": ModelFault(texts=(json.dumps({ANSWER_TEXT: {ANSWER_TEXT: 1}}),)),
    "no text": NO_TEXT,
    "cut off": CUT_OFF,
}


@pytest.mark.parametrize("name", REPAIRED)
def test_an_answer_that_cannot_be_used_is_repaired_once(world: ReportWorld, name: str) -> None:
    world.answers(REPAIRED[name], GOOD)
    run_id = world.write()
    step = world.await_end(run_id)
    assert step["status"] == "SUCCEEDED", step.get("error")
    assert step["outputs"]["execution"]["llm"]["attempts"] == {"total": 2}
    assert len(world.questions) == 2
    (invalid,) = world.entries("structured_output_invalid", run_id)
    assert invalid["kind"] in {"json_parse", "schema_validation", "missing_text"}
    assert world.await_entry("structured_output_repair_attempt_finished", run_id)["status"] == "ok"


FAILED: dict[str, tuple[tuple[ModelFault, ...], str]] = {
    "no JSON twice": ((BROKEN_JSON, ModelFault(texts=(f"{ANSWER_TEXT} again",))), "INVALID_STRUCTURED_OUTPUT"),
    "the wrong shape twice": ((WRONG_SHAPE, WRONG_SHAPE), "INVALID_STRUCTURED_OUTPUT"),
    "no JSON, and then nothing": ((BROKEN_JSON, SERVER_ERROR), "INVALID_STRUCTURED_OUTPUT"),
    "SAFETY": ((SAFETY,), "LLM_SAFETY_BLOCK"),
    "SAFETY with text": ((ModelFault(texts=(ANSWER,), finish_reason="SAFETY"),), "LLM_SAFETY_BLOCK"),
    "blocked prompt": ((ModelFault(block_reason="SAFETY"),), "LLM_SAFETY_BLOCK"),
    "429": ((RATE_LIMITED,), "RATE_LIMITED"),
    "500": ((SERVER_ERROR,), "GEMINI_REQUEST_FAILED"),
    "503": ((ModelFault(status=503),), "GEMINI_REQUEST_FAILED"),
    "reset": ((ModelFault(reset=True),), "GEMINI_REQUEST_FAILED"),
    "no answer at all": ((ModelFault(body=f"<html>{ANSWER_TEXT}".encode()),), "GEMINI_REQUEST_FAILED"),
    "400 that quotes": ((ModelFault(status=400, message=f"bad: {PROMPT['userPrompt']}"),), "LLM_PROFILE_INVALID"),
    "403 with the key": ((ModelFault(status=403, message=f"{KEY} is not allowed"),), "LLM_PROFILE_INVALID"),
}


@pytest.mark.parametrize("name", FAILED)
def test_what_the_model_does_wrong_fails_the_step_with_its_code(world: ReportWorld, name: str) -> None:
    faults, code = FAILED[name]
    world.answers(*faults)
    run_id = world.write()
    step = world.await_end(run_id)
    assert (step["status"], step["error"]["code"]) == ("FAILED", code), step
    assert len(world.questions) == len(faults)
    assert world.await_entry("step_failed", run_id)["errorCode"] == code
    world.await_entry("cloud_event_finished", run_id, status="failed")
    assert not world.storage.bucket(BUCKET).blob(report_name(run_id)).exists()


INPUTS: dict[str, Any] = SAMPLE["steps"][STEP_ID]["inputs"]
PROFILE = INPUTS["llm"]["llmProfile"]
WRONG_STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "no such prompt": ({"inputs": {**INPUTS, "llm": {**INPUTS["llm"], "promptId": "none"}}}, "PROMPT_NOT_FOUND"),
    "two candidates": (
        {"inputs": {**INPUTS, "llm": {**INPUTS["llm"], "llmProfile": {**PROFILE, "candidateCount": 2}}}},
        "LLM_PROFILE_INVALID",
    ),
    "no such schema": (
        {
            "inputs": {
                **INPUTS,
                "llm": {
                    **INPUTS["llm"],
                    "llmProfile": {
                        **PROFILE,
                        "structuredOutput": {"schemaId": "llm_report_output_v9", "kind": "LLM_REPORT_OUTPUT"},
                    },
                },
            }
        },
        "LLM_PROFILE_INVALID",
    ),
    "candles that are not there": ({"candles": "nowhere"}, "INVALID_STEP_INPUTS"),
    "candles that are too large": ({"candles": "large"}, "INVALID_STEP_INPUTS"),
    "a step that does not exist": ({"inputs": {**INPUTS, "ohlcvStepId": "none"}}, "INVALID_STEP_INPUTS"),
}


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_a_step_that_is_wrong_fails_without_a_call(world: ReportWorld, name: str) -> None:
    changes, code = WRONG_STEPS[name]
    run_id = world.write(**changes)
    step = world.await_end(run_id)
    assert (step["status"], step["error"]["code"]) == ("FAILED", code), step
    assert world.questions == []


def test_a_slow_model_is_given_up_in_time() -> None:
    variables = {"GEMINI_TIMEOUT_SECONDS": "1", "GEMINI_ALLOWED_MODELS": "gemini-2.5-flash,another"}
    with a_report_world(variables) as hasty, hasty.scenario():
        hasty.answers(ModelFault(delay_seconds=20), ModelFault(drip_seconds=0.3))
        for _ in range(2):
            run_id = hasty.write()
            step = hasty.await_end(run_id, 10)
            assert step["error"]["code"] == "GEMINI_REQUEST_FAILED"
            assert hasty.await_entry("llm_request_finished", run_id)["reason"].startswith("no complete answer")
        other = {**PROFILE, "modelName": "not-allowed"}
        run_id = hasty.write(inputs={**INPUTS, "llm": {**INPUTS["llm"], "llmProfile": other}})
        assert hasty.await_end(run_id)["error"]["code"] == "LLM_PROFILE_INVALID"
        assert len(hasty.questions) == 2


def test_with_less_time_than_the_reserve_nothing_is_asked() -> None:
    variables = {"INVOCATION_TIMEOUT_SECONDS": "11", "FINALIZE_BUDGET_SECONDS": "10"}
    with a_report_world(variables) as late, late.scenario():
        late.sandbox.storage.faults.add(status=None, delay_seconds=0.5, times=None)
        run_id = late.write()
        assert late.await_end(run_id)["error"]["code"] == "TIME_BUDGET_EXCEEDED"
        assert late.questions == []


# Recovery.


def running_step(token: str = "theirs") -> dict[str, Any]:
    claim = {"token": token, "attempt": 1, "leaseUntil": "2999-01-01T00:00:00Z"}
    return {"status": "RUNNING", "outputs": {"execution": {"claim": claim}}}


def test_a_running_step_whose_report_is_there_is_finalized_without_a_call(world: ReportWorld) -> None:
    run_id = a_run_id()
    world.store_report(run_id)
    world.write(run_id, **running_step())
    step = world.await_end(run_id)
    assert step["status"] == "SUCCEEDED"
    execution = step["outputs"]["execution"]
    assert (execution["reused"], execution["claim"]["token"]) == (True, "theirs")
    assert execution["llm"]["modelVersion"] == "an-earlier-one"
    assert execution["timing"]["durationMs"] == 7_000
    assert step["outputs"]["gcs_uri"] == f"gs://{BUCKET}/{report_name(run_id)}"
    assert world.questions == []
    assert world.report(run_id) == a_report(run_id), "what was there is left as it was"


def test_a_ready_step_whose_report_is_there_is_finalized_without_a_call(world: ReportWorld) -> None:
    run_id = a_run_id()
    world.store_report(run_id)
    world.write(run_id)
    assert world.await_end(run_id)["outputs"]["execution"]["reused"] is True
    assert world.questions == []


def test_an_object_that_is_no_report_finalizes_nothing(world: ReportWorld) -> None:
    run_id = a_run_id()
    world.storage.bucket(BUCKET).blob(report_name(run_id)).upload_from_string(json.dumps(a_report("another-run")))
    world.write(run_id, **running_step())
    world.drain()
    assert world.step(run_id)["status"] == "RUNNING"
    world.storage.bucket(BUCKET).blob(report_name(run_id)).delete()


def test_the_report_that_is_there_first_wins(world: ReportWorld) -> None:
    world.answers(ModelFault(texts=(ANSWER,), delay_seconds=1.5))
    run_id = world.write()
    world.await_entry("cloud_event_finished", run_id, status="noop")  # of the event that the claim made
    world.store_report(run_id)
    assert send(world, world.run(run_id)) == 200
    step = world.step(run_id)
    assert (step["status"], step["outputs"]["execution"]["reused"]) == ("SUCCEEDED", True)
    world.drain()
    assert world.step(run_id) == step
    assert world.report(run_id) == a_report(run_id)
    assert len(world.questions) == 1


def stored(world: ReportWorld, run_id: str) -> bool:
    return bool(world.storage.bucket(BUCKET).blob(report_name(run_id)).exists())


def late_upload(world: ReportWorld) -> None:
    """Let the next object be stored at once, and its worker hear of it late."""
    world.sandbox.storage.faults.add(when="after", status=None, delay_seconds=1.5, kind="objects.insert")


def test_the_first_worker_of_a_recovered_step_sees_that_it_is_final(world: ReportWorld) -> None:
    world.answers(GOOD)
    late_upload(world)
    run_id = world.write()
    wait_until(lambda: stored(world, run_id), "the report is stored")
    (token,) = world.claims(run_id)
    assert send(world, world.run(run_id)) == 200
    step = world.step(run_id)
    assert (step["status"], step["outputs"]["execution"]["reused"]) == ("SUCCEEDED", True)
    assert step["outputs"]["execution"]["claim"]["token"] == token
    lost = world.await_entry("finalize_lost", run_id)
    assert (lost["reason"], lost["stepId"]) == ("already_final", STEP_ID)
    world.drain()
    assert world.step(run_id) == step
    assert len(world.questions) == 1


def test_a_worker_that_was_frozen_sees_that_its_step_is_final() -> None:
    with a_report_world(services=2) as two, two.scenario():
        first, second = two.services
        two.answers(GOOD)
        late_upload(two)
        with two.silence():
            run_id = two.write()
            with ThreadPoolExecutor(1) as threads:
                sent = threads.submit(send, two, a_report_run(run_id))
                wait_until(lambda: stored(two, run_id), "the report is stored")
                first.pause()
                assert send(two, two.run(run_id), 1) == 200
                assert two.step(run_id)["status"] == "SUCCEEDED"
                first.resume()
                assert sent.result(20) == 200
        assert [one["reason"] for one in first.entries("finalize_lost", run_id)] == ["already_final"]
        assert [one["reused"] for one in second.entries("step_completed", run_id)] == [True]
        assert len(two.questions) == 1


# Costs.


def test_an_event_for_a_running_step_costs_one_read_of_an_object(world: ReportWorld) -> None:
    document = a_report_run(a_run_id(), **running_step())
    send(world, document)
    before = costs(world)
    assert send(world, document) == 200
    assert costs(world) - before == Counter({"storage objects.download": 1})
    assert world.await_entry("cloud_event_finished", document["runId"])["status"] == "noop"


NOOPS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "PENDING": ({"status": "PENDING"}, {}, "no_ready_step"),
    "SUCCEEDED": ({"status": "SUCCEEDED"}, {}, "no_ready_step"),
    "FAILED": ({"status": "FAILED"}, {}, "no_ready_step"),
    "another type": ({"stepType": "CHART_EXPORT"}, {}, "no_ready_step"),
    "dependency": ({"depends": "RUNNING"}, {}, "dependency_not_succeeded"),
    "run over": ({}, {"status": "SUCCEEDED"}, "flow_run_not_running"),
    "run without a status": ({}, {"status": None}, "flow_run_invalid"),
    "steps a list": ({}, {"steps": []}, "flow_run_invalid"),
}


@pytest.mark.parametrize("name", NOOPS)
def test_an_event_that_asks_for_nothing_costs_nothing(world: ReportWorld, name: str) -> None:
    changes, of_run, reason = NOOPS[name]
    document = {**a_report_run(a_run_id(), **changes), **of_run}
    document = {name: value for name, value in document.items() if value is not None}
    before = costs(world)
    assert send(world, document) == 200
    assert costs(world) == before
    assert world.await_entry("cloud_event_noop", document["runId"])["reason"] == reason


def test_an_event_of_another_collection_costs_nothing_and_one_without_a_document_costs_a_read(
    world: ReportWorld,
) -> None:
    before = costs(world)
    assert post(world.service.url, protobuf_payload("other/a", {"a": 1}), subject="documents/other/a") == 200
    assert costs(world) == before
    run_id = a_run_id()
    assert post(world.service.url, b"\xff\xff garbage", subject=f"documents/flow_runs/{run_id}") == 200
    assert costs(world) - before == Counter({"firestore BatchGetDocuments": 1})
    assert world.await_entry("cloud_event_noop", run_id)["reason"] == "flow_run_not_found"


def test_a_report_costs_few_calls_and_no_transaction(world: ReportWorld) -> None:
    world.answers(GOOD)
    with world.silence():
        run_id = world.write()
        before = costs(world)
        assert send(world, a_report_run(run_id)) == 200
        spent = costs(world) - before
    assert spent["model"] == 1
    assert spent["firestore Commit"] == 2, "claim and finalize"
    assert sum(spent[f"firestore {one}"] for one in READS) <= 4, "claim, prompt, schema, finalize"
    assert not [one for one in spent if "Transaction" in one or "Rollback" in one]
    assert spent["storage objects.download"] == 1 + 2 + len(PICTURES), "the look, candles, manifest, pictures"


# Firestore and Cloud Storage going wrong.


def _is_write(field: str) -> Any:
    return lambda request: any(
        any(path.endswith(field) for path in write.update_mask.field_paths) for write in request.writes
    )


@pytest.mark.parametrize("commit", [".claim", ".finishedAt"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED]
)
def test_a_commit_that_fails_is_settled_and_the_model_asked_once(
    world: ReportWorld, commit: str, when: Any, code: Any
) -> None:
    world.answers(GOOD)
    world.sandbox.firestore.faults.add("Commit", when=when, code=code, matching=_is_write(commit))
    run_id = world.write()
    assert world.await_end(run_id)["status"] == "SUCCEEDED"
    assert world.sandbox.firestore.faults.remaining() == 0
    assert len(world.questions) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_report_that_is_not_stored_at_once_is_stored_again(world: ReportWorld, when: Any) -> None:
    world.answers(GOOD)
    world.sandbox.storage.faults.add(when=when, matching=lambda method, _: method == "POST")
    run_id = world.write()
    assert world.await_end(run_id)["status"] == "SUCCEEDED"
    assert world.report(run_id)["output"] == json.loads(ANSWER)
    assert len(world.questions) == 1


# Configuration.


def test_a_wrong_configuration_is_said_all_at_once_and_the_service_does_not_start() -> None:
    wrong = {
        "LLM_API_MODE": "realy",
        "GEMINI_BASE_URL": f"ftp://{CANARY}",
        "GEMINI_TIMEOUT_SECONDS": "never",
        "INVOCATION_TIMEOUT_SECONDS": "60",
        "FINALIZE_BUDGET_SECONDS": "60",
        "ARTIFACTS_PREFIX": "../up",
        "LLM_SCHEMAS_COLLECTION": "a/b",
        "GEMINI_API_KEY": f"{CANARY} with spaces",
        "GOOGLE_CLOUD_PROJECT": "",
    }
    service = Service({**wrong, "ARTIFACTS_BUCKET": ""}, target="worker_llm_client").launch()
    assert service.join() == 2
    (entry,) = service.entries("config_error")
    named = {one.partition(":")[0] for one in entry["problems"]}
    assert named == {*wrong, "ARTIFACTS_BUCKET"} - {"INVOCATION_TIMEOUT_SECONDS"}
    assert (entry["service"], entry["severity"]) == ("worker-llm-client", "ERROR")
    assert not [line for line in service.stderr if CANARY in line]


def test_without_a_key_the_service_does_not_start_in_real_mode() -> None:
    service = Service(
        {"ARTIFACTS_BUCKET": "gs://a-bucket", "GOOGLE_CLOUD_PROJECT": "a-project"}, target="worker_llm_client"
    ).launch()
    assert service.join() == 2
    assert service.entries("config_error")[0]["problems"] == ["GEMINI_API_KEY: is required in real mode"]
