"""`plan`: the report program fed with the outcomes it hopes for.

Owns the putting together of what is given; the flow_run is enough. Must not perform anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core.flow.flow_run import flow_run_path
from core.hopes import PLANNED_TOKEN, Hopes, hoped_run
from core.reports.program import LLM_REPORT
from core.reports.settings import ReportConfiguration
from core.reports.state import ReportInputs, ReportResult
from effects import Document, Effect


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The effects in the order they would begin, and what would come of them."""

    effects: tuple[Effect, ...]
    result: ReportResult


def plan_report(
    flow_run: Document, clock: datetime, configuration: ReportConfiguration, wanted_step: str | None = None
) -> ReportPlan:
    """Return the effects of a run at this moment in which everything goes as hoped."""
    inputs = ReportInputs(
        flow_run=flow_run,
        flow_run_path=flow_run_path(str(flow_run["runId"])),
        wanted_step=wanted_step,
        settings=configuration.settings,
        fixtures=frozenset(),
        now=clock,
        token=PLANNED_TOKEN,
    )
    effects, state = hoped_run(LLM_REPORT, inputs, Hopes({inputs.flow_run_path: flow_run}), clock)
    assert state.result is not None
    return ReportPlan(effects, state.result)
