"""Google's own library against a server on this machine: what is sent, what comes back, and what is never told."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from core.reports.answers import NoReply, Reply
from core.reports.asking import code_of
from core.reports.output import read_response
from core.secrets import Secret
from effects import CallModel, EffectFailed, ModelAnswered, ModelRefused, blob
from interpreters.clock import SystemClock
from interpreters.documents.memory import DocumentMemory
from interpreters.model.gemini import Gemini
from interpreters.performers import Interpreter
from interpreters.sandbox.gemini import (
    BROKEN_JSON,
    CUT_OFF,
    NO_TEXT,
    RATE_LIMITED,
    SAFETY,
    SERVER_ERROR,
    GeminiServer,
    ModelFault,
)
from interpreters.shipped import CANDLES, FLOW_RUNS
from tests.builders import CANARY, a_png

ROOT = Path(__file__).parents[2]
KEY = f"AIza-{CANARY}"
PROMPT = "canary-of-the-prompt-81c2"
ANSWER = "canary-of-the-answer-5d0e"
SCHEMA = {
    "type": "object",
    "required": ["summary", "details"],
    "properties": {
        "summary": {"type": "object", "required": ["markdown"], "properties": {"markdown": {"type": "string"}}},
        "details": {"type": "object"},
    },
}
GENERATION = {
    "temperature": 0.25,
    "topP": 0.5,
    "topK": 7,
    "maxOutputTokens": 321,
    "stopSequences": ["END", "STOP"],
    "candidateCount": 1,
    "responseMimeType": "application/json",
    "thinkingConfig": {"includeThoughts": False, "thinkingBudget": 128},
}
ELSEWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def running() -> Iterator[GeminiServer]:
    with GeminiServer(Secret(KEY)) as server:
        yield server


@pytest.fixture
def server(running: GeminiServer) -> GeminiServer:
    running.requests.clear()
    running.questions.clear()
    running.faults.clear()
    return running


@pytest.fixture(scope="module")
def shared(running: GeminiServer) -> Gemini:
    return Gemini(running.address, Secret(KEY), SystemClock())


def a_call(**changes: Any) -> CallModel:
    call = CallModel(
        purpose="primary",
        model="gemini-2.5-flash",
        mode="real",
        replay=False,
        fixture_key=None,
        system=blob(f"Be brief. {PROMPT}".encode()),
        user=blob(f"What now? {PROMPT} äöü 日本".encode()),
        images=(),
        generation={"responseMimeType": "application/json"},
        json_schema=SCHEMA,
        timeout_seconds=10.0,
        ends_by=SystemClock().now() + timedelta(minutes=1),
    )
    return replace(call, **changes)


def asked(server: GeminiServer) -> dict[str, Any]:
    """Return the one question that was asked, by the one request that was made."""
    assert len(server.requests) == 1
    (question,) = server.questions
    return question


def perform(model: Gemini, call: CallModel) -> ModelAnswered | ModelRefused | EffectFailed:
    """Return the outcome of a call, as the runtime gets it."""
    interpreter = Interpreter(documents=DocumentMemory(), clock=SystemClock(), model=model, secrets=(Secret(KEY),))
    outcome = interpreter.perform(call)
    assert isinstance(outcome, ModelAnswered | ModelRefused | EffectFailed)
    return outcome


def refused(model: Gemini, call: CallModel) -> ModelRefused:
    outcome = perform(model, call)
    assert isinstance(outcome, ModelRefused)
    return outcome


# What is sent.


def test_an_answer_with_structured_output_comes_back_as_the_provider_gave_it(
    server: GeminiServer, shared: Gemini
) -> None:
    reply = shared.ask(a_call())
    assert isinstance(reply, Reply)
    assert set(json.loads(reply.body)) == {"candidates", "usageMetadata", "modelVersion", "responseId"}
    answer = read_response(reply.body)
    assert set(json.loads(answer.text or "")) == {"summary", "details"}
    assert (answer.finish_reason, answer.model_version) == ("STOP", "gemini-2.5-flash-sandbox")
    assert answer.usage is not None
    assert answer.usage["totalTokenCount"] > 0
    assert asked(server)["generationConfig"]["responseJsonSchema"] == SCHEMA


def test_the_request_is_one_post_to_the_model_with_the_key_in_its_header_alone(
    server: GeminiServer, shared: Gemini
) -> None:
    shared.ask(a_call(model="gemini-9-pro"))
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1beta/models/gemini-9-pro:generateContent")
    assert request.header("x-goog-api-key") == KEY
    assert [name for name, value in request.headers.items() if KEY in value] == ["x-goog-api-key"]
    assert KEY.encode() not in request.body


def test_instruction_and_user_content_arrive_as_they_are(server: GeminiServer, shared: Gemini) -> None:
    shared.ask(a_call())
    question = asked(server)
    assert [part["text"] for part in question["systemInstruction"]["parts"]] == [f"Be brief. {PROMPT}"]
    assert question["contents"] == [{"role": "user", "parts": [{"text": f"What now? {PROMPT} äöü 日本"}]}]


def test_images_are_inline_data_with_equal_bytes_in_order(server: GeminiServer, shared: Gemini) -> None:
    pictures = [a_png(padding=bytes(range(256)) * 40), a_png(padding=b"second")]
    shared.ask(a_call(images=tuple(map(blob, pictures))))
    _, *images = asked(server)["contents"][0]["parts"]
    # The library writes the other name of this field, and the other alphabet; the API takes both.
    assert [one["inlineData"]["mime_type"] for one in images] == ["image/png"] * 2
    assert [base64.urlsafe_b64decode(one["inlineData"]["data"]) for one in images] == pictures


def test_all_generation_settings_arrive_under_the_names_of_the_api(server: GeminiServer, shared: Gemini) -> None:
    shared.ask(a_call(generation=GENERATION))
    assert asked(server)["generationConfig"] == {**GENERATION, "responseJsonSchema": SCHEMA}


@pytest.mark.parametrize(
    "config", [{"thinkingLevel": "LOW"}, {"thinkingBudget": 0}, {"includeThoughts": True}, {"depth": ["new"]}]
)
def test_any_thinking_config_is_passed_on_for_the_api_to_judge(
    server: GeminiServer, shared: Gemini, config: dict[str, Any]
) -> None:
    shared.ask(a_call(generation={"thinkingConfig": config}))
    assert asked(server)["generationConfig"]["thinkingConfig"] == config


def test_what_is_not_set_is_not_sent(server: GeminiServer, shared: Gemini) -> None:
    shared.ask(a_call(generation={}))
    question = asked(server)
    assert question["generationConfig"] == {"responseJsonSchema": SCHEMA}
    assert set(question) == {"contents", "systemInstruction", "generationConfig"}


# What comes back.

ANSWERS: dict[str, tuple[ModelFault, str | None, str | None]] = {
    "SAFETY": (SAFETY, None, "SAFETY"),
    "MAX_TOKENS": (CUT_OFF, '{"summary": {"markdown": "the beginning of', "MAX_TOKENS"),
    "no text": (NO_TEXT, None, "STOP"),
    "no JSON in two parts": (BROKEN_JSON, "this is no JSON", "STOP"),
    "untrimmed": (ModelFault(texts=("\n {} ", "\t")), "\n {} \t", "STOP"),
    "a reason nobody knows": (ModelFault(texts=("{}",), finish_reason="OUT_OF_INK"), "{}", "OUT_OF_INK"),
    "a lone surrogate": (ModelFault(texts=('"\ud800"',)), None, "STOP"),
}


@pytest.mark.filterwarnings("ignore:OUT_OF_INK is not a valid FinishReason")
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_passed_on_whatever_it_is_worth(server: GeminiServer, shared: Gemini, name: str) -> None:
    fault, text, reason = ANSWERS[name]
    server.faults.add(fault)
    outcome = perform(shared, a_call())
    assert isinstance(outcome, ModelAnswered)
    answer = read_response(outcome.response.data or b"")
    assert answer.finish_reason == reason
    assert answer.text == text or name == "a lone surrogate"
    assert len(server.requests) == 1


def test_a_blocked_prompt_is_an_answer_that_says_so(server: GeminiServer, shared: Gemini) -> None:
    server.faults.add(ModelFault(block_reason="SAFETY"))
    outcome = perform(shared, a_call())
    assert isinstance(outcome, ModelAnswered)
    answer = read_response(outcome.response.data or b"")
    assert (answer.text, answer.block_reason) == (None, "SAFETY")


REFUSALS: dict[str, tuple[ModelFault, int, str]] = {
    "400": (ModelFault(status=400), 400, "LLM_PROFILE_INVALID"),
    "401": (ModelFault(status=401), 401, "LLM_PROFILE_INVALID"),
    "403": (ModelFault(status=403), 403, "LLM_PROFILE_INVALID"),
    "404": (ModelFault(status=404), 404, "LLM_PROFILE_INVALID"),
    "429": (RATE_LIMITED, 429, "RATE_LIMITED"),
    "500": (SERVER_ERROR, 500, "GEMINI_REQUEST_FAILED"),
    "503": (ModelFault(status=503), 503, "GEMINI_REQUEST_FAILED"),
    "504": (ModelFault(status=504), 504, "GEMINI_REQUEST_FAILED"),
    "502 in HTML": (ModelFault(status=502, body=b"<html>bad gateway</html>"), 502, "GEMINI_REQUEST_FAILED"),
    "500 with a message that is none": (
        ModelFault(status=500, body=b'{"error": {"message": {"a": [1]}, "status": 7}}'),
        500,
        "GEMINI_REQUEST_FAILED",
    ),
    "500 with a list": (ModelFault(status=500, body=b"[1, 2]"), 500, "GEMINI_REQUEST_FAILED"),
    "302": (ModelFault(status=302, location=ELSEWHERE), 302, "GEMINI_REQUEST_FAILED"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_its_status_and_code_and_is_not_asked_for_again(
    server: GeminiServer, shared: Gemini, name: str
) -> None:
    fault, http_status, code = REFUSALS[name]
    server.faults.add(fault)
    outcome = refused(shared, a_call())
    assert (outcome.kind, outcome.http_status, code_of(outcome)) == ("http", http_status, code)
    assert outcome.status == (fault.status_name if fault.body is None and name != "302" else outcome.status)
    assert len(server.requests) == 1


BROKEN: dict[str, ModelFault] = {
    "reset": ModelFault(reset=True),
    "no JSON": ModelFault(body=f"{ANSWER} is no JSON".encode()),
    "half of it": ModelFault(body=f'{{"candidates": [{{"content": {{"parts": [{{"text": "{ANSWER}'.encode()),
    "parts that are no list": ModelFault(
        body=json.dumps({"candidates": [{"content": {"parts": f"{ANSWER}, said wrongly"}}]}).encode()
    ),
    "no UTF-8": ModelFault(body=b"\xff\xfe" + ANSWER.encode()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_a_failed_request_and_nothing_of_it_is_told(
    server: GeminiServer, shared: Gemini, name: str
) -> None:
    server.faults.add(BROKEN[name])
    outcome = refused(shared, a_call())
    assert (outcome.kind, code_of(outcome)) == ("network", "GEMINI_REQUEST_FAILED")
    assert ANSWER not in repr(outcome)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", ["", json.dumps(ANSWER), json.dumps([ANSWER]), json.dumps({"candidates": ANSWER})]
)
def test_a_body_without_candidates_has_no_text(server: GeminiServer, shared: Gemini, body: str) -> None:
    server.faults.add(ModelFault(body=body.encode()))
    outcome = perform(shared, a_call())
    assert isinstance(outcome, ModelAnswered)
    answer = read_response(outcome.response.data or b"")
    assert (answer.text, answer.finish_reason) == (None, None)


# Deadlines.

LONG_SECONDS = 20
"""Less than the server takes in every case, and more than any machine needs to notice a deadline."""
SLOW: dict[str, ModelFault] = {
    "silent": ModelFault(delay_seconds=60),
    "dripping": ModelFault(drip_seconds=0.2),
    "dripping an error": ModelFault(body=b" " * 5_000, drip_seconds=0.2),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_call_ends_at_its_timeout(server: GeminiServer, shared: Gemini, name: str) -> None:
    server.faults.add(SLOW[name])
    begun = time.monotonic()
    outcome = refused(shared, a_call(timeout_seconds=0.6))
    assert time.monotonic() - begun < LONG_SECONDS
    assert (outcome.kind, code_of(outcome)) == ("timeout", "GEMINI_REQUEST_FAILED")
    assert len(server.requests) == 1


def test_a_call_ends_when_its_time_is_up_whatever_its_timeout(server: GeminiServer, shared: Gemini) -> None:
    server.faults.add(ModelFault(delay_seconds=60))
    begun = time.monotonic()
    outcome = refused(shared, a_call(ends_by=SystemClock().now() + timedelta(seconds=0.6)))
    assert time.monotonic() - begun < LONG_SECONDS
    assert outcome.kind == "timeout"


def test_no_call_is_made_when_its_time_is_over(server: GeminiServer, shared: Gemini) -> None:
    assert refused(shared, a_call(ends_by=SystemClock().now())).kind == "timeout"
    assert server.requests == []


def test_nobody_there_is_a_failed_request() -> None:
    outcome = refused(Gemini(ELSEWHERE, Secret(KEY), SystemClock()), a_call())
    assert (outcome.kind, code_of(outcome)) == ("network", "GEMINI_REQUEST_FAILED")


# What is never told.

ECHOES: Mapping[str, ModelFault] = {
    **{str(one): ModelFault(status=one, message=f"no entry for {KEY}") for one in (400, 401, 403, 429, 500)},
    "in HTML": ModelFault(status=500, body=f"<html>{KEY}</html>".encode()),
    "in upper case": ModelFault(status=400, message=KEY.upper()),
    "in an answer": ModelFault(texts=(json.dumps({"summary": {"markdown": KEY}, "details": {}}),)),
    "in a body that is no JSON": ModelFault(body=KEY.encode()),
    "in a body of the wrong shape": ModelFault(body=json.dumps({"candidates": KEY}).encode()),
    "the prompt": ModelFault(status=400, message=f"bad words: What now? {PROMPT}"),
    "in a redirect": ModelFault(status=302, location=f"{ELSEWHERE}/?key={KEY}"),
}


@pytest.mark.parametrize("name", ECHOES)
def test_no_key_and_no_prompt_in_any_outcome_or_log(
    server: GeminiServer, shared: Gemini, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.add(ECHOES[name])
    # Far below, headers of responses are logged for debugging; nothing here ever asks for that.
    with caplog.at_level(logging.INFO if name == "in a redirect" else logging.DEBUG):
        outcome = perform(shared, a_call())
    said = [caplog.text, repr(outcome), *(str(one.args) + str(one.msg) for one in caplog.records)]
    if isinstance(outcome, ModelAnswered):
        said.append((outcome.response.data or b"").decode())
    for text in said:
        assert KEY.lower() not in text.lower()
        assert PROMPT not in text


def test_an_answer_is_in_no_log_of_the_library(
    server: GeminiServer, shared: Gemini, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.add(ModelFault(texts=(ANSWER,)), ModelFault(body=json.dumps({"candidates": ANSWER}).encode()))
    with caplog.at_level(logging.DEBUG):
        perform(shared, a_call())
        perform(shared, a_call())
    assert ANSWER not in caplog.text
    assert PROMPT not in caplog.text


def test_the_client_does_not_show_its_key(shared: Gemini) -> None:
    assert KEY not in repr(shared)
    assert KEY not in repr(vars(shared))


# The environment.

MISLEADING = {
    "GOOGLE_API_KEY": "another-key",
    "GEMINI_API_KEY": "yet-another-key",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "GOOGLE_GENAI_USE_ENTERPRISE": "true",
    "GOOGLE_GENAI_API_VERSION": "v7",
    "GOOGLE_GENAI_CLIENT_MODE": "replay",
    "GOOGLE_GENAI_REPLAYS_DIRECTORY": "/nowhere",
    "GOOGLE_GEMINI_BASE_URL": ELSEWHERE,
    "GOOGLE_VERTEX_BASE_URL": ELSEWHERE,
    "GOOGLE_CLOUD_PROJECT": "a-project",
    "GOOGLE_CLOUD_LOCATION": "nowhere1",
    "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/key.json",
    **dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), ELSEWHERE),
}


def test_the_environment_changes_neither_where_nor_how_it_calls(
    server: GeminiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MISLEADING.items():
        monkeypatch.setenv(name, value)
    reply = Gemini(server.address, Secret(KEY), SystemClock()).ask(a_call())
    assert isinstance(reply, Reply), reply
    (request,) = server.requests
    assert request.target == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert request.header("x-goog-api-key") == KEY
    assert not {"authorization", "x-goog-user-project"} & {name.lower() for name in request.headers}


def test_a_redirect_is_not_followed_so_the_key_goes_nowhere_else(server: GeminiServer, shared: Gemini) -> None:
    with GeminiServer(Secret(KEY)) as elsewhere:
        for status in (301, 302, 307, 308):
            server.faults.add(
                ModelFault(status=status, location=f"{elsewhere.address}/v1beta/models/a:generateContent")
            )
            reply = shared.ask(a_call())
            assert isinstance(reply, NoReply)
            assert reply.http_status == status
        assert elsewhere.requests == []


# Imports.

_MOCK_RUN = f"""
import sys
from cli import tda
arguments = ["flow", "run", "--flow-run-path", {str(FLOW_RUNS / "candles_charts_report.json")!r}, "--given",
    "candles:4h=" + {str(CANDLES / "BTCUSDT_4h.json")!r}]
code = tda.main(arguments, standalone_mode=False)
"""
_THEN = """
finally:
    print([one for one in sys.modules if one in {"google.genai", "interpreters.model.gemini", "httpx"}])
"""


def test_a_mock_run_imports_neither_the_library_nor_its_interpreter(tmp_path: Path) -> None:
    script = "import sys\ntry:\n" + "\n".join(f"    {line}" for line in _MOCK_RUN.splitlines()) + _THEN
    ended = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"},
        capture_output=True,
        check=False,
        text=True,
    )
    summary, modules = ended.stdout.splitlines()
    assert summary.endswith("report:4h=SUCCEEDED"), ended.stderr
    assert modules == "[]"


def test_the_service_imports_the_library_only_when_it_asks(tmp_path: Path) -> None:
    variables = {
        "PYTHONPATH": str(ROOT),
        "FUNCTION_TARGET": "worker_llm_client",
        "ARTIFACTS_BUCKET": "gs://a-bucket",
        "GEMINI_API_KEY": KEY,
        "GOOGLE_CLOUD_PROJECT": "a-project",
    }
    script = 'import sys, service; print("google.genai" in sys.modules, service._report_worker().name)'
    ended = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        check=False,
        text=True,
    )
    assert (ended.stdout, KEY in ended.stderr) == ("False worker-llm-client\n", False), ended.stderr
