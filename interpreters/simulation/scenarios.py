"""What a simulated run begins with: a flow_run, accounts and their usage, stored objects, prompts, the time of day.

Owns the shapes, and how a seed chooses one. Documents are shared between runs and never changed in place. Must not know what goes
wrong, nor what must hold.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from core.charts.accounts import Account
from core.charts.settings import CLOUD_DEFAULTS as CHART_DEFAULTS
from core.charts.settings import ChartConfiguration, parse_configuration
from core.charts.step import STEP_TYPE as CHART_EXPORT
from core.charts.usage import USAGE_COLLECTION, usage_path
from core.flow.flow_run import flow_run_path
from core.flow.leases import LEASE_MARGIN_SECONDS
from core.reports.references import STEP_TYPE as LLM_REPORT
from core.reports.registry import schema_sha256
from core.reports.settings import CLOUD_DEFAULTS as REPORT_DEFAULTS
from core.reports.settings import ReportConfiguration, parse_report_configuration
from core.secrets import Secret
from core.settings import Given
from effects import Document
from effects.moments import rfc3339, utc_day
from interpreters.simulation.chance import choose, draw

Shape = Literal["charts", "report", "flow"]
SHAPES: tuple[Shape, ...] = ("charts", "report", "flow")
Kind = Literal["charts", "reports", "orchestrator", "given"]
KINDS: tuple[Kind, ...] = ("charts", "reports", "orchestrator", "given")

RUN_ID = "20260101-120000_BTCUSDT_sim"
RUN_PATH = flow_run_path(RUN_ID)
BUCKET = "simulated"
GIVEN_TYPE = "OHLCV_EXPORT"
GIVEN_FILE = "candles.json"
CANDLES_ID, CHARTS_ID, REPORT_ID = "candles", "charts", "report"
TEMPLATE_IDS = ("ctpl_one_v1", "ctpl_two_v1")
PROMPT_ID, SCHEMA_ID = "llm_prompt_4h_report_v1_0", "llm_report_output_v1"
MAX_ATTEMPTS = 3
"""Claims of one step, and calls of one chart that end in a transient failure."""
INVOCATION_SECONDS, RESERVE_SECONDS, CALL_SECONDS = 60, 12, 20
LEASE_SECONDS = INVOCATION_SECONDS + LEASE_MARGIN_SECONDS

CHART_KEY, MODEL_KEY = "canary-chart-key", "canary-model-key"
PROMPT_TEXT = "canary prompt: you are an analyst of markets"
CANDIDATE_TEXT = "canary candidate: the market goes up"
TEXTS = (CHART_KEY, MODEL_KEY, PROMPT_TEXT, CANDIDATE_TEXT)
"""What must stay in its place."""


class Choices(NamedTuple):
    """What a seed chooses."""

    shape: Shape
    is_promoted: bool
    """The first step is READY; else the orchestrator has to make it so."""
    charts: int
    min_images: int
    accounts: int
    daily_limit: int
    used: int
    """Calls that the first account has made today, before the run."""
    used_yesterday: bool
    """They were made the day before, and do not count."""
    is_late: bool
    """The run begins half a minute before midnight, UTC."""
    is_told: bool
    """The orchestrator hears of changes; else only the reaper looks after the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything a run begins with."""

    choices: Choices
    start: datetime
    documents: Mapping[str, Document]
    objects: Mapping[str, bytes]
    charts: ChartConfiguration
    reports: ReportConfiguration
    kinds: tuple[Kind, ...]
    """Who hears of changes."""


_WEIGHTS: tuple[Shape, ...] = (*("charts",) * 11, *("report",) * 4, "flow")


def choices_of(seed: int, shape: Shape | None = None) -> Choices:
    """Return what the seed chooses; the shape may be given."""
    bits = draw(seed, -2, 0)
    charts = 1 + (bits >> 4 & 3 == 0)
    daily_limit = 1 + choose(bits >> 16, 4)
    return Choices(
        shape=shape or _WEIGHTS[choose(bits >> 32, len(_WEIGHTS))],
        is_promoted=bool(bits & 1),
        charts=charts,
        min_images=1 + (bits >> 6 & 1) * (charts - 1),
        accounts=1 + (bits >> 7 & 1),
        daily_limit=daily_limit,
        used=choose(bits >> 48, daily_limit + 1) if bits >> 8 & 1 else 0,
        used_yesterday=bool(bits >> 9 & 1),
        is_late=bits >> 10 & 3 == 0,
        is_told=bits >> 12 & 7 != 0,
    )


PLAIN = Choices(
    shape="charts",
    is_promoted=True,
    charts=1,
    min_images=1,
    accounts=1,
    daily_limit=4,
    used=0,
    used_yesterday=False,
    is_late=False,
    is_told=False,
)
"""The smallest run of a chart step."""


@lru_cache(maxsize=4096)
def scenario_of(choices: Choices) -> Scenario:
    """Return the scenario; the same choices share one."""
    start = (
        datetime(2026, 1, 1, 23, 59, 30, tzinfo=UTC) if choices.is_late else datetime(2026, 1, 1, 12, tzinfo=UTC)
    )
    steps, kinds = _steps(choices)
    flow_run = {
        "schemaVersion": 1,
        "runId": RUN_ID,
        "flowKey": "simulated_v1",
        "status": "RUNNING" if choices.is_promoted else "PENDING",
        "createdAt": rfc3339(start),
        "trigger": {"type": "SYSTEM", "source": "simulation"},
        "scope": {"symbol": "BTCUSDT"},
        "steps": steps,
    }
    return Scenario(
        choices=choices,
        start=start,
        documents={RUN_PATH: flow_run, **_usage(choices, start)},
        objects=_OBJECTS if choices.shape == "report" else {},
        charts=_charts(choices),
        reports=_REPORTS,
        kinds=(*kinds, "orchestrator") if choices.is_told else kinds,
    )


def _steps(choices: Choices) -> tuple[dict[str, Any], tuple[Kind, ...]]:
    first = "READY" if choices.is_promoted else "PENDING"
    if choices.shape == "charts":
        return {CHARTS_ID: _chart_step(choices, first, ())}, ("charts",)
    if choices.shape == "report":
        done = {
            CANDLES_ID: _step(GIVEN_TYPE, "SUCCEEDED", outputs={"gcs_uri": _uri(_CANDLES)}),
            CHARTS_ID: _step(CHART_EXPORT, "SUCCEEDED", outputs={"outputsManifestGcsUri": _uri(_MANIFEST)}),
        }
        return {**done, REPORT_ID: _report_step(first)}, ("reports",)
    return {
        CANDLES_ID: _step(GIVEN_TYPE, first),
        CHARTS_ID: _chart_step(choices, "PENDING", (CANDLES_ID,)),
        REPORT_ID: _report_step("PENDING"),
    }, ("charts", "reports", "given")


def _step(step_type: str, status: str, **more: Any) -> dict[str, Any]:
    return {"stepType": step_type, "status": status, "timeframe": "4h", "dependsOn": [], "outputs": {}, **more}


def _chart_step(choices: Choices, status: str, depends_on: tuple[str, ...]) -> dict[str, Any]:
    requests = [{"chartTemplateId": one} for one in TEMPLATE_IDS[: choices.charts]]
    inputs = {"minImages": choices.min_images, "requests": requests}
    return _step(CHART_EXPORT, status, dependsOn=list(depends_on), inputs=inputs)


def _report_step(status: str) -> dict[str, Any]:
    profile = {
        "modelName": "gemini-2.5-pro",
        "responseMimeType": "application/json",
        "structuredOutput": {"schemaId": SCHEMA_ID, "kind": "LLM_REPORT_OUTPUT"},
    }
    inputs = {
        "llm": {"promptId": PROMPT_ID, "llmProfile": profile},
        "ohlcvStepId": CANDLES_ID,
        "chartsManifestStepId": CHARTS_ID,
    }
    return _step(LLM_REPORT, status, dependsOn=[CANDLES_ID, CHARTS_ID], inputs=inputs)


def _usage(choices: Choices, start: datetime) -> dict[str, Document]:
    day = utc_day(start) - timedelta(days=choices.used_yesterday)
    usage = {"usageToday": choices.used, "windowStart": rfc3339(day)}
    return {usage_path(USAGE_COLLECTION, "acc1"): usage} if choices.used else {}


def _charts(choices: Choices) -> ChartConfiguration:
    texts = {
        "CHARTS_BUCKET": BUCKET,
        "CHART_IMG_DAILY_LIMIT": str(choices.daily_limit),
        "CHART_IMG_TIMEOUT_SECONDS": str(CALL_SECONDS),
        "CHART_IMG_ACCOUNTS_JSON": json.dumps([{"id": "acc1", "apiKey": "replaced-below"}]),
        "CHARTS_MAX_ATTEMPTS": str(MAX_ATTEMPTS),
        **_TIMES,
    }
    parsed = parse_configuration(_given(texts), CHART_DEFAULTS).unwrap()
    accounts = tuple(
        Account(id=f"acc{number}", api_key=Secret(f"{CHART_KEY}-{number}"))
        for number in range(1, choices.accounts + 1)
    )
    return ChartConfiguration(settings=parsed.settings, accounts=accounts)


def _given(texts: Mapping[str, str]) -> dict[str, Given]:
    return {name: Given(text, name) for name, text in texts.items()}


_TIMES = {
    "INVOCATION_TIMEOUT_SECONDS": str(INVOCATION_SECONDS),
    "FINALIZE_BUDGET_SECONDS": str(RESERVE_SECONDS),
}
_REPORTS = parse_report_configuration(
    _given(
        {
            "ARTIFACTS_BUCKET": BUCKET,
            "GEMINI_API_KEY": MODEL_KEY,
            "GEMINI_TIMEOUT_SECONDS": str(CALL_SECONDS),
            **_TIMES,
        }
    ),
    REPORT_DEFAULTS,
).unwrap()


# Things that are there.


@lru_cache(maxsize=256)
def picture(text: str) -> bytes:
    """Return a small, whole PNG that says this."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"tEXt", b"of\0" + text.encode()) + chunk(b"IDAT", zlib.compress(b"\0\x7f"))
    return b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b"")


def template(chart_template_id: str) -> Document:
    """Return a chart template."""
    return {
        "id": chart_template_id,
        "description": f"about {chart_template_id}",
        "chartImgSymbolTemplate": "BINANCE:{symbol}",
        "request": {"style": "candle", "studies": []},
    }


TEMPLATES = {one: template(one) for one in TEMPLATE_IDS}
CANDLES = b'{"symbol": "BTCUSDT", "candles": [[1, 2, 3, 4, 5]]}'
PROMPT = json.dumps({"schemaVersion": 1, "systemInstruction": PROMPT_TEXT, "userPrompt": PROMPT_TEXT}).encode()
_JSON_SCHEMA = {
    "type": "object",
    "required": ["summary", "details"],
    "properties": {"summary": {"type": "object", "required": ["markdown"]}},
}
SCHEMA = json.dumps(
    {
        "schemaId": SCHEMA_ID,
        "kind": "LLM_REPORT_OUTPUT",
        "jsonSchema": _JSON_SCHEMA,
        "sha256": schema_sha256(_JSON_SCHEMA),
    }
).encode()


def _uri(name: str) -> str:
    return f"gs://{BUCKET}/{name}"


_CANDLES, _MANIFEST, _PICTURE = "before/candles.json", "before/manifest.json", "before/one.png"
GIVEN_MANIFEST = _uri(_MANIFEST)
"""What a report builds on, where no charts are drawn in the run itself."""
_OBJECTS = {
    _uri(_CANDLES): CANDLES,
    _uri(_PICTURE): picture("before"),
    _uri(_MANIFEST): json.dumps(
        {
            "schemaVersion": 1,
            "runId": RUN_ID,
            "stepId": CHARTS_ID,
            "createdAt": "2026-01-01T11:00:00Z",
            "symbol": "BTCUSDT",
            "timeframe": "4h",
            "minImages": 1,
            "requested": [{"chartTemplateId": TEMPLATE_IDS[0]}],
            "items": [
                {
                    "chartTemplateId": TEMPLATE_IDS[0],
                    "kind": "about one",
                    "generatedAt": "2026-01-01T11:00:00Z",
                    "png_gcs_uri": _uri(_PICTURE),
                }
            ],
        }
    ).encode(),
}
