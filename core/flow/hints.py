"""What an event says of a flow_run: a hint, enough to see that there is nothing to do.

Owns the meaning of a Firestore event's subject and of a document's REST form. The payload can be absent or stale;
whoever works reads the document again. Must not know any transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.documents import field
from core.flow.flow_run import is_usable_id
from effects import Document

WITH_CONTEXT = frozenset({"LLM_REPORT"})
"""Step types whose worker looks at more than type and status before it claims."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A flow_run that changed."""

    run_id: str
    document: Document | None
    """What an event is judged by (see `hint_document`); None where the event has no payload to be read."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that is none of ours, or makes no sense."""

    reason: str


def run_id_of(subject: object, collection: str) -> str | Ignored:
    """Return the run id in an event's subject, documents/<collection>/<runId>."""
    if not isinstance(subject, str):
        return Ignored("no_subject")
    match subject.removeprefix("documents/").split("/"):
        case [name, run_id] if name == collection and is_usable_id(run_id):
            return run_id
        case [name, _] if name != collection:
            return Ignored("other_collection")
        case _:
            return Ignored("bad_subject")


def hint_from_json(run_id: str, data: object) -> Hint:
    """Return the hint of an event whose document comes as JSON with typed values (`fields`, `stringValue`)."""
    fields = field(data, "value", "fields")
    if not isinstance(fields, Mapping):
        return Hint(run_id, None)
    steps = _json_steps(field(fields, "steps", "mapValue", "fields"))
    return Hint(run_id, hint_document(run_id, _text(fields.get("flowKey")), _text(fields.get("status")), steps))


def hint_document(
    run_id: str, flow_key: str | None, status: str | None, steps: Mapping[str, Any] | None
) -> Document:
    """Return the part of a flow_run that an event is judged by.

    Of each step that is its type and status; of the step types in WITH_CONTEXT also timeframe and dependencies.
    """
    return {"runId": run_id, "flowKey": flow_key, "status": status, "steps": steps}


def _json_steps(steps: object) -> dict[str, Any] | None:
    if not isinstance(steps, Mapping):
        return None
    return {step_id: _json_step(field(step, "mapValue", "fields")) for step_id, step in steps.items()}


def _json_step(fields: object) -> dict[str, Any]:
    step: dict[str, Any] = {name: _text(field(fields, name)) for name in ("stepType", "status")}
    if step["stepType"] in WITH_CONTEXT:
        step["timeframe"] = _text(field(fields, "timeframe"))
        depends_on = field(fields, "dependsOn", "arrayValue", "values")
        step["dependsOn"] = [_text(one) for one in depends_on] if isinstance(depends_on, list) else []
    return step


def _text(value: object) -> str | None:
    text = field(value, "stringValue")
    return text if isinstance(text, str) else None
