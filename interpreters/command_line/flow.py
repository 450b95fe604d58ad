"""The commands of the orchestrator: one pass over a flow_run, all abandoned steps, and pictures of a flow.

Owns flags, exit codes and output. Must not decide anything about steps: that is the core's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from returns.result import Failure

from core.flow.advance import advance
from core.flow.flow_run import is_usable_id
from core.flow.graph import parse_graph
from core.flow.picture import graph_as_mermaid, graph_as_text
from core.flow.summary import changes_as_json, changes_as_text
from effects import Document, FieldChange, LeasePolicy
from interpreters.clock import SystemClock
from interpreters.command_line.homes import (
    chosen_state_dir,
    held,
    opened,
    place,
    state_dir_option,
    store_option,
    stored_flow_run,
)
from interpreters.command_line.inputs import (
    WrongCall,
    chosen_journal,
    chosen_moment,
    flow_run_option,
    journal_options,
    now_option,
    prepare_streams,
    read_flow_run,
    read_flow_settings,
    say,
    service_name,
    speak_for,
    stop,
)
from interpreters.command_line.progress import CONSOLE, TerminalLog
from interpreters.command_line.whole_flow import resume_flow, run_flow
from interpreters.embedded import StateDirectory
from interpreters.telemetry import JsonLog, Log, stderr_is_terminal

EXIT_INCOMPLETE = 1

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group("flow", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tda-workers")
def advance_flow() -> None:
    """Move flow_runs on: promote steps, keep the run's status, return abandoned steps.

    A PENDING step becomes READY when all steps it depends on have SUCCEEDED; workers take READY steps. A step whose
    worker died becomes READY again when its lease has run out. What can never run is said at once.

    \b
    Try it, with nothing to configure:
      tda flow graph --flow-run-path flow_run.json                          look at it
      tda flow plan  --flow-run-path flow_run.json                          what one pass would change, and why
      tda flow run   --flow-run-path flow_run.json --given candles=c.json   run the whole flow on this machine

    Exit codes: 0 the run SUCCEEDED or there was nothing to do, 1 the run FAILED or waits for a step that nobody here
    serves, 2 the call, the configuration or a file is wrong.
    """
    prepare_streams()
    speak_for("advance-flow")


def _run_options(command: Command) -> Command:
    """Add what names a flow_run: a file, or the id of a stored one."""
    for option in reversed(
        (
            click.argument("run_id", required=False),
            flow_run_option(required=False),
            store_option,
            state_dir_option,
        )
    ):
        command = option(command)
    return command


_ASSUME_LEASE = click.option(
    "--assume-lease",
    "assume_lease",
    metavar="SECONDS",
    type=click.IntRange(min=0),
    help="Lease of RUNNING steps that have none, counted from the last sign of life. Default: leave them alone.",
)
_FORMAT = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


@advance_flow.command("plan")
@_run_options
@now_option
@_ASSUME_LEASE
@_FORMAT
def plan(now: str | None, assume_lease: int | None, form: str, **chosen: Any) -> None:
    """Print what one pass of the orchestrator would change, and why; change nothing.

    Name a file, or the id of a stored run.

    \b
    Examples:
      advance-flow plan --flow-run-path flow_run.json
      advance-flow plan 20251215-102530_BTCUSDT_k3f7a --store firestore --format json
    """
    settings = read_flow_settings()
    flow_run = _chosen_flow_run(**chosen)
    policy = LeasePolicy(max_attempts=settings.step_max_attempts, assume_lease_seconds=assume_lease)
    run_id = str(flow_run["runId"])
    _print(run_id, advance(flow_run, run_id, policy, chosen_moment(now)), form)


@advance_flow.command("apply")
@_run_options
@_ASSUME_LEASE
@_FORMAT
@journal_options
def apply(
    run_id: str | None,
    flow_run_path: Path | None,
    store: str,
    state_dir: Path | None,
    assume_lease: int | None,
    form: str,
    journal: Path | None,
    journal_texts: bool,  # noqa: FBT001 - click's
) -> None:
    """Make one pass of the orchestrator over a run, and print what changed.

    With --flow-run-path the document is stored first, as `run-local` does; else the stored run RUN_ID is moved on.
    """
    settings = read_flow_settings()
    given = _chosen_file(run_id, flow_run_path)
    wanted = _run_id(run_id, given)
    folder = chosen_state_dir(state_dir)
    if given is None:
        _stop_if_unused(store, folder, wanted)
    journalled = chosen_journal(journal, texts=journal_texts)
    with opened(store, folder, journalled) as home, held(home, wanted, alone=False):
        if given is not None and flow_run_path is not None:
            place(given, flow_run_path, home)
        orchestrator = home.orchestrator(settings)
        result = orchestrator.advance(wanted, _log(wanted), leases=orchestrator.leases(assume_lease))
        if result.status == "FAILED":
            stop(home.name, f"run {wanted} could not be moved on: {result.reason}")
        if result.reason == "flow_run_missing":
            stop("RUN_ID", f"there is no run {wanted} in {home.name}")
        home.export(wanted)
    _print(wanted, result.changes, form)


@advance_flow.command("reap")
@store_option
@state_dir_option
@_ASSUME_LEASE
@_FORMAT
@journal_options
def reap(
    store: str,
    state_dir: Path | None,
    assume_lease: int | None,
    form: str,
    journal: Path | None,
    journal_texts: bool,  # noqa: FBT001 - click's
) -> None:
    """Look through all runs that have not ended for abandoned steps, and for whatever else was missed; move those runs on."""
    settings, folder = read_flow_settings(), chosen_state_dir(state_dir)
    if store == "embedded" and not StateDirectory.exists(folder):
        stop("--state-dir", f"{folder} has not been used as a state directory")
    with opened(store, folder, chosen_journal(journal, texts=journal_texts)) as home:
        orchestrator = home.orchestrator(settings)
        state = orchestrator.reap(_log(None), assume_lease)
        for one in state.advanced:
            home.export(one.flow_run.rpartition("/")[2])
    runs = [changes_as_json(one.flow_run.rpartition("/")[2], one.changes) for one in state.advanced]
    if form == "json":
        summary = {
            "seen": state.seen,
            "isComplete": state.is_complete,
            "advanced": runs,
            "failed": [*state.failed],
        }
        say(json.dumps(summary, ensure_ascii=False))
    else:
        for one in state.advanced:
            say(f"{one.flow_run}\n{changes_as_text(one.changes)}")
        failed = f", failed: {', '.join(state.failed)}" if state.failed else ""
        say(f"{state.seen} runs seen, {len(state.advanced)} moved on{failed}")
    sys.exit(0 if state.is_complete else EXIT_INCOMPLETE)


@advance_flow.command("graph")
@_run_options
@click.option("--format", "form", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
def graph(form: str, **chosen: Any) -> None:
    """Show the steps of a run, who depends on whom, and how each stands.

    \b
    Example, for a page that draws Mermaid:
      advance-flow graph --flow-run-path flow_run.json --format mermaid
    """
    flow_run = _chosen_flow_run(**chosen)
    parsed = parse_graph(flow_run["steps"])
    if isinstance(parsed, Failure):
        raise WrongCall(parsed.failure())
    draw = graph_as_mermaid if form == "mermaid" else graph_as_text
    say(draw(flow_run, parsed.unwrap()))


def _chosen_flow_run(
    run_id: str | None, flow_run_path: Path | None, store: str, state_dir: Path | None
) -> Document:
    """Return the document of the file, or the stored one; looking creates nothing."""
    given = _chosen_file(run_id, flow_run_path)
    if given is not None:
        return given
    wanted, folder = _run_id(run_id, None), chosen_state_dir(state_dir)
    _stop_if_unused(store, folder, wanted)
    with opened(store, folder) as home:
        flow_run = stored_flow_run(home, wanted)
    return flow_run or stop("RUN_ID", f"there is no run {wanted} in {home.name}")


def _stop_if_unused(store: str, folder: Path, run_id: str) -> None:
    """Stop if the state directory has never been used: asking for a stored run does not create one."""
    if store == "embedded" and not StateDirectory.exists(folder):
        stop("RUN_ID", f"there is no run {run_id} in --state-dir {folder}")


def _chosen_file(run_id: str | None, flow_run_path: Path | None) -> Document | None:
    if (run_id is None) == (flow_run_path is None):
        stop("RUN_ID", "name a stored run, or a file with --flow-run-path: one of the two")
    return None if flow_run_path is None else read_flow_run(flow_run_path)


def _run_id(run_id: str | None, given: Document | None) -> str:
    wanted = run_id if given is None else str(given["runId"])
    return wanted if wanted and is_usable_id(wanted) else stop("RUN_ID", "cannot be the id of a run")


def _print(run_id: str, changes: tuple[FieldChange, ...], form: str) -> None:
    if form == "json":
        say(json.dumps(changes_as_json(run_id, changes), indent=2, ensure_ascii=False))
    else:
        say(changes_as_text(changes))


def _log(run_id: str | None) -> Log:
    settings = read_flow_settings()
    if stderr_is_terminal():
        return TerminalLog(CONSOLE, settings.log_level)
    context = {"service": service_name(), "env": settings.env, **({"runId": run_id} if run_id else {})}
    return JsonLog(sys.stderr, SystemClock(), settings.log_level, context)


advance_flow.add_command(run_flow)
advance_flow.add_command(resume_flow)
