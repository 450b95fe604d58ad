"""How long one step takes in the cloud, over what its round trips alone take.

The limit is what no worker can be faster than: claim, reservation and finalize are a read and a commit each, then one chart call, one
upload and one manifest, for all charts are drawn and stored side by side. A transaction begins with a round trip of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.measuring import Spread, spread, wall_seconds
from benchmarks.servers import Addresses, Delays, serving
from benchmarks.steps import a_flow_run, a_log, cloud, configuration, run, templates
from benchmarks.tables import Table, held, show
from core.charts.settings import ChartConfiguration
from core.cloud import Concurrency

CHART, UPLOAD, FIRESTORE = 0.3, 0.03, 0.015
DELAYS = Delays(chart=CHART, storage=UPLOAD, firestore=FIRESTORE)
COMMITS = 3
"""Claim, reservation, finalize."""
ROUND_TRIPS: dict[Concurrency, int] = {"precondition": 2, "transaction": 3}
"""Of a commit: read and commit; begin, read and commit."""
CHARTS = (1, 5, 10, 20)
REACH = 1.15
ROUNDS = 5
_FIRST = count()


def limit(concurrency: Concurrency) -> float:
    """Return how long a step takes at least, in seconds."""
    return COMMITS * ROUND_TRIPS[concurrency] * FIRESTORE + CHART + UPLOAD + UPLOAD


def step_times(
    addresses: Addresses, concurrency: Concurrency, chosen: ChartConfiguration, sizes: Sequence[int], rounds: int
) -> dict[int, Spread]:
    """Return how long steps of so many charts take; sizes take turns, and the first round only opens connections."""
    project = cloud(addresses, concurrency)
    project.store_templates(templates(max(sizes)), dry_run=False)
    export = project.chart_export(chosen)
    numbers = count(next(_FIRST) * 10_000)
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        log = a_log(nowhere)
        for _ in range(rounds + 1):
            for size in sizes:
                flow_run = a_flow_run(next(numbers), size)
                project.place(flow_run)
                taken[size].append(wall_seconds(lambda: run(export, flow_run, log)))  # noqa: B023 - run at once
    return {size: spread(times[1:]) for size, times in taken.items()}


def measure(quick: bool) -> list[Table]:
    """Measure both ways of committing."""
    rows = []
    with serving(DELAYS) as servers:
        for concurrency in ROUND_TRIPS:
            chosen, least = configuration(servers.at.chart), limit(concurrency)
            sizes, rounds = ((1,), 1) if quick else (CHARTS, ROUNDS)
            for size, took in step_times(servers.at, concurrency, chosen, sizes, rounds).items():
                ratio = took.median / least
                best = took.least / least
                rows.append(
                    (
                        concurrency,
                        str(size),
                        f"{least * 1e3:.0f}",
                        took.text(scale=1e3),
                        f"{ratio:.3f}",
                        f"{best:.3f}",
                        held(ratio, REACH),
                    )
                )
    return [
        Table(
            title="One step in the cloud: wall time over its round trips",
            reach=f"at most {REACH} for every number of charts, with preconditions",
            columns=(
                "commits by",
                "charts",
                "limit, ms",
                "took, ms",
                "ratio of the median",
                "of the fastest",
                "reached",
            ),
            rows=rows,
        )
    ]


if __name__ == "__main__":
    show(measure)
