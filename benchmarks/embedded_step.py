"""How long one step takes on the embedded store, beside a bare thread pool that makes the same calls and writes the same files.

The pool claims nothing, counts nothing and logs nothing; its files are as safe on disk as the worker's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from benchmarks.measuring import spread, wall_seconds
from benchmarks.servers import Delays, serving
from benchmarks.steps import PARALLEL, a_flow_run, a_log, configuration, embedded_export, run, state_directory
from benchmarks.tables import Table, held, show
from interpreters.chart_api.http import PATH

CHART = 0.3
CHARTS = (5, 20)
REACH = 1.10
ROUNDS = 7


class BarePool:
    """Threads that ask and write, and nothing else."""

    def __init__(self, url: str, folder: Path) -> None:
        """Open no connection yet."""
        self._url = url + PATH
        self._folder = folder
        self._session = requests.Session()
        self._session.mount("http://", HTTPAdapter(pool_maxsize=PARALLEL))

    def step(self, number: int, bodies: list[Mapping[str, Any]], manifest: bytes) -> None:
        """Draw all charts side by side, then write the manifest."""
        folder = self._folder / str(number)
        folder.mkdir(parents=True)
        with ThreadPoolExecutor(PARALLEL) as threads:
            list(threads.map(lambda one: self._chart(folder / f"{one}.png", bodies[one]), range(len(bodies))))
        _write(folder / "manifest.json", manifest)

    def _chart(self, file: Path, body: Mapping[str, Any]) -> None:
        answer = self._session.post(self._url, json=body, headers={"x-api-key": "benchmark-key"}, timeout=60)
        _write(file, answer.content)


def _write(file: Path, data: bytes) -> None:
    with file.open("wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    folder = os.open(file.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def measure(quick: bool) -> list[Table]:
    """Let the worker and the pool take turns."""
    sizes, rounds = ((1,), 1) if quick else (CHARTS, ROUNDS)
    ours: dict[int, list[float]] = {size: [] for size in sizes}
    bare: dict[int, list[float]] = {size: [] for size in sizes}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as name,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        serving(Delays(chart=CHART)) as servers,
    ):
        folder, log, numbers = Path(name), a_log(nowhere), count()
        state, where = state_directory(folder, max(sizes))
        export = embedded_export(state, where, configuration(servers.at.chart))
        pool = BarePool(servers.at.chart, folder / "bare")
        for _ in range(rounds + 1):
            for size in sizes:
                number = next(numbers)
                flow_run = a_flow_run(number, size)
                state.place(flow_run)
                ours[size].append(wall_seconds(lambda: run(export, flow_run, log)))  # noqa: B023 - run at once
                manifest = next((folder / "state").rglob("manifest.json")).read_bytes()
                bodies: list[Mapping[str, Any]] = [{"symbol": "BINANCE:BTCUSDT", "interval": "4h"}] * size
                bare[size].append(wall_seconds(lambda: pool.step(number, bodies, manifest)))  # noqa: B023
        state.close()
    rows = []
    for size in sizes:
        took, beside = spread(ours[size][1:]), spread(bare[size][1:])
        ratio = took.median / beside.median
        rows.append(
            (
                str(size),
                beside.text(scale=1e3),
                took.text(scale=1e3),
                f"{ratio:.3f}",
                f"{took.least / beside.least:.3f}",
                held(ratio, REACH),
            )
        )
    return [
        Table(
            title="One step on the embedded store, beside a bare thread pool",
            reach=f"at most {REACH:.2f} times the bare pool",
            columns=(
                "charts",
                "bare pool, ms",
                "the worker, ms",
                "ratio of the medians",
                "of the fastest",
                "reached",
            ),
            rows=rows,
        )
    ]


if __name__ == "__main__":
    show(measure)
