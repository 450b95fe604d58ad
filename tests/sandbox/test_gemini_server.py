"""The Gemini server: what it demands, what it answers, and how it goes wrong, over plain HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from jsonschema import Draft202012Validator

from core.secrets import Secret
from interpreters.sandbox.gemini import (
    BROKEN_JSON,
    CUT_OFF,
    NO_TEXT,
    RATE_LIMITED,
    SAFETY,
    SERVER_ERROR,
    WRONG_SHAPE,
    GeminiServer,
    ModelFault,
)
from interpreters.sandbox.gemini.instances import instance_of
from interpreters.shipped import SCHEMAS

KEY = "key-of-the-model-Zq7w"
SHIPPED: dict[str, Any] = json.loads(next(SCHEMAS.glob("*.json")).read_text("utf-8"))["jsonSchema"]
PATH = "/v1beta/models/gemini-2.5-flash:generateContent"


@pytest.fixture(scope="module")
def running() -> Iterator[GeminiServer]:
    with GeminiServer(Secret(KEY)) as server:
        yield server


@pytest.fixture
def server(running: GeminiServer) -> GeminiServer:
    running.requests.clear()
    running.questions.clear()
    return running


def ask(server: GeminiServer, schema: Any = SHIPPED, key: str | None = KEY, path: str = PATH) -> requests.Response:
    question = {
        "contents": [{"role": "user", "parts": [{"text": "what now?"}]}],
        "generationConfig": {"responseJsonSchema": schema},
    }
    headers = {} if key is None else {"x-goog-api-key": key}
    return requests.post(f"{server.address}{path}", json=question, headers=headers, timeout=10)


def text_of(response: requests.Response) -> str:
    parts = response.json()["candidates"][0]["content"]["parts"]
    return "".join(part["text"] for part in parts)


def test_the_answer_matches_the_schema_of_the_question(server: GeminiServer) -> None:
    response = ask(server)
    assert response.status_code == 200
    Draft202012Validator(SHIPPED).validate(json.loads(text_of(response)))
    assert response.json()["candidates"][0]["finishReason"] == "STOP"
    assert response.json()["modelVersion"] == "gemini-2.5-flash-sandbox"
    usage = response.json()["usageMetadata"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"] > 0


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a"], "properties": {"a": {"enum": ["up", "down"]}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "number", "exclusiveMinimum": 3}}},
        {"type": "array", "minItems": 2, "items": {"type": ["null", "boolean"]}},
        {"type": "string", "minLength": 200, "maxLength": 210},
        {"type": "string", "maxLength": 3},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"type": "object", "required": ["b"], "properties": {"b": {"const": 7}}}},
        },
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"type": "object", "required": ["a"]},
    ],
)
def test_an_instance_is_made_from_the_schema_alone(schema: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate(instance_of(schema, "any text"))


def test_a_schema_that_refers_to_itself_has_an_instance_all_the_same() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}
    assert isinstance(instance_of(schema, "any text"), dict)


def test_questions_are_kept_and_only_those_with_the_key(server: GeminiServer) -> None:
    ask(server)
    ask(server, key="another")
    ask(server, key=None)
    assert [one["contents"][0]["parts"] for one in server.questions] == [[{"text": "what now?"}]]
    assert len(server.requests) == 3


def test_a_wrong_key_is_refused_as_google_does(server: GeminiServer) -> None:
    response = ask(server, key="another")
    assert (response.status_code, response.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "path", ["/", "/v1beta/models/gemini:streamGenerateContent", "/v1beta/models:generateContent"]
)
def test_there_is_nothing_at_other_paths(server: GeminiServer, path: str) -> None:
    assert ask(server, path=path).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_only_post_is_answered(server: GeminiServer, method: str) -> None:
    assert requests.request(method, f"{server.address}{PATH}", timeout=10).status_code == 404


@pytest.mark.parametrize(("fault", "status"), [(RATE_LIMITED, "RESOURCE_EXHAUSTED"), (SERVER_ERROR, "INTERNAL")])
def test_an_error_has_the_form_of_googles(server: GeminiServer, fault: ModelFault, status: str) -> None:
    server.faults.add(fault)
    response = ask(server)
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (response.status_code, status)
    assert ask(server).status_code == 200, "a fault is one answer's"


@pytest.mark.parametrize(
    ("fault", "text", "reason"),
    [
        (SAFETY, "", "SAFETY"),
        (CUT_OFF, '{"summary": {"markdown": "the beginning of', "MAX_TOKENS"),
        (NO_TEXT, "", "STOP"),
        (BROKEN_JSON, "this is no JSON", "STOP"),
        (WRONG_SHAPE, '{"summary": {}}', "STOP"),
    ],
    ids=["safety", "cut off", "no text", "broken JSON", "wrong shape"],
)
def test_an_answer_can_be_told_to_be_of_no_use(
    server: GeminiServer, fault: ModelFault, text: str, reason: str
) -> None:
    server.faults.add(fault)
    response = ask(server)
    assert (text_of(response), response.json()["candidates"][0]["finishReason"]) == (text, reason)


def test_a_blocked_prompt_has_no_candidate(server: GeminiServer) -> None:
    server.faults.add(ModelFault(block_reason="PROHIBITED_CONTENT"))
    response = ask(server).json()
    assert (response["candidates"], response["promptFeedback"]) == ([], {"blockReason": "PROHIBITED_CONTENT"})


def test_the_whole_body_can_be_something_else(server: GeminiServer) -> None:
    server.faults.add(ModelFault(body=b"no JSON"), ModelFault(status=502, body=b"<html>"))
    assert ask(server).content == b"no JSON"
    second = ask(server)
    assert (second.status_code, second.content) == (502, b"<html>")


def test_a_reset_and_a_delay(server: GeminiServer) -> None:
    server.faults.add(ModelFault(reset=True), ModelFault(delay_seconds=0.3))
    with pytest.raises(requests.ConnectionError):
        ask(server)
    begun = time.monotonic()
    assert ask(server).status_code == 200
    assert time.monotonic() - begun >= 0.3


def test_faults_are_forgotten_when_they_are_cleared(server: GeminiServer) -> None:
    server.faults.add(SERVER_ERROR, SERVER_ERROR)
    server.faults.clear()
    assert ask(server).status_code == 200
