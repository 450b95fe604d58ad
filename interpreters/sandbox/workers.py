"""The services of this project as child processes, under functions-framework.

Owns their start, their logs and their end: they die with this process, also when it is killed. Must not know what they do,
nor who sends them events.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from interpreters.sandbox.http_server import HOST

TARGETS = ("worker_chart_export", "advance_flow", "worker_llm_client")
START_SECONDS = 60.0
_POLL_SECONDS = 0.05


class WorkerEndedError(RuntimeError):
    """A service has ended though nobody asked it to."""


class Workers:
    """One process a service, each on a free port."""

    def __init__(self, variables: Mapping[str, str], logs_dir: Path | None = None) -> None:
        """Give all of them these variables; let them log to <folder>/<target>.log, or to this process's stderr."""
        ports = _free_ports(len(TARGETS))
        self.urls = {target: f"http://{HOST}:{port}" for target, port in zip(TARGETS, ports, strict=True)}
        self._ports = dict(zip(TARGETS, ports, strict=True))
        self._variables = variables
        self._logs_dir = logs_dir
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Start them, and wait until all of them answer."""
        with ExitStack() as started:
            for target in TARGETS:
                self._processes[target] = self._start(target)
                started.callback(_end, self._processes[target])
            for target in TARGETS:
                self._await_port(target)
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them at once: what they were at work on is in this process, and ends with it."""
        self._running.close()

    def check(self) -> None:
        """Raise where one of them has ended."""
        for target, process in self._processes.items():
            if process.poll() is not None:
                message = f"{target} has ended with exit code {process.returncode}"
                raise WorkerEndedError(message)

    def _start(self, target: str) -> subprocess.Popen[bytes]:
        """Start a service; the pipe to its stdin says nothing, and ends with this process."""
        options = ("--target", target, "--signature-type", "cloudevent", "--host", HOST)
        source = ("--source", _service_file(), "--port", str(self._ports[target]))
        with ExitStack() as opened:
            log = None
            if self._logs_dir is not None:
                self._logs_dir.mkdir(parents=True, exist_ok=True)
                log = opened.enter_context((self._logs_dir / f"{target}.log").open("ab"))
            stream = sys.stderr.fileno() if log is None else log.fileno()
            return subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                [sys.executable, "-P", "-m", __name__, *options, *source],
                # As the interpreter finds its modules here, so it does there: in a checkout as in a wheel.
                env={**self._variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def _await_port(self, target: str) -> None:
        ends = time.monotonic() + START_SECONDS
        while not _answers(self._ports[target]):
            self.check()
            if time.monotonic() > ends:
                message = f"{target} does not answer within {START_SECONDS:g} s"
                raise WorkerEndedError(message)
            time.sleep(_POLL_SECONDS)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as taken:
        sockets = [taken.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((HOST, port)) == 0


def _service_file() -> str:
    found = importlib.util.find_spec("service")
    assert found is not None
    assert found.origin is not None
    return found.origin


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


# In the child.


def _serve() -> None:
    """Be functions-framework, for as long as the parent lives."""
    Thread(target=_end_with_parent, daemon=True).start()
    runpy.run_module("functions_framework", run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    """End with all children when nobody holds the other end of stdin any more."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
