"""The commands of the chart worker.

Owns flags, exit codes, and what goes to stdout and stderr. Must not decide anything about steps, accounts or charts:
that is the core's.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import click

from core.charts.planning import plan as plan_effects
from core.charts.state import StepResult
from core.charts.step import STEP_TYPE
from core.charts.summary import json_summary, text_summary
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION, usage_path
from core.events import LogEvent
from core.flow.selection import NothingToDo, select_step
from effects import Document
from interpreters import shipped
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.clock import SystemClock
from interpreters.command_line.chart_tools import accounts_group, doctor, manifest_group, templates_group
from interpreters.command_line.homes import (
    chosen_state_dir,
    held,
    opened,
    place,
    state_dir_option,
    store_option,
    stored,
)
from interpreters.command_line.inputs import (
    ChartCall,
    chart_options,
    chosen_journal,
    chosen_moment,
    flow_run_option,
    journal_options,
    now_option,
    prepare_streams,
    read_json,
    say,
    service_name,
    speak_for,
    stop,
)
from interpreters.command_line.progress import CONSOLE, ChartProgress, TerminalLog
from interpreters.dry_run import expected_chart, plan_as_json, plan_as_text
from interpreters.ports import Home
from interpreters.telemetry import JsonLog, Log, stderr_is_terminal
from interpreters.templates import TemplateFolder

EXIT_STEP_FAILED = 1


_STEP_OPTION = click.option("--step-id", help="Step to take. Default: the first READY CHART_EXPORT step.")


@click.group("charts", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tda-workers")
def worker_chart_export() -> None:
    """Draw the charts of CHART_EXPORT steps.

    In mock mode, the default, pictures come from recorded answers: no network, no key, no quota. In real mode
    they come from Chart-IMG with the accounts of CHART_IMG_ACCOUNTS_JSON; in record mode what was not recorded
    yet is asked for and kept.

    Exit codes: 0 the step SUCCEEDED or there was nothing to do, 1 the step FAILED, 2 the call, the configuration
    or a file is wrong and nothing was claimed.
    """
    prepare_streams()
    speak_for("worker-chart-export")


@worker_chart_export.command("run-local")
@flow_run_option(required=True)
@_STEP_OPTION
@chart_options
@store_option
@click.option(
    "--output-summary",
    type=click.Choice(["none", "text", "json"]),
    default="text",
    show_default=True,
    help="What stdout says at the end.",
)
@state_dir_option
@journal_options
def run_local(
    store: str,
    output_summary: str,
    state_dir: Path | None,
    journal: Path | None,
    journal_texts: bool,  # noqa: FBT001 - click's
    **flags: Any,
) -> None:
    """Run one step on this machine, by the same program as in production.

    \b
    Afterwards the state directory has
      flow_runs/<runId>.json              the updated document
      artifacts/<bucket>/charts/…/*.png   the pictures, and manifest.json beside them

    \b
    Examples:
      worker-chart-export run-local --flow-run-path flow_run.json --output-summary json
      worker-chart-export run-local --flow-run-path flow_run.json --charts-api-mode real \\
          --accounts-config-path chart-img.accounts.local.json
    """
    call = ChartCall(**flags)
    settings = chosen_journal(journal, texts=journal_texts)
    with opened(store, chosen_state_dir(state_dir), settings) as home, held(home, call.run_id, alone=False):
        place(call.flow_run, call.flow_run_path, home)
        result = _run(call, home)
        _export(call, home)
    _print_summary(output_summary, result, call)
    sys.exit(EXIT_STEP_FAILED if result.status == "FAILED" else 0)


def _export(call: ChartCall, home: Home) -> None:
    """Write the document as a file to look at; the one that counts is stored already."""
    try:
        home.export(call.run_id)
    except (OSError, sqlite3.Error) as error:
        _log(call).write(
            LogEvent("export_failed", f"the document could not be written as a file: {error}", "ERROR")
        )


def _run(call: ChartCall, home: Home) -> StepResult:
    export = home.chart_export(call.configuration, call.templates_dir, call.fixtures_dir)
    log = _log(call)
    log.write(_started(call))
    if not stderr_is_terminal():
        return export.run(call.flow_run, call.step_id, log)
    with ChartProgress(CONSOLE) as progress:
        return export.run(call.flow_run, call.step_id, log, [progress])


def _log(call: ChartCall) -> Log:
    settings = call.configuration.settings
    if stderr_is_terminal():
        return TerminalLog(CONSOLE, settings.log_level)
    chosen = select_step(call.flow_run, STEP_TYPE, call.step_id)
    context = {
        "service": service_name(),
        "env": settings.env,
        "runId": call.run_id,
        "flowKey": call.flow_run.get("flowKey"),
        "stepId": call.step_id if isinstance(chosen, NothingToDo) else chosen,
    }
    return JsonLog(sys.stderr, SystemClock(), settings.log_level, context)


def _started(call: ChartCall) -> LogEvent:
    fields = {"mode": "local", "chartsApi": {"mode": call.mode}, "flowRunPath": str(call.flow_run_path)}
    return LogEvent("local_run_started", f"running {call.flow_run_path} in {call.mode} mode", fields=fields)


def _print_summary(form: str, result: StepResult, call: ChartCall) -> None:
    if form == "text":
        say(text_summary(result))
    elif form == "json":
        say(json.dumps(json_summary(result, call.run_id, call.mode)))


@worker_chart_export.command("plan")
@flow_run_option(required=True)
@_STEP_OPTION
@chart_options
@click.option(
    "--usage-path",
    type=click.Path(path_type=Path),
    help='Usage of accounts, like {"acc1": {"usageToday": 43, "windowStart": "2025-12-15T00:00:00Z"}}.',
)
@now_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="Take the usage of accounts from this directory, if it exists.",
)
def plan(usage_path: Path | None, now: str | None, form: str, state_dir: Path | None, **flags: Any) -> None:
    """Print what `run-local` would do, in order, and do nothing.

    What is not given is hoped for: every account has quota, every call brings a picture, every object is stored.
    In mock mode the recorded answers are given, errors included.

    \b
    Example:
      worker-chart-export plan --flow-run-path flow_run.json --format json --now 2025-12-15T10:25:30Z
    """
    call = ChartCall(**flags)
    moment = chosen_moment(now)
    fixtures = FixtureFolder(call.fixtures_dir)
    folder = TemplateFolder(call.templates_dir or shipped.TEMPLATES)
    templates, unreadable = folder.load(folder.ids())
    planned = plan_effects(
        call.flow_run,
        templates,
        _usage(usage_path, state_dir, call),
        moment,
        configuration=call.configuration,
        wanted_step=call.step_id,
        fixtures=fixtures.keys(),
        draw=expected_chart(fixtures, [account.api_key for account in call.configuration.accounts]),
        unreadable=unreadable,
    )
    say(plan_as_json(planned, call.run_id) if form == "json" else plan_as_text(planned))


def _usage(path: Path | None, state_dir: Path | None, call: ChartCall) -> dict[str, Document]:
    collection = MOCK_USAGE_COLLECTION if call.mode == "mock" else USAGE_COLLECTION
    if path is not None:
        given = read_json(path, f"--usage-path {path}")
        if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
            stop(f"--usage-path {path}", "must be an object of account id to usage document")
        return {usage_path(collection, account_id): one for account_id, one in given.items()}
    return {} if state_dir is None else {**stored("embedded", state_dir, collection)}


for _command in (templates_group, manifest_group, accounts_group, doctor):
    worker_chart_export.add_command(_command)
