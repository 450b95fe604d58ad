"""Gemini over Google's own library, with an API key (4.28).

Owns the exchange: origin, key, deadline, no retries. Must not judge what comes back, nor log it.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Thread
from typing import Any

from google import genai
from google.genai import errors, types
from google.genai.client import DebugConfig

from core.reports.answers import NoReply, Reply
from core.secrets import Secret
from effects import CallModel
from interpreters.ports import Clock

API_VERSION = "v1beta"
GRACE_SECONDS = 0.5
_KEPT = {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"}
"""What is kept of a response: nothing of how it travelled."""


class Gemini:
    """The models of one origin, with one key."""

    def __init__(self, base_url: str, api_key: Secret, clock: Clock) -> None:
        """Make the client: the library retries nothing, and follows neither a redirect nor the environment.

        A second call is the program's to decide, and the key goes to this origin alone.
        """
        self._clock = clock
        self._client = genai.Client(
            api_key=api_key.reveal(),
            vertexai=False,
            debug_config=DebugConfig(client_mode=None, replays_directory=None, replay_id=None),
            http_options=types.HttpOptions(
                base_url=base_url,
                api_version=API_VERSION,
                retry_options=types.HttpRetryOptions(attempts=1),
                client_args={"trust_env": False, "follow_redirects": False},
            ),
        )

    def ask(self, effect: CallModel) -> Reply | NoReply:
        """Return the reply to one call, which ends at its deadline in any case."""
        left = (effect.ends_by - self._clock.now()).total_seconds()
        seconds = min(effect.timeout_seconds, left)
        if seconds <= 0:
            return NoReply(kind="timeout", message="no time was left to call")
        reply: Future[Reply | NoReply] = Future()
        Thread(target=self._reply, args=(reply, effect, seconds), daemon=True).start()
        try:
            return reply.result(timeout=seconds + GRACE_SECONDS)
        except FutureTimeoutError:
            return _timed_out(seconds)

    def _reply(self, reply: Future[Reply | NoReply], effect: CallModel, seconds: float) -> None:
        try:
            reply.set_result(self._exchange(effect, seconds))
        except BaseException as error:  # noqa: BLE001 - raised again where the reply is waited for
            reply.set_exception(error)

    def _exchange(self, effect: CallModel, seconds: float) -> Reply | NoReply:
        try:
            response = self._client.models.generate_content(
                model=effect.model, contents=_contents(effect), config=_config(effect, seconds)
            )
        except errors.APIError as error:
            return NoReply(
                kind="http",
                http_status=error.code,
                status=error.status if isinstance(error.status, str) else None,
                message=str(error.message or type(error).__name__),
            )
        except Exception as error:  # noqa: BLE001 - whatever the transport raises, there was no answer
            return _transport_failed(error, seconds)
        dumped: dict[str, Any] = response.model_dump(mode="json", by_alias=True, exclude_none=True)
        kept = {name: value for name, value in dumped.items() if name in _KEPT}
        return Reply(json.dumps(kept, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def _contents(effect: CallModel) -> list[types.Content]:
    text = types.Part(text=(effect.user.data or b"").decode("utf-8"))
    images = [types.Part.from_bytes(data=one.data or b"", mime_type="image/png") for one in effect.images]
    return [types.Content(role="user", parts=[text, *images])]


def _config(effect: CallModel, seconds: float) -> types.GenerateContentConfig:
    """Return what every report adds, and the profile's settings as they are: the API judges them, not the library."""
    return types.GenerateContentConfig(
        system_instruction=(effect.system.data or b"").decode("utf-8"),
        response_json_schema=dict(effect.json_schema),
        http_options=types.HttpOptions(
            timeout=round(seconds * 1000), extra_body={"generationConfig": dict(effect.generation)}
        ),
    )


def _transport_failed(error: Exception, seconds: float) -> NoReply:
    """Say what the transport said; any other error may quote the answer, so only its type is told."""
    kinds = type(error).__mro__
    if any("Timeout" in kind.__name__ for kind in kinds):
        return _timed_out(seconds)
    is_transport = isinstance(error, OSError) or any(kind.__name__ == "TransportError" for kind in kinds)
    said = f": {error}" if is_transport else ""
    return NoReply(kind="network", message=f"{type(error).__name__}{said}")


def _timed_out(seconds: float) -> NoReply:
    return NoReply(kind="timeout", message=f"no complete answer within {seconds:.1f} s")
