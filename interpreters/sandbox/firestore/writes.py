"""One write on one document: its precondition, and the document after it.

Owns masks, deletes and the order of update and transforms. Must not know other documents, locks or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interpreters.sandbox.firestore.failures import already_exists, nothing_to_update, refuse, wrong_version
from interpreters.sandbox.firestore.field_paths import parse_field_path, put_value, remove_value, value_at
from interpreters.sandbox.firestore.sizes import check_document
from interpreters.sandbox.firestore.timestamps import microseconds, timestamp
from interpreters.sandbox.firestore.transforms import transformed
from interpreters.sandbox.firestore.wire import (
    Document,
    Value,
    Write,
    WriteResult,
    canonical,
    new_document,
    new_value,
    new_write_result,
)


@dataclass(frozen=True, slots=True)
class Applied:
    """A document after a write."""

    document: Document | None
    """None where there is none now."""

    result: WriteResult
    """What the answer says about the write."""


def written_name(write: Write) -> str:
    """Return the name of the document a write is about."""
    operation = write.WhichOneof("operation")
    if operation is None:
        refuse("A write must be an update, a delete or a transform.")
    name: str = {
        "update": write.update.name,
        "delete": write.delete,
        "transform": write.transform.document,
    }[operation]
    return name


def apply_write(current: Document | None, write: Write, commit_time: int) -> Applied:
    """Return the document after the write; the very same one where the write changes nothing."""
    _check_precondition(current, write)
    if write.WhichOneof("operation") == "delete":
        return Applied(None, new_write_result())
    changed, results = _changed(current, write, commit_time)
    if current is not None and canonical(current) == canonical(changed):
        changed = current
    else:
        _stamp(changed, current, commit_time)
        check_document(changed)
    return Applied(changed, new_write_result(update_time=changed.update_time, transform_results=results))


def _check_precondition(current: Document | None, write: Write) -> None:
    name = written_name(write)
    condition = write.current_document
    kind = condition.WhichOneof("condition_type")
    if kind == "exists" and condition.exists and current is None:
        raise nothing_to_update(name)
    if kind == "exists" and not condition.exists and current is not None:
        raise already_exists(name)
    if kind == "update_time":
        stored = 0 if current is None else microseconds(current.update_time)
        if stored != microseconds(condition.update_time):
            raise wrong_version(stored, microseconds(condition.update_time))


def _changed(current: Document | None, write: Write, commit_time: int) -> tuple[Document, list[Value]]:
    if write.WhichOneof("operation") == "transform":
        changed = _copy(current, write.transform.document)
        return changed, _transform(changed, write.transform.field_transforms, commit_time)
    changed = _updated(current, write)
    return changed, _transform(changed, write.update_transforms, commit_time)


def _updated(current: Document | None, write: Write) -> Document:
    if not write.HasField("update_mask"):
        return new_document(name=write.update.name, fields=write.update.fields)
    changed = _copy(current, write.update.name)
    for text in write.update_mask.field_paths:
        path = parse_field_path(text)
        value = value_at(write.update.fields, path)
        if value is None:
            remove_value(changed.fields, path)
        else:
            put_value(changed.fields, path, value)
    return changed


def _transform(document: Document, transforms: Any, commit_time: int) -> list[Value]:
    results = []
    for transform in transforms:
        path = parse_field_path(transform.field_path)
        value, result = transformed(transform, value_at(document.fields, path), commit_time)
        results.append(_copy_value(result))
        put_value(document.fields, path, value)
    return results


def _copy_value(value: Value) -> Value:
    copy = new_value()
    copy.CopyFrom(value)
    return copy


def _copy(current: Document | None, name: str) -> Document:
    return new_document(name=name, fields=None if current is None else current.fields)


def _stamp(changed: Document, current: Document | None, commit_time: int) -> None:
    changed.update_time.CopyFrom(timestamp(commit_time))
    changed.create_time.CopyFrom(timestamp(commit_time) if current is None else current.create_time)
