"""Firestore's events as Eventarc sends them: DocumentEventData in protobuf, or the same as JSON.

Owns the decoding, of no more than an event is judged by: of the protobuf messages only the fields below are declared, so that
the runtime skips all others, the old document first of all. Must not judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from core.flow.hints import WITH_CONTEXT, Hint, Ignored, hint_document, hint_from_json, run_id_of

_PACKAGE = "tda.events"
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Event": {"value": (1, "Document")},
    "Document": {"name": (1, "string"), "fields": (2, "Document.Fields")},
    "Document.Fields": {"key": (1, "string"), "value": (2, "Field")},
    "Field": {"map_value": (6, "bytes"), "string_value": (17, "string")},
    "Steps": {"fields": (1, "repeated Entry")},
    "Entry": {"key": (1, "string"), "value": (2, "bytes")},
    "Step": {"map_value": (6, "StepMap")},
    "StepMap": {"fields": (1, "StepMap.Fields")},
    "StepMap.Fields": {"key": (1, "string"), "value": (2, "StepField")},
    "StepField": {"string_value": (17, "string"), "array_value": (9, "Array")},
    "Array": {"values": (1, "repeated StepField")},
}
"""Number and type of each field, as in google.events.cloud.firestore.v1, but that steps stay bytes until one is looked at.

A type with a dot is the entry of a map. Fields of a Field exclude each other, so that a map that is empty is told from none.
"""


def read_event(
    subject: object, data: object, collection: str, statuses: frozenset[str] | None = None
) -> Hint | Ignored:
    """Return what the event says of a flow_run, of all its steps or of those in some statuses.

    What cannot be decoded is a hint without a document.
    """
    run_id = run_id_of(subject, collection)
    if isinstance(run_id, Ignored):
        return run_id
    if isinstance(data, bytes):
        return _from_protobuf(run_id, data, statuses)
    return hint_from_json(run_id, data) if isinstance(data, Mapping) else Hint(run_id, None)


def _from_protobuf(run_id: str, data: bytes, statuses: frozenset[str] | None) -> Hint:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - needed by events only

    try:
        document = _message("Event").FromString(data).value
        if not document.name:
            return Hint(run_id, None)
        fields = document.fields
        texts = {name: fields[name].string_value if name in fields else None for name in ("flowKey", "status")}
        return Hint(run_id, hint_document(run_id, texts["flowKey"], texts["status"], _steps(fields, statuses)))
    except DecodeError:
        return Hint(run_id, None)


def _steps(fields: Any, statuses: frozenset[str] | None) -> dict[str, dict[str, Any]] | None:
    if "steps" not in fields or not fields["steps"].HasField("map_value"):
        return None
    data: bytes = fields["steps"].map_value
    if not _may_have(data, statuses):
        return {}
    entries = _message("Steps").FromString(data).fields
    steps = {entry.key: _step(entry.value) for entry in entries if _may_have(entry.value, statuses)}
    return {one: step for one, step in steps.items() if statuses is None or step.get("status") in statuses}


def _may_have(data: bytes, statuses: frozenset[str] | None) -> bool:
    """Return whether one of the words is anywhere in the bytes: where it is not, no step has the status."""
    return statuses is None or any(one.encode() in data for one in statuses)


def _step(value: bytes) -> dict[str, Any]:
    fields = _message("Step").FromString(value).map_value.fields
    step: dict[str, Any] = {name: fields[name].string_value for name in ("stepType", "status") if name in fields}
    if step.get("stepType") in WITH_CONTEXT:
        step["timeframe"] = fields["timeframe"].string_value if "timeframe" in fields else None
        values = fields["dependsOn"].array_value.values if "dependsOn" in fields else ()
        step["dependsOn"] = [one.string_value for one in values]
    return step


@cache
def _message(name: str) -> Any:
    """Return the class of a message."""
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415 - needed by events only

    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    """Return the runtime's own form of the messages."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415

    file = FileDescriptorProto(name="tda/events.proto", package=_PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name, fields in _MESSAGES.items():
        above, _, own = name.rpartition(".")
        made[name] = message = (made[above].nested_type if above else file.message_type).add(name=own or name)
        message.options.map_entry = bool(above)
        if name == "Field":
            message.oneof_decl.add(name="value_type")
        for field, (number, kind) in fields.items():
            _declare(message.field.add(name=field, number=number), kind)
            if name == "Field":
                message.field[-1].oneof_index = 0
    pool = DescriptorPool()
    pool.Add(file)
    return pool


def _declare(field: Any, kind: str) -> None:
    is_repeated = kind.startswith("repeated ") or "." in kind
    field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
    scalars = {"string": field.TYPE_STRING, "bytes": field.TYPE_BYTES}
    field.type = scalars.get(kind, field.TYPE_MESSAGE)
    if kind not in scalars:
        field.type_name = f".{_PACKAGE}.{kind.removeprefix('repeated ')}"
