"""`tda flow run` and `tda flow resume`: a whole flow on one machine.

Owns their flags, exit codes and output. Must not decide anything about steps: that is the core's.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from core.charts.step import STEP_TYPE as CHART_EXPORT
from core.documents import field
from core.events import LogEvent
from core.flow.flow_run import is_usable_id
from core.flow.graph import parse_graph
from core.flow.picture import steps_in_order, what_it_waits_for
from core.flow.settings import FlowSettings
from core.flow.status import ENDED_RUNS
from core.flow.summary import flow_as_json, flow_as_text
from core.problems import Problem
from core.reports.references import STEP_TYPE as LLM_REPORT
from effects import Document
from interpreters.clock import SystemClock
from interpreters.command_line.homes import (
    chosen_state_dir,
    held,
    opened,
    state_dir_option,
    stored_flow_run,
)
from interpreters.command_line.inputs import (
    ChartFlags,
    ReportFlags,
    WrongCall,
    chart_options,
    chosen_journal,
    flow_run_option,
    journal_options,
    read_flow_run,
    read_flow_settings,
    report_options,
    say,
    service_name,
    stop,
)
from interpreters.command_line.progress import CONSOLE, FlowProgress, TerminalLog, show_report
from interpreters.dispatcher import Worker
from interpreters.embedded import StateDirectory
from interpreters.given_steps import GivenFile
from interpreters.ports import StoreUnusableError
from interpreters.telemetry import JsonLog, Log, stderr_is_terminal

EXIT_NOT_SUCCEEDED = 1
EXIT_INTERRUPTED = 130
SERVED = {CHART_EXPORT: "worker-chart-export", LLM_REPORT: "worker-llm-client"}
"""Step types that have a worker here."""

_REPORT_FLAGS = {"llm_api_mode", "artifacts_bucket", "prompts_dir", "schemas_dir", "recordings_dir"}
_JOURNAL_FLAGS = {"journal", "journal_texts"}
_GIVEN = click.option(
    "--given",
    "given",
    metavar="STEP_ID=FILE",
    multiple=True,
    help="File that becomes the artifact of a step that no worker here serves; may be given several times.",
)
_SUMMARY = click.option(
    "--output-summary",
    type=click.Choice(["none", "text", "json"]),
    default="text",
    show_default=True,
    help="What stdout says at the end.",
)


@click.command("run")
@flow_run_option(required=True)
@_GIVEN
@chart_options
@report_options
@state_dir_option
@journal_options
@_SUMMARY
def run_flow(
    flow_run_path: Path, given: tuple[str, ...], state_dir: Path | None, output_summary: str, **flags: Any
) -> None:
    """Run a whole flow on this machine, until the run has ended.

    Orchestrator and workers are driven by the changes of the document, as in the cloud. Stop it at any moment, even
    with kill -9, and go on with `tda flow resume RUN_ID`: finished work is not repeated.

    \b
    Afterwards the state directory has
      flow_runs/<runId>.json   the updated document
      artifacts/<bucket>/…     everything that was made

    \b
    Example:
      tda flow run --flow-run-path flow_run.json --given candles:4h=candles.json
    """
    how = _Flags(flags)
    flow_run = read_flow_run(flow_run_path)
    run_id = str(flow_run["runId"])
    files = _given_files(given, flow_run)
    to_go_on = _to_go_on(run_id, given, state_dir=state_dir, **flags)
    with opened("embedded", chosen_state_dir(state_dir), how.journal) as home, held(home, run_id, alone=True):
        assert isinstance(home, StateDirectory)
        known = stored_flow_run(home, run_id)
        if known is not None and known.get("status") not in ENDED_RUNS:
            message = f"run {run_id} is stored in {home.name} and has not ended; {to_go_on}"
            stop(f"--flow-run-path {flow_run_path}", message)
        _begin(home, flow_run)
        flow_run = _drive(home, run_id, how, files, to_go_on)
        _show_reports(home, flow_run)
    _finish(flow_run, output_summary)


@click.command("resume")
@click.argument("run_id")
@_GIVEN
@chart_options
@report_options
@state_dir_option
@journal_options
@_SUMMARY
def resume_flow(
    run_id: str, given: tuple[str, ...], state_dir: Path | None, output_summary: str, **flags: Any
) -> None:
    """Go on with a run that was stopped or killed, or that waited for a step which is now --given.

    Steps that were being worked on are taken again; what they had stored is used, not made again.
    """
    how = _Flags(flags)
    folder = chosen_state_dir(state_dir)
    to_go_on = _to_go_on(run_id, given, state_dir=state_dir, **flags)
    if not is_usable_id(run_id) or not StateDirectory.exists(folder):
        stop("RUN_ID", f"there is no run {run_id!r} in --state-dir {folder}")
    with opened("embedded", folder, how.journal) as home, held(home, run_id, alone=True):
        assert isinstance(home, StateDirectory)
        flow_run = stored_flow_run(home, run_id) or stop("RUN_ID", f"there is no run {run_id} in {home.name}")
        files = _given_files(given, flow_run)
        flow_run = _drive(home, run_id, how, files, to_go_on)
        _show_reports(home, flow_run)
    _finish(flow_run, output_summary)


class _Flags:
    """How a flow is driven and its steps are worked on, as given and checked."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self.settings = read_flow_settings()
        self.charts = ChartFlags(
            **{name: flags[name] for name in flags if name not in _REPORT_FLAGS | _JOURNAL_FLAGS}
        )
        self.reports = ReportFlags(**{name: flags[name] for name in flags if name in _REPORT_FLAGS})
        self.journal = chosen_journal(flags["journal"], texts=flags["journal_texts"])


def _begin(home: StateDirectory, flow_run: Document) -> None:
    try:
        home.place_alone(flow_run)
    except StoreUnusableError as error:
        stop(home.name, f"cannot be written: {error}")


def _to_go_on(run_id: str, given: tuple[str, ...], **flags: object) -> str:
    """Return the words that say how to go on with the run, in the same way."""
    named = [
        (f"--{name.replace('_', '-')}", *(() if value is True else (str(value),)))
        for name, value in flags.items()
        if value is not None and value is not False
    ]
    words = [word for group in (*named, *(("--given", one) for one in given)) for word in group]
    return f"go on with: {shlex.join(['tda', 'flow', 'resume', run_id, *words])}"


def _given_files(given: tuple[str, ...], flow_run: Document) -> dict[str, GivenFile]:
    """Return the files by step id, or stop with everything that is wrong with them."""
    files: dict[str, GivenFile] = {}
    problems = []
    for one in given:
        step_id, _, name = one.partition("=")
        where, path = f"--given {one}", Path(name)
        step = flow_run["steps"].get(step_id)
        if not step_id or not name:
            problems.append(Problem(where, "must be STEP_ID=FILE"))
        elif not isinstance(step, Mapping):
            known = ", ".join(sorted(flow_run["steps"]))
            problems.append(Problem(where, f"there is no step {step_id!r}; steps are: {known}"))
        elif step.get("stepType") in SERVED:
            message = f"is a step that {SERVED[step['stepType']]} does; only steps without a worker are given"
            problems.append(Problem(where, message))
        elif step_id in files:
            problems.append(Problem(where, f"{step_id} is given twice"))
        else:
            try:
                files[step_id] = GivenFile(path.name, path.read_bytes())
            except OSError as error:
                problems.append(Problem(where, f"cannot be read: {error.strerror}"))
    if problems:
        raise WrongCall(tuple(problems))
    return files


def _drive(
    home: StateDirectory, run_id: str, how: _Flags, files: Mapping[str, GivenFile], to_go_on: str
) -> Document:
    """Drive the run as far as it goes; whoever holds it alone knows that earlier workers are gone."""
    progress = FlowProgress(CONSOLE) if stderr_is_terminal() else None
    log = _log(run_id, how.settings)
    orchestrator = home.orchestrator(how.settings)
    export = home.chart_export(how.charts.configuration, how.charts.templates_dir, how.charts.fixtures_dir)
    writer = home.report_writer(how.reports.configuration, how.reports.registry_dirs, how.reports.recordings_dir)
    given_steps = home.given_steps(run_id, how.charts.configuration.settings.bucket)

    def give(step_id: str, step_type: str, _: Document) -> bool:
        return given_steps.give(step_id, step_type, files[step_id], log.of_step(step_id))

    def draw(step_id: str, flow_run: Document) -> bool:
        watchers = [progress.watcher(step_id)] if progress else []
        return export.run(flow_run, step_id, log.of_step(step_id), watchers).is_claim_unknown

    def write(step_id: str, flow_run: Document) -> bool:
        return writer.run(flow_run, step_id, log.of_step(step_id)).is_claim_unknown

    workers = {CHART_EXPORT: draw, LLM_REPORT: write}

    def worker_of(step_id: str, step_type: str) -> Worker | None:
        if step_id in files:
            return partial(give, step_id, step_type)
        return partial(workers[step_type], step_id) if step_type in workers else None

    show = progress.show if progress else _show_nothing
    dispatcher = home.dispatcher(run_id, orchestrator, worker_of, log.log, show)
    log.log.write(LogEvent("local_run_started", f"driving run {run_id}", fields={"mode": "flow"}))
    try:
        with progress or nullcontext():
            flow_run = dispatcher.to_end(orchestrator.leases(holders_gone=True))
    except (StoreUnusableError, sqlite3.Error) as error:
        stop(home.name, f"cannot be used: {error}; {to_go_on}")
    except KeyboardInterrupt:
        _export(home, run_id, log.log)
        log.log.write(LogEvent("local_run_stopped", f"stopped; {to_go_on}", "WARNING"))
        _end_at_once(EXIT_INTERRUPTED)
    finally:
        _export(home, run_id, log.log)
    if flow_run.get("status") not in ENDED_RUNS:
        log.log.write(LogEvent("local_run_stopped", f"the run has not ended; {to_go_on}", "WARNING"))
    return flow_run


def _end_at_once(code: int) -> NoReturn:
    """End the process with all its threads: no worker begins anything more, and the run is held to the last moment."""
    sys.stderr.flush()
    os._exit(code)


def _show_reports(home: StateDirectory, flow_run: Document) -> None:
    """Show the reports of a run to a person at a terminal."""
    for step_id in steps_in_order(flow_run) if stderr_is_terminal() else ():
        step = flow_run["steps"][step_id]
        uri = field(step, "outputs", "gcs_uri")
        if (step.get("stepType"), step["status"]) == (LLM_REPORT, "SUCCEEDED") and isinstance(uri, str):
            show_report(home.artifact(uri))


def _show_nothing(_: Document) -> None:
    """Show nothing: nobody looks."""


def _export(home: StateDirectory, run_id: str, log: Log) -> None:
    """Write the document as a file to look at; the one that counts is stored already."""
    try:
        home.export(run_id)
    except (OSError, sqlite3.Error) as error:
        log.write(LogEvent("export_failed", f"the document could not be written as a file: {error}", "ERROR"))


def _finish(flow_run: Document, form: str) -> None:
    graph = parse_graph(flow_run.get("steps"))
    is_over = flow_run.get("status") in ENDED_RUNS
    waits_for = () if is_over else what_it_waits_for(flow_run, graph.unwrap(), SERVED)
    if form == "text":
        say(flow_as_text(flow_run, waits_for))
    elif form == "json":
        say(json.dumps(flow_as_json(flow_run, waits_for), ensure_ascii=False))
    sys.exit(0 if flow_run.get("status") == "SUCCEEDED" else EXIT_NOT_SUCCEEDED)


class _RunLog:
    """The log of a run, and of each of its steps."""

    def __init__(self, log: JsonLog | TerminalLog) -> None:
        self.log: JsonLog | TerminalLog = log

    def of_step(self, step_id: str) -> Log:
        """Return the log whose entries name the step."""
        return self.log.bind(stepId=step_id) if isinstance(self.log, JsonLog) else self.log


def _log(run_id: str, settings: FlowSettings) -> _RunLog:
    if stderr_is_terminal():
        # The live lines say what goes well.
        return _RunLog(TerminalLog(CONSOLE, "WARNING" if settings.log_level == "INFO" else settings.log_level))
    context = {"service": service_name(), "env": settings.env, "runId": run_id}
    return _RunLog(JsonLog(sys.stderr, SystemClock(), settings.log_level, context))
