"""Moving a flow_run on: abandoned steps, promotion, the run's status and its progress.

Owns everything the orchestrator writes, as one pure function from a document and the clock to changes with their reasons.
Nothing to change is no change at all: the orchestrator's own writes must not keep it running in circles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from returns.result import Failure, Result

from core.documents import Decision, Documents, UpdateDocument, field
from core.failures import (
    DEPENDENCY_UNSATISFIABLE,
    FLOW_RUN_INVALID,
    STEP_ABANDONED,
    STEP_FAILED,
    error_document,
    invalid,
    step_error,
)
from core.flow.graph import Graph, Vain, parse_graph, promotable, waiting_in_vain
from core.flow.leases import attempts_of, is_abandoned, is_forgotten, lease_end
from core.flow.status import (
    ENDED_RUNS,
    RUN_STATUSES,
    STEP_STATUSES,
    RunEvent,
    RunStatus,
    StepEvent,
    StepStatus,
    next_run_status,
    next_status,
)
from core.problems import Problem, Problems, collect
from effects import (
    AdvanceFlow,
    Document,
    FieldChange,
    FlowAdvanced,
    FlowUnchanged,
    LeasePolicy,
    StepError,
)
from effects.moments import rfc3339

_DONE: tuple[StepStatus, ...] = ("SUCCEEDED", "SKIPPED", "CANCELLED")
"""Steps that do not stop a run from succeeding."""
_CURRENT: tuple[StepStatus, ...] = ("RUNNING", "READY", "FAILED")
_COUNTED_AS = {one: one.lower() for one in STEP_STATUSES}
_MAX_REASONS = 10
"""How many steps an error gives reasons for, causes first; it lists more of them by id."""


def advance_flow(
    documents: Documents, effect: AdvanceFlow, now: datetime
) -> Decision[FlowAdvanced | FlowUnchanged]:
    """Decide what changes in the flow_run, if anything."""
    flow_run = documents[effect.flow_run]
    if flow_run is None:
        return Decision(FlowUnchanged(flow_run=effect.flow_run, reason="flow_run_missing", at=now))
    changes = advance(flow_run, effect.flow_run.rpartition("/")[2], effect.leases, now)
    if not changes:
        return Decision(FlowUnchanged(flow_run=effect.flow_run, reason="nothing_to_change", at=now))
    update = UpdateDocument(
        path=effect.flow_run,
        assign={change.path: change.after for change in changes if change.after is not None},
        remove=tuple(change.path for change in changes if change.after is None),
    )
    status = next((one.after for one in changes if one.path == ("status",)), flow_run.get("status"))
    return Decision(FlowAdvanced(flow_run=effect.flow_run, status=str(status), changes=changes, at=now), (update,))


def advance(flow_run: Document, run_id: str, leases: LeasePolicy, now: datetime) -> tuple[FieldChange, ...]:
    """Return everything that changes in the document at this moment."""
    changes = tuple(_wanted(flow_run, run_id, leases, now))
    if not changes and not is_forgotten(flow_run, leases, now):
        return ()
    why = "the document changed" if changes else "READY steps were not taken; whoever takes them is told again"
    return (*changes, *_change(flow_run, ("updatedAt",), rfc3339(now), why))


def _wanted(flow_run: Document, run_id: str, leases: LeasePolicy, now: datetime) -> Iterator[FieldChange]:
    """Return what the fields that the orchestrator owns should be; most are so already."""
    if flow_run.get("status") in ENDED_RUNS:
        yield from _progress_of_ended(flow_run)
        return
    parsed = _parse(flow_run, run_id)
    if isinstance(parsed, Failure):
        error = invalid("the flow_run is not valid", parsed.failure(), FLOW_RUN_INVALID)
        yield from _fail_run(flow_run, error, now)
        yield from _progress_of_ended(flow_run)
    else:
        yield from _move_on(flow_run, parsed.unwrap(), leases, now)


def _parse(flow_run: Document, run_id: str) -> Result[Graph, Problems]:
    status, own_id = flow_run.get("status"), flow_run.get("runId")
    problems = []
    if own_id != run_id:
        problems.append(Problem("runId", f"is {own_id!r:.80}; must be the document's id, {run_id}"))
    if status not in RUN_STATUSES:
        problems.append(Problem("status", f"is {status!r:.80}; must be one of {', '.join(RUN_STATUSES)}"))
    graph = parse_graph(flow_run.get("steps"))
    found = (*problems, *collect(graph))
    return Result.from_failure(found) if found else graph


# What happens to steps.


@dataclass(frozen=True, slots=True)
class _Move:
    """One step's change of status."""

    step_id: str
    event: StepEvent
    why: str
    error: StepError | None = None


def _move_on(flow_run: Document, graph: Graph, leases: LeasePolicy, now: datetime) -> Iterator[FieldChange]:
    lapsed = list(_lapsed(flow_run, graph, leases, now))
    after = _moved(graph, lapsed)
    given_up = [move for move in lapsed if move.error is not None]
    error = _run_error(flow_run, after, given_up)
    if error is not None:
        yield from _step_changes(flow_run, given_up, now)
        yield from _fail_run(flow_run, error, now)
        yield from _progress(flow_run, _moved(graph, given_up))
        return
    promoted = [_Move(one, "promote", _why_ready(graph, one)) for one in promotable(after)]
    after = _moved(after, promoted)
    yield from _step_changes(flow_run, [*lapsed, *promoted], now)
    yield from _run_changes(flow_run, after, now)
    yield from _progress(flow_run, after)


def _lapsed(flow_run: Document, graph: Graph, leases: LeasePolicy, now: datetime) -> Iterator[_Move]:
    """Return what happens to the steps that were abandoned: once more, or given up."""
    for step_id, status in graph.statuses.items():
        if status == "RUNNING" and is_abandoned(flow_run, flow_run["steps"][step_id], leases, now):
            yield _lapse(step_id, flow_run["steps"][step_id], leases)


def _lapse(step_id: str, step: Mapping[str, Any], leases: LeasePolicy) -> _Move:
    attempt, end = attempts_of(step), lease_end(step)
    until = "without a lease" if end is None else f"whose lease ran out at {rfc3339(end)}"
    said = f"abandoned in attempt {attempt} of {leases.max_attempts}, {until}"
    if leases.holders_gone:
        said = f"abandoned in attempt {attempt} of {leases.max_attempts}: the process that held it is gone"
    if attempt < leases.max_attempts:
        return _Move(step_id, "return", said)
    return _Move(step_id, "abandon", said, step_error(STEP_ABANDONED, f"the step was {said}"))


def _why_ready(graph: Graph, step_id: str) -> str:
    depends_on = graph.depends_on[step_id]
    return f"{', '.join(depends_on)} SUCCEEDED" if depends_on else "it depends on nothing"


def _moved(graph: Graph, moves: Sequence[_Move]) -> Graph:
    if not moves:
        return graph
    becomes = {move.step_id: next_status(graph.statuses[move.step_id], move.event) for move in moves}
    return Graph({**graph.statuses, **becomes}, graph.depends_on)


def _step_changes(flow_run: Document, moves: Iterable[_Move], now: datetime) -> Iterator[FieldChange]:
    for move in moves:
        step = ("steps", move.step_id)
        before: StepStatus = flow_run["steps"][move.step_id]["status"]
        yield from _change(flow_run, (*step, "status"), next_status(before, move.event), move.why)
        if move.error is not None:
            yield from _change(flow_run, (*step, "error"), error_document(move.error), move.why)
            yield from _change(flow_run, (*step, "finishedAt"), rfc3339(now), move.why)


# What becomes of the run.


def _run_error(flow_run: Document, graph: Graph, given_up: Iterable[_Move]) -> StepError | None:
    """Return why the run fails, None where it can go on or has ended well."""
    vain = waiting_in_vain(graph)
    if vain:
        return _in_vain(vain)
    failed = sorted(step_id for step_id, status in graph.statuses.items() if status == "FAILED")
    if not failed:
        return None
    codes = {one: field(flow_run, "steps", one, "error", "code") for one in failed}
    codes.update((move.step_id, move.error.code) for move in given_up if move.error is not None)
    said = ", ".join(f"{one} ({code})" if isinstance(code, str) else one for one, code in codes.items())
    return step_error(STEP_FAILED, f"failed: {said}", {"steps": failed})


def _in_vain(vain: Sequence[Vain]) -> StepError:
    code = FLOW_RUN_INVALID if any(one.is_mistake for one in vain) else DEPENDENCY_UNSATISFIABLE
    told = sorted(vain, key=lambda one: (not one.is_mistake, one.is_behind))[:_MAX_REASONS]
    said = [f"{one.step_id} {one.because}" for one in told]
    if len(vain) > len(told):
        said.append(f"and {len(vain) - len(told)} more")
    reasons = [{"stepId": one.step_id, "because": one.because} for one in told]
    details = {"steps": [one.step_id for one in vain], "reasons": reasons}
    return step_error(code, f"can never run: {'; '.join(said)}", details)


def _fail_run(flow_run: Document, error: StepError, now: datetime) -> Iterator[FieldChange]:
    yield from _end_run(flow_run, "fail", error.message, now)
    yield from _change(flow_run, ("error",), error_document(error), error.code)


def _run_changes(flow_run: Document, graph: Graph, now: datetime) -> Iterator[FieldChange]:
    if all(status in _DONE for status in graph.statuses.values()):
        yield from _end_run(flow_run, "succeed", "every step is SUCCEEDED, SKIPPED or CANCELLED", now)
    elif flow_run["status"] == "PENDING":
        yield from _change(
            flow_run, ("status",), next_run_status("PENDING", "begin"), "steps are READY or RUNNING"
        )


def _end_run(flow_run: Document, event: RunEvent, why: str, now: datetime) -> Iterator[FieldChange]:
    """End the run; one whose status is no status counts as not begun."""
    before: RunStatus = flow_run["status"] if flow_run.get("status") in RUN_STATUSES else "PENDING"
    yield from _change(flow_run, ("status",), next_run_status(before, event), why)
    yield from _change(flow_run, ("finishedAt",), rfc3339(now), "the run has ended")


# Progress.


def _progress_of_ended(flow_run: Document) -> Iterator[FieldChange]:
    """Keep the counts of an ended run true, if it has any: steps that were RUNNING at its end may end later."""
    graph = parse_graph(flow_run.get("steps"))
    if field(flow_run, "progress", "stepCounts") is not None and not isinstance(graph, Failure):
        yield from _progress(flow_run, graph.unwrap())


def _progress(flow_run: Document, graph: Graph) -> Iterator[FieldChange]:
    counts = dict.fromkeys(STEP_STATUSES, 0)
    for status in graph.statuses.values():
        counts[status] += 1
    step_counts = {"total": len(graph.statuses), **{_COUNTED_AS[one]: count for one, count in counts.items()}}
    ended = sum(counts[one] for one in (*_DONE, "FAILED"))
    why = f"{ended} of {len(graph.statuses)} steps have ended"
    yield from _change(flow_run, ("progress", "currentStepId"), _current(graph, counts), why)
    yield from _change(flow_run, ("progress", "stepCounts"), step_counts, why)


def _current(graph: Graph, counts: Mapping[StepStatus, int]) -> str | None:
    """Return where the run stands: the first step that runs, else that is READY, else that FAILED."""
    for wanted in _CURRENT:
        if counts[wanted]:
            return min(one for one, status in graph.statuses.items() if status == wanted)
    return None


def _change(flow_run: Document, path: tuple[str, ...], after: Any, why: str) -> Iterator[FieldChange]:
    """Return the change of a field, or nothing where it is so already."""
    before = field(flow_run, *path)
    if isinstance(before, datetime):
        before = rfc3339(before)
    if before != after:
        yield FieldChange(path=path, before=before, after=after, why=why)
