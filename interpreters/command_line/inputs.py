"""What a person gave on the command line, checked: flags, variables and files.

Owns reading them and saying what is wrong, everything at once. Must not run anything.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from returns.result import Failure, Result

from core.charts.settings import (
    ACCOUNTS_VARIABLE,
    LOCAL_DEFAULTS,
    VARIABLES,
    ChartConfiguration,
    parse_configuration,
)
from core.charts.step import STEP_TYPE
from core.cloud import VARIABLES as CLOUD_VARIABLES
from core.cloud import CloudSettings, parse_cloud_settings
from core.events import LogEvent
from core.flow.flow_run import parse_flow_run
from core.flow.selection import wanted_step_problems
from core.flow.settings import LOCAL_DEFAULTS as FLOW_DEFAULTS
from core.flow.settings import VARIABLES as FLOW_VARIABLES
from core.flow.settings import FlowSettings, parse_flow_settings
from core.journal.settings import VARIABLES as JOURNAL_VARIABLES
from core.journal.settings import JournalSettings, parse_journal_settings
from core.problems import Problem, Problems
from core.reports.settings import LOCAL_DEFAULTS as REPORT_DEFAULTS
from core.reports.settings import VARIABLES as REPORT_VARIABLES
from core.reports.settings import parse_report_configuration
from core.settings import Given
from effects import Document
from effects.moments import parse_moment
from interpreters import shipped
from interpreters.clock import SystemClock
from interpreters.telemetry import JsonLog, stderr_is_terminal

_YEARS = range(1971, 3000)

Command = TypeVar("Command", bound=Callable[..., Any])
EXIT_WRONG_CALL = 2

T = TypeVar("T")


class WrongCall(click.ClickException):
    """The call, the configuration or a file is wrong; nothing was claimed."""

    exit_code = EXIT_WRONG_CALL

    def __init__(self, problems: Problems) -> None:
        """Hold everything that is wrong."""
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems
        self._service = service_name()

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        """Say everything at once, on stderr: readable on a terminal, else as one JSON line."""
        if stderr_is_terminal():
            for problem in self.problems:
                click.echo(f"error: {problem}", err=True)
            return
        rows = [{"where": problem.where, "message": problem.message} for problem in self.problems]
        event = LogEvent("config_error", self.message, "ERROR", {"problems": rows})
        JsonLog(
            sys.stderr,
            SystemClock(),
            context={"service": self._service, "env": os.environ.get("ENV") or LOCAL_DEFAULTS["ENV"]},
        ).write(event)


def speak_for(service: str) -> None:
    """Name the service that the command's log entries are of."""
    click.get_current_context().obj = service


def service_name() -> str:
    """Return the service that the running command speaks for."""
    context = click.get_current_context(silent=True)
    return (context.find_object(str) if context else None) or "tda"


def prepare_streams() -> None:
    """Make stdout and stderr fit for any text, and there to be written even where the caller closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open as long as the process
        getattr(sys, name).reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """Write a result to stdout; a full disk or a closed pipe is said on stderr."""
    try:
        click.echo(text)
    except OSError as error:
        click.echo(f"error: stdout: {error.strerror}", err=True)


def stop(where: str, message: str) -> NoReturn:
    """Stop with this one problem."""
    raise WrongCall((Problem(where, message),))


def value_of(result: Result[T, Problems]) -> T:
    """Return the value, or stop with everything that is wrong."""
    if isinstance(result, Failure):
        raise WrongCall(result.failure())
    return result.unwrap()


def flow_run_option(*, required: bool) -> Callable[[Command], Command]:
    """Return the flag that names a flow_run file."""
    return click.option(
        "--flow-run-path",
        required=required,
        type=click.Path(path_type=Path),
        help="flow_run document (JSON); never changed.",
    )


now_option = click.option("--now", metavar="RFC3339", help="The moment to plan for. Default: now.")


def chosen_moment(now: str | None) -> datetime:
    """Return the moment given, or this one."""
    moment = SystemClock().now() if now is None else parse_moment(now)
    if moment is None or moment.year not in _YEARS:
        stop("--now", "must be RFC 3339 with a time zone, like 2025-12-15T10:25:30Z")
    return moment


def chart_options(command: Command) -> Command:
    """Add the flags that say how charts are drawn."""
    for option in reversed(
        (
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


def report_options(command: Command) -> Command:
    """Add the flags that say how reports are written."""
    for option in reversed(
        (
            click.option(
                "--llm-api-mode",
                metavar="real|mock|record",
                help="Where the model's answers come from. Default: $LLM_API_MODE, else mock.",
            ),
            click.option(
                "--artifacts-bucket",
                metavar="gs://NAME",
                help="Bucket of reports. Default: $ARTIFACTS_BUCKET, else gs://local-artifacts.",
            ),
            click.option(
                "--prompts-dir", type=click.Path(path_type=Path), help="Prompts. Default: the shipped ones."
            ),
            click.option(
                "--schemas-dir", type=click.Path(path_type=Path), help="Schemas. Default: the shipped ones."
            ),
            click.option(
                "--recordings-dir",
                type=click.Path(path_type=Path),
                help="Recorded answers of the model. Default: the shipped ones; record mode needs one of yours.",
            ),
        )
    ):
        command = option(command)
    return command


def journal_options(command: Command) -> Command:
    """Add the flags that say whether, and how, a journal is written."""
    file = click.option(
        "--journal",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Append every effect and outcome to this file, for `tda replay`. Default: $JOURNAL_URI, else none.",
    )
    texts = click.option(
        "--journal-texts",
        is_flag=True,
        help="Keep prompts, answers and artifacts in it too, not only their sizes and hashes; never pictures or keys.",
    )
    return file(texts(command))


def chosen_journal(file: Path | None, *, texts: bool) -> JournalSettings:
    """Return where journals go; stop if that is wrong, or the file cannot be written."""
    given = _environment(JOURNAL_VARIABLES)
    settings = value_of(parse_journal_settings(given, None if file is None else str(file), texts=texts))
    try:
        if file is not None:
            file.open("ab").close()
    except OSError as error:
        stop(f"--journal {file}", f"cannot be written: {error.strerror}")
    return settings


class ReportFlags:
    """How reports are written, as given and checked."""

    def __init__(
        self,
        *,
        llm_api_mode: str | None,
        artifacts_bucket: str | None,
        prompts_dir: Path | None,
        schemas_dir: Path | None,
        recordings_dir: Path | None,
    ) -> None:
        given = _environment(REPORT_VARIABLES)
        for name, flag, value in (
            ("LLM_API_MODE", "--llm-api-mode", llm_api_mode),
            ("ARTIFACTS_BUCKET", "--artifacts-bucket", artifacts_bucket),
        ):
            if value is not None:
                given[name] = Given(value, flag)
        self.configuration = value_of(parse_report_configuration(given, REPORT_DEFAULTS))
        self.is_registry_given = prompts_dir is not None or schemas_dir is not None
        self.registry_dirs = (
            existing_folder("--prompts-dir", prompts_dir, shipped.PROMPTS),
            existing_folder("--schemas-dir", schemas_dir, shipped.SCHEMAS),
        )
        self.recordings_dir = recorded_folder(
            "--recordings-dir", recordings_dir, shipped.MODEL_FIXTURES, self.mode
        )

    @property
    def mode(self) -> str:
        """Return the mode the model is used in."""
        return self.configuration.settings.mode


def recorded_folder(flag: str, given: Path | None, default: Path, mode: str) -> Path:
    """Return the folder of recorded answers; to record, one of the person's own is needed, which may not exist yet."""
    if mode != "record":
        return existing_folder(flag, given, default)
    folder = given or stop(flag, "is required in record mode: the folder to keep answers in")
    return folder if folder.is_dir() or not folder.exists() else stop(flag, f"{folder} is not a folder")


class ChartFlags:
    """How charts are drawn, as given and checked."""

    def __init__(
        self,
        *,
        charts_api_mode: str | None,
        charts_bucket: str | None,
        accounts_config_path: Path | None,
        templates_dir: Path | None,
        fixtures_dir: Path | None,
    ) -> None:
        self.configuration = read_configuration(charts_api_mode, charts_bucket, accounts_config_path)
        self.templates_dir = templates_dir and existing_folder("--templates-dir", templates_dir, templates_dir)
        self.fixtures_dir = recorded_folder("--fixtures-dir", fixtures_dir, shipped.CHART_API_FIXTURES, self.mode)

    @property
    def mode(self) -> str:
        """Return the mode the charts API is used in."""
        return self.configuration.settings.mode


class ChartCall(ChartFlags):
    """The checked input of `run-local` and `plan`."""

    def __init__(self, *, flow_run_path: Path, step_id: str | None, **chart_flags: Any) -> None:
        super().__init__(**chart_flags)
        self.flow_run_path = flow_run_path
        self.step_id = step_id
        self.flow_run = read_flow_run(flow_run_path)
        self.run_id = str(self.flow_run["runId"])
        problems = (
            wanted_step_problems(self.flow_run, STEP_TYPE, step_id, "--step-id") if step_id is not None else ()
        )
        if problems:
            raise WrongCall(problems)


def read_configuration(
    mode: str | None, bucket: str | None, accounts_config_path: Path | None
) -> ChartConfiguration:
    """Return settings and accounts: a flag beats a variable beats the default."""
    given = _environment(VARIABLES)
    for name, flag, value in (
        ("CHARTS_API_MODE", "--charts-api-mode", mode),
        ("CHARTS_BUCKET", "--charts-bucket", bucket),
    ):
        if value is not None:
            given[name] = Given(value, flag)
    if accounts_config_path is not None:
        is_json = set(str(accounts_config_path)) & set('[{"')  # given in the place of a path, it is not shown
        where = "--accounts-config-path" if is_json else f"--accounts-config-path {accounts_config_path}"
        given[ACCOUNTS_VARIABLE] = Given(_read_text(accounts_config_path, where), where)
    return value_of(parse_configuration(given, LOCAL_DEFAULTS))


def read_flow_settings() -> FlowSettings:
    """Return the settings of the orchestrator, from the environment."""
    return value_of(parse_flow_settings(_environment(FLOW_VARIABLES), FLOW_DEFAULTS))


def read_cloud_settings() -> CloudSettings:
    """Return the settings of the production interpreter, from the environment."""
    return value_of(parse_cloud_settings(_environment(CLOUD_VARIABLES)))


def _environment(names: Sequence[str]) -> dict[str, Given]:
    return {name: Given(os.environ[name], name) for name in names if name in os.environ}


def existing_folder(flag: str, given: Path | None, default: Path) -> Path:
    """Return the folder given, or the default; stop if it is none."""
    folder = given or default
    return folder if folder.is_dir() else stop(flag, f"{folder} is not a folder")


def _read_text(path: Path, where: str) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        stop(where, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        stop(where, "is not UTF-8 text")


def read_json(path: Path, where: str) -> Any:
    """Return the JSON of a file, or stop."""
    text = _read_text(path, where)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        stop(where, f"is not JSON: {error}")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant(text)


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is not a JSON value"
    raise ValueError(message)


def read_flow_run(path: Path) -> Document:
    """Return the flow_run of a file, or stop with everything that is wrong with it."""
    parsed = parse_flow_run(read_json(path, f"--flow-run-path {path}"))
    return value_of(parsed.alt(lambda found: tuple(Problem(f"{path}: {one.where}", one.message) for one in found)))
