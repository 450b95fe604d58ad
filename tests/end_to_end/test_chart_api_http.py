"""The chart API over HTTP, against a real local server that misbehaves.

Every outcome, and every log line on the way to it, is searched for the keys: none of them, nor six characters in a
row of one, may be there.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import struct
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.charts.accounts import Account
from core.charts.answers import MAX_BODY_CHARACTERS, MAX_SAID_CHARACTERS, Meaning, NoAnswer, meaning_of
from core.failures import MAX_MESSAGE_CHARACTERS
from core.secrets import Secret
from effects import CallChartApi, ChartRefused, ChartRendered, Outcome
from effects.encoding import encode_outcome
from interpreters.chart_api import FixturesOrHttp
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.chart_api.http import MAX_ERROR_BYTES, ChartImg
from interpreters.clock import SystemClock
from interpreters.documents.memory import DocumentMemory
from interpreters.objects.memory import ObjectMemory
from interpreters.performers import AccountsAside, Interpreter
from interpreters.templates import TemplateFolder
from tests.builders import CANARY, a_png, an_account
from tests.end_to_end.chart_server import (
    ENDLESS_BYTES,
    ChartServer,
    Line,
    Script,
    answer,
    chunk,
    head,
    says,
    says_and_closes,
    says_and_drips,
    says_and_holds,
    says_and_resets,
    says_endlessly,
)

PNG = a_png()
BODY = {"symbol": "BINANCE:BTCUSDT", "interval": "4h", "studies": [{"name": "Volume"}], "note": "größer"}
MAX_IMAGE_BYTES = 1024 * 1024
KEY = f"{CANARY}-acc1"
AWKWARD_KEY = f'{CANARY}/"\\/+Zq7w=='
"""Every character of it may stand in a key, and JSON writes some of them in more than one way."""
LONG_KEY = (CANARY * 30)[:512]
ACCOUNTS = (
    an_account("acc1"),
    an_account("acc2"),
    Account(id="awkward", api_key=Secret(AWKWARD_KEY)),
    Account(id="long", api_key=Secret(LONG_KEY)),
)
FRAGMENT_CHARACTERS = 6
FRAGMENTS = frozenset(
    key[start : start + FRAGMENT_CHARACTERS].lower()
    for key in (account.api_key.reveal() for account in ACCOUNTS)
    for start in range(len(key) - FRAGMENT_CHARACTERS + 1)
)
READ_AHEAD_BYTES = 16 * 1024 * 1024
"""What may be on its way, in the buffers of the machine, when a reader stops."""


@dataclass(kw_only=True)
class Caller:
    """Calls through an interpreter, and looks for keys in everything that comes of it."""

    interpreter: Interpreter
    log: pytest.LogCaptureFixture
    seconds: float = field(default=0.0, init=False)
    """How long the last call took."""

    def perform(self, effect: CallChartApi) -> Outcome:
        begun = time.monotonic()
        outcome = self.interpreter.perform(effect)
        self.seconds = time.monotonic() - begun
        assert fragments_of_keys_in(repr(outcome)) == []
        assert fragments_of_keys_in(json.dumps(encode_outcome(outcome), ensure_ascii=False)) == []
        assert fragments_of_keys_in(self.log.text) == []
        self.log.clear()
        return outcome

    def rendered(self, effect: CallChartApi | None = None) -> ChartRendered:
        outcome = self.perform(effect or a_call())
        assert isinstance(outcome, ChartRendered), outcome
        assert all(account.api_key.reveal().encode() not in (outcome.image.data or b"") for account in ACCOUNTS)
        return outcome

    def refused(self, effect: CallChartApi | None = None) -> ChartRefused:
        outcome = self.perform(effect or a_call())
        assert isinstance(outcome, ChartRefused), outcome
        assert len(outcome.message) <= MAX_MESSAGE_CHARACTERS
        assert len(outcome.body or "") <= MAX_BODY_CHARACTERS
        return outcome


def fragments_of_keys_in(text: str) -> list[str]:
    """Return what is there of keys, be it written as in JSON, or as in JSON in JSON."""
    unescaped = re.sub(r"\\+u00([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), text)
    texts = [one.lower() for one in (text, unescaped, unescaped.replace("\\", ""))]
    return sorted(one for one in FRAGMENTS if any(one in text for text in texts))


def a_call(**changes: Any) -> CallChartApi:
    given: dict[str, Any] = {
        "chart_template_id": "ctpl_price_ma1226_vol_v1",
        "account_id": "acc1",
        "mode": "real",
        "replay": False,
        "fixture_key": None,
        "timeframe": "4h",
        "body": BODY,
        "timeout_seconds": 5.0,
        "start_by": datetime.now(UTC) + timedelta(hours=1),
        "ends_by": datetime.now(UTC) + timedelta(hours=1),
        **changes,
    }
    return CallChartApi(**given)


@pytest.fixture
def server() -> Iterator[ChartServer]:
    with ChartServer() as one:
        yield one


@pytest.fixture
def other_server() -> Iterator[ChartServer]:
    with ChartServer().will(says(answer(200, PNG))) as one:
        yield one


def _callers(origin: str, folder: Path, log: pytest.LogCaptureFixture) -> Iterator[Caller]:
    log.set_level("DEBUG")
    clock = SystemClock()
    keys = {account.id: account.api_key for account in ACCOUNTS}
    http = ChartImg(origin, keys, MAX_IMAGE_BYTES, 8, clock)
    interpreter = Interpreter(
        documents=DocumentMemory(),
        objects=ObjectMemory(),
        templates=TemplateFolder(folder),
        chart_api=FixturesOrHttp(FixtureFolder(folder), http),
        clock=clock,
        accounts_aside=AccountsAside(),
        secrets=tuple(keys.values()),
    )
    yield Caller(interpreter=interpreter, log=log)
    http._session.close()


@pytest.fixture
def caller(server: ChartServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Caller]:
    yield from _callers(server.origin, tmp_path, caplog)


@pytest.fixture
def caller_of_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Caller]:
    """Return a caller of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        host, port = closed_soon.getsockname()
    yield from _callers(f"http://{host}:{port}", tmp_path, caplog)


CHUNKED = "Transfer-Encoding: chunked"
CLOSE = "Connection: close"
HTTP_1_0 = b"HTTP/1.0 200 OK\r\nContent-Type: image/png\r\n\r\n"
LONG_ANSWER = head(200, "Content-Length: 1000000")


# What is sent, and what a good answer becomes


def test_the_request_is_one_post_of_the_json_body_with_the_key_of_the_account(
    server: ChartServer, caller: Caller
) -> None:
    server.will(says(answer(200, PNG, "Content-Type: image/png")))
    assert caller.rendered().image.data == PNG
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v2/tradingview/advanced-chart")
    assert json.loads(asked.body) == BODY
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["x-api-key"] == KEY
    assert asked.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.id)
def test_each_account_sends_its_own_key(server: ChartServer, caller: Caller, account: Account) -> None:
    server.will(says(answer(200, PNG)))
    assert caller.rendered(a_call(account_id=account.id)).account_id == account.id
    assert [asked.headers["x-api-key"] for asked in server.asked] == [account.api_key.reveal()]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(says(head(200, CHUNKED) + chunk(PNG[:20]), chunk(PNG[20:]) + chunk(b"")), id="in chunks"),
        pytest.param(says_and_closes(HTTP_1_0 + PNG), id="HTTP/1.0, until the connection closes"),
        pytest.param(says_and_closes(head(200, CLOSE) + PNG), id="until the connection closes"),
        pytest.param(says_and_closes(answer(200, PNG, CLOSE)), id="with a length, then closed"),
        pytest.param(says(head(100) + answer(200, PNG)), id="after 100 Continue"),
        pytest.param(says(answer(200, PNG, "Content-Encoding: identity")), id="encoded as identity"),
        pytest.param(says_and_drips(answer(200, PNG)[:-4], PNG[-4:]), id="slow, but not too slow"),
    ],
)
def test_a_picture_may_arrive_in_any_form_http_has_for_it(
    server: ChartServer, caller: Caller, script: Script
) -> None:
    server.will(script)
    assert caller.rendered().image.data == PNG


def test_a_picture_may_be_exactly_as_large_as_allowed_and_not_a_byte_larger(
    server: ChartServer, caller: Caller
) -> None:
    largest = PNG + b"\0" * (MAX_IMAGE_BYTES - len(PNG))
    server.will(says(answer(200, largest)), says(answer(200, largest + b"\0")))
    assert caller.rendered().image.data == largest
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status) == ("bad_answer", 200)
    assert "CHARTS_MAX_IMAGE_BYTES" in refusal.message


# The call ends in time, whatever the server does


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(says_and_holds(), id="no answer"),
        pytest.param(says_and_holds(b"HTTP/1.1 200 OK\r\nContent-"), id="half the headers, then silence"),
        pytest.param(says_and_holds(LONG_ANSWER + PNG), id="half the body, then silence"),
        pytest.param(says_and_drips(b"", b"HTTP/1.1 200 " + b"O" * 999), id="slow status line"),
        pytest.param(says_and_drips(b"HTTP/1.1 200 OK\r\n", b"X-Slow: " + b"o" * 999), id="slow header"),
        pytest.param(says_and_drips(b"", b"HTTP/1.1 100 C\r\n\r\n" * 99), id="slow and not final"),
        pytest.param(says_and_drips(LONG_ANSWER, PNG * 9), id="slow body with a length"),
        pytest.param(says_and_drips(head(200, CHUNKED), b"5\r\nhello\r\n" * 99), id="slow chunks"),
        pytest.param(says_and_drips(head(200, CHUNKED), b"0" * 999), id="slow length of a chunk"),
        pytest.param(says_and_drips(head(200, CHUNKED) + b"f00\r\n", b"x" * 999), id="one slow chunk"),
        pytest.param(
            says_and_drips(head(200, CHUNKED) + chunk(PNG) + b"0\r\n", b"X: y\r\n" * 99), id="slow trailers"
        ),
        pytest.param(says_and_drips(head(200, CLOSE), PNG * 9), id="slow body until the connection closes"),
        pytest.param(says_and_drips(HTTP_1_0, PNG * 9), id="slow body of HTTP/1.0"),
        pytest.param(
            says_and_drips(head(200, CLOSE, "Content-Length: 1000"), PNG * 9), id="slow body, close announced"
        ),
        pytest.param(says_and_drips(head(500, "Content-Length: 1000"), b"x" * 999), id="slow error"),
        pytest.param(says_and_drips(head(500, CLOSE), b"x" * 999), id="slow error until the connection closes"),
        pytest.param(
            says_and_drips(head(302, "Location: /", "Content-Length: 1000"), b"x" * 999), id="slow redirect"
        ),
    ],
)
def test_a_call_ends_at_its_timeout_however_slowly_bytes_arrive(
    server: ChartServer, caller: Caller, script: Script
) -> None:
    server.will(script)
    refusal = caller.refused(a_call(timeout_seconds=0.1))
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("timeout", None, Meaning.TRANSIENT)
    assert 0.09 < caller.seconds < 1.0
    assert 90 <= refusal.duration_ms < 1000
    assert server.lines[0].was_left.wait(1.0), "the connection was left open"


def test_a_byte_every_50_ms_does_not_outlast_a_timeout_of_half_a_second(
    server: ChartServer, caller: Caller
) -> None:
    server.will(says_and_drips(LONG_ANSWER, PNG))
    assert caller.refused(a_call(timeout_seconds=0.5)).kind == "timeout"
    assert caller.seconds < 1.0


@pytest.mark.parametrize(
    "script", [says_and_holds(), says_and_drips(LONG_ANSWER, PNG)], ids=["no answer", "slow body"]
)
def test_a_call_ends_when_the_reserve_begins_even_if_its_timeout_is_later(
    server: ChartServer, caller: Caller, script: Script
) -> None:
    server.will(script)
    ends_by = datetime.now(UTC) + timedelta(seconds=0.25)
    refusal = caller.refused(a_call(timeout_seconds=60.0, ends_by=ends_by))
    assert refusal.kind == "timeout"
    assert caller.seconds < 1.0
    assert refusal.at >= ends_by - timedelta(milliseconds=50)


@pytest.mark.parametrize("seconds_left", [-3600.0, -0.001, 0.0])
def test_nothing_is_sent_when_no_time_is_left(server: ChartServer, caller: Caller, seconds_left: float) -> None:
    server.will(says(answer(200, PNG)))
    refusal = caller.refused(a_call(ends_by=datetime.now(UTC) + timedelta(seconds=seconds_left)))
    assert (refusal.kind, meaning_of(refusal)) == ("timeout", Meaning.TRANSIENT)
    assert server.connections == 0


def test_a_call_that_runs_out_of_time_does_not_disturb_those_beside_and_after_it(
    server: ChartServer, caller: Caller
) -> None:
    slow = says_and_drips(LONG_ANSWER, PNG)

    def by_account(line: Line) -> None:
        if server.asked_on(line).headers["x-api-key"] == KEY:
            slow(line)
        else:
            time.sleep(0.3)  # answers after the other call was ended
            line.send(answer(200, PNG))

    server.will(by_account)
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(caller.perform, a_call(timeout_seconds=0.2))
        rendered = pool.submit(caller.perform, a_call(account_id="acc2"))
        assert isinstance(ended.result(), ChartRefused)
        assert isinstance(rendered.result(), ChartRendered)
    assert isinstance(caller.perform(a_call(account_id="acc2")), ChartRendered)


def test_a_connection_outlives_the_deadlines_of_calls_that_are_over(server: ChartServer, caller: Caller) -> None:
    server.will(says(answer(200, PNG)))
    caller.rendered(a_call(timeout_seconds=0.1))
    time.sleep(0.15)
    caller.rendered(a_call(timeout_seconds=0.1))
    assert server.connections == 1


# No more is read than allowed


@pytest.mark.parametrize(
    ("start", "part"),
    [
        pytest.param(head(200, "Content-Length: 99999999999"), b"x" * 65536, id="with a length"),
        pytest.param(head(200, CHUNKED), chunk(b"x" * 65536), id="in chunks"),
        pytest.param(head(200, CHUNKED) + b"fffffffff\r\n", b"x" * 65536, id="in one chunk"),
        pytest.param(head(200, CLOSE) + PNG, b"x" * 65536, id="until the connection closes"),
        pytest.param(HTTP_1_0, b"x" * 65536, id="HTTP/1.0"),
    ],
)
def test_an_endless_picture_is_left_as_soon_as_it_is_too_large(
    server: ChartServer, caller: Caller, start: bytes, part: bytes
) -> None:
    server.will(says_endlessly(start, part))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("bad_answer", 200, Meaning.FINAL)
    assert "CHARTS_MAX_IMAGE_BYTES" in refusal.message
    assert caller.seconds < 2.0
    assert_was_left(server)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(head(500, "Content-Length: 99999999999"), id="an error with a length"),
        pytest.param(head(429, CLOSE), id="an error until the connection closes"),
        pytest.param(head(302, "Content-Length: 99999999999", "Location: /elsewhere"), id="a redirect"),
    ],
)
def test_of_an_endless_refusal_only_the_beginning_is_read(
    server: ChartServer, caller: Caller, start: bytes
) -> None:
    server.will(says_endlessly(start, b"so sorry " * 8192))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status) == ("answer", int(start[9:12]))
    assert caller.seconds < 2.0
    assert_was_left(server)


@pytest.mark.parametrize(
    ("start", "part"),
    [
        pytest.param(b"", b"x" * 65536, id="status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Endless: ", b"x" * 65536, id="header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X-Another: one\r\n" * 4096, id="headers"),
        pytest.param(head(200, CHUNKED), b"0" * 65536, id="length of a chunk"),
        pytest.param(head(200, CHUNKED) + b"5;", b"x" * 65536, id="extension of a chunk"),
        pytest.param(head(200, CHUNKED) + b"0\r\nX-Endless: ", b"x" * 65536, id="trailer"),
    ],
)
def test_an_answer_that_is_endless_elsewhere_is_left_too(
    server: ChartServer, caller: Caller, start: bytes, part: bytes
) -> None:
    server.will(says_endlessly(start, part))
    refusal = caller.refused()
    assert (refusal.kind, meaning_of(refusal)) == ("network", Meaning.TRANSIENT)
    assert caller.seconds < 2.0
    assert_was_left(server)


def assert_was_left(server: ChartServer) -> None:
    (line,) = server.lines
    assert line.was_left.wait(1.0), "the connection was left open"
    assert line.sent < READ_AHEAD_BYTES < ENDLESS_BYTES


# Only a PNG is a picture


def with_header(*, width: int = 8, crc: int | None = None) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, 6, 8, 0, 0, 0, 0)
    checksum = zlib.crc32(header) if crc is None else crc
    return PNG[:12] + header + struct.pack(">I", checksum) + PNG[33:]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(answer(200, gzip.compress(PNG), "Content-Encoding: gzip"), id="compressed"),
        pytest.param(answer(200, PNG, "Content-Encoding: br"), id="said to be compressed"),
        pytest.param(answer(200, gzip.compress(PNG)), id="compressed without saying so"),
        pytest.param(answer(200, b"<!doctype html><p>Down", "Content-Type: image/png"), id="HTML"),
        pytest.param(answer(200, b'{"message": "queued"}'), id="JSON"),
        pytest.param(answer(200, b"\xff\xd8\xff\xe0JFIF" + b"\0" * 99), id="a JPEG"),
        pytest.param(answer(200, b""), id="nothing"),
        pytest.param(answer(200, PNG[:8]), id="a signature only"),
        pytest.param(answer(200, PNG[:32]), id="half an IHDR"),
        pytest.param(answer(200, with_header(crc=0)), id="an IHDR with a wrong checksum"),
        pytest.param(answer(200, with_header(width=0)), id="a PNG without width"),
        pytest.param(answer(200, b"\n" + PNG), id="a PNG behind another byte"),
    ],
)
def test_an_answer_that_is_no_png_is_refused_for_good(server: ChartServer, caller: Caller, said: bytes) -> None:
    server.will(says(said))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("bad_answer", 200, Meaning.FINAL)
    assert refusal.body is None


def test_the_headers_a_png_is_tested_with_would_be_right_otherwise(server: ChartServer, caller: Caller) -> None:
    server.will(says(answer(200, with_header())))
    assert caller.rendered().image.data == PNG


# What the provider says


@pytest.mark.parametrize(
    ("status", "message", "meaning"),
    [
        (400, "no such symbol", Meaning.FINAL),
        (400, "Limit Exceeded", Meaning.LIMIT),
        (401, "who are you", Meaning.KEY_REJECTED),
        (403, "not you", Meaning.FORBIDDEN),
        (403, "daily limit exceeded", Meaning.LIMIT),
        (404, "not here", Meaning.FINAL),
        (422, "no such study", Meaning.FINAL),
        (429, "slow down", Meaning.LIMIT),
        (500, "oh no", Meaning.TRANSIENT),
        (500, "limit exceeded", Meaning.LIMIT),
        (502, "bad gateway", Meaning.TRANSIENT),
        (503, "later", Meaning.TRANSIENT),
        (504, "too late", Meaning.TRANSIENT),
        (501, "never", Meaning.FINAL),
        (201, "created", Meaning.FINAL),
        (999, "what", Meaning.FINAL),
    ],
)
def test_an_error_status_means_what_it_should_and_is_asked_for_once(
    server: ChartServer, caller: Caller, status: int, message: str, meaning: Meaning
) -> None:
    body = json.dumps({"message": message})
    server.will(says(answer(status, body.encode(), "Retry-After: 0")))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, refusal.message) == ("answer", status, message)
    assert json.loads(refusal.body or "") == {"message": message}
    assert meaning_of(refusal) is meaning
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"message": "gr\xc3\xb6\xc3\x9fer"}', "größer"),
        (b'{"error": "x"}', '{"error": "x"}'),
        (b'{"message": ["a", 1]}', '{"message": ["a", 1]}'),
        (b'["a"]', '["a"]'),
        (b"<h1>Bad\n\n   Gateway</h1>", "<h1>Bad Gateway</h1>"),
        (b"", ""),
        (b"\xff\xfe\x00\x80", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\0\N{REPLACEMENT CHARACTER}"),
        (b'{"message": "' + b"x" * 5000 + b'"}', "x" * (MAX_SAID_CHARACTERS - 1) + "…"),
        (b"x" * 5000, "x" * (MAX_SAID_CHARACTERS - 1) + "…"),
        (b"x" * 5_000_000, "x" * (MAX_SAID_CHARACTERS - 1) + "…"),
        (b"[" * 60_000, "[" * (MAX_SAID_CHARACTERS - 1) + "…"),
        (b"\\" * 60_000, "\\" * (MAX_SAID_CHARACTERS - 1) + "…"),
        (b"9" * 6000, "9" * (MAX_SAID_CHARACTERS - 1) + "…"),
    ],
    ids=[
        "UTF-8", "no message", "a message that is no text", "a list", "HTML", "nothing", "no text at all",
        "a long message", "a long text", "a very long text", "deep nesting", "backslashes", "a long number",
    ],
)  # fmt: skip
def test_the_message_of_an_error_is_what_was_said_within_bounds(
    server: ChartServer, caller: Caller, body: bytes, message: str
) -> None:
    server.will(says(answer(500, body)))
    refusal = caller.refused()
    assert (refusal.kind, refusal.message) == ("answer", message)
    assert caller.seconds < 1.0


# No answer at all


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(says_and_resets(), id="reset before the answer"),
        pytest.param(says_and_resets(b"HTTP/1.1 200 OK\r\nContent-"), id="reset in the headers"),
        pytest.param(says_and_resets(LONG_ANSWER + PNG), id="reset in the body"),
        pytest.param(says_and_resets(head(200, CHUNKED) + chunk(PNG)), id="reset between chunks"),
        pytest.param(says_and_resets(head(200, CLOSE) + PNG), id="reset in a body without a length"),
        pytest.param(says_and_resets(head(500, "Content-Length: 1000") + b"oh"), id="reset in an error"),
        pytest.param(says_and_closes(), id="closed before the answer"),
        pytest.param(says_and_closes(b"HTTP/1.1 2"), id="closed in the status line"),
        pytest.param(says_and_closes(LONG_ANSWER + PNG), id="closed before the length is reached"),
        pytest.param(says_and_closes(head(200, CHUNKED) + chunk(PNG)), id="closed before the last chunk"),
        pytest.param(says_and_closes(head(200, CHUNKED) + b"f00\r\nhello"), id="closed in a chunk"),
        pytest.param(says_and_closes(head(200, CHUNKED) + b"hello\r\n" + PNG), id="a chunk without a length"),
        pytest.param(says_and_closes(b"\x00\xff\xfe garbage \x80\r\n\r\n"), id="garbage"),
        pytest.param(says_and_closes(b"\x15\x03\x03\x00\x02\x02\x28"), id="TLS"),
        pytest.param(says_and_closes(b"SSH-2.0-OpenSSH_9.6\r\n"), id="SSH"),
        pytest.param(says_and_closes(b"HTTP/1.1 many OK\r\n\r\n"), id="a status that is no number"),
        pytest.param(says_and_closes(b"HTTP/1.1 99999 OK\r\n\r\n"), id="a status that is no status"),
        pytest.param(says_and_closes(PNG), id="a picture without HTTP"),
        pytest.param(says_and_closes(head(200, "Content-Length: 5, 6") + PNG), id="two lengths"),
    ],
)
def test_a_broken_exchange_is_a_transient_trouble_of_the_network(
    server: ChartServer, caller: Caller, script: Script
) -> None:
    server.will(script)
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("network", None, Meaning.TRANSIENT)
    assert refusal.message
    assert caller.seconds < 1.0
    assert len(server.asked) == 1, "one call is one request: each is counted on the account"


def test_a_refused_connection_is_a_transient_trouble_of_the_network(caller_of_nobody: Caller) -> None:
    refusal = caller_of_nobody.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("network", None, Meaning.TRANSIENT)
    assert caller_of_nobody.seconds < 1.0


# The key goes to the origin, and nowhere else


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["{other}/v2/tradingview/advanced-chart", "/elsewhere", "//{other_host}/"])
def test_a_redirect_is_not_followed(
    server: ChartServer, other_server: ChartServer, caller: Caller, status: int, where: str
) -> None:
    other_host = "{}:{}".format(*other_server.address)
    location = where.format(other=other_server.origin, other_host=other_host)
    server.will(says(answer(status, b"it moved", f"Location: {location}")))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("answer", status, Meaning.FINAL)
    assert len(server.asked) == 1
    assert other_server.connections == 0


@pytest.mark.parametrize(
    "location",
    [
        pytest.param("http://[", id="half an address"),
        pytest.param("http://\xff/", id="not UTF-8"),
        pytest.param(f"https://{KEY}:{KEY}@example.invalid:port/{KEY}", id="full of keys"),
        pytest.param("gopher://example.invalid/", id="another protocol"),
    ],
)
def test_a_redirect_is_not_even_looked_at(server: ChartServer, caller: Caller, location: str) -> None:
    server.will(says(answer(302, b"it moved", f"Location: {location}")))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("answer", 302, Meaning.FINAL)


def test_a_compressed_redirect_is_not_unpacked(server: ChartServer, caller: Caller) -> None:
    bomb = gzip.compress(b"\0" * 32 * 1024 * 1024, compresslevel=1)
    server.will(says(answer(302, bomb, "Location: /elsewhere", "Content-Encoding: gzip")))
    tracemalloc.start()
    refusal = caller.refused()
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (refusal.kind, refusal.http_status) == ("answer", 302)
    assert most_bytes < 8 * 1024 * 1024


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"])
def test_proxies_of_the_environment_are_ignored(
    server: ChartServer, other_server: ChartServer, caller: Caller, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(name, other_server.origin)
    server.will(says(answer(200, PNG)))
    caller.rendered()
    assert len(server.asked) == 1
    assert other_server.connections == 0


def test_passwords_of_the_environment_are_not_sent(
    server: ChartServer, caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password something\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.will(says(answer(200, PNG)))
    caller.rendered()
    assert "authorization" not in server.asked[0].headers


# The key does not come back


def php(key: str) -> str:
    return json.dumps(key).replace("/", "\\/")


def escaped(key: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04X}" for character in key) + '"'


@pytest.mark.parametrize(
    "key", [KEY, KEY.upper(), AWKWARD_KEY, LONG_KEY], ids=["key", "key in capitals", "awkward key", "long key"]
)
@pytest.mark.parametrize("quoted", [json.dumps, php, escaped], ids=["plain", "slashes escaped", "all escaped"])
@pytest.mark.parametrize(
    "body",
    [
        '{"message": %s}',
        '{"message": {"deep": [%s]}}',
        '{%s: "is wrong"}',
        '{"message": "invalid key", "key": %s}',
        "%s",
        "Invalid key %s!",
    ],
)
def test_a_key_that_is_echoed_in_an_error_does_not_come_through(
    server: ChartServer, caller: Caller, key: str, quoted: Callable[[str], str], body: str
) -> None:
    server.will(says(answer(401, (body % quoted(key)).encode())))
    refusal = caller.refused(a_call(account_id="acc2"))
    assert meaning_of(refusal) is Meaning.KEY_REJECTED


def around(limit: int, key: str) -> Sequence[int]:
    """Return the places where a key would be cut into two by this limit, or stand just before or after it."""
    return (limit - len(key), limit - len(key) + 1, limit - len(key) // 2, limit - 7, limit)


@pytest.mark.parametrize(
    "limit", [MAX_SAID_CHARACTERS, MAX_MESSAGE_CHARACTERS, MAX_BODY_CHARACTERS, MAX_ERROR_BYTES]
)
@pytest.mark.parametrize("filler", ["x", " ", "ö"], ids=["letters", "blanks", "two bytes"])
@pytest.mark.parametrize("key", [KEY, LONG_KEY], ids=["key", "long key"])
@pytest.mark.parametrize("opening", ["", '{"message": "'], ids=["text", "JSON"])
def test_no_fragment_of_a_key_survives_where_an_error_is_cut(
    server: ChartServer, caller: Caller, limit: int, filler: str, key: str, opening: str
) -> None:
    is_in_bytes = limit == MAX_ERROR_BYTES
    for place in around(limit, key):
        # bytes are counted from the beginning, characters from the beginning of the message
        fillers = (place - len(opening)) // len(filler.encode()) if is_in_bytes else place
        said = f"{opening}{filler * fillers}{key}{filler * 9}" + ('"}' if opening else "")
        server.will(says(answer(500, said.encode())))
        assert caller.refused().kind == "answer"


@pytest.mark.parametrize("shift", [0, 100, 256, 500])
def test_no_fragment_of_a_key_survives_where_an_error_is_full_of_keys(
    server: ChartServer, caller: Caller, shift: int
) -> None:
    server.will(says(answer(500, ("x" * shift + LONG_KEY * 200).encode())))
    assert caller.refused().kind == "answer"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"HTTP/1.1 {KEY} OK\r\n\r\n", id="status"),
        pytest.param(f"{KEY}\r\n\r\n", id="status line"),
        pytest.param(f"HTTP/1.1 200 {KEY}\r\nContent-Length: {KEY}, 1\r\n\r\n", id="length"),
        pytest.param(f"HTTP/1.1 200 OK\r\n{CHUNKED}\r\n\r\n{KEY}\r\n", id="length of a chunk"),
        pytest.param(f"HTTP/1.1 500 OK\r\nno header {KEY}\r\nX: {KEY}\r\n\r\n", id="no header"),
        pytest.param(f"HTTP/1.1 500 {KEY}\r\nX-Api-Key: {KEY}\r\nSet-Cookie: k={KEY}\r\n\r\n", id="headers"),
    ],
)
def test_a_key_that_is_echoed_outside_the_body_does_not_come_through(
    server: ChartServer, caller: Caller, said: str
) -> None:
    server.will(says_and_closes(said.encode()))
    caller.refused()


@pytest.mark.parametrize("key", [KEY, f"{CANARY}-acc2", KEY.upper()], ids=["its own", "another's", "in capitals"])
def test_a_picture_with_a_key_in_it_is_refused(server: ChartServer, caller: Caller, key: str) -> None:
    server.will(says(answer(200, a_png(padding=f"by {key}".encode()))))
    refusal = caller.refused()
    assert (refusal.kind, refusal.http_status, meaning_of(refusal)) == ("bad_answer", 200, Meaning.FINAL)


# Connections are used again, and a stale one does no harm


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(answer(200, PNG), id="pictures"),
        pytest.param(head(200, CHUNKED) + chunk(PNG) + chunk(b""), id="pictures in chunks"),
        pytest.param(answer(500, b'{"message": "oh no"}'), id="errors"),
        pytest.param(answer(204, b""), id="nothing"),
    ],
)
def test_one_connection_serves_one_call_after_the_other(server: ChartServer, caller: Caller, said: bytes) -> None:
    server.will(says(said))
    for _ in range(4):
        caller.perform(a_call())
    assert [asked.connection for asked in server.asked] == [1, 1, 1, 1]


def test_a_connection_that_the_server_closed_meanwhile_does_not_lose_the_call(
    server: ChartServer, caller: Caller
) -> None:
    server.will(says_and_closes(answer(200, PNG)))
    for _ in range(3):
        caller.rendered()
        time.sleep(0.05)
    assert [asked.connection for asked in server.asked] == [1, 2, 3]


@pytest.mark.parametrize("parting", [says_and_closes(), says_and_resets()], ids=["closed", "reset"])
def test_a_used_connection_that_breaks_under_the_next_request_is_a_transient_trouble(
    server: ChartServer, caller: Caller, parting: Script
) -> None:
    server.will(says(answer(200, PNG)), parting, says(answer(200, PNG)))
    caller.rendered()
    refusal = caller.refused()
    assert (refusal.kind, meaning_of(refusal)) == ("network", Meaning.TRANSIENT)
    assert caller.rendered().image.data == PNG


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(answer(200, PNG) + answer(500, b"unasked for"), id="an answer too many"),
        pytest.param(answer(204, b"") + b"more than nothing", id="a body where none may be"),
        pytest.param(answer(200, PNG + b"x" * MAX_IMAGE_BYTES), id="too much"),
        pytest.param(answer(500, b"x" * 2 * MAX_ERROR_BYTES), id="a long error"),
    ],
)
def test_what_is_left_of_one_answer_is_not_taken_for_the_next(
    server: ChartServer, caller: Caller, before: bytes
) -> None:
    server.will(says(before), says(answer(200, PNG)))
    caller.perform(a_call())
    time.sleep(0.02)
    assert caller.rendered().image.data == PNG


def test_calls_side_by_side_each_get_their_own_answer_with_their_own_key(
    server: ChartServer, caller: Caller
) -> None:
    def echo(line: Line) -> None:
        line.send(answer(200, a_png(padding=server.asked_on(line).body)))

    server.will(echo)
    calls = [
        a_call(account_id=account.id, body={"number": number, "account": account.id})
        for number in range(8)
        for account in ACCOUNTS
    ]
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(caller.perform, calls))
    keys = {account.id: account.api_key.reveal() for account in ACCOUNTS}
    for call, outcome in zip(calls, outcomes, strict=True):
        assert isinstance(outcome, ChartRendered)
        assert json.dumps(call.body).encode() in (outcome.image.data or b"")
    assert len(server.asked) == len(calls)
    assert all(asked.headers["x-api-key"] == keys[json.loads(asked.body)["account"]] for asked in server.asked)
    assert server.connections <= 8


def test_a_name_that_takes_long_to_look_up_does_not_hold_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: released.wait(60) and [])
    http = ChartImg("http://localhost:9", {"acc1": Secret("k")}, 1000, 1, SystemClock())
    started = time.monotonic()
    answer = http.ask(a_call(timeout_seconds=0.3))
    assert time.monotonic() - started < 20
    assert isinstance(answer, NoAnswer)
    assert answer.kind == "timeout"
    released.set()
    http.close()
