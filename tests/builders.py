"""Builders of the documents and values that tests start from: valid, and changed only where a test says so."""

from __future__ import annotations

import copy
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from core.charts.accounts import Account
from core.charts.settings import LOCAL_DEFAULTS, ChartConfiguration, parse_configuration
from core.charts.state import Inputs, chart_inputs
from core.secrets import Secret
from core.settings import Given

NOW = datetime(2025, 12, 15, 10, 25, 30, tzinfo=UTC)
RUN_ID = "20251215-102530_BTCUSDT_k3f7a"
RUN_PATH = f"flow_runs/{RUN_ID}"
STEP_ID = "charts:4h:all"
TEMPLATE_IDS = ("ctpl_price_ma1226_vol_v1", "ctpl_price_psar_adi_v1", "ctpl_price_vpvr_obv_v1")
CANARY = "canary-key-4f1b9c7e2d"
"""Planted as an API key; it must appear nowhere."""


def a_step(**changes: Any) -> dict[str, Any]:
    """Return a READY CHART_EXPORT step; a change to None takes the field away."""
    step = {
        "stepType": "CHART_EXPORT",
        "status": "READY",
        "timeframe": "4h",
        "createdAt": "2025-12-15T10:25:30Z",
        "dependsOn": [],
        "inputs": an_input(TEMPLATE_IDS),
        "outputs": {},
        **changes,
    }
    return {key: value for key, value in step.items() if value is not None}


def a_plain_step(status: str, depends_on: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    """Return a step of which only the orchestrator's business is said; a change to None takes the field away."""
    return a_step(status=status, **{"dependsOn": list(depends_on), "inputs": {}, **changes})


def a_claim(attempt: int = 1, lease_until: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return the outputs of a step that was claimed; without an end it has no lease."""
    claim = {"token": "theirs", "attempt": attempt, "leaseUntil": lease_until, **changes}
    return {"execution": {"claim": {key: value for key, value in claim.items() if value is not None}}}


def an_input(chart_template_ids: Sequence[str], min_images: int = 1) -> dict[str, Any]:
    return {"minImages": min_images, "requests": [{"chartTemplateId": one} for one in chart_template_ids]}


def a_flow_run(steps: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a flow_run with these steps (default: one READY chart step)."""
    return copy.deepcopy(
        {
            "schemaVersion": 1,
            "runId": RUN_ID,
            "flowKey": "scheduled_month_week_report_v1",
            "status": "RUNNING",
            "createdAt": "2025-12-15T10:25:30Z",
            "trigger": {"type": "SCHEDULER", "source": "test"},
            "scope": {"symbol": "BTCUSDT"},
            "steps": {STEP_ID: a_step()} if steps is None else dict(steps),
            **changes,
        }
    )


def a_template(chart_template_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": chart_template_id,
        "description": f"about {chart_template_id}",
        "chartImgSymbolTemplate": "BINANCE:{symbol}",
        "request": {"height": 600, "style": "candle", "studies": [{"name": "Volume"}]},
        **changes,
    }


def templates(*chart_template_ids: str) -> dict[str, dict[str, Any]]:
    return {one: a_template(one) for one in chart_template_ids or TEMPLATE_IDS}


def an_account(account_id: str, **changes: Any) -> Account:
    return Account(id=account_id, api_key=Secret(f"{CANARY}-{account_id}"), **changes)


def a_configuration(accounts: Sequence[Account] = (), **variables: str) -> ChartConfiguration:
    """Return a configuration in mock mode, unless a variable says otherwise."""
    given = {name: Given(text, name) for name, text in {"CHARTS_API_MODE": "mock", **variables}.items()}
    local = parse_configuration(given, LOCAL_DEFAULTS).unwrap()
    return ChartConfiguration(settings=local.settings, accounts=tuple(accounts) or local.accounts)


def real_configuration(*account_ids: str, **variables: str) -> ChartConfiguration:
    """Return a configuration in real mode with these accounts (default: acc1)."""
    accounts = [an_account(one) for one in account_ids or ("acc1",)]
    mock = a_configuration(accounts, **variables)
    return replace(mock, settings=replace(mock.settings, mode="real"))


def some_inputs(
    configuration: ChartConfiguration | None = None, flow_run: Mapping[str, Any] | None = None, **changes: Any
) -> Inputs:
    return chart_inputs(
        configuration or a_configuration(),
        flow_run or a_flow_run(),
        RUN_PATH,
        changes.pop("wanted_step", None),
        now=changes.pop("now", NOW),
        token=changes.pop("token", "token-1"),
        **changes,
    )


def a_png(width: int = 8, height: int = 6, padding: bytes = b"") -> bytes:
    """Return a small, whole PNG; the padding makes its bytes differ."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x7f" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"tEXt", b"pad\0" + padding) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")
