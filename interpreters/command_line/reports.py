"""The commands of the report worker.

Owns flags, exit codes, and what goes to stdout and stderr. Must not decide anything about steps or reports: that is the core's.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from returns.result import Failure

from core.events import LogEvent
from core.flow.selection import wanted_step_problems
from core.problems import Problem, Problems, collect
from core.reports.planning import plan_report
from core.reports.references import STEP_TYPE
from core.reports.registry import parse_prompt, parse_schema, schema_sha256
from core.reports.state import ReportResult
from core.reports.summary import json_summary, text_summary
from effects import Document
from interpreters import shipped
from interpreters.clock import SystemClock
from interpreters.command_line.homes import (
    chosen_state_dir,
    held,
    opened,
    place,
    state_dir_option,
    store_option,
)
from interpreters.command_line.inputs import (
    ReportFlags,
    WrongCall,
    chosen_journal,
    chosen_moment,
    existing_folder,
    flow_run_option,
    journal_options,
    now_option,
    prepare_streams,
    read_flow_run,
    report_options,
    say,
    service_name,
    speak_for,
)
from interpreters.command_line.progress import CONSOLE, TerminalLog, show_report
from interpreters.dry_run import plan_as_json, plan_as_text
from interpreters.ports import Home
from interpreters.telemetry import JsonLog, Log, stderr_is_terminal

EXIT_STEP_FAILED = 1
_STEP_OPTION = click.option("--step-id", help="Step to take. Default: the first executable LLM_REPORT step.")


@click.group("reports", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tda-workers")
def worker_llm_client() -> None:
    """Write the reports of LLM_REPORT steps with a language model.

    In mock mode, the default, answers come from recordings: no network, no key, no cost. In real mode they come from
    Gemini with GEMINI_API_KEY; in record mode what was not recorded yet is asked for and kept.

    Exit codes: 0 the step SUCCEEDED or there was nothing to do, 1 the step FAILED, 2 the call, the configuration
    or a file is wrong and nothing was claimed.
    """
    prepare_streams()
    speak_for("worker-llm-client")


class _Call(ReportFlags):
    """The checked input of `run-local` and `plan`."""

    def __init__(self, *, flow_run_path: Path, step_id: str | None, **report_flags: Any) -> None:
        super().__init__(**report_flags)
        self.flow_run_path = flow_run_path
        self.step_id = step_id
        self.flow_run = read_flow_run(flow_run_path)
        self.run_id = str(self.flow_run["runId"])
        problems = (
            wanted_step_problems(self.flow_run, STEP_TYPE, step_id, "--step-id") if step_id is not None else ()
        )
        if problems:
            raise WrongCall(problems)


@worker_llm_client.command("run-local")
@flow_run_option(required=True)
@_STEP_OPTION
@report_options
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
    """Write one report on this machine, by the same program as in production.

    The candles, charts and earlier reports that the step refers to are read from the same store, so it is best run on
    what `tda flow run` left in its state directory.

    \b
    Example:
      worker-llm-client run-local --flow-run-path .tda/flow_runs/RUN_ID.json --step-id report:4h
    """
    call = _Call(**flags)
    settings = chosen_journal(journal, texts=journal_texts)
    with opened(store, chosen_state_dir(state_dir), settings) as home, held(home, call.run_id, alone=False):
        place(call.flow_run, call.flow_run_path, home)
        result = _run(call, home)
        _export(call, home)
        if stderr_is_terminal() and result.report_uri:
            show_report(home.artifact(result.report_uri))
    if output_summary == "text":
        say(text_summary(result))
    elif output_summary == "json":
        say(json.dumps(json_summary(result, call.run_id, call.mode)))
    sys.exit(EXIT_STEP_FAILED if result.status == "FAILED" else 0)


def _run(call: _Call, home: Home) -> ReportResult:
    dirs = call.registry_dirs if call.is_registry_given else None
    writer = home.report_writer(call.configuration, dirs, call.recordings_dir)
    log = _log(call)
    fields = {"mode": "local", "llmApi": {"mode": call.mode}, "flowRunPath": str(call.flow_run_path)}
    message = f"running {call.flow_run_path} in {call.mode} mode"
    log.write(LogEvent("local_run_started", message, fields=fields))
    return writer.run(call.flow_run, call.step_id, log)


def _export(call: _Call, home: Home) -> None:
    """Write the document as a file to look at; the one that counts is stored already."""
    try:
        home.export(call.run_id)
    except (OSError, sqlite3.Error) as error:
        message = f"the document could not be written as a file: {error}"
        _log(call).write(LogEvent("export_failed", message, "ERROR"))


def _log(call: _Call) -> Log:
    settings = call.configuration.settings
    if stderr_is_terminal():
        return TerminalLog(CONSOLE, settings.log_level)
    context = {
        "service": service_name(),
        "env": settings.env,
        "runId": call.run_id,
        "flowKey": call.flow_run.get("flowKey"),
        "stepId": call.step_id,
    }
    return JsonLog(sys.stderr, SystemClock(), settings.log_level, context)


@worker_llm_client.command("plan")
@flow_run_option(required=True)
@_STEP_OPTION
@report_options
@now_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def plan(now: str | None, form: str, **flags: Any) -> None:
    """Print what a run would do, in order, and do nothing; what is not given is hoped for.

    \b
    Example:
      worker-llm-client plan --flow-run-path flow_run.json --format json
    """
    call = _Call(**flags)
    planned = plan_report(call.flow_run, chosen_moment(now), call.configuration, call.step_id)
    say(plan_as_json(planned, call.run_id) if form == "json" else plan_as_text(planned))


@worker_llm_client.group("prompts")
def prompts_group() -> None:
    """Look at prompts."""


@prompts_group.command("validate")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def validate_prompts(folder: Path | None) -> None:
    """Check every prompt in DIR (default: the shipped ones); exit 1 if one is not valid."""
    _validate(existing_folder("DIR", folder, shipped.PROMPTS), "prompts", _prompt_problems)


@worker_llm_client.group("schemas")
def schemas_group() -> None:
    """Look at output schemas."""


@schemas_group.command("validate")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def validate_schemas(folder: Path | None) -> None:
    """Check every schema in DIR (default: the shipped ones); exit 1 if one is not valid.

    A schema must require summary, details and summary.markdown, and its sha256 must be that of its jsonSchema.
    """
    _validate(existing_folder("DIR", folder, shipped.SCHEMAS), "schemas", _schema_problems)


def _validate(folder: Path, what: str, problems_of: Callable[[str, Any], Problems]) -> None:
    files = sorted(folder.glob("*.json"))
    wrong = 0
    for path in files:
        problems = _file_problems(path, problems_of)
        wrong += bool(problems)
        for found in problems:
            say(f"not valid: {path.name}: {found}")
    say(f"{len(files) - wrong} of {len(files)} {what} are valid")
    sys.exit(1 if wrong else 0)


def _file_problems(path: Path, problems_of: Callable[[str, Any], Problems]) -> Problems:
    try:
        document = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        return (Problem("(top)", f"is not readable JSON: {error}"),)
    return problems_of(path.stem, document)


def _prompt_problems(_: str, document: Document) -> Problems:
    return collect(parse_prompt(document))


def _schema_problems(schema_id: str, document: Document) -> Problems:
    parsed = parse_schema(schema_id, document)
    if isinstance(parsed, Failure):
        return collect(parsed)
    schema = parsed.unwrap()
    expected = schema_sha256(schema.json_schema)
    return () if schema.sha256 == expected else (Problem("sha256", f"must be {expected}"),)
