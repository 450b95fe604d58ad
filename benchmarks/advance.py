"""The cost of one pass of the orchestrator, with its change applied, as the steps grow.

Prints microseconds a step for documents of 10 to 10,000 steps, and each as a ratio to that of 1,000 steps in the same run, in which
sizes take turns so that the machine's noise hits all of them. Run it: `python -m benchmarks.advance`.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from core.documents import apply_change
from core.flow.advance import advance_flow
from effects import AdvanceFlow, LeasePolicy

SIZES = (10, 100, 1_000, 10_000)
BASE = 1_000
ROUNDS = 15
STEPS_A_ROUND = 20_000
NOW = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)
RUN_ID = "20251215-120000_BTCUSDT_f10wa"
EFFECT = AdvanceFlow(flow_run=f"flow_runs/{RUN_ID}", leases=LeasePolicy(max_attempts=3))


def flow_run(size: int, shape: str) -> dict[str, Any]:
    """Return a document of so many steps: half of them done, each depending on one or two before it."""
    done = size // 2
    steps = {}
    for number in range(size):
        near = [f"step:{one}" for one in {number - 1, number // 2} if 0 <= one < number]
        depends_on = {"chain": near[:1], "diamonds": near, "independent": []}[shape]
        status = "SUCCEEDED" if number < done else "PENDING"
        steps[f"step:{number}"] = {"stepType": "CHART_EXPORT", "status": status, "dependsOn": depends_on}
    return {"runId": RUN_ID, "status": "RUNNING", "steps": steps}


def measure(document: dict[str, Any]) -> float:
    """Return the microseconds a step of one pass, averaged over enough passes to be seen by the clock."""
    size = len(document["steps"])
    passes = max(1, STEPS_A_ROUND // size)
    started = time.perf_counter()
    for _ in range(passes):
        for change in advance_flow({EFFECT.flow_run: document}, EFFECT, NOW).changes:
            apply_change(document, change)
    return (time.perf_counter() - started) / passes / size * 1e6


def main() -> None:
    """Measure, and print the table."""
    table = Table(
        "shape", "steps", "µs a step (median)", "spread", f"over {BASE:,} steps", title="One pass of advance"
    )
    for shape in ("chain", "diamonds", "independent"):
        documents = {size: flow_run(size, shape) for size in SIZES}
        taken: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(ROUNDS):
            for size, document in documents.items():
                taken[size].append(measure(document))
        for size, times in taken.items():
            ratio = statistics.median(here / base for here, base in zip(times, taken[BASE], strict=True))
            spread = f"{min(times):.2f}-{max(times):.2f}"
            table.add_row(shape, f"{size:,}", f"{statistics.median(times):.2f}", spread, f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
