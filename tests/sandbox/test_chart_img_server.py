"""The Chart-IMG server: keys, limits, errors and faults, over real sockets."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
import requests
from PIL import Image

from core.charts.answers import Answer, NoAnswer
from core.secrets import Secret
from effects import CallChartApi
from interpreters.chart_api.http import PATH, ChartImg
from interpreters.clock import SystemClock
from interpreters.sandbox.chart_img import (
    BASIC,
    GARBAGE,
    PRO,
    RESET,
    ULTRA,
    WRONG_TYPE,
    ChartImgServer,
    Fault,
    SandboxAccount,
)
from interpreters.shipped import TEMPLATES
from interpreters.templates import TemplateFolder

KEYS = {"basic": "key-of-basic-Zq7w", "pro": "key-of-pro-Xy81", "ultra": "key-of-ultra-Pf03"}
ACCOUNTS = (
    SandboxAccount("basic", Secret(KEYS["basic"]), BASIC),
    SandboxAccount("pro", Secret(KEYS["pro"]), PRO),
    SandboxAccount("ultra", Secret(KEYS["ultra"]), ULTRA),
)
BODY = {
    "symbol": "BINANCE:BTCUSDT",
    "interval": "4h",
    "width": 800,
    "height": 600,
    "studies": [{"name": "Volume"}],
}


class HandClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = datetime(2025, 12, 15, 23, 59, 58, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def passes(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def server(clock: HandClock) -> Iterator[ChartImgServer]:
    with ChartImgServer(ACCOUNTS, now=clock.now) as one:
        yield one


def ask(server: ChartImgServer, account: str = "ultra", **changes: Any) -> requests.Response:
    return ask_as(server, KEYS[account], {**BODY, **changes})


def ask_as(server: ChartImgServer, key: str | None, body: Any, timeout: float = 5.0) -> requests.Response:
    headers = {} if key is None else {"x-api-key": key}
    return requests.post(server.address + PATH, json=body, headers=headers, timeout=timeout)


def said(response: requests.Response) -> tuple[int, str]:
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, response.json()["message"]


class TestCharts:
    def test_a_chart_is_a_png_of_the_size_asked_for(self, server: ChartImgServer) -> None:
        response = ask(server, width=1024, height=700)
        assert (response.status_code, response.headers["Content-Type"]) == (200, "image/png")
        with Image.open(BytesIO(response.content)) as picture:
            picture.load()
            assert (picture.format, picture.size) == ("PNG", (1024, 700))

    def test_the_same_chart_is_the_same_picture_and_another_is_another(self, server: ChartImgServer) -> None:
        assert ask(server).content == ask(server).content
        assert ask(server).content != ask(server, symbol="BINANCE:ETHUSDT").content

    def test_every_shipped_template_is_drawn_on_a_pro_account(self, server: ChartImgServer) -> None:
        names = sorted(path.stem for path in TEMPLATES.glob("*.json"))
        templates, problems = TemplateFolder(TEMPLATES).load(names)
        assert (len(templates), problems) == (5, {})
        for template in templates.values():
            assert ask(server, "pro", **template["request"]).status_code == 200

    def test_the_workers_own_client_gets_a_picture(self, server: ChartImgServer) -> None:
        client = ChartImg(server.address, {"pro": Secret(KEYS["pro"])}, 2**20, 1, SystemClock())
        answer = client.ask(a_call())
        client.close()
        assert isinstance(answer, Answer)
        assert (answer.status, answer.body[:4]) == (200, b"\x89PNG")

    def test_the_server_is_well(self, server: ChartImgServer) -> None:
        assert requests.get(server.address + "/", timeout=5).json() == {"status": "ok"}
        assert said(requests.get(server.address + PATH, timeout=5)) == (404, "Not Found")

    def test_without_pillow_the_server_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [one for one in sys.modules if one.startswith("fixtures.drawing")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(RuntimeError, match=r"pip install 'tda-workers\[drawing\]'"):
            ChartImgServer(ACCOUNTS)


def a_call(timeout_seconds: float = 5.0) -> CallChartApi:
    later = datetime.now(UTC) + timedelta(hours=1)
    return CallChartApi(
        chart_template_id="ctpl",
        account_id="pro",
        mode="real",
        replay=False,
        fixture_key=None,
        timeframe="4h",
        body=BODY,
        start_by=later,
        timeout_seconds=timeout_seconds,
        ends_by=later,
    )


class TestRefusals:
    @pytest.mark.parametrize("key", [None, "", "nobody", KEYS["pro"][:-1]])
    def test_a_key_of_nobody_is_refused(self, server: ChartImgServer, key: str | None) -> None:
        assert said(ask_as(server, key, BODY)) == (401, "Unauthorized")
        assert [one.account_id for one in server.ledger.asked()] == [None]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"symbol": "BTCUSDT"}, (400, "Invalid Symbol")),
            ({"symbol": "BINANCE:BADUSDT"}, (400, "Invalid Symbol")),
            ({"symbol": "BINANCE:DOWNUSDT"}, (500, "Something Went Wrong")),
            ({"symbol": "BINANCE:LIMITUSDT"}, (429, "Limit Exceeded")),
            ({"interval": "4 hours"}, (400, "Invalid Interval")),
            ({"studies": [{"name": "Volume"}] * 26}, (403, "Exceed Max Usage Parameter Limit (25)")),
            ({"width": 2049}, (403, "Exceed Max Usage Resolution Limit (2048x1920)")),
            ({"height": 10}, (400, "Invalid Request")),
            ({"width": "800"}, (400, "Invalid Request")),
            ({"studies": "Volume"}, (400, "Invalid Request")),
            ({"symbol": 7}, (400, "Invalid Request")),
        ],
    )
    def test_what_cannot_be_drawn_is_refused(
        self, server: ChartImgServer, changes: dict[str, Any], expected: tuple[int, str]
    ) -> None:
        assert said(ask(server, **changes)) == expected

    def test_the_plan_decides_what_is_too_much(self, server: ChartImgServer, clock: HandClock) -> None:
        four = [{"name": "Volume"}] * 4
        assert said(ask(server, "basic", studies=four)) == (403, "Exceed Max Usage Parameter Limit (3)")
        clock.passes(1)
        mixed = {"studies": four[:2], "drawings": [{"name": "Line"}] * 2}
        assert said(ask(server, "basic", **mixed)) == (403, "Exceed Max Usage Parameter Limit (3)")
        assert ask(server, "pro", studies=four).status_code == 200

    def test_what_is_no_json_is_refused(self, server: ChartImgServer) -> None:
        headers = {"x-api-key": KEYS["pro"]}
        response = requests.post(server.address + PATH, data=b"{", headers=headers, timeout=5)
        assert said(response) == (400, "Invalid Request")


class TestLimits:
    def test_more_than_the_plan_has_in_a_second_is_refused(self, server: ChartImgServer, clock: HandClock) -> None:
        assert [ask(server, "pro").status_code for _ in range(10)] == [200] * 10
        clock.passes(0.999)
        assert said(ask(server, "pro")) == (429, "Too Many Requests")
        clock.passes(0.001)
        assert ask(server, "pro").status_code == 200
        assert server.ledger.most_in_a_second("pro") == 11
        assert [one.account_id for one in server.ledger.over_limits()] == ["pro"]

    def test_any_second_counts_not_only_those_of_the_clock(self, server: ChartImgServer, clock: HandClock) -> None:
        clock.passes(0.5)
        assert ask(server, "basic").status_code == 200
        clock.passes(0.6)
        assert said(ask(server, "basic")) == (429, "Too Many Requests")
        clock.passes(0.4)
        assert ask(server, "basic").status_code == 200

    def test_side_by_side_only_as_many_as_allowed_pass(self, server: ChartImgServer) -> None:
        with ThreadPoolExecutor(16) as pool:
            statuses = sorted(one.status_code for one in pool.map(lambda _: ask(server, "pro"), range(16)))
        assert statuses == [200] * 10 + [429] * 6

    def test_the_day_is_used_up_until_midnight_utc(self, clock: HandClock) -> None:
        account = ACCOUNTS[2].limited(per_day=2)
        with ChartImgServer([account], now=clock.now) as server:
            assert [ask(server).status_code for _ in range(2)] == [200, 200]
            clock.passes(1.9)
            assert said(ask(server)) == (429, "Limit Exceeded")
            clock.passes(0.1)
            assert ask(server).status_code == 200
            days = {("ultra", date(2025, 12, 15)): 3, ("ultra", date(2025, 12, 16)): 1}
            assert server.ledger.per_day() == days
            assert server.ledger.per_day(counted_only=True) == {**days, ("ultra", date(2025, 12, 15)): 2}

    def test_a_refusal_for_the_body_counts_and_one_for_the_rate_does_not(
        self, server: ChartImgServer, clock: HandClock
    ) -> None:
        assert ask(server, "basic", symbol="?").status_code == 400
        assert ask(server, "basic").status_code == 429
        assert dict(server.ledger.per_day(counted_only=True)) == {("basic", date(2025, 12, 15)): 1}

    def test_accounts_do_not_share_limits(self, server: ChartImgServer) -> None:
        assert [ask(server, one).status_code for one in KEYS] == [200, 200, 200]

    def test_a_shorter_window_forgives_jitter(self, clock: HandClock) -> None:
        with ChartImgServer([ACCOUNTS[0]], now=clock.now, rate_window_seconds=0.9) as server:
            assert ask(server, "basic").status_code == 200
            clock.passes(0.95)
            assert ask(server, "basic").status_code == 200

    def test_a_revoked_key_counts_no_longer(self, server: ChartImgServer) -> None:
        assert ask(server, "pro").status_code == 200
        server.revoke("pro")
        assert said(ask(server, "pro")) == (401, "Unauthorized")
        assert ask(server, "ultra").status_code == 200
        assert [one.account_id for one in server.ledger.asked("pro")] == ["pro", "pro"]
        server.accounts.restore("pro")
        assert ask(server, "pro").status_code == 200

    def test_nothing_kept_shows_a_key(self, server: ChartImgServer) -> None:
        ask(server, "pro")
        ask_as(server, "key-of-a-stranger", BODY)
        shown = repr((server.ledger.asked(), ACCOUNTS, server.accounts, vars(server.ledger)))
        assert not [key for key in (*KEYS.values(), "key-of-a-stranger") if key in shown]


class TestFaults:
    def test_a_queue_of_faults_is_met_one_by_one(self, server: ChartImgServer) -> None:
        server.faults.add(Fault(status=500), Fault(status=429, message="Limit Exceeded"), Fault(status=504))
        assert [said(ask(server)) for _ in range(3)] == [
            (500, "Something Went Wrong"),
            (429, "Limit Exceeded"),
            (504, "Endpoint request timed out"),
        ]
        assert server.faults.is_spent
        assert ask(server).status_code == 200

    def test_a_fault_may_be_meant_for_some_requests_only(self, server: ChartImgServer) -> None:
        server.faults.add(Fault(status=503), times=None, matching=lambda asked: asked.account_id == "pro")
        assert [ask(server, one).status_code for one in ("ultra", "pro", "pro", "basic")] == [200, 503, 503, 200]
        server.faults.clear()
        assert ask(server, "pro").status_code == 200

    def test_garbage_calls_itself_a_picture(self, server: ChartImgServer) -> None:
        server.faults.add(GARBAGE, WRONG_TYPE)
        garbage, page = ask(server), ask(server)
        assert (garbage.status_code, garbage.headers["Content-Type"]) == (200, "image/png")
        assert not garbage.content.startswith(b"\x89PNG")
        assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html")

    def test_a_connection_is_reset(self, server: ChartImgServer) -> None:
        server.faults.add(RESET)
        with pytest.raises(requests.ConnectionError, match="reset by peer"):
            ask(server)
        assert len(server.ledger.asked("ultra")) == 1

    def test_an_answer_ends_too_early(self, server: ChartImgServer) -> None:
        server.faults.add(Fault(cut_at=100))
        with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
            ask(server)

    def test_an_answer_comes_too_late(self, server: ChartImgServer) -> None:
        server.faults.add(Fault(delay_seconds=30))
        with pytest.raises(requests.ReadTimeout):
            ask_as(server, KEYS["pro"], BODY, timeout=0.1)

    def test_an_answer_drips_past_the_workers_deadline(self, server: ChartImgServer) -> None:
        server.faults.add(Fault(drip_seconds=0.25))
        client = ChartImg(server.address, {"pro": Secret(KEYS["pro"])}, 2**20, 1, SystemClock())
        begun = time.monotonic()
        answer = client.ask(a_call(timeout_seconds=0.3))
        client.close()
        assert isinstance(answer, NoAnswer)
        assert answer.kind == "timeout"
        assert time.monotonic() - begun < 20
