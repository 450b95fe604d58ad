"""What the orchestrator changed, or would, and how a whole flow went: for people and for machines.

Owns these forms. Must not print.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from core.documents import field
from core.flow.picture import steps_in_order
from core.problems import document_path
from effects import Document, FieldChange


def changes_as_text(changes: Sequence[FieldChange]) -> str:
    """Return a line for each change: where, from what to what, and why."""
    if not changes:
        return "nothing to change"
    rows = [(document_path(*one.path), f"{_shown(one.before)} -> {_shown(one.after)}", one.why) for one in changes]
    width = max(len(path) for path, _, _ in rows)
    return "\n".join(f"{path:<{width}}  {move}  ({why})" for path, move, why in rows)


def changes_as_json(run_id: str, changes: Sequence[FieldChange]) -> dict[str, Any]:
    """Return the same as one JSON object."""
    rows = [
        {"path": document_path(*one.path), "before": one.before, "after": one.after, "why": one.why}
        for one in changes
    ]
    return {"runId": run_id, "changes": rows}


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flow_as_text(flow_run: Document, waits_for: Sequence[str]) -> str:
    """Return how the run stands: one line, and one for each step it waits for."""
    code = field(flow_run, "error", "code")
    said = [
        *(f"{step_id}={status}" for step_id, status in _statuses(flow_run)),
        *([f"error={code}"] if code else []),
    ]
    first = f"FLOW {_status(flow_run, waits_for)}: {', '.join(said) or 'no steps'}"
    return "\n".join([first, *(f"waiting: {line}" for line in waits_for)])


def flow_as_json(flow_run: Document, waits_for: Sequence[str]) -> dict[str, Any]:
    """Return the same as one JSON object."""
    return {
        "status": _status(flow_run, waits_for),
        "runId": flow_run.get("runId"),
        "steps": dict(_statuses(flow_run)),
        "waitsFor": list(waits_for),
        "errorCode": field(flow_run, "error", "code"),
    }


def _status(flow_run: Document, waits_for: Sequence[str]) -> str:
    return "WAITING" if waits_for else str(flow_run.get("status"))


def _statuses(flow_run: Document) -> Iterator[tuple[str, str]]:
    """Return the status of each step, in the order they can run in; of none where they make no sense."""
    for step_id in steps_in_order(flow_run):
        yield step_id, flow_run["steps"][step_id]["status"]
