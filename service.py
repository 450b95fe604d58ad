"""Cloud Run: CloudEvents in, steps done.

Owns the entry points for functions-framework and what they answer: 2xx for everything settled, also a FAILED step or an event
that makes no sense; 503 only where redelivery can help and nothing was claimed. Must not decide anything about steps.

    functions-framework --source service.py --target worker_chart_export --signature-type cloudevent
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn

import flask
import functions_framework
from returns.result import Failure

from core.charts.settings import CLOUD_DEFAULTS, parse_configuration
from core.charts.settings import VARIABLES as CHART_VARIABLES
from core.charts.step import STEP_TYPE
from core.cloud import VARIABLES as CLOUD_VARIABLES
from core.cloud import CloudSettings, parse_cloud_settings
from core.events import LogEvent
from core.flow.flow_run import flow_run_path
from core.flow.hints import Hint, Ignored
from core.flow.selection import NothingToDo, select_step
from core.problems import collect
from core.settings import Given
from effects import Document
from interpreters.chart_export import ChartExport
from interpreters.clock import SystemClock
from interpreters.cloud import Cloud
from interpreters.firestore_events import read_event
from interpreters.telemetry import JsonLog

SERVICE = "worker-chart-export"
_CLOCK = SystemClock()


class ChartWorker:
    """The chart worker of this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Check the configuration, everything at once; make no client yet."""
        given = {
            name: Given(environment[name], name)
            for name in (*CHART_VARIABLES, *CLOUD_VARIABLES)
            if name in environment
        }
        charts, cloud = parse_configuration(given, CLOUD_DEFAULTS), parse_cloud_settings(given)
        env = environment.get("ENV") or CLOUD_DEFAULTS["ENV"]
        if isinstance(charts, Failure) or isinstance(cloud, Failure):
            _refuse_to_start(env, [str(one) for one in collect(charts, cloud)])
        configuration = charts.unwrap()
        self._cloud: CloudSettings = cloud.unwrap()
        self._export: ChartExport = Cloud(self._cloud, _CLOCK).chart_export(configuration)
        self._log = JsonLog(sys.stderr, _CLOCK, configuration.settings.log_level, {"service": SERVICE, "env": env})

    def handle(self, event: Any) -> None:
        """Do what the event asks for, if anything."""
        log = self._log.bind(eventId=event.get("id"))
        log.write(
            LogEvent(
                "cloud_event_received", f"received {event.get('type')}", fields={"eventType": event.get("type")}
            )
        )
        hint = read_event(event.get("subject"), event.data, self._cloud.flow_runs_collection)
        if isinstance(hint, Ignored):
            log.write(LogEvent("cloud_event_ignored", f"ignored: {hint.reason}", fields={"reason": hint.reason}))
            return
        self._handle_hint(hint, log.bind(runId=hint.run_id))

    def _handle_hint(self, hint: Hint, log: JsonLog) -> None:
        document = hint.document or self._read(hint.run_id, log)
        if document is None:
            _noop(log, "flow_run_not_found")
            return
        log = log.bind(flowKey=document.get("flowKey"))
        log.write(LogEvent("cloud_event_parsed", f"flow_run {hint.run_id}"))
        step_id = select_step(document, STEP_TYPE)
        if isinstance(step_id, NothingToDo):
            _noop(log, step_id.reason)
            return
        self._run({**document, "runId": hint.run_id}, log.bind(stepId=step_id))

    def _read(self, run_id: str, log: JsonLog) -> Document | None:
        """Read the document of an event that came without one."""
        path = flow_run_path(run_id, self._cloud.flow_runs_collection)
        try:
            return self._export.interpreter.documents.read((path,))[path]
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was claimed
            _ask_again(log, type(error).__name__)

    def _run(self, document: Document, log: JsonLog) -> None:
        result = self._export.run(document, None, log)
        if result.is_claim_unknown:
            _ask_again(log, "claim_failed")
        status = {"SUCCEEDED": "ok", "FAILED": "failed", "NOOP": "noop"}[result.status]
        fields = {"status": status, "reason": result.noop_reason}
        log.write(LogEvent("cloud_event_finished", f"finished: {status}", fields=fields))


def _noop(log: JsonLog, reason: str) -> None:
    log.write(LogEvent("cloud_event_noop", f"nothing to do: {reason}", fields={"reason": reason}))


def _ask_again(log: JsonLog, reason: str) -> NoReturn:
    log.write(
        LogEvent(
            "cloud_event_finished", f"redelivery wanted: {reason}", "ERROR", {"status": "retry", "reason": reason}
        )
    )
    flask.abort(503)


def _refuse_to_start(env: str, problems: list[str]) -> NoReturn:
    event = LogEvent("config_error", "; ".join(problems), "ERROR", {"problems": problems})
    JsonLog(sys.stderr, _CLOCK, context={"service": SERVICE, "env": env}).write(event)
    sys.exit(2)


@cache
def _chart_worker() -> ChartWorker:
    return ChartWorker(os.environ)


@functions_framework.cloud_event
def worker_chart_export(event: Any) -> None:
    """Handle a change of a flow_run: claim and do its first READY CHART_EXPORT step."""
    _chart_worker().handle(event)


_WORKERS = {"worker_chart_export": _chart_worker}


def _check_target() -> None:
    """Check the configuration of the function that this process serves, and of no other, before it serves."""
    target = os.environ.get("FUNCTION_TARGET") or (flask.current_app.name if flask.has_app_context() else "")
    if target in _WORKERS:
        _WORKERS[target]()


_check_target()
