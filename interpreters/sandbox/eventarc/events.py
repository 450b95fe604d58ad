"""The CloudEvent of a document's change, in binary mode.

Owns its types, headers and payload. Must not know who it is sent to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from urllib.parse import quote

from google.cloud.firestore_v1.types import Document as StoredDocument
from google.events.cloud.firestore_v1 import Document, DocumentEventData, DocumentMask

WRITTEN = "google.cloud.firestore.document.v1.written"
CREATED = "google.cloud.firestore.document.v1.created"
UPDATED = "google.cloud.firestore.document.v1.updated"
DELETED = "google.cloud.firestore.document.v1.deleted"
WITH_AUTH_CONTEXT = ".withAuthContext"
"""Any of the types may end so; the event then tells on whose behalf, which here is unknown."""
MAX_PAYLOAD_BYTES = 512 * 1024
"""Above it, an event comes without the documents."""
_SCHEMA = "googleapis/google-cloudevents/blob/main/proto/google/events/cloud/firestore/v1/data.proto"
_PROTOBUF = "application/protobuf"
_UNQUOTED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Change(Protocol):
    """What one commit did to one document."""

    @property
    def name(self) -> str:
        """Return the document's full name."""

    @property
    def old(self) -> Any:
        """Return the document before, None if it was created."""

    @property
    def new(self) -> Any:
        """Return the document after, None if it was deleted."""

    @property
    def update_mask(self) -> Sequence[str]:
        """Return the paths of the fields that changed."""

    @property
    def commit_time(self) -> datetime | int:
        """Return the moment of the commit, if a number in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Source:
    """The database that events are of."""

    project: str
    database: str
    location: str

    def headers(self, event_id: str, event_type: str, change: Change) -> dict[str, str]:
        """Return the headers of the event, quoted as CloudEvents asks."""
        path = document_path(change)
        values = {
            "ce-id": event_id,
            "ce-source": f"//firestore.googleapis.com/projects/{self.project}/databases/{self.database}",
            "ce-specversion": "1.0",
            "ce-type": event_type,
            "ce-subject": f"documents/{path}",
            "ce-time": _rfc3339(change.commit_time),
            "ce-datacontenttype": _PROTOBUF,
            "ce-dataschema": f"https://github.com/{_SCHEMA}",
            "ce-project": self.project,
            "ce-database": self.database,
            "ce-namespace": "(default)",
            "ce-location": self.location,
            "ce-document": path,
            "content-type": _PROTOBUF,
        }
        if event_type.endswith(WITH_AUTH_CONTEXT):
            values["ce-authtype"] = "unknown"
        return {name: quote(value, safe=_UNQUOTED) for name, value in values.items()}


def document_path(change: Change) -> str:
    """Return the document's path within its database."""
    return change.name.partition("/documents/")[2]


def types_of(change: Change) -> frozenset[str]:
    """Return the types of event that the change is, without those that tell on whose behalf."""
    if change.old is None:
        return frozenset({WRITTEN, CREATED})
    return frozenset({WRITTEN, DELETED if change.new is None else UPDATED})


def payload_of(change: Change) -> bytes:
    """Return the body of the event; the mask is only there for updates, the documents only if there is room."""
    mask = DocumentMask(field_paths=change.update_mask) if UPDATED in types_of(change) else None
    value, old_value = _as_event_document(change.new), _as_event_document(change.old)
    whole = _serialized(DocumentEventData(value=value, old_value=old_value, update_mask=mask))
    return whole if len(whole) <= MAX_PAYLOAD_BYTES else _serialized(DocumentEventData(update_mask=mask))


def _serialized(data: DocumentEventData) -> bytes:
    return bytes(DocumentEventData.serialize(data))


def _as_event_document(document: Any) -> Document | None:
    """Return the document as events have it: another type of the same wire form."""
    if document is None:
        return None
    converted: Document = Document.deserialize(StoredDocument.serialize(document))
    return converted


def _rfc3339(moment: datetime | int) -> str:
    at = _EPOCH + timedelta(microseconds=moment) if isinstance(moment, int) else moment.astimezone(UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
