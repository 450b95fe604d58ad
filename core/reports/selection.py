"""Which report step to take, and which to look after (4.7).

Owns the choice under duplicate and reordered events, and the reasons for doing nothing. Must not parse inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.documents import field
from core.flow.selection import NothingToDo, is_ready, unmet_dependencies
from core.reports.references import STEP_TYPE
from effects import Document


@dataclass(frozen=True, slots=True)
class Recover:
    """RUNNING report steps, whose report may be there already."""

    step_ids: tuple[str, ...]
    otherwise: str
    """Why there is nothing to do where none of them has one."""


def select_report(flow_run: Document, wanted: str | None = None) -> str | Recover | NothingToDo:
    """Return the executable step with the smallest id, else the RUNNING ones, else why there is nothing to do."""
    steps = flow_run.get("steps")
    if not isinstance(steps, Mapping) or not isinstance(flow_run.get("status"), str):
        return NothingToDo("flow_run_invalid")
    if flow_run["status"] != "RUNNING":
        return NothingToDo("flow_run_not_running")
    candidates = {wanted: steps.get(wanted)} if wanted is not None else steps
    ready = sorted(one for one, step in candidates.items() if is_ready(step, STEP_TYPE))
    executable = [one for one in ready if not _has_unmet_dependency(flow_run, one)]
    if executable:
        return executable[0]
    running = tuple(sorted(one for one, step in candidates.items() if _is_running(step)))
    reason = "dependency_not_succeeded" if ready else "no_ready_step"
    return Recover(running, reason) if running else NothingToDo(reason)


def _is_running(step: object) -> bool:
    return (field(step, "stepType"), field(step, "status")) == (STEP_TYPE, "RUNNING")


def _has_unmet_dependency(flow_run: Document, step_id: str) -> bool:
    """Return whether a step that it depends on has not SUCCEEDED; one that does not exist is an error of the input."""
    return any(one in flow_run["steps"] for one in unmet_dependencies(flow_run, step_id))
