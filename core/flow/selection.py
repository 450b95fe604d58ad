"""Which step of a flow_run to take (§2.1, §2.2).

Owns the choice. Must not know what the step's work is, and looks at nothing but type and status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.problems import Problem, Problems
from effects import Document

TAKEN = frozenset({"READY"})
"""Statuses of the steps that are chosen from."""


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """No step to take, and why."""

    reason: str


def select_step(flow_run: Document, step_type: str, wanted: str | None = None) -> str | NothingToDo:
    """Return the id of the READY step of this type to take: the wanted one, or the smallest id."""
    steps = flow_run.get("steps")
    if not isinstance(steps, Mapping):
        return NothingToDo("steps_not_a_map")
    if wanted is not None:
        return wanted if is_ready(steps.get(wanted), step_type) else NothingToDo("step_not_ready")
    ready = [step_id for step_id, step in steps.items() if is_ready(step, step_type)]
    return min(ready) if ready else NothingToDo("no_ready_step")


def wanted_step_problems(flow_run: Document, step_type: str, wanted: str, where: str) -> Problems:
    """Return what is wrong with asking for this step: it is unknown, or of another type."""
    steps = flow_run.get("steps")
    step = steps.get(wanted) if isinstance(steps, Mapping) else None
    if not isinstance(step, Mapping):
        known = sorted(one for one, step in (steps or {}).items() if _is_of_type(step, step_type))
        return (
            Problem(where, f"there is no step {wanted!r}; {step_type} steps are: {', '.join(known) or 'none'}"),
        )
    if step.get("stepType") != step_type:
        return (Problem(where, f"step {wanted!r} is of type {step.get('stepType')!r}, not {step_type}"),)
    return ()


def _is_of_type(step: object, step_type: str) -> bool:
    return isinstance(step, Mapping) and step.get("stepType") == step_type


def is_ready(step: object, step_type: str) -> bool:
    """Return whether the step is of this type and READY."""
    return (
        isinstance(step, (dict, Mapping)) and step.get("status") == "READY" and step.get("stepType") == step_type
    )


def unmet_dependencies(flow_run: Document, step_id: str) -> tuple[str, ...]:
    """Return the ids in the step's `dependsOn` that have not SUCCEEDED."""
    steps = flow_run["steps"]
    depends_on = steps[step_id].get("dependsOn")
    named = [name for name in depends_on if isinstance(name, str)] if isinstance(depends_on, list) else []
    return tuple(name for name in named if not _has_succeeded(steps.get(name)))


def _has_succeeded(step: object) -> bool:
    return isinstance(step, Mapping) and step.get("status") == "SUCCEEDED"
