"""The commands of the chart worker.

Owns flags, exit codes, and what goes to stdout and stderr. Must not decide anything about steps, accounts or charts:
that is the core's.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from google.api_core.exceptions import GoogleAPIError
from google.auth.exceptions import GoogleAuthError
from rich.console import Console

from core.charts.manifest import manifest_problems
from core.charts.planning import plan as plan_effects
from core.charts.state import StepResult
from core.charts.step import STEP_TYPE
from core.charts.summary import json_summary, text_summary
from core.charts.templates import parse_template
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION, usage_path
from core.events import LogEvent
from core.flow.selection import NothingToDo, select_step
from core.problems import Problem
from effects import Document
from effects.moments import parse_moment
from interpreters import shipped
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.clock import SystemClock
from interpreters.cloud import Cloud
from interpreters.command_line.accounts_table import accounts_table
from interpreters.command_line.inputs import (
    SERVICE,
    ChartCall,
    WrongCall,
    existing_folder,
    prepare_streams,
    read_cloud_settings,
    read_configuration,
    read_json,
    say,
    stop,
)
from interpreters.command_line.progress import ChartProgress, TerminalLog
from interpreters.doctor import examine
from interpreters.dry_run import expected_chart, plan_as_json, plan_as_text
from interpreters.embedded import StateDirectory
from interpreters.ports import Home
from interpreters.telemetry import JsonLog, Log, stderr_is_terminal
from interpreters.templates import TemplateFolder, store_templates

CONSOLE = Console(stderr=True)
_YEARS = range(1971, 3000)
DEFAULT_STATE_DIR = ".tda"
EXIT_STEP_FAILED = 1

Command = TypeVar("Command", bound=Callable[..., Any])


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


def _store_option(command: Command) -> Command:
    """Add the flag that says where documents and objects are kept."""
    return click.option(
        "--store",
        type=click.Choice(["embedded", "firestore"]),
        default="embedded",
        show_default=True,
        help="Documents and objects on this machine, or in Firestore and Cloud Storage ($GOOGLE_CLOUD_PROJECT, …).",
    )(command)


def _input_options(command: Command) -> Command:
    """Add the flags that say what to work on and with which settings."""
    for option in reversed(
        (
            click.option(
                "--flow-run-path",
                required=True,
                type=click.Path(path_type=Path),
                help="flow_run document (JSON); never changed.",
            ),
            click.option("--step-id", help="Step to take. Default: the first READY CHART_EXPORT step."),
            click.option(
                "--charts-api-mode",
                metavar="real|mock|record",
                help="Where pictures come from. Default: $CHARTS_API_MODE, else mock.",
            ),
            click.option(
                "--charts-bucket",
                metavar="gs://NAME",
                help="Bucket of PNGs and manifest. Default: $CHARTS_BUCKET, else gs://local-artifacts.",
            ),
            click.option(
                "--accounts-config-path",
                type=click.Path(path_type=Path),
                help='File like [{"id": "acc1", "apiKey": "…"}]. Default: $CHART_IMG_ACCOUNTS_JSON.',
            ),
            click.option(
                "--templates-dir",
                type=click.Path(path_type=Path),
                help="Chart templates. Default: the shipped ones.",
            ),
            click.option(
                "--fixtures-dir",
                type=click.Path(path_type=Path),
                help="Recorded answers. Default: the shipped ones; record mode needs one of yours.",
            ),
        )
    ):
        command = option(command)
    return command


@worker_chart_export.command("run-local")
@_input_options
@_store_option
@click.option(
    "--output-summary",
    type=click.Choice(["none", "text", "json"]),
    default="text",
    show_default=True,
    help="What stdout says at the end.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help=f"Where documents and artifacts are kept. Default: $TDA_STATE_DIR, else {DEFAULT_STATE_DIR}.",
)
def run_local(store: str, output_summary: str, state_dir: Path | None, **flags: Any) -> None:
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
    with _opened(store, _state_dir(state_dir)) as home:
        _place(call, home)
        result = _run(call, home)
        _export(call, home)
    _print_summary(output_summary, result, call)
    sys.exit(EXIT_STEP_FAILED if result.status == "FAILED" else 0)


def _state_dir(given: Path | None) -> Path:
    return given or Path(os.environ.get("TDA_STATE_DIR") or DEFAULT_STATE_DIR)


@contextmanager
def _opened(store: str, folder: Path) -> Iterator[Home]:
    if store == "firestore":
        yield Cloud(read_cloud_settings(), SystemClock())
        return
    try:
        state = StateDirectory(folder, SystemClock())
    except (OSError, sqlite3.Error) as error:
        stop("--state-dir", f"{folder} cannot be used: {type(error).__name__}: {error}")
    with closing(state):
        yield state


def _place(call: ChartCall, home: Home) -> None:
    try:
        held = home.place(call.flow_run)
    except (sqlite3.Error, GoogleAPIError, GoogleAuthError, ValueError) as error:
        stop(home.name, f"cannot be written: {error}")
    if held:
        message = f"a worker is at work on {', '.join(held)} of this run in {home.name}; wait for its end"
        stop(f"--flow-run-path {call.flow_run_path}", message)


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
        "service": SERVICE,
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
@_input_options
@click.option(
    "--usage-path",
    type=click.Path(path_type=Path),
    help='Usage of accounts, like {"acc1": {"usageToday": 43, "windowStart": "2025-12-15T00:00:00Z"}}.',
)
@click.option("--now", metavar="RFC3339", help="The moment to plan for. Default: now.")
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
    moment = SystemClock().now() if now is None else parse_moment(now)
    if moment is None or moment.year not in _YEARS:
        stop("--now", "must be RFC 3339 with a time zone, like 2025-12-15T10:25:30Z")
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
    return {} if state_dir is None else {**_stored("embedded", state_dir, collection)}


def _stored(store: str, folder: Path, collection: str) -> Mapping[str, Document]:
    """Return the documents of a collection; looking at a directory does not create anything in it."""
    if store == "embedded" and folder.exists() and not folder.is_dir():
        stop("--state-dir", f"{folder} is not a folder")
    if store == "embedded" and not StateDirectory.exists(folder):
        return {}
    with _opened(store, folder) as home:
        try:
            return home.documents.collection(collection)
        except (sqlite3.Error, GoogleAPIError, GoogleAuthError) as error:
            stop(home.name, f"cannot be read: {error}")


@worker_chart_export.group("templates")
def templates_group() -> None:
    """Look at chart templates."""


@templates_group.command("validate")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def validate_templates(folder: Path | None) -> None:
    """Check every template in DIR (default: the shipped ones); exit 1 if one is not valid."""
    source = TemplateFolder(existing_folder("DIR", folder, shipped.TEMPLATES))
    _, problems = _validated(source)
    ids = source.ids()
    for found in problems:
        say(f"not valid: {found}")
    wrong = {str(found.where).split(".")[0] for found in problems}
    say(f"{len(ids) - len(wrong)} of {len(ids)} templates are valid")
    sys.exit(1 if problems else 0)


@templates_group.command("import")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def import_templates(folder: Path | None, *, dry_run: bool) -> None:
    """Put the templates of DIR (default: the shipped ones) into Firestore, in the collection chart_templates.

    Nothing is written if one of them is not valid. Templates that only Firestore has are left alone.
    """
    source = TemplateFolder(existing_folder("DIR", folder, shipped.TEMPLATES))
    templates, problems = _validated(source)
    if problems:
        raise WrongCall(tuple(problems))
    documents = Cloud(read_cloud_settings(), SystemClock()).documents
    try:
        done = store_templates(documents, templates, dry_run=dry_run)
    except (GoogleAPIError, GoogleAuthError) as error:
        stop("firestore", f"cannot be reached: {error}")
    for one, what in done.items():
        say(f"{what:<10} {one}")
    say(", ".join(f"{list(done.values()).count(what)} {what}" for what in ("created", "changed", "unchanged")))


def _validated(source: TemplateFolder) -> tuple[dict[str, Document], list[Problem]]:
    templates, unreadable = source.load(source.ids())
    problems = [Problem(f"{one}.json", said) for one, said in unreadable.items()]
    for one, document in templates.items():
        problems += parse_template(one, document).swap().value_or(())
    return templates, problems


@worker_chart_export.group("manifest")
def manifest_group() -> None:
    """Look at manifests."""


@manifest_group.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate_manifest(files: tuple[Path, ...]) -> None:
    """Check that each FILE is a ChartsOutputsManifest; exit 1 if one is not."""
    wrong = 0
    for file in files:
        problems = manifest_problems(read_json(file, str(file)))
        for found in problems:
            say(f"not valid: {file}: {found}")
        wrong += bool(problems)
    say(f"{len(files) - wrong} of {len(files)} manifests are valid")
    sys.exit(1 if wrong else 0)


@worker_chart_export.group("accounts")
def accounts_group() -> None:
    """Look at Chart-IMG accounts."""


@accounts_group.command("status")
@click.option("--state-dir", type=click.Path(path_type=Path), help="State directory to look at.")
@click.option("--accounts-config-path", type=click.Path(path_type=Path), help="Accounts as for run-local.")
@_store_option
def accounts_status(state_dir: Path | None, accounts_config_path: Path | None, store: str) -> None:
    """Show how much of each account is used in its window (a UTC day)."""
    configuration = read_configuration(None, None, accounts_config_path)
    folder = _state_dir(state_dir)
    real, mock = (_stored(store, folder, collection) for collection in (USAGE_COLLECTION, MOCK_USAGE_COLLECTION))
    Console().print(accounts_table(real, mock, configuration, SystemClock().now()))


@worker_chart_export.command("doctor")
@click.option("--charts-bucket", metavar="gs://NAME", help="Bucket to look at. Default: $CHARTS_BUCKET.")
def doctor(charts_bucket: str | None) -> None:
    """Check configuration, credentials, database and bucket, and say what to do; exit 1 if something is wrong."""
    configuration, settings = read_configuration(None, charts_bucket, None), read_cloud_settings()
    sick = 0
    for finding in examine(configuration, settings):
        say(f"{'ok ' if finding.is_well else 'BAD'} {finding.check:<14} {finding.said}")
        if not finding.is_well:
            say(f"    {'':<14} what to do: {finding.advice}")
        sick += not finding.is_well
    sys.exit(1 if sick else 0)
