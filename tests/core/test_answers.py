from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charts.answers import SLOT_MISSED, Answer, Meaning, NoAnswer, meaning_of, read_answer
from core.charts.images import png_size
from core.secrets import Secret
from effects import CallChartApi, ChartRefused, ChartRendered
from tests.builders import CANARY, NOW, a_png

KEY = Secret(CANARY)
CALL = CallChartApi(
    chart_template_id="t",
    account_id="acc1",
    mode="real",
    replay=False,
    fixture_key=None,
    timeframe="4h",
    body={"symbol": "BINANCE:BTCUSDT"},
    timeout_seconds=60,
    start_by=NOW,
    ends_by=NOW,
)


def read(answer: Answer | NoAnswer) -> ChartRendered | ChartRefused:
    return read_answer(CALL, answer, (KEY,), NOW, NOW)


def refused(status: int, body: str) -> ChartRefused:
    outcome = read(Answer(status=status, body=body.encode()))
    assert isinstance(outcome, ChartRefused)
    return outcome


@pytest.mark.parametrize(
    ("status", "message", "meaning"),
    [
        (429, "Too Many Requests", Meaning.LIMIT),
        (400, "Limit Exceeded", Meaning.LIMIT),
        (403, "daily LIMIT EXCEEDED for key", Meaning.LIMIT),
        (500, "Limit Exceeded", Meaning.LIMIT),
        (400, "LIMIT_EXCEEDED", Meaning.LIMIT),
        (401, "Unauthorized", Meaning.KEY_REJECTED),
        (403, "Layout Forbidden", Meaning.FORBIDDEN),
        (400, "Invalid Symbol", Meaning.FINAL),
        (404, "x", Meaning.FINAL),
        (409, "x", Meaning.FINAL),
        (422, "x", Meaning.FINAL),
        (500, "x", Meaning.TRANSIENT),
        (501, "x", Meaning.FINAL),
        (502, "x", Meaning.TRANSIENT),
        (503, "x", Meaning.TRANSIENT),
        (504, "x", Meaning.TRANSIENT),
        (302, "x", Meaning.FINAL),
        (204, "x", Meaning.FINAL),
    ],
)
def test_what_an_error_means(status: int, message: str, meaning: Meaning) -> None:
    assert meaning_of(refused(status, json.dumps({"message": message}))) is meaning


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (NoAnswer(kind="network", message="x"), Meaning.TRANSIENT),
        (NoAnswer(kind="timeout", message="x"), Meaning.TRANSIENT),
        (NoAnswer(kind="fixture_missing", message="x"), Meaning.MOCK_MISSING),
        (SLOT_MISSED, Meaning.SLOT_MISSED),
        (Answer(status=200, body=b"<html>"), Meaning.FINAL),
    ],
)
def test_what_no_picture_means(answer: Answer | NoAnswer, meaning: Meaning) -> None:
    outcome = read(answer)
    assert isinstance(outcome, ChartRefused)
    assert meaning_of(outcome) is meaning


@pytest.mark.parametrize(
    "body",
    ['{"message": "Forbidden", "error": "Limit Exceeded"}', '{"errors": [{"message": "limit exceeded"}]}'],
)
def test_a_limit_is_found_wherever_the_answer_says_it(body: str) -> None:
    assert meaning_of(refused(403, body)) is Meaning.LIMIT


def test_half_a_surrogate_pair_does_not_spoil_what_was_said() -> None:
    outcome = refused(422, r'{"message": "Invalid Symbol \ud83d"}')
    assert outcome.message == "Invalid Symbol ?"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"message": "Invalid Symbol"}', "Invalid Symbol"),
        ('{"errors": ["x"]}', '{"errors": ["x"]}'),
        ('{"message": 7}', '{"message": 7}'),
        ("<html>\n  oops </html>", "<html> oops </html>"),
        ("", ""),
        ("[1]", "[1]"),
    ],
)
def test_what_the_provider_said_is_found(body: str, said: str) -> None:
    assert refused(400, body).message == said


@pytest.mark.parametrize("padding", [0, 295, 299, 3_990, 3_999, 70_000])
@pytest.mark.parametrize("form", ["{}", '{{"message": "{}"}}'])
def test_no_part_of_the_key_survives_wherever_the_text_is_cut(padding: int, form: str) -> None:
    outcome = refused(400, form.format("x" * padding + CANARY + CANARY.upper()))
    text = f"{outcome.message}{outcome.body}".lower()
    assert not any(CANARY[:n] in text for n in range(6, len(CANARY)))
    assert len(outcome.message) <= 1_000
    assert len(outcome.body or "") <= 4_000


def test_a_picture_that_carries_the_key_is_refused() -> None:
    outcome = read(Answer(status=200, body=a_png(padding=CANARY.encode())))
    assert isinstance(outcome, ChartRefused)
    assert outcome.message == "the image carries an account's key"


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_a_compressed_picture_is_refused(encoding: str) -> None:
    outcome = read(Answer(status=200, body=a_png(), content_encoding=encoding))
    assert isinstance(outcome, ChartRefused)


@pytest.mark.parametrize("encoding", [None, "", "identity"])
def test_a_plain_picture_is_taken(encoding: str | None) -> None:
    outcome = read(Answer(status=200, body=a_png(), content_encoding=encoding))
    assert isinstance(outcome, ChartRendered)
    assert outcome.image.data == a_png()


def test_a_picture_that_was_cut_is_refused() -> None:
    outcome = read(Answer(status=200, body=a_png(), is_cut=True))
    assert isinstance(outcome, ChartRefused)
    assert "CHARTS_MAX_IMAGE_BYTES" in outcome.message


def test_a_png_has_its_size() -> None:
    assert png_size(a_png(8, 6)) == (8, 6)


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG\r\n\x1a\n", b"<html>" * 10, a_png(0, 6), a_png(8, 0), a_png()[:30]]
)
def test_what_is_no_png_has_none(data: bytes) -> None:
    assert png_size(data) is None


@given(position=st.integers(0, 32), change=st.integers(1, 255))
def test_any_changed_byte_of_signature_or_header_is_noticed(position: int, change: int) -> None:
    data = bytearray(a_png())
    data[position] ^= change
    assert png_size(bytes(data)) is None


@pytest.mark.parametrize("before", [0, 65_530, 65_536, 131_000])
def test_a_key_is_found_wherever_it_is_in_a_large_picture(before: int) -> None:
    outcome = read(Answer(status=200, body=a_png(padding=bytes(before) + CANARY.upper().encode() + bytes(99_999))))
    assert isinstance(outcome, ChartRefused)
    assert "key" in outcome.message
