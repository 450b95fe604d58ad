"""The Gemini server: `POST /v1beta/models/MODEL:generateContent`.

Owns the way of a request: key, faults, answer. The answer is made from the schema that came with the question. Must not know who asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.documents import field
from core.secrets import Secret
from interpreters.sandbox.gemini.faults import ModelFault, ModelFaults
from interpreters.sandbox.gemini.instances import instance_of
from interpreters.sandbox.http_server import HOST, Dropped, HttpServer, Reply, Request

_PATH = re.compile(r"/v1(?:beta|alpha)?/models/([^/:]+):generateContent")
_WORDS = "## Sandbox report\n\nThis text was written by the sandbox: it answers every question, and knows nothing."


class GeminiServer(HttpServer):
    """Models with structured output, for one key; `GEMINI_BASE_URL` is its address."""

    def __init__(self, api_key: Secret, port: int = 0, host: str = HOST) -> None:
        """Answer whoever has the key."""
        self.faults = ModelFaults()
        self.requests: list[Request] = []
        """All requests, in order."""
        self.questions: list[dict[str, Any]] = []
        """The bodies of all questions that had the key, in order."""
        self._key = api_key
        super().__init__(self._answer, port, host)

    def _answer(self, request: Request) -> Reply | Dropped:
        self.requests.append(request)
        asked = _PATH.fullmatch(request.path)
        if request.method != "POST" or asked is None:
            return _error(404, "NOT_FOUND", "there is nothing at this path")
        if request.header("x-goog-api-key") != self._key.reveal():
            return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
        question = json.loads(request.body)
        self.questions.append(question)
        fault = self.faults.take()
        self.pause(fault.delay_seconds)
        if fault.reset:
            return Dropped(reset=True)
        if fault.status is not None:
            return _refusal(fault.status, fault)
        body = fault.body if fault.body is not None else _response(asked[1], question, fault)
        return Reply(200, body, "application/json", drip_seconds=fault.drip_seconds)


def _refusal(status: int, fault: ModelFault) -> Reply:
    reply = _error(status, fault.status_name, fault.message)
    headers = {} if fault.location is None else {"Location": fault.location}
    return replace(reply, body=reply.body if fault.body is None else fault.body, headers=headers)


def _error(status: int, name: str, message: str) -> Reply:
    said = {"error": {"code": status, "message": message, "status": name}}
    return Reply(status, json.dumps(said).encode(), "application/json")


def _response(model: str, question: Mapping[str, Any], fault: ModelFault) -> bytes:
    config = question.get("generationConfig")
    schema = field(config, "responseJsonSchema") or field(config, "responseSchema") or {}
    texts = (json.dumps(instance_of(schema, _WORDS)),) if fault.texts is None else fault.texts
    asked = len(json.dumps(question.get("contents", ()))) // 4
    said = sum(map(len, texts)) // 4
    candidate = {
        "content": {"role": "model", "parts": [{"text": one} for one in texts]},
        "finishReason": fault.finish_reason,
        "index": 0,
    }
    response = {
        **({"promptFeedback": {"blockReason": fault.block_reason}} if fault.block_reason else {}),
        "candidates": [] if fault.block_reason else [candidate],
        "usageMetadata": {
            "promptTokenCount": asked,
            "candidatesTokenCount": said,
            "totalTokenCount": asked + said,
        },
        "modelVersion": f"{model}-sandbox",
        "responseId": "sandbox",
    }
    return json.dumps(response).encode()
