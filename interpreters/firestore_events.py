"""Firestore's events as Eventarc sends them: DocumentEventData in protobuf, or the same as JSON.

Owns the decoding, of no more than an event is judged by. Must not judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.flow.hints import WITH_CONTEXT, Hint, Ignored, hint_document, hint_from_json, run_id_of


def read_event(subject: object, data: object, collection: str) -> Hint | Ignored:
    """Return what the event says of a flow_run; what cannot be decoded is a hint without a document."""
    run_id = run_id_of(subject, collection)
    if isinstance(run_id, Ignored):
        return run_id
    if isinstance(data, bytes):
        return _from_protobuf(run_id, data)
    return hint_from_json(run_id, data) if isinstance(data, Mapping) else Hint(run_id, None)


def _from_protobuf(run_id: str, data: bytes) -> Hint:
    from google.events.cloud.firestore_v1 import DocumentEventData  # noqa: PLC0415 - needed by events only
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        event = DocumentEventData.pb().FromString(data)
    except DecodeError:
        return Hint(run_id, None)
    if not event.value.name:
        return Hint(run_id, None)
    fields = event.value.fields
    texts = {name: fields[name].string_value if name in fields else None for name in ("flowKey", "status")}
    return Hint(run_id, hint_document(run_id, texts["flowKey"], texts["status"], _steps(fields)))


def _steps(fields: Any) -> dict[str, dict[str, Any]] | None:
    if "steps" not in fields or not fields["steps"].HasField("map_value"):
        return None
    return {step_id: _step(step.map_value.fields) for step_id, step in fields["steps"].map_value.fields.items()}


def _step(fields: Any) -> dict[str, Any]:
    step: dict[str, Any] = {name: fields[name].string_value for name in ("stepType", "status") if name in fields}
    if step.get("stepType") in WITH_CONTEXT:
        step["timeframe"] = fields["timeframe"].string_value if "timeframe" in fields else None
        values = fields["dependsOn"].array_value.values if "dependsOn" in fields else ()
        step["dependsOn"] = [one.string_value for one in values]
    return step
