"""Cloud Run: CloudEvents in, steps done and flow_runs moved on.

Owns the entry points for functions-framework and what they answer: 2xx for everything settled, also a FAILED step or an event
that makes no sense; 503 only where redelivery can help and nothing was claimed. Must not decide anything about steps.

    functions-framework --source service.py --target worker_chart_export  --signature-type cloudevent
    functions-framework --source service.py --target worker_llm_client    --signature-type cloudevent
    functions-framework --source service.py --target advance_flow         --signature-type cloudevent
    functions-framework --source service.py --target reap_abandoned_steps --signature-type http
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import flask
import functions_framework
from returns.result import Failure, Result

from core.charts.settings import CLOUD_DEFAULTS as CHART_DEFAULTS
from core.charts.settings import VARIABLES as CHART_VARIABLES
from core.charts.settings import parse_configuration
from core.charts.step import STEP_TYPE as CHART_EXPORT
from core.cloud import VARIABLES as CLOUD_VARIABLES
from core.cloud import CloudSettings, parse_cloud_settings
from core.events import LogEvent, Severity
from core.flow.flow_run import flow_run_path
from core.flow.hints import Hint, Ignored
from core.flow.selection import TAKEN, NothingToDo, select_step
from core.flow.settings import CLOUD_DEFAULTS as FLOW_DEFAULTS
from core.flow.settings import VARIABLES as FLOW_VARIABLES
from core.flow.settings import parse_flow_settings
from core.journal.settings import VARIABLES as JOURNAL_VARIABLES
from core.journal.settings import parse_journal_settings
from core.problems import Problems, collect
from core.reports.selection import Recover, select_report
from core.reports.settings import CLOUD_DEFAULTS as REPORT_DEFAULTS
from core.reports.settings import VARIABLES as REPORT_VARIABLES
from core.reports.settings import parse_report_configuration
from core.settings import Given, whole_number
from effects import Document
from interpreters.clock import SystemClock
from interpreters.firestore_events import read_event
from interpreters.once import Once
from interpreters.telemetry import JsonLog

if TYPE_CHECKING:
    from core.charts.state import StepResult
    from core.journal.settings import JournalSettings
    from core.reports.state import ReportResult
    from interpreters.cloud import Cloud
    from interpreters.ports import DocumentStore

_CLOCK = SystemClock()
_ASSUMED_LEASE = whole_number(0, 10**9)
"""Seconds: some thirty years are as good as forever, and can still be counted with."""


class EventService(ABC):
    """Whoever hears of changes of flow_runs: reads the event, says what became of it."""

    name: str
    """The service that log entries are of."""
    log: JsonLog
    cloud_settings: CloudSettings
    statuses: frozenset[str] | None = None
    """Of which steps of an event the service is told: all of them, or those in some statuses."""

    def handle(self, event: Any) -> None:
        """Do what the event asks for, if anything."""
        log = self.log.bind(eventId=event.get("id"))
        log.write(
            LogEvent(
                "cloud_event_received", f"received {event.get('type')}", fields={"eventType": event.get("type")}
            )
        )
        hint = read_event(
            event.get("subject"), event.data, self.cloud_settings.flow_runs_collection, self.statuses
        )
        if isinstance(hint, Ignored):
            log.write(LogEvent("cloud_event_ignored", f"ignored: {hint.reason}", fields={"reason": hint.reason}))
            return
        self.handle_hint(hint, log.bind(runId=hint.run_id))

    @abstractmethod
    def handle_hint(self, hint: Hint, log: JsonLog) -> None:
        """Do what a change of this flow_run asks for."""


class StepWorker(EventService):
    """A worker of this process: from an event to a run of its program, if there is anything to do."""

    @property
    @abstractmethod
    def documents(self) -> DocumentStore:
        """Return where flow_runs are."""

    def handle_hint(self, hint: Hint, log: JsonLog) -> None:
        """Do what the event asks for, if it says that there is something to do."""
        document = hint.document or self._read(hint.run_id, log)
        if document is None:
            _noop(log, "flow_run_not_found")
            return
        log = log.bind(flowKey=document.get("flowKey"))
        log.write(LogEvent("cloud_event_parsed", f"flow_run {hint.run_id}"))
        chosen = self.choose(document)
        if isinstance(chosen, NothingToDo):
            _noop(log, chosen.reason)
            return
        result = self.run({**document, "runId": hint.run_id}, log.bind(stepId=chosen) if chosen else log)
        if result.is_claim_unknown:
            _ask_again(log, "claim_failed")
        _finished(log, {"SUCCEEDED": "ok", "FAILED": "failed", "NOOP": "noop"}[result.status], result.noop_reason)

    @abstractmethod
    def choose(self, flow_run: Document) -> str | NothingToDo:
        """Return the step to take, empty where that is not known yet; or why there is nothing to do."""

    @abstractmethod
    def run(self, flow_run: Document, log: JsonLog) -> StepResult | ReportResult:
        """Run the program."""

    def _read(self, run_id: str, log: JsonLog) -> Document | None:
        """Read the document of an event that came without one."""
        path = flow_run_path(run_id, self.cloud_settings.flow_runs_collection)
        try:
            return self.documents.read((path,))[path]
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was claimed
            _ask_again(log, type(error).__name__)


class ChartWorker(StepWorker):
    """The chart worker."""

    name = "worker-chart-export"
    statuses = TAKEN

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Check the configuration, everything at once; make no client yet."""
        given = _given(environment, (*CHART_VARIABLES, *CLOUD_VARIABLES, *JOURNAL_VARIABLES))
        charts, cloud = parse_configuration(given, CHART_DEFAULTS), parse_cloud_settings(given)
        journal = parse_journal_settings(given)
        _check(self.name, environment, charts, cloud, journal)
        configuration = charts.unwrap()
        self.cloud_settings = cloud.unwrap()
        self._export = Once(lambda: _cloud(self.cloud_settings, journal.unwrap()).chart_export(configuration))
        self.log = _log(self.name, configuration.settings.env, configuration.settings.log_level)

    def choose(self, flow_run: Document) -> str | NothingToDo:
        """Return the first READY chart step."""
        return select_step(flow_run, CHART_EXPORT)

    def run(self, flow_run: Document, log: JsonLog) -> StepResult:
        """Draw its charts."""
        return self._export().run(flow_run, None, log)

    @property
    def documents(self) -> DocumentStore:
        """Return where flow_runs are."""
        return self._export().interpreter.documents


class ReportWorker(StepWorker):
    """The report worker."""

    name = "worker-llm-client"

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Check the configuration, everything at once; make no client yet."""
        given = _given(environment, (*REPORT_VARIABLES, *CLOUD_VARIABLES, *JOURNAL_VARIABLES))
        reports, cloud = parse_report_configuration(given, REPORT_DEFAULTS), parse_cloud_settings(given)
        journal = parse_journal_settings(given)
        _check(self.name, environment, reports, cloud, journal)
        configuration = reports.unwrap()
        self.cloud_settings = cloud.unwrap()
        self._writer = Once(lambda: _cloud(self.cloud_settings, journal.unwrap()).report_writer(configuration))
        self.log = _log(self.name, configuration.settings.env, configuration.settings.log_level)

    def choose(self, flow_run: Document) -> str | NothingToDo:
        """Return the first executable report step, or that RUNNING ones are to be looked after."""
        chosen = select_report(flow_run)
        return "" if isinstance(chosen, Recover) else chosen

    def run(self, flow_run: Document, log: JsonLog) -> ReportResult:
        """Write its report."""
        return self._writer().run(flow_run, None, log)

    @property
    def documents(self) -> DocumentStore:
        """Return where flow_runs are."""
        return self._writer().interpreter.documents


class FlowAdvancer(EventService):
    """The orchestrator of this process."""

    name = "advance-flow"
    statuses = frozenset()

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Check the configuration, everything at once; make no client yet."""
        given = _given(environment, (*FLOW_VARIABLES, *CLOUD_VARIABLES, *JOURNAL_VARIABLES))
        flow, cloud = parse_flow_settings(given, FLOW_DEFAULTS), parse_cloud_settings(given)
        journal = parse_journal_settings(given)
        _check(self.name, environment, flow, cloud, journal)
        settings = flow.unwrap()
        self.cloud_settings = cloud.unwrap()
        self.orchestrator = Once(lambda: _cloud(self.cloud_settings, journal.unwrap()).orchestrator(settings))
        self.log = _log(self.name, settings.env, settings.log_level)

    def handle_hint(self, hint: Hint, log: JsonLog) -> None:
        """Move the flow_run on, as it is by now: the event only says that it changed."""
        result = self.orchestrator().advance(hint.run_id, log)
        if result.status == "FAILED":
            _ask_again(log, result.reason or "store_failed")
        if result.status == "UNCHANGED":
            _noop(log, result.reason or "nothing_to_change")
            return
        _finished(log, "ok", None)

    def reap(self, assume_lease_seconds: int | None) -> tuple[dict[str, Any], int]:
        """Move all flow_runs on that have not ended; return what came of it, and the answer's status."""
        from core.flow.summary import changes_as_json  # noqa: PLC0415 - see `_cloud`

        state = self.orchestrator().reap(self.log, assume_lease_seconds)
        advanced = [changes_as_json(one.flow_run.rpartition("/")[2], one.changes) for one in state.advanced]
        said = {"seen": state.seen, "isComplete": state.is_complete, "failed": list(state.failed)}
        message = f"{state.seen} runs seen, {len(advanced)} moved on"
        severity: Severity = "ERROR" if state.failed else "INFO"
        self.log.write(LogEvent("reap_finished", message, severity, {**said, "advancedCount": len(advanced)}))
        return {**said, "advanced": advanced}, 503 if state.failed else 200


def _cloud(settings: CloudSettings, journal: JournalSettings) -> Cloud:
    """Return the project; its libraries take longer to import than all else, and most events need none of them."""
    from interpreters.cloud import Cloud  # noqa: PLC0415 - see above

    return Cloud(settings, _CLOCK, journal)


def _given(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, Given]:
    return {name: Given(environment[name], name) for name in names if name in environment}


def _check(service: str, environment: Mapping[str, str], *parsed: Result[Any, Problems]) -> None:
    """Refuse to start with a configuration that is wrong, and name everything that is."""
    problems = [str(one) for one in collect(*parsed)]
    if any(isinstance(one, Failure) for one in parsed):
        event = LogEvent("config_error", "; ".join(problems), "ERROR", {"problems": problems})
        _log(service, environment.get("ENV") or FLOW_DEFAULTS["ENV"], "INFO").write(event)
        sys.exit(2)


def _log(service: str, env: str, level: str) -> JsonLog:
    return JsonLog(sys.stderr, _CLOCK, level, {"service": service, "env": env})


def _noop(log: JsonLog, reason: str) -> None:
    log.write(LogEvent("cloud_event_noop", f"nothing to do: {reason}", fields={"reason": reason}))


def _finished(log: JsonLog, status: str, reason: str | None) -> None:
    fields = {"status": status, "reason": reason}
    log.write(LogEvent("cloud_event_finished", f"finished: {status}", fields=fields))


def _ask_again(log: JsonLog, reason: str) -> NoReturn:
    log.write(
        LogEvent(
            "cloud_event_finished", f"redelivery wanted: {reason}", "ERROR", {"status": "retry", "reason": reason}
        )
    )
    flask.abort(503)


@cache
def _chart_worker() -> ChartWorker:
    return ChartWorker(os.environ)


@cache
def _report_worker() -> ReportWorker:
    return ReportWorker(os.environ)


@cache
def _flow_advancer() -> FlowAdvancer:
    return FlowAdvancer(os.environ)


@functions_framework.cloud_event
def worker_chart_export(event: Any) -> None:
    """Handle a change of a flow_run: claim and do its first READY CHART_EXPORT step."""
    _chart_worker().handle(event)


@functions_framework.cloud_event
def worker_llm_client(event: Any) -> None:
    """Handle a change of a flow_run: claim and do its first executable LLM_REPORT step."""
    _report_worker().handle(event)


@functions_framework.cloud_event
def advance_flow(event: Any) -> None:
    """Handle a change of a flow_run: promote steps, keep its status and progress."""
    _flow_advancer().handle(event)


@functions_framework.http
def reap_abandoned_steps(request: flask.Request) -> tuple[dict[str, Any], int]:
    """Handle a scheduler's call: look through all flow_runs that have not ended for abandoned steps (`?assumeLease=SECONDS`)."""
    text = request.args.get("assumeLease")
    if text is None:
        return _flow_advancer().reap(None)
    seconds = _ASSUMED_LEASE(Given(text, "assumeLease"))
    if isinstance(seconds, Failure):
        return {"error": "; ".join(map(str, seconds.failure()))}, 400
    return _flow_advancer().reap(seconds.unwrap())


_SERVICES: Mapping[str, Callable[[], object]] = {
    "worker_chart_export": _chart_worker,
    "worker_llm_client": _report_worker,
    "advance_flow": _flow_advancer,
    "reap_abandoned_steps": _flow_advancer,
}


def _check_target() -> None:
    """Check the configuration of the function that this process serves, and of no other, before it serves."""
    target = os.environ.get("FUNCTION_TARGET") or (flask.current_app.name if flask.has_app_context() else "")
    if target in _SERVICES:
        _SERVICES[target]()


_check_target()
