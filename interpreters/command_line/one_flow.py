"""What the commands that run one flow share: the files they are given, the log, and what is shown of the run.

Owns their form. Must not know where the flow runs: on one machine, or in the sandbox.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from core.charts.step import STEP_TYPE as CHART_EXPORT
from core.documents import field
from core.flow.graph import parse_graph
from core.flow.picture import steps_in_order, what_it_waits_for
from core.flow.settings import FlowSettings
from core.flow.status import ENDED_RUNS
from core.flow.summary import flow_as_json, flow_as_text
from core.problems import Problem
from core.reports.references import STEP_TYPE as LLM_REPORT
from effects import Document
from interpreters.clock import SystemClock
from interpreters.command_line.inputs import WrongCall, say, service_name
from interpreters.command_line.progress import CONSOLE, TerminalLog, show_report
from interpreters.given_steps import GivenFile
from interpreters.telemetry import JsonLog, Log, stderr_is_terminal

EXIT_NOT_SUCCEEDED = 1
SERVED = {CHART_EXPORT: "worker-chart-export", LLM_REPORT: "worker-llm-client"}
"""Step types that have a worker here."""


given_option = click.option(
    "--given",
    "given",
    metavar="STEP_ID=FILE",
    multiple=True,
    help="File that becomes the artifact of a step that no worker here serves; may be given several times.",
)


def given_files(given: tuple[str, ...], flow_run: Document) -> dict[str, GivenFile]:
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


def show_reports(artifact: Callable[[str], bytes | None], flow_run: Document) -> None:
    """Show the reports of a run to a person at a terminal."""
    for step_id in steps_in_order(flow_run) if stderr_is_terminal() else ():
        step = flow_run["steps"][step_id]
        uri = field(step, "outputs", "gcs_uri")
        if (step.get("stepType"), step["status"]) == (LLM_REPORT, "SUCCEEDED") and isinstance(uri, str):
            show_report(artifact(uri))


def show_nothing(_: Document) -> None:
    """Show nothing: nobody looks."""


def finish(flow_run: Document, form: str) -> None:
    """Say what came of the run, and end the process with its exit code."""
    graph = parse_graph(flow_run.get("steps"))
    is_over = flow_run.get("status") in ENDED_RUNS
    waits_for = () if is_over else what_it_waits_for(flow_run, graph.unwrap(), SERVED)
    if form == "text":
        say(flow_as_text(flow_run, waits_for))
    elif form == "json":
        say(json.dumps(flow_as_json(flow_run, waits_for), ensure_ascii=False))
    sys.exit(0 if flow_run.get("status") == "SUCCEEDED" else EXIT_NOT_SUCCEEDED)


class RunLog:
    """The log of a run, and of each of its steps."""

    def __init__(self, log: JsonLog | TerminalLog) -> None:
        """Write there."""
        self.log: JsonLog | TerminalLog = log

    def of_step(self, step_id: str) -> Log:
        """Return the log whose entries name the step."""
        return self.log.bind(stepId=step_id) if isinstance(self.log, JsonLog) else self.log


def log_of(run_id: str, settings: FlowSettings) -> RunLog:
    """Return the log of a run: lines for a person, or JSON."""
    if stderr_is_terminal():
        # The live lines say what goes well.
        return RunLog(TerminalLog(CONSOLE, "WARNING" if settings.log_level == "INFO" else settings.log_level))
    context = {"service": service_name(), "env": settings.env, "runId": run_id}
    return RunLog(JsonLog(sys.stderr, SystemClock(), settings.log_level, context))
