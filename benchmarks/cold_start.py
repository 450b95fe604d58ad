"""How long a fresh process of the service takes to its first answer, what memory it has then, and what it has imported.

A process is started as Cloud Run starts it, with its bytecode on disk; the event asks for nothing. Resident memory is the share (PSS) of both of
functions-framework's processes, which have most pages in common.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from benchmarks.measuring import MIB, memory_bytes, process_cpu_seconds, spread
from benchmarks.tables import Table, show

TARGETS = ("worker_chart_export", "worker_llm_client", "advance_flow")
REACH_SECONDS, REACH_MIB = 0.5, 90
ROUNDS = 5
SHOWN_PACKAGES = 12
_IMPORTS = "--imports"


def _start(target: str, variables: Mapping[str, str], body: bytes) -> tuple[float, float, float]:
    """Return seconds to the first answer, seconds of a core until then, and bytes of memory then."""
    from benchmarks.noop_events import family, post_until_answered, served  # noqa: PLC0415 - imports what is measured

    started = time.perf_counter()
    with served(variables, target) as (process, url):
        answered = post_until_answered(url, body)
        pids = family(process.pid)
        return (
            answered - started,
            sum(map(process_cpu_seconds, pids)),
            sum(memory_bytes(pid, "Pss") for pid in pids),
        )


def _bare_start(rounds: int) -> float:
    """Return how long functions-framework alone takes to import: no service can start sooner."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "import functions_framework._cli, gunicorn.app.base, gunicorn.workers.gthread"],
            check=True,
        )
        times.append(time.perf_counter() - started)
    return spread(times).median


def import_stages() -> None:
    """Print, as JSON, what this process imports for the service, for a first event, and how long each stage takes."""
    stages: dict[str, tuple[float, list[str]]] = {}

    @contextlib.contextmanager
    def stage(name: str) -> Iterator[None]:
        before, started = set(sys.modules), time.process_time()
        yield
        stages[name] = time.process_time() - started, sorted(set(sys.modules) - before)

    body = sys.stdin.buffer.read()
    with stage("functions-framework"):
        import functions_framework._cli  # noqa: F401, PLC0415
    with contextlib.redirect_stderr(io.StringIO()):
        with stage("service.py"):
            import service  # noqa: PLC0415
        from cloudevents.http import CloudEvent  # noqa: PLC0415

        attributes = json.loads(os.environ["EVENT"])
        with stage("first event that asks for nothing"):
            service.worker_chart_export(CloudEvent(attributes, body))
        with stage("first event that asks for something"):
            import interpreters.cloud  # noqa: F401, PLC0415
        with stage("first use of Firestore"):
            from google.cloud import firestore  # noqa: F401, PLC0415
        with stage("first use of Cloud Storage"):
            from google.cloud import storage  # noqa: F401, PLC0415
    print(json.dumps(stages))


def _imports(variables: Mapping[str, str], body: bytes) -> Table:
    from benchmarks.events import ATTRIBUTES  # noqa: PLC0415

    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**kept, **variables, "FUNCTION_TARGET": TARGETS[0], "EVENT": json.dumps(ATTRIBUTES)}
    command = [sys.executable, "-m", "benchmarks.cold_start", _IMPORTS]
    said = subprocess.run(command, input=body, env=environment, stdout=subprocess.PIPE, check=True).stdout
    rows = []
    for name, (seconds, modules) in json.loads(said).items():
        packages = Counter(".".join(one.split(".")[: 3 if one.startswith("google.") else 1]) for one in modules)
        most = ", ".join(f"{package} {count}" for package, count in packages.most_common(SHOWN_PACKAGES))
        rows.append((name, f"{seconds * 1e3:.0f}", str(len(modules)), most))
    return Table(
        title="What is imported when",
        reach="shown",
        columns=("stage", "ms of a core", "modules", "most of them"),
        rows=rows,
    )


def measure(quick: bool) -> list[Table]:
    """Start processes, and look into one."""
    from benchmarks.events import payload  # noqa: PLC0415
    from benchmarks.noop_events import environment  # noqa: PLC0415
    from interpreters.sandbox.firestore import FirestoreServer  # noqa: PLC0415

    rounds, body, rows = 1 if quick else ROUNDS, payload(50), []
    with FirestoreServer() as firestore:
        variables = environment(firestore.address)
        for target in TARGETS[:1] if quick else TARGETS:
            took = [_start(target, variables, body) for _ in range(rounds)]
            wall, core, memory = (spread(list(one)) for one in zip(*took, strict=True))
            is_reached = wall.median <= REACH_SECONDS and memory.median <= REACH_MIB * MIB
            rows.append(
                (
                    target,
                    wall.text(0, 1e3),
                    f"{wall.least * 1e3:.0f}",
                    core.text(0, 1e3),
                    memory.text(0, 1 / MIB),
                    "yes" if is_reached else "no",
                )
            )
        rows.append(
            (
                "(imports of functions-framework and gunicorn alone)",
                f"{_bare_start(rounds) * 1e3:.0f}",
                "-",
                "-",
                "-",
                "-",
            )
        )
        imports = _imports(variables, body)
    return [
        Table(
            title="Cold start: a fresh process to its first answer",
            reach=f"under {REACH_SECONDS * 1e3:.0f} ms and {REACH_MIB} MiB",
            columns=("service", "ms", "fastest", "ms of a core", "MiB then", "reached"),
            rows=rows,
        ),
        imports,
    ]


if __name__ == "__main__":
    if _IMPORTS in sys.argv:
        import_stages()
    else:
        show(measure)
