"""The reaper's program: all flow_runs that have not ended, page by page, for whatever nobody told the orchestrator of.

Owns the walk: abandoned steps have no event of their own, and an event can be lost. Must not know what changes: that is `advance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core.flow.advance import advance
from core.flow.status import RunStatus
from core.program import Next, Program
from effects import (
    AdvanceFlow,
    EffectFailed,
    FindFlowRuns,
    FlowAdvanced,
    FlowRunsFound,
    FlowUnchanged,
    LeasePolicy,
    Outcome,
)
from effects.word import replace

PAGE_SIZE = 50
STATUSES: tuple[RunStatus, ...] = ("RUNNING", "PENDING")
"""Runs that have not ended: those of the first status, then those of the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapInputs:
    """What a walk is given."""

    collection: str
    leases: LeasePolicy
    ends_at: datetime
    """No page is begun after this moment."""
    page_size: int = PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class ReapState:
    """Where a walk stands, and at its end what came of it."""

    inputs: ReapInputs
    statuses: tuple[RunStatus, ...] = STATUSES
    """Those not seen to the end; the first is being walked through."""
    last: str | None = None
    """Path of the last flow_run seen, of this status."""
    is_asking: bool = False
    """A page was asked for and is not here yet."""
    awaited: frozenset[str] = frozenset()
    """Paths of the flow_runs being moved on."""
    seen: int = 0
    advanced: tuple[FlowAdvanced, ...] = ()
    failed: tuple[str, ...] = ()
    """Paths of flow_runs that could not be moved on, or of the collection that could not be read."""

    @property
    def is_complete(self) -> bool:
        """Return whether all flow_runs were seen and none failed."""
        return not self.statuses and not self.failed


def start(inputs: ReapInputs) -> Next[ReapState]:
    """Return the query for the first page."""
    return _find(ReapState(inputs=inputs))


def react(state: ReapState, outcome: Outcome) -> Next[ReapState]:
    """Return what can begin after the outcome."""
    match outcome:
        case FlowRunsFound() if state.is_asking:
            return _on_page(state, outcome)
        case FlowAdvanced(flow_run=path):
            return _settle(state, path, outcome.at, advanced=(outcome,))
        case FlowUnchanged(flow_run=path):
            return _settle(state, path, outcome.at)
        case EffectFailed(effect=AdvanceFlow(flow_run=path)):
            return _settle(state, path, outcome.at, failed=(path,))
        case EffectFailed(effect=FindFlowRuns()) if state.is_asking:
            return abort(state, outcome.error_type)
        case _:
            return Next(state)


def abort(state: ReapState, error_type: str) -> Next[ReapState]:
    """Return the ended state of a walk that broke."""
    failed = (*state.failed, state.inputs.collection)
    return Next(replace(state, failed=failed, is_asking=False, awaited=frozenset()))


def _find(state: ReapState) -> Next[ReapState]:
    inputs = state.inputs
    query = FindFlowRuns(
        collection=inputs.collection, status=state.statuses[0], after=state.last, limit=inputs.page_size
    )
    return Next(replace(state, is_asking=True), (query,))


def _on_page(state: ReapState, page: FlowRunsFound) -> Next[ReapState]:
    leases = state.inputs.leases
    asking = [
        path
        for path, flow_run in page.flow_runs.items()
        if advance(flow_run, path.rpartition("/")[2], leases, page.at)
    ]
    is_last = len(page.flow_runs) < state.inputs.page_size
    state = replace(
        state,
        statuses=state.statuses[1:] if is_last else state.statuses,
        last=None if is_last else max(page.flow_runs),
        is_asking=False,
        awaited=frozenset(asking),
        seen=state.seen + len(page.flow_runs),
    )
    if not asking:
        return _next_page(state, page.at)
    return Next(state, tuple(AdvanceFlow(flow_run=path, leases=leases) for path in asking))


def _settle(
    state: ReapState,
    path: str,
    now: datetime,
    *,
    advanced: tuple[FlowAdvanced, ...] = (),
    failed: tuple[str, ...] = (),
) -> Next[ReapState]:
    if path not in state.awaited:
        return Next(state)
    state = replace(
        state,
        awaited=state.awaited - {path},
        advanced=(*state.advanced, *advanced),
        failed=(*state.failed, *failed),
    )
    return Next(state) if state.awaited else _next_page(state, now)


def _next_page(state: ReapState, now: datetime) -> Next[ReapState]:
    is_over = not state.statuses or now >= state.inputs.ends_at
    return Next(state) if is_over else _find(state)


REAP: Program[ReapInputs, ReapState] = Program(start=start, react=react, abort=abort)
