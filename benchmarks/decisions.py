"""What pure decisions cost as a flow_run grows: one pass of the orchestrator with its change applied, and one plan of a chart step.

Sizes take turns, so that the machine's noise hits all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.measuring import cpu_seconds, spread
from benchmarks.steps import STEP_ID, a_flow_run, configuration, template_ids, templates
from benchmarks.tables import Table, held, show
from core.charts.planning import plan
from core.documents import apply_change
from core.flow.advance import advance_flow
from effects import AdvanceFlow, LeasePolicy

SIZES = (10, 100, 1_000, 10_000)
REACH = 10.0
ROUNDS, STEPS_A_ROUND = 7, 10_000
NOW = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)
RUN_ID = "20251215-120000_BTCUSDT_f10wa"
EFFECT = AdvanceFlow(flow_run=f"flow_runs/{RUN_ID}", leases=LeasePolicy(max_attempts=3))
SHAPES = ("chain", "diamonds", "independent")


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


def _advance(size: int, shape: str) -> Callable[[], object]:
    document = flow_run(size, shape)

    def act() -> None:
        for change in advance_flow({EFFECT.flow_run: document}, EFFECT, NOW).changes:
            apply_change(document, change)

    return act


def _plan(size: int, charts: int) -> Callable[[], object]:
    ready = a_flow_run(0, charts)["steps"][STEP_ID]
    document = {**a_flow_run(0, charts), "steps": {**flow_run(size - 1, "chain")["steps"], STEP_ID: ready}}
    chosen, known = configuration("http://127.0.0.1:1"), templates(charts)
    assert set(known) == set(template_ids(charts))
    return lambda: plan(document, known, {}, NOW, configuration=chosen)


def measure(quick: bool) -> list[Table]:
    """Measure every decision for every size."""
    sizes, rounds, steps = (SIZES[:1], 1, 10) if quick else (SIZES, ROUNDS, STEPS_A_ROUND)
    decisions: dict[str, Callable[[int], Callable[[], object]]] = {
        **{f"advance, {shape}": lambda size, shape=shape: _advance(size, shape) for shape in SHAPES},  # type: ignore[misc]
        "plan, 1 chart": lambda size: _plan(size, 1),
    }
    rows = []
    for name, decision in decisions.items():
        acts = {size: decision(size) for size in sizes}
        taken: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(rounds):
            for size, act in acts.items():
                passes = max(1, steps // size // 10)
                taken[size].append(cpu_seconds(lambda: [act() for _ in range(passes)]) / passes)  # noqa: B023 - done at once
        smallest = spread(taken[sizes[0]]).median
        for size, times in taken.items():
            took = spread(times)
            further = (took.median - smallest) / max(1, size - sizes[0]) * 1e6
            shown = ("-", "-") if size == sizes[0] else (f"{further:.2f}", held(further, REACH))
            rows.append((name, f"{size:,}", took.text(0, 1e6), f"{took.median / size * 1e6:.2f}", *shown))
    return [
        Table(
            title="Decisions: one pass of the orchestrator, one plan",
            reach=f"linear; under {REACH:.0f} µs a step",
            columns=(
                "what",
                "steps",
                "µs of a core",
                "by the number of steps",
                f"each beyond {sizes[0]}",
                "reached",
            ),
            rows=rows,
        )
    ]


if __name__ == "__main__":
    show(measure)
