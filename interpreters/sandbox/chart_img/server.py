"""The Chart-IMG server.

Owns the way of a request: key, limits, faults, chart. Must not know how any of them is decided.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from interpreters.chart_api.http import PATH
from interpreters.sandbox.chart_img.accounts import Accounts, SandboxAccount
from interpreters.sandbox.chart_img.checking import check_chart
from interpreters.sandbox.chart_img.faults import FaultScript
from interpreters.sandbox.chart_img.ledger import Ledger
from interpreters.sandbox.chart_img.pictures import check_drawing, picture_of
from interpreters.sandbox.chart_img.refusals import NOT_FOUND, UNAUTHORIZED
from interpreters.sandbox.http_server import HOST, Dropped, HttpServer, Reply, Request


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ChartImgServer(HttpServer):
    """Chart-IMG's advanced chart, for some accounts; `CHART_IMG_BASE_URL` is its address."""

    def __init__(
        self,
        accounts: Iterable[SandboxAccount],
        port: int = 0,
        host: str = HOST,
        now: Callable[[], datetime] = _utc_now,
        rate_window_seconds: float = 1.0,
    ) -> None:
        """Serve these accounts by that clock; a shorter window than a second forgives the network's jitter."""
        check_drawing()
        self.accounts = Accounts(accounts)
        self.ledger = Ledger(now, rate_window_seconds)
        self.faults = FaultScript()
        super().__init__(self._answer, port, host)

    def revoke(self, account_id: str) -> None:
        """Let an account's key count no longer."""
        self.accounts.revoke(account_id)

    def _answer(self, request: Request) -> Reply | Dropped:
        if (request.method, request.path) == ("POST", PATH):
            return self._chart(request)
        if (request.method, request.path) == ("GET", "/"):
            return Reply(200, b'{"status": "ok"}', "application/json")
        return NOT_FOUND.reply()

    def _chart(self, request: Request) -> Reply | Dropped:
        account, body = self.accounts.find(request.header("x-api-key")), _parse(request.body)
        if account is None:
            self.ledger.enter(None, None, body, UNAUTHORIZED)
            return UNAUTHORIZED.reply()
        refused = UNAUTHORIZED if self.accounts.is_revoked(account.id) else None
        asked = self.ledger.enter(account.id, account.plan, body, refused)
        if asked.refused is not None:
            return asked.refused.reply()
        fault = self.faults.take(asked)
        if fault is None:
            return self._drawn(body, account)
        self.pause(fault.delay_seconds)
        return fault.bend(lambda: self._drawn(body, account))

    def _drawn(self, body: Any, account: SandboxAccount) -> Reply:
        refused = check_chart(body, account.plan)
        return Reply(200, picture_of(body), "image/png") if refused is None else refused.reply()


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
