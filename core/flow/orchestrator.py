"""The orchestrator's program: one flow_run, moved on once.

Owns when the document is worth a commit. Must not know what changes: that is `advance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from core.flow.advance import advance
from core.program import Next, Program
from effects import (
    AdvanceFlow,
    Document,
    EffectFailed,
    FieldChange,
    FlowAdvanced,
    FlowUnchanged,
    LeasePolicy,
    Outcome,
)
from effects.word import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceInputs:
    """What one pass is given."""

    flow_run_path: str
    flow_run: Document | None
    """The document as known, if it is: where it asks for no change, nothing is read or written."""
    leases: LeasePolicy
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceResult:
    """What came of a pass."""

    status: Literal["CHANGED", "UNCHANGED", "FAILED"]
    """FAILED is a pass that did not take place; trying again can help."""
    reason: str | None = None
    run_status: str | None = None
    changes: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AdvanceState:
    """Where a pass stands."""

    inputs: AdvanceInputs
    result: AdvanceResult | None = None


def start(inputs: AdvanceInputs) -> Next[AdvanceState]:
    """Return the one effect of a pass, or an ended state where the known document asks for none."""
    state = AdvanceState(inputs=inputs)
    if inputs.flow_run is not None:
        run_id = inputs.flow_run_path.rpartition("/")[2]
        if not advance(inputs.flow_run, run_id, inputs.leases, inputs.now):
            return _ended(state, AdvanceResult(status="UNCHANGED", reason="nothing_to_change"))
    return Next(state, (AdvanceFlow(flow_run=inputs.flow_run_path, leases=inputs.leases),))


def react(state: AdvanceState, outcome: Outcome) -> Next[AdvanceState]:
    """Return the ended state."""
    match outcome:
        case FlowAdvanced(status=status, changes=changes):
            return _ended(state, AdvanceResult(status="CHANGED", run_status=status, changes=changes))
        case FlowUnchanged(reason=reason):
            return _ended(state, AdvanceResult(status="UNCHANGED", reason=reason))
        case EffectFailed(error_type=error_type):
            return abort(state, error_type)
        case _:
            return Next(state)


def abort(state: AdvanceState, error_type: str) -> Next[AdvanceState]:
    """Return the ended state of a pass that broke."""
    return _ended(state, state.result or AdvanceResult(status="FAILED", reason=error_type))


def _ended(state: AdvanceState, result: AdvanceResult) -> Next[AdvanceState]:
    return Next(replace(state, result=result))


ADVANCE_FLOW: Program[AdvanceInputs, AdvanceState] = Program(start=start, react=react, abort=abort)
