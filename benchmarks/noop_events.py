"""What an event costs that asks for nothing: from its bytes to the answer, and in reads of Firestore.

By far the most events are such: each claim and each finalize makes one for every worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import requests

from benchmarks.events import event, headers, payload
from benchmarks.measuring import Spread, cpu_seconds, process_cpu_seconds, spread
from benchmarks.servers import BUCKET
from benchmarks.tables import Table, show
from interpreters.sandbox.firestore import FirestoreServer
from service import ChartWorker, EventService, ReportWorker

STEPS = 50
REACH = 10_000
ROUNDS, EVENTS = 9, 400
ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 60.0


def environment(firestore: str) -> dict[str, str]:
    """Return the variables of a service whose chart worker, and report worker, may start."""
    accounts = [{"id": "acc1", "apiKey": "benchmark-key", "dailyLimit": 500, "requestsPerSecond": 10}]
    return {
        "GOOGLE_CLOUD_PROJECT": "benchmark",
        "FIRESTORE_EMULATOR_HOST": firestore,
        "CHARTS_BUCKET": BUCKET,
        "CHART_IMG_ACCOUNTS_JSON": json.dumps(accounts),
        "ARTIFACTS_BUCKET": BUCKET,
        "GEMINI_API_KEY": "benchmark-key",
        "LLM_API_MODE": "real",
    }


@contextlib.contextmanager
def quiet_worker(kind: type[ChartWorker | ReportWorker], firestore: str) -> Iterator[EventService]:
    """Return the service of this process, whose log goes nowhere."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        with contextlib.redirect_stderr(nowhere):
            worker = kind(environment(firestore))
        yield worker


def seconds_an_event(worker: EventService, body: bytes, rounds: int, events: int) -> Spread:
    """Return how long a core is at work for one event."""
    one = event(body)

    def handle_all() -> None:
        for _ in range(events):
            worker.handle(one)

    handle_all()
    return spread([cpu_seconds(handle_all) / events for _ in range(rounds)])


@contextlib.contextmanager
def served(
    variables: Mapping[str, str], target: str = "worker_chart_export"
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start the service as Cloud Run does; yield its process, and its address as soon as it may answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(sys.executable).parent / "functions-framework"
    command = [str(script), "--source", "service.py", "--target", target, "--signature-type", "cloudevent"]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        cwd=ROOT,
        env={**kept, **variables, "WORKERS": "1", "THREADS": "8"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process, f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


def post_until_answered(url: str, body: bytes) -> float:
    """Send the event as soon as somebody listens; return the moment of the answer."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((host, int(port))).close()
            requests.post(url, data=body, headers=headers(), timeout=PATIENCE_SECONDS).raise_for_status()
            return time.perf_counter()
        time.sleep(0.005)
    message = f"nobody answered at {url}"
    raise TimeoutError(message)


def family(pid: int) -> list[int]:
    """Return the process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [pid, *map(int, children)]


def _through_framework(firestore: str, body: bytes, events: int) -> tuple[float, float]:
    """Return seconds of a core, and of waiting, an event sent over one connection."""
    with served(environment(firestore)) as (process, url), requests.Session() as session:
        post_until_answered(url, body)
        before, started = sum(map(process_cpu_seconds, family(process.pid))), time.perf_counter()
        for _ in range(events):
            session.post(url, data=body, headers=headers(), timeout=PATIENCE_SECONDS).raise_for_status()
        waited = time.perf_counter() - started
        return (sum(map(process_cpu_seconds, family(process.pid))) - before) / events, waited / events


def measure(quick: bool) -> list[Table]:
    """Measure in process, then through functions-framework."""
    rounds, events = (1, 5) if quick else (ROUNDS, EVENTS)
    body, rows = payload(STEPS), []
    with FirestoreServer() as firestore:
        for kind in (ChartWorker, ReportWorker):
            with quiet_worker(kind, firestore.address) as worker:
                took = seconds_an_event(worker, body, rounds, events)
            rate = 1 / took.median
            reads = f"{firestore.calls.total()}"
            rows.append(
                (
                    f"{kind.name}, in process",
                    took.text(1, 1e6),
                    f"{rate:,.0f}",
                    f"{1 / took.least:,.0f}",
                    reads,
                    "yes" if rate >= REACH else "no",
                )
            )
        if not quick:
            core, waited = _through_framework(firestore.address, body, events)
            rows.append(
                (
                    "worker-chart-export, functions-framework",
                    f"{core * 1e6:,.0f}",
                    f"{1 / core:,.0f}",
                    f"{1 / waited:,.0f} answered",
                    f"{firestore.calls.total()}",
                    "-",
                )
            )
    return [
        Table(
            title=f"An event that asks for nothing ({STEPS} steps, {len(body) / 1024:.0f} KiB)",
            reach=f"{REACH:,} a second of a core in process, no read",
            columns=(
                "who",
                "µs of a core an event",
                "events a second of a core",
                "at best",
                "Firestore calls",
                "reached",
            ),
            rows=rows,
        )
    ]


if __name__ == "__main__":
    show(measure)
