"""The graph of a flow_run's steps: who depends on whom, and who waits in vain.

Owns the reading of `steps`, `status` and `dependsOn`. Must not change anything, nor know what steps do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Result, Success

from core.flow.status import STEP_STATUSES, StepStatus
from core.problems import Problem, Problems, document_path, kind_of

_LOST = frozenset({None, "FAILED", "SKIPPED", "CANCELLED"})
"""Statuses that will never become SUCCEEDED; None is that of a step that does not exist."""
_KNOWN = frozenset(STEP_STATUSES)
_MAX_WAY = 12
"""How many steps of a circle are named: an error has room for some circles, not for all of a long one."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The steps of a run, by id."""

    statuses: Mapping[str, StepStatus]
    depends_on: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Vain:
    """A PENDING step that can never run."""

    step_id: str
    because: str
    is_mistake: bool
    """The document is wrong: an id that does not exist, or a circle."""
    is_behind: bool = False
    """The cause lies elsewhere: it waits for another that can never run."""


def parse_graph(steps: object) -> Result[Graph, Problems]:
    """Return the graph, or everything that is wrong with the steps."""
    if not isinstance(steps, Mapping):
        found = "missing" if steps is None else kind_of(steps)
        return Result.from_failure((Problem("steps", f"is {found}; must be an object of step id to step"),))
    statuses: dict[str, StepStatus] = {}
    depends_on: dict[str, tuple[str, ...]] = {}
    problems: list[Problem] = []
    for step_id, step in steps.items():
        if _is_sound(step):
            statuses[step_id] = step["status"]
            depends_on[step_id] = tuple(dict.fromkeys(step.get("dependsOn") or ()))
        else:
            problems.extend(_step_problems(step_id, step))
    return Result.from_failure(tuple(problems)) if problems else Success(Graph(statuses, depends_on))


def _is_sound(step: Any) -> bool:
    """Return whether the step has a status and, if any, a list of dependencies: nearly all do, so this is quick."""
    if type(step) is not dict and not isinstance(step, Mapping):
        return False
    status, depends_on = step.get("status"), step.get("dependsOn")
    return type(status) is str and status in _KNOWN and (depends_on is None or _is_list_of_ids(depends_on))


def _is_list_of_ids(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _step_problems(step_id: str, step: Any) -> Iterator[Problem]:
    if not isinstance(step, Mapping):
        yield Problem(document_path("steps", step_id), f"is {kind_of(step)}; must be an object")
        return
    status, depends_on = step.get("status"), step.get("dependsOn")
    if not isinstance(status, str) or status not in _KNOWN:
        found = "missing" if status is None else f"{status!r:.80}"
        must = f"is {found}; must be one of {', '.join(STEP_STATUSES)}"
        yield Problem(document_path("steps", step_id, "status"), must)
    if depends_on is not None and not _is_list_of_ids(depends_on):
        yield Problem(document_path("steps", step_id, "dependsOn"), "must be a list of step ids")


def promotable(graph: Graph) -> Iterator[str]:
    """Return the PENDING steps whose dependencies have all SUCCEEDED."""
    statuses = graph.statuses
    for step_id, status in statuses.items():
        if status == "PENDING" and all(statuses.get(one) == "SUCCEEDED" for one in graph.depends_on[step_id]):
            yield step_id


def waiting_in_vain(graph: Graph) -> tuple[Vain, ...]:
    """Return the PENDING steps that can never run, in order of their ids, each with what is in its way."""
    pending = {step_id for step_id, status in graph.statuses.items() if status == "PENDING"}
    if not pending:
        return ()
    stuck = _stuck(graph, pending, lost=_LOST)
    circles = _circles(graph, _stuck(graph, pending, lost=frozenset())) if stuck else {}
    return tuple(_vain(graph, step_id, stuck, circles) for step_id in sorted(stuck))


def _stuck(graph: Graph, pending: Collection[str], lost: Collection[str | None]) -> set[str]:
    """Return the pending steps that stay behind when all that can go on has gone on, and what is lost never does."""
    behind: dict[str, list[str]] = defaultdict(list)
    waits: dict[str, int] = {}
    free: list[str] = []
    for step_id in pending:
        count = 0
        for one in graph.depends_on[step_id]:
            if one in pending:
                behind[one].append(step_id)
                count += 1
            elif graph.statuses.get(one) in lost:
                count += 1
        if count:
            waits[step_id] = count
        else:
            free.append(step_id)
    while free:
        for step_id in behind.get(free.pop(), ()):
            waits[step_id] -= 1
            if not waits[step_id]:
                del waits[step_id]
                free.append(step_id)
    return set(waits)


def _circles(graph: Graph, turning: Collection[str]) -> dict[str, str]:
    """Return the steps of circles, each with its way round: at least one circle of all that hang together."""
    found: dict[str, str] = {}
    walked: set[str] = set()
    for start in sorted(turning):
        path: dict[str, None] = {}
        here = start
        while here not in walked and here not in path:
            path[here] = None
            here = next(one for one in graph.depends_on[here] if one in turning)
        walked.update(path)
        if here in path:
            way = list(path)[list(path).index(here) :]
            named = way if len(way) <= _MAX_WAY else [*way[: _MAX_WAY - 1], "…"]
            found.update(dict.fromkeys(way, " -> ".join([*named, here])))
    return found


def _vain(graph: Graph, step_id: str, stuck: Collection[str], circles: Mapping[str, str]) -> Vain:
    if step_id in circles:
        return Vain(step_id, f"depends on itself: {circles[step_id]}", is_mistake=True)
    depends_on = graph.depends_on[step_id]
    for one in depends_on:
        if one not in graph.statuses:
            return Vain(step_id, f"depends on {one}, which does not exist", is_mistake=True)
    for one in depends_on:
        if graph.statuses[one] in _LOST:
            return Vain(step_id, f"depends on {one}, which is {graph.statuses[one]}", is_mistake=False)
    cause = next(one for one in depends_on if one in stuck)
    return Vain(step_id, f"depends on {cause}, which can never run", is_mistake=False, is_behind=True)
