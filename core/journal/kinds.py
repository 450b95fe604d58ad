"""The programs that can be journalled, by name.

Owns the names, the inputs of each, and what counts as its result. Must not know how a program is run, nor how a journal is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from core.charts.program import CHART_EXPORT
from core.charts.state import Inputs as ChartInputs
from core.charts.state import State as ChartState
from core.flow.given import GIVEN, GivenInputs, GivenState
from core.flow.orchestrator import ADVANCE_FLOW, AdvanceInputs, AdvanceState
from core.flow.reaper import REAP, ReapInputs, ReapState
from core.program import Program
from core.reports.program import LLM_REPORT
from core.reports.state import ReportInputs
from core.reports.state import State as ReportState

InputsT = TypeVar("InputsT")
StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[InputsT, StateT]):
    """One program: what a journal calls it, what it is given, what comes of it."""

    name: str
    program: Program[InputsT, StateT]
    inputs: type[InputsT]
    result: Callable[[StateT], Any]
    """From the last state to what came of the run."""


def _of_given_step(state: GivenState) -> dict[str, Any]:
    return {"phase": state.phase, "isClaimUnknown": state.is_claim_unknown}


def _of_reaping(state: ReapState) -> dict[str, Any]:
    advanced, failed = list(state.advanced), list(state.failed)
    return {"seen": state.seen, "isComplete": state.is_complete, "advanced": advanced, "failed": failed}


CHARTS: Kind[ChartInputs, ChartState] = Kind(
    name="chart-export", program=CHART_EXPORT, inputs=ChartInputs, result=lambda state: state.result
)
REPORTS: Kind[ReportInputs, ReportState] = Kind(
    name="llm-report", program=LLM_REPORT, inputs=ReportInputs, result=lambda state: state.result
)
ADVANCES: Kind[AdvanceInputs, AdvanceState] = Kind(
    name="advance-flow", program=ADVANCE_FLOW, inputs=AdvanceInputs, result=lambda state: state.result
)
REAPINGS: Kind[ReapInputs, ReapState] = Kind(name="reap", program=REAP, inputs=ReapInputs, result=_of_reaping)
GIVEN_STEPS: Kind[GivenInputs, GivenState] = Kind(
    name="given-step", program=GIVEN, inputs=GivenInputs, result=_of_given_step
)

KINDS: Mapping[str, Kind[Any, Any]] = {
    kind.name: kind for kind in (CHARTS, REPORTS, ADVANCES, REAPINGS, GIVEN_STEPS)
}
