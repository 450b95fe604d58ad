"""`tda flow run` and `tda flow resume`: a whole flow on one machine.

Owns their flags, exit codes and output. Must not decide anything about steps: that is the core's.
"""

from __future__ import annotations

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
from core.events import LogEvent
from core.flow.flow_run import is_usable_id
from core.flow.status import ENDED_RUNS
from core.reports.references import STEP_TYPE as LLM_REPORT
from effects import Document
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
    chart_options,
    chosen_journal,
    flow_run_option,
    journal_options,
    read_flow_run,
    read_flow_settings,
    report_options,
    stop,
)
from interpreters.command_line.one_flow import (
    finish,
    given_files,
    given_option,
    log_of,
    show_nothing,
    show_reports,
)
from interpreters.command_line.progress import CONSOLE, FlowProgress
from interpreters.dispatcher import Worker
from interpreters.embedded import StateDirectory
from interpreters.given_steps import GivenFile
from interpreters.ports import StoreUnusableError
from interpreters.telemetry import Log, stderr_is_terminal

EXIT_INTERRUPTED = 130
_REPORT_FLAGS = {"llm_api_mode", "artifacts_bucket", "prompts_dir", "schemas_dir", "recordings_dir"}
_JOURNAL_FLAGS = {"journal", "journal_texts"}
_SUMMARY = click.option(
    "--output-summary",
    type=click.Choice(["none", "text", "json"]),
    default="text",
    show_default=True,
    help="What stdout says at the end.",
)


@click.command("run")
@flow_run_option(required=True)
@given_option
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
    files = given_files(given, flow_run)
    to_go_on = _to_go_on(run_id, given, state_dir=state_dir, **flags)
    with opened("embedded", chosen_state_dir(state_dir), how.journal) as home, held(home, run_id, alone=True):
        assert isinstance(home, StateDirectory)
        known = stored_flow_run(home, run_id)
        if known is not None and known.get("status") not in ENDED_RUNS:
            message = f"run {run_id} is stored in {home.name} and has not ended; {to_go_on}"
            stop(f"--flow-run-path {flow_run_path}", message)
        _begin(home, flow_run)
        flow_run = _drive(home, run_id, how, files, to_go_on)
        show_reports(home.artifact, flow_run)
    finish(flow_run, output_summary)


@click.command("resume")
@click.argument("run_id")
@given_option
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
        files = given_files(given, flow_run)
        flow_run = _drive(home, run_id, how, files, to_go_on)
        show_reports(home.artifact, flow_run)
    finish(flow_run, output_summary)


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


def _drive(
    home: StateDirectory, run_id: str, how: _Flags, files: Mapping[str, GivenFile], to_go_on: str
) -> Document:
    """Drive the run as far as it goes; whoever holds it alone knows that earlier workers are gone."""
    progress = FlowProgress(CONSOLE) if stderr_is_terminal() else None
    log = log_of(run_id, how.settings)
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

    show = progress.show if progress else show_nothing
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


def _export(home: StateDirectory, run_id: str, log: Log) -> None:
    """Write the document as a file to look at; the one that counts is stored already."""
    try:
        home.export(run_id)
    except (OSError, sqlite3.Error) as error:
        log.write(LogEvent("export_failed", f"the document could not be written as a file: {error}", "ERROR"))
