"""What a model's reply means, before anyone judges its output.

Owns the reading of a reply as an answer or a refusal, bounded, without keys, and without a quotation of what was asked. Must not know
any client library.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from core.failures import cut
from core.secrets import Secret, without_secrets
from effects import CallModel, ModelAnswered, ModelRefused, blob

MAX_SAID_CHARACTERS = 300
QUOTED_CHARACTERS = 24
"""A message that has this many characters in a row of what was asked is a quotation."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The provider's response as JSON, or a recording of it."""

    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    """There was no response, or an error."""

    kind: Literal["http", "timeout", "network", "fixture_missing"]
    message: str
    http_status: int | None = None
    status: str | None = None


TOO_LATE = NoReply(kind="timeout", message="not sent: no time was left to call")


def read_reply(
    effect: CallModel,
    reply: Reply | NoReply,
    secrets: Collection[Secret],
    started_at: datetime,
    now: datetime,
) -> ModelAnswered | ModelRefused:
    """Return the outcome of a call."""
    duration_ms = round((now - started_at).total_seconds() * 1000)
    if isinstance(reply, Reply):
        text = reply.body.decode("utf-8", "replace")
        body = without_secrets(text, secrets).encode() if secrets else reply.body
        return ModelAnswered(purpose=effect.purpose, response=blob(body), duration_ms=duration_ms, at=now)
    said = cut(" ".join(without_secrets(reply.message, secrets).split()), MAX_SAID_CHARACTERS)
    return ModelRefused(
        purpose=effect.purpose,
        kind=reply.kind,
        http_status=reply.http_status,
        status=reply.status,
        message="what was said is withheld, for it quotes the prompt" if _quotes(said, effect) else said,
        duration_ms=duration_ms,
        at=now,
    )


def _quotes(message: str, effect: CallModel) -> bool:
    """Return whether the message repeats a part of the instruction or of the user content."""
    asked = b"\n".join(one.data or b"" for one in (effect.system, effect.user)).decode("utf-8", "replace")
    asked = " ".join(asked.split())
    windows = range(max(0, len(message) - QUOTED_CHARACTERS + 1))
    return any(message[start : start + QUOTED_CHARACTERS] in asked for start in windows)
