"""What one step costs in Firestore: round trips, documents, commits and bytes, as the server counts them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.servers import Delays, serving
from benchmarks.steps import a_flow_run, a_log, cloud, configuration, run, templates
from benchmarks.tables import Table, show
from core.cloud import Concurrency

CHART = 0.3
CHARTS = (5, 20)
STEPS = 5
"""A call that a busy machine starts too late costs another reservation, so the cheapest of some steps is shown."""
MODES: tuple[Concurrency, ...] = ("precondition", "transaction")
COUNTED = ("round trips", "commits", "documents written", "documents read", "bytes")


def count_step(concurrency: Concurrency, charts: int) -> Mapping[str, int]:
    """Return what one step of so many charts costs in a process that has drawn such charts before."""
    with serving(Delays(chart=CHART)) as servers, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        project = cloud(servers.at, concurrency)
        project.store_templates(templates(charts), dry_run=False)
        export = project.chart_export(configuration(servers.at.chart, accounts=1))
        counts = []
        for number in range(STEPS):
            flow_run = a_flow_run(number, charts)
            project.place(flow_run)
            servers.counted()
            run(export, flow_run, a_log(nowhere))
            counts.append(servers.counted())
        return min(counts[1:], key=lambda one: one["round trips"])


def measure(quick: bool) -> list[Table]:
    """Count for each way of committing."""
    rows = []
    for concurrency in MODES[:1] if quick else MODES:
        for size in CHARTS[:1] if quick else CHARTS:
            counted = count_step(concurrency, size)
            rows.append((concurrency, str(size), *(f"{counted[name]:,}" for name in COUNTED)))
    return [
        Table(
            title="What one step costs in Firestore",
            reach="independent of the number of charts",
            columns=("commits by", "charts", *COUNTED),
            rows=rows,
        )
    ]


if __name__ == "__main__":
    show(measure)
