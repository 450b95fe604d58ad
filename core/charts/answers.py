"""What an answer of Chart-IMG means (§13.3, §13.5).

Owns the reading of an answer as a picture or a refusal, and what a refusal means for the request. Must not know HTTP libraries, or who asks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from core.charts.images import png_size
from core.failures import MAX_MESSAGE_CHARACTERS, cut
from core.secrets import Secret, without_secrets
from effects import CallChartApi, ChartRefused, ChartRendered, blob
from effects.calls import RefusalKind

OK = 200
MAX_BODY_CHARACTERS = 4_000
MAX_SAID_CHARACTERS = 300
_LONGEST_ESCAPE = len(r"\u0000")
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came over the wire, or out of a fixture."""

    status: int
    body: bytes
    content_encoding: str | None = None
    is_cut: bool = False
    """The body was longer than allowed and not read to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Nothing usable came."""

    kind: RefusalKind
    """network, timeout, fixture_missing or slot_missed."""
    message: str


SLOT_MISSED = NoAnswer(kind="slot_missed", message="not sent: the slot had passed")


class Meaning(Enum):
    """What a refusal means for the request."""

    LIMIT = "the account is used up for the day"
    KEY_REJECTED = "the account's key is not accepted"
    FORBIDDEN = "not with this account"
    TRANSIENT = "may go well another time"
    FINAL = "will not go well"
    MOCK_MISSING = "no fixture for it"
    SLOT_MISSED = "it was not sent, because its slot had passed"


_MEANINGS = {
    401: Meaning.KEY_REJECTED,
    403: Meaning.FORBIDDEN,
    429: Meaning.LIMIT,
    500: Meaning.TRANSIENT,
    502: Meaning.TRANSIENT,
    503: Meaning.TRANSIENT,
    504: Meaning.TRANSIENT,
}
_MEANINGS_WITHOUT_ANSWER = {
    "network": Meaning.TRANSIENT,
    "timeout": Meaning.TRANSIENT,
    "fixture_missing": Meaning.MOCK_MISSING,
    "slot_missed": Meaning.SLOT_MISSED,
}


def meaning_of(refusal: ChartRefused) -> Meaning:
    """Return what the refusal means for the request."""
    if refusal.kind == "answer" and refusal.http_status is not None:
        if "limit exceeded" in f"{refusal.message} {refusal.body}".lower().replace("_", " "):
            return Meaning.LIMIT
        return _MEANINGS.get(refusal.http_status, Meaning.FINAL)
    return _MEANINGS_WITHOUT_ANSWER.get(refusal.kind, Meaning.FINAL)


def read_answer(
    effect: CallChartApi,
    answer: Answer | NoAnswer,
    secrets: Collection[Secret],
    started_at: datetime,
    now: datetime,
) -> ChartRendered | ChartRefused:
    """Return the outcome of a call: the picture, or what was said instead, bounded and without keys."""
    duration_ms = round((now - started_at).total_seconds() * 1000)
    if isinstance(answer, NoAnswer):
        return _refused(
            effect, answer.kind, None, without_secrets(answer.message, secrets), None, duration_ms, now
        )
    if answer.status != OK:
        said = _text(answer, secrets)
        return _refused(
            effect, "answer", answer.status, _said(said), cut(said, MAX_BODY_CHARACTERS), duration_ms, now
        )
    if wrong := _not_a_picture(answer, secrets):
        return _refused(effect, "bad_answer", answer.status, wrong, None, duration_ms, now)
    return ChartRendered(
        chart_template_id=effect.chart_template_id,
        account_id=effect.account_id,
        image=blob(answer.body),
        duration_ms=duration_ms,
        at=now,
    )


def _not_a_picture(answer: Answer, secrets: Collection[Secret]) -> str | None:
    if answer.content_encoding not in {None, "", "identity"}:
        return "the answer is compressed, though nothing compressed was asked for"
    if answer.is_cut:
        return f"the image is larger than the {len(answer.body)} bytes allowed (CHARTS_MAX_IMAGE_BYTES)"
    if png_size(answer.body) is None:
        return "the answer is not a PNG"
    if _quotes_a_key(answer.body, secrets):
        return "the image carries an account's key"
    return None


def _quotes_a_key(body: bytes, secrets: Collection[Secret]) -> bool:
    """Return whether a key is in the bytes, in whatever case; they are looked at piece by piece, for a picture is large."""
    keys = [secret.reveal().encode().lower() for secret in secrets]
    overlap = max(map(len, keys), default=0)
    pieces = (body[start : start + _PIECE_BYTES + overlap].lower() for start in range(0, len(body), _PIECE_BYTES))
    return any(key in piece for piece in pieces for key in keys)


def _text(answer: Answer, secrets: Collection[Secret]) -> str:
    """Return the body as text without keys; where it was cut, a key may have been cut with it, so its end goes too."""
    text = without_secrets(answer.body.decode("utf-8", "replace"), secrets)
    longest = max((len(secret.reveal()) for secret in secrets), default=0)
    return text[: max(0, len(text) - _LONGEST_ESCAPE * longest)] if answer.is_cut else text


def _said(text: str) -> str:
    """Return the message of a JSON error, or the beginning of any other text."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return cut(" ".join(text.split()), MAX_SAID_CHARACTERS)
    message = body.get("message") if isinstance(body, Mapping) else None
    return cut(message if isinstance(message, str) else json.dumps(body), MAX_SAID_CHARACTERS)


def _refused(
    effect: CallChartApi,
    kind: RefusalKind,
    http_status: int | None,
    message: str,
    body: str | None,
    duration_ms: int,
    now: datetime,
) -> ChartRefused:
    return ChartRefused(
        chart_template_id=effect.chart_template_id,
        account_id=effect.account_id,
        kind=kind,
        http_status=http_status,
        message=cut(message, MAX_MESSAGE_CHARACTERS),
        body=body,
        duration_ms=duration_ms,
        at=now,
    )
