"""How many steps of one chart a second the embedded store takes to disk, beside bare durable commits of SQLite on the same disk."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.measuring import spread
from benchmarks.servers import Delays, serving
from benchmarks.steps import a_flow_run, a_log, configuration, embedded_export, run, state_directory
from benchmarks.tables import Table, show

REACH = 150
SIDE_BY_SIDE = 8
ROUNDS, STEPS, COMMITS = 3, 160, 200
_CHILD = "--child"


def commits_a_second(folder: Path, commits: int) -> float:
    """Return how many commits a second reach the disk, one after the other, with nothing else to do."""
    connection = sqlite3.connect(folder / "bare.sqlite3", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS documents (path TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID"
    )
    body = json.dumps(a_flow_run(0, 1))
    started = time.perf_counter()
    for number in range(commits):
        connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (f"flow_runs/{number}", body))
    connection.close()
    return commits / (time.perf_counter() - started)


def run_steps(folder: Path, chart_url: str, first: int, steps: int, side_by_side: int) -> float:
    """Run steps in this process; return how many seconds they took, their placing not counted."""
    state, where = state_directory(folder, 1)
    export = embedded_export(state, where, configuration(chart_url))
    flow_runs = [a_flow_run(first + number, 1) for number in range(steps + 1)]
    for one in flow_runs:
        state.place(one)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, ThreadPoolExecutor(side_by_side) as threads:
        log = a_log(nowhere)
        run(export, flow_runs.pop(), log)
        started = time.perf_counter()
        list(threads.map(lambda one: run(export, one, log), flow_runs))
        return time.perf_counter() - started


def _many(folder: Path, chart_url: str, processes: int, steps: int, side_by_side: int) -> float:
    """Return steps a second of so many processes on one state directory."""
    each = steps // processes
    state_directory(folder, 1)[0].close()
    commands = [
        [
            sys.executable,
            "-m",
            "benchmarks.throughput",
            _CHILD,
            str(folder),
            chart_url,
            str(number * 1_000),
            str(each),
            str(side_by_side),
        ]
        for number in range(processes)
    ]
    running = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in commands]
    took = [float(one.communicate()[0]) for one in running]
    return each * processes / max(took)


def measure(quick: bool) -> list[Table]:
    """Measure one process, one step at a time and some, and four processes."""
    rounds, steps, commits = (1, 2, 2) if quick else (ROUNDS, STEPS, COMMITS)
    ways = {
        "one process, one step at a time": (1, 1),
        f"one process, {SIDE_BY_SIDE} steps side by side": (1, SIDE_BY_SIDE),
        "four processes, 2 steps each": (4, 2),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    bare: list[float] = []
    with serving(Delays()) as servers:
        for _ in range(rounds):
            for name, (processes, side_by_side) in list(ways.items())[: 1 if quick else None]:
                with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                    bare.append(commits_a_second(Path(folder), commits))
                    taken[name].append(_many(Path(folder), servers.at.chart, processes, steps, side_by_side))
    beside = spread(bare)
    rows = [("bare durable commits of SQLite", beside.text(), f"{max(bare):.0f}", "1.00", "-")]
    for name, rates in taken.items():
        if rates:
            took = spread(rates)
            is_reached = "-" if name.startswith("four") else "yes" if took.median >= REACH else "no"
            rows.append((name, took.text(), f"{max(rates):.0f}", f"{took.median / beside.median:.2f}", is_reached))
    return [
        Table(
            title="Throughput of the embedded store: steps of one chart, to disk",
            reach=f"{REACH} a second in one process",
            columns=("what", "a second", "at best", "over bare commits", "reached"),
            rows=rows,
            notes=(
                "A step is three commits and two files, each file written, synced and renamed or linked, and its folder synced.",
            ),
        )
    ]


if __name__ == "__main__":
    if _CHILD in sys.argv:
        folder, url, first, steps, side_by_side = sys.argv[2:]
        print(run_steps(Path(folder), url, int(first), int(steps), int(side_by_side)))
    else:
        show(measure)
