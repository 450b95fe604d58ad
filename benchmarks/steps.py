"""The chart steps that benchmarks run: their documents, and the worker on either store.

Owns putting them together as the service and the command line do. Must not know what is measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from benchmarks.servers import BUCKET, Addresses
from core.charts.settings import CLOUD_DEFAULTS, ChartConfiguration, parse_configuration
from core.cloud import Concurrency, parse_cloud_settings
from core.settings import Given
from interpreters.chart_export import ChartExport
from interpreters.clock import SystemClock
from interpreters.cloud import Cloud
from interpreters.embedded import StateDirectory
from interpreters.shipped import CHART_API_FIXTURES, TEMPLATES
from interpreters.telemetry import JsonLog
from interpreters.templates import TemplateFolder

STEP_ID = "charts:4h:all"
PARALLEL = 20
FAST_ACCOUNTS = 4
FAST_RATE, DAILY_LIMIT = 1_000, 1_000_000
"""Calls a second and a day of an account that makes nobody wait."""


def run_id(number: int) -> str:
    """Return the id of a run."""
    return f"20251215-{number // 100_000:06}_BTCUSDT_n{number % 100_000:05}"


def template_ids(count: int) -> list[str]:
    """Return the ids of so many templates."""
    return [f"ctpl_benchmark_{number:02}_v1" for number in range(count)]


def templates(count: int) -> dict[str, dict[str, Any]]:
    """Return so many templates, all alike but for their ids."""
    folder = TemplateFolder(TEMPLATES)
    one = folder.load(folder.ids()[:1])[0].popitem()[1]
    return {template_id: {**one, "id": template_id} for template_id in template_ids(count)}


def a_flow_run(number: int, charts: int) -> dict[str, Any]:
    """Return a flow_run with one READY step of so many charts."""
    step = {
        "stepType": "CHART_EXPORT",
        "status": "READY",
        "timeframe": "4h",
        "createdAt": "2025-12-15T10:25:30Z",
        "dependsOn": [],
        "inputs": {"minImages": charts, "requests": [{"chartTemplateId": one} for one in template_ids(charts)]},
        "outputs": {},
    }
    return {
        "schemaVersion": 1,
        "runId": run_id(number),
        "flowKey": "scheduled_month_week_report_v1",
        "status": "RUNNING",
        "createdAt": "2025-12-15T10:25:30Z",
        "trigger": {"type": "SCHEDULER", "source": "benchmark"},
        "scope": {"symbol": "BTCUSDT"},
        "steps": {STEP_ID: step},
    }


def configuration(
    chart_url: str, accounts: int = FAST_ACCOUNTS, rate: float = FAST_RATE, parallel: int = PARALLEL
) -> ChartConfiguration:
    """Return the configuration of a worker that may make so many calls a second with each account."""
    rows = [
        {"id": f"acc{one}", "apiKey": f"benchmark-key-{one}", "dailyLimit": DAILY_LIMIT, "requestsPerSecond": rate}
        for one in range(accounts)
    ]
    variables = {
        "CHARTS_BUCKET": BUCKET,
        "CHART_IMG_BASE_URL": chart_url,
        "CHART_IMG_ACCOUNTS_JSON": json.dumps(rows),
        "CHARTS_MAX_PARALLEL": str(parallel),
    }
    return parse_configuration(_given(variables), CLOUD_DEFAULTS).unwrap()


def cloud(addresses: Addresses, concurrency: Concurrency) -> Cloud:
    """Return the project that the servers stand for."""
    os.environ["FIRESTORE_EMULATOR_HOST"] = addresses.firestore
    os.environ["STORAGE_EMULATOR_HOST"] = addresses.storage
    variables = {"GOOGLE_CLOUD_PROJECT": "benchmark", "FIRESTORE_CONCURRENCY": concurrency}
    return Cloud(parse_cloud_settings(_given(variables)).unwrap(), SystemClock())


def state_directory(folder: Path, charts: int) -> tuple[StateDirectory, Path]:
    """Return a state directory, and a folder with so many templates, which whoever comes first writes."""
    where = folder / "templates"
    if not where.exists():
        where.mkdir(parents=True)
        for name, template in templates(charts).items():
            (where / f"{name}.json").write_text(json.dumps(template), "utf-8")
    return StateDirectory(folder / "state", SystemClock()), where


def embedded_export(state: StateDirectory, where: Path, chosen: ChartConfiguration) -> ChartExport:
    """Return a chart export on a state directory."""
    return state.chart_export(chosen, where, CHART_API_FIXTURES)


def run(export: ChartExport, flow_run: Mapping[str, Any], log: JsonLog) -> None:
    """Run the flow_run's step; it must succeed."""
    result = export.run(flow_run, None, log)
    if result.status != "SUCCEEDED":
        message = f"the step did not succeed: {result.error or result.noop_reason}"
        raise RuntimeError(message)


def a_log(stream: TextIO) -> JsonLog:
    """Return a log of everything a service logs."""
    return JsonLog(stream, SystemClock(), "INFO", {"service": "benchmark", "env": "benchmark"})


def _given(variables: Mapping[str, str]) -> dict[str, Given]:
    return {name: Given(text, name) for name, text in variables.items()}
