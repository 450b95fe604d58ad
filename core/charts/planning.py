"""`plan`: the chart-export program fed with the outcomes it hopes for.

Owns the putting together of what is given. There is no second planner to drift from the program. Must not perform anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from core.charts.program import CHART_EXPORT
from core.charts.settings import ChartConfiguration
from core.charts.state import StepResult, chart_inputs
from core.flow.flow_run import flow_run_path
from core.hopes import PLANNED_TOKEN, Draw, Hopes, hoped_chart, hoped_run
from effects import Document, Effect


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects in the order they would begin, and what would come of them."""

    effects: tuple[Effect, ...]
    result: StepResult


def plan(
    flow_run: Document,
    templates: Mapping[str, Document],
    usage: Mapping[str, Document],
    clock: datetime,
    *,
    configuration: ChartConfiguration,
    wanted_step: str | None = None,
    fixtures: frozenset[str] = frozenset(),
    draw: Draw = hoped_chart,
    unreadable: Mapping[str, str] | None = None,
) -> Plan:
    """Return the effects of a run at this moment in which everything that is not given goes as hoped."""
    path = flow_run_path(str(flow_run["runId"]))
    inputs = chart_inputs(
        configuration, flow_run, path, wanted_step, now=clock, token=PLANNED_TOKEN, fixtures=fixtures
    )
    documents = {inputs.flow_run_path: flow_run, **usage}
    hopes = Hopes(documents, templates=templates, unreadable=unreadable or {}, draw=draw)
    effects, state = hoped_run(CHART_EXPORT, inputs, hopes, clock)
    assert state.result is not None
    return Plan(effects, state.result)
