"""The messages of google.firestore.v1, as the protobuf runtime keeps them.

Owns their names here: aliases for annotations (the runtime's classes carry no types) and `new_…` to make one.
Must not know what a message means.
"""

from __future__ import annotations

from typing import Any

from google.cloud.firestore_v1 import types
from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp as _Timestamp
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

Message = Any
"""Any protobuf message."""

Document = Any
"""A google.firestore.v1.Document."""

Value = Any
"""A google.firestore.v1.Value."""

Fields = Any
"""A map from field names to values, of a document or of a map value."""

Timestamp = Any
"""A google.protobuf.Timestamp."""

Write = Any
"""A google.firestore.v1.Write."""

WriteResult = Any
"""A google.firestore.v1.WriteResult."""

StructuredQuery = Any
"""A google.firestore.v1.StructuredQuery."""

new_document: Any = types.Document.pb()
new_value: Any = types.Value.pb()
new_write: Any = types.Write.pb()
new_write_result: Any = types.WriteResult.pb()
new_timestamp: Any = _Timestamp
new_empty: Any = Empty
new_status: Any = Status
new_begin_transaction_response: Any = types.BeginTransactionResponse.pb()
new_batch_get_documents_response: Any = types.BatchGetDocumentsResponse.pb()
new_batch_write_response: Any = types.BatchWriteResponse.pb()
new_commit_response: Any = types.CommitResponse.pb()
new_list_collection_ids_response: Any = types.ListCollectionIdsResponse.pb()
new_list_documents_response: Any = types.ListDocumentsResponse.pb()
new_run_query_response: Any = types.RunQueryResponse.pb()


def request_parser(name: str) -> Any:
    """Return the function that parses the bytes of a request of that name."""
    return getattr(types, name).pb().FromString


def serialize(message: Message) -> bytes:
    """Return the bytes of a message."""
    data: bytes = message.SerializeToString()
    return data


def canonical(document: Document) -> bytes:
    """Return bytes that are equal for equal fields, NaN included, whatever the order of keys."""
    data: bytes = new_document(fields=document.fields).SerializeToString(deterministic=True)
    return data
