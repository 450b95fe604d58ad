"""`tda sandbox`: the cloud in one process, for as long as the command runs, or until one flow has ended in it.

Owns its flags and what it prints. Must not know how the servers work, nor what the services do.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click

from core.flow.settings import FlowSettings
from core.flow.status import ENDED_RUNS
from core.problems import Problem
from effects import Document
from interpreters import shipped
from interpreters.command_line.homes import open_cloud
from interpreters.command_line.inputs import (
    WrongCall,
    flow_run_option,
    read_flow_run,
    read_flow_settings,
    say,
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
from interpreters.given_steps import GivenFile
from interpreters.ports import StoreUnusableError
from interpreters.registry import RegistryFolders
from interpreters.telemetry import stderr_is_terminal
from interpreters.templates import TemplateFolder

if TYPE_CHECKING:
    from interpreters.cloud import Cloud
    from interpreters.sandbox.whole import Sandbox
    from interpreters.sandbox.workers import Workers

DEFAULT_SERVICES = ("http://127.0.0.1:8690", "http://127.0.0.1:8691", "http://127.0.0.1:8692")
SIGNALLED = 128
"""Added to a signal's number: the exit code of a flow that was stopped by it."""
_LAST_WORDS_SECONDS = 5.0
"""How long services may take to log and answer what they were at when the run ended."""


@click.command("sandbox")
@click.option("--firestore-port", default=8686, show_default=True, help="0 takes any free port.")
@click.option("--storage-port", default=8687, show_default=True)
@click.option("--chart-img-port", default=8688, show_default=True)
@click.option("--gemini-port", default=8689, show_default=True)
@click.option(
    "--service",
    "services",
    multiple=True,
    help="URL to deliver changes of flow_runs to; may be given several times. Default, where no workers are started: "
    f"{', '.join(DEFAULT_SERVICES)}.",
)
@click.option("--with-workers", is_flag=True, help="Start the services as well, on free ports.")
@click.option(
    "--logs-dir", type=click.Path(path_type=Path), help="Where the services' logs go. Default: to stderr."
)
@flow_run_option(required=False)
@given_option
@click.option("--duplicates", default=0.1, show_default=True, help="Part of the events that is delivered twice.")
@click.option("--reordered", default=0.1, show_default=True, help="Part of the events that is held back a little.")
@click.option("--seed", default=0, show_default=True, help="Chooses which events.")
@click.option(
    "--env-file", type=click.Path(path_type=Path), help="Write the export lines here as well, to be sourced."
)
def sandbox(
    firestore_port: int,
    storage_port: int,
    chart_img_port: int,
    gemini_port: int,
    services: tuple[str, ...],
    with_workers: bool,  # noqa: FBT001 - click's flag
    logs_dir: Path | None,
    flow_run_path: Path | None,
    given: tuple[str, ...],
    duplicates: float,
    reordered: float,
    seed: int,
    env_file: Path | None,
) -> None:
    """Run the cloud in one process: Firestore, Cloud Storage, Chart-IMG, Gemini, and events like Eventarc's.

    Google's client libraries talk to it unmodified, once the printed variables are set. Everything is in memory and
    gone when the command ends. The shipped chart templates, prompts and schemas are there from the start.

    \b
    A whole flow in it, by one command; it prints and ends as `tda flow run` does:
      tda sandbox --flow-run-path flow_run.json --given candles:4h=candles.json

    \b
    The sandbox with all services, until it is stopped:
      tda sandbox --with-workers --logs-dir logs --env-file sandbox.env

    \b
    Or each service by hand. In one terminal:
      tda sandbox --env-file sandbox.env
    In others:
      source sandbox.env
      functions-framework --source service.py --target worker_chart_export --signature-type cloudevent --port 8690
      functions-framework --source service.py --target advance_flow --signature-type cloudevent --port 8691
      functions-framework --source service.py --target worker_llm_client --signature-type cloudevent --port 8692
    In the last:
      source sandbox.env
      python -c 'from google.cloud import firestore; import json, sys; run = json.load(open(sys.argv[1])); \\
          firestore.Client().document("flow_runs", run["runId"]).set(run)' fixtures/flow-runs/five_charts.json
    """
    flow = _read_flow(flow_run_path, given)
    has_workers = with_workers or flow is not None
    _check(has_flow=flow is not None, has_workers=has_workers, given=given, logs_dir=logs_dir)
    from interpreters.sandbox.eventarc import Chances  # noqa: PLC0415 - the libraries are slow to import
    from interpreters.sandbox.whole import Ports, Sandbox  # noqa: PLC0415
    from interpreters.sandbox.workers import Workers  # noqa: PLC0415

    with ExitStack() as running:
        try:
            whole = Sandbox(
                services=services or (() if has_workers else DEFAULT_SERVICES),
                ports=Ports(
                    firestore=firestore_port, storage=storage_port, chart_img=chart_img_port, gemini=gemini_port
                ),
                chances=Chances(duplicate=duplicates, reorder=reordered),
                seed=seed,
            )
            running.enter_context(whole)
            os.environ.update(whole.environment())
            stored = _seed(open_cloud())
            workers = Workers(os.environ, logs_dir) if has_workers else None
            if workers is not None:
                running.enter_context(workers)
                whole.subscribe(*workers.urls.values())
            _export(whole, env_file, is_said=flow is None)
        except (OSError, RuntimeError, ImportError) as error:
            stop("sandbox", f"cannot start: {error}")
        stopping = _Stopping()
        if flow is None or workers is None:
            say(f"# {stored} are stored; events go to {', '.join(whole.services)}; stop with Ctrl-C")
            stopping.asked.wait()
            return
        progress = FlowProgress(CONSOLE) if stderr_is_terminal() and logs_dir else None
        flow_run = _run_flow(flow, whole, workers, stopping, progress)
    finish(flow_run, "text")


@dataclass(frozen=True, slots=True)
class _Flow:
    """A flow to run, as given and checked."""

    flow_run: Document
    files: Mapping[str, GivenFile]
    settings: FlowSettings


class _Stopping:
    """Whether a signal asked for the end, and which."""

    def __init__(self) -> None:
        self.asked = Event()
        self.number = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, _: object) -> None:
        self.number = number
        self.asked.set()


def _read_flow(path: Path | None, given: tuple[str, ...]) -> _Flow | None:
    if path is None:
        return None
    flow_run = read_flow_run(path)
    return _Flow(flow_run, given_files(given, flow_run), read_flow_settings())


def _check(*, has_flow: bool, has_workers: bool, given: tuple[str, ...], logs_dir: Path | None) -> None:
    """Refuse flags that mean nothing without others."""
    problems = [
        *([Problem("--given", "needs --flow-run-path")] if given and not has_flow else []),
        *([Problem("--logs-dir", "needs --with-workers")] if logs_dir is not None and not has_workers else []),
    ]
    if problems:
        raise WrongCall(tuple(problems))


def _seed(cloud: Cloud) -> str:
    """Store what is shipped; return what that is."""
    folder = TemplateFolder(shipped.TEMPLATES)
    templates, _ = folder.load(folder.ids())
    cloud.store_templates(templates, dry_run=False)
    prompts, schemas = cloud.store_registry(RegistryFolders(shipped.PROMPTS, shipped.SCHEMAS))
    return f"{len(templates)} chart templates, {prompts} prompts and {schemas} schemas"


def _export(whole: Sandbox, env_file: Path | None, *, is_said: bool) -> None:
    """Say, and write, the lines that point a shell at the sandbox."""
    lines = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in whole.environment().items())
    if is_said:
        say(lines)
    if env_file is not None:
        env_file.write_text(lines + "\n", "utf-8")


def _run_flow(
    flow: _Flow, whole: Sandbox, workers: Workers, stopping: _Stopping, progress: FlowProgress | None
) -> Document:
    """Run the flow to its end, or to that of whoever stops it."""
    from interpreters.sandbox.flow import SandboxFlow  # noqa: PLC0415 - the libraries are slow to import

    cloud = open_cloud()
    log = log_of(str(flow.flow_run["runId"]), flow.settings)
    running = SandboxFlow(
        sandbox=whole,
        cloud=cloud,
        workers=workers,
        files=flow.files,
        log_of=log.of_step,
        show=progress.show if progress else show_nothing,
    )
    try:
        with progress or nullcontext():
            flow_run = running.to_end(flow.flow_run, stopping.asked.is_set)
    except (StoreUnusableError, RuntimeError) as error:
        stop("sandbox", f"the flow cannot go on: {error}")
    if stopping.number and flow_run.get("status") not in ENDED_RUNS:
        sys.exit(SIGNALLED + stopping.number)
    # The document says the end before the service logs it, and answers.
    whole.eventarc.drain(_LAST_WORDS_SECONDS)
    show_reports(cloud.artifact, flow_run)
    return flow_run
