"""Runs the installed console scripts as a person would: as processes, with an environment of their own.

Owns starting them, what they left behind on stdout, stderr and in the state directory. Asserts nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interpreters.shipped import FLOW_RUNS
from tests.builders import RUN_ID, STEP_ID
from tests.end_to_end import zygote
from tests.end_to_end.zygote import SCRIPTS

FIVE_CHARTS: dict[str, Any] = json.loads((FLOW_RUNS / "five_charts.json").read_text("utf-8"))
EVERY_ENTRY = {"event", "message", "severity", "time", "service", "env"}
"""The fields that every log entry has."""

WORKER = (str(SCRIPTS / "worker-chart-export"),)
TDA_CHARTS = (str(SCRIPTS / "tda"), "charts")

BUCKET = "local-artifacts"
PATIENCE_SECONDS = 60
SIDE_BY_SIDE = 4


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended: its exit code and what it said."""

    code: int
    stdout: str
    stderr: str

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the entries of the log, all of them or those of one name."""
        entries = [json.loads(line) for line in self.stderr.splitlines()]
        return [entry for entry in entries if name is None or entry["event"] == name]

    def summary(self) -> dict[str, Any]:
        return dict(json.loads(self.stdout))

    def problems(self) -> list[str]:
        """Return what was wrong with the call, one line a problem."""
        rows = [row for entry in self.events("config_error") for row in entry["problems"]]
        return [f"{row['where']}: {row['message']}" for row in rows]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a console script that is yet to be made."""

    folder: Path
    arguments: Sequence[str | Path]
    command: Sequence[str] = WORKER
    variables: Mapping[str, str] = field(default_factory=dict)
    real: bool = False
    """In a fresh interpreter; see `zygote.start`."""


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with nothing of ours in it but these variables."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "COLUMNS": "120", **(variables or {})}


def start(call: Call) -> zygote.Process:
    command = [*call.command, *map(str, call.arguments)]
    return zygote.start(command, cwd=call.folder, env=environment(call.variables), real=call.real)


def finish(process: zygote.Process) -> Ended:
    """Wait for the end of a process; one that does not end is killed."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Ended(process.wait(), stdout, stderr)


def call(
    folder: Path,
    *arguments: str | Path,
    command: Sequence[str] = WORKER,
    variables: Mapping[str, str] | None = None,
    real: bool = False,
) -> Ended:
    """Run one console script to its end."""
    return finish(start(Call(folder, arguments, command, variables or {}, real)))


def call_all(calls: Mapping[str, Call]) -> dict[str, Ended]:
    """Run independent calls a few at a time: much of what they take is waiting."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        return dict(zip(calls, threads.map(lambda one: finish(start(one)), calls.values()), strict=True))


def call_at_once(calls: Sequence[Call]) -> list[Ended]:
    """Start all calls before waiting for any."""
    processes = [start(one) for one in calls]
    with ThreadPoolExecutor(len(processes)) as threads:
        return list(threads.map(finish, processes))


def under_file_limit(half_kibibytes: int, command: Sequence[str] = WORKER) -> tuple[str, ...]:
    """Return the command with a bound on the size of files it writes, as a disk that is nearly full has."""
    return ("sh", "-c", f'ulimit -f {half_kibibytes}; exec "$@"', "sh", *command)


def write_json(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), "utf-8")
    return path


def write_flow_run(folder: Path, document: object, name: str = "flow_run.json") -> Path:
    return write_json(folder / name, document)


def run_local(folder: Path, document: object, **changes: Any) -> Call:
    """Return the call of `run-local` on a document, with its summary as JSON and its state in folder/state."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_flow_run(folder, document)
    flags = ("--output-summary", "json", "--state-dir", "state", *changes.pop("flags", ()))
    return Call(folder, ("run-local", "--flow-run-path", path, *flags), **changes)


# What a run leaves in its state directory.


def exported(state: Path, run_id: str = RUN_ID) -> dict[str, Any]:
    """Return the updated document."""
    return dict(json.loads((state / "flow_runs" / f"{run_id}.json").read_text("utf-8")))


def exported_step(state: Path, run_id: str = RUN_ID, step_id: str = STEP_ID) -> dict[str, Any]:
    return dict(exported(state, run_id)["steps"][step_id])


def object_file(state: Path, uri: str) -> Path:
    """Return the file of a gs:// URI."""
    return state / "artifacts" / uri.removeprefix("gs://")


def manifest_uri(run_id: str = RUN_ID, step_id: str = STEP_ID, bucket: str = BUCKET) -> str:
    return f"gs://{bucket}/charts/{run_id}/{step_id}/manifest.json"


def manifest(state: Path, uri: str | None = None) -> dict[str, Any]:
    return dict(json.loads(object_file(state, uri or manifest_uri()).read_text("utf-8")))


def artifacts(state: Path, pattern: str = "*") -> list[Path]:
    """Return every file below artifacts/, hidden ones too."""
    return sorted(path for path in (state / "artifacts").rglob(pattern) if path.is_file())
