"""The calls that read: get, batch get, query, list.

Owns what each asks of the database and answers. Must not know the network or faults.
"""

from __future__ import annotations

from collections.abc import Iterator

from interpreters.sandbox.firestore.database import Database
from interpreters.sandbox.firestore.failures import not_found, refuse_unimplemented
from interpreters.sandbox.firestore.field_paths import masked, parse_field_path
from interpreters.sandbox.firestore.listing import collections_in, documents_in, page, with_missing
from interpreters.sandbox.firestore.names import (
    checked_database,
    checked_document,
    checked_parent,
    database_of,
)
from interpreters.sandbox.firestore.queries import parse_query, projected
from interpreters.sandbox.firestore.tally import Tally
from interpreters.sandbox.firestore.timestamps import timestamp
from interpreters.sandbox.firestore.wire import (
    Document,
    Message,
    new_batch_get_documents_response,
    new_list_collection_ids_response,
    new_list_documents_response,
    new_run_query_response,
)


class Reading:
    """Answers the calls that read."""

    def __init__(self, database: Database, tally: Tally) -> None:
        """Read from the database, and count."""
        self._database = database
        self._tally = tally

    def get_document(self, request: Message) -> Message:
        """Return the document, or fail."""
        name = checked_document(request.name, database_of(request.name))
        self._tally.read("GetDocument", 1)
        (document,), _ = self._database.read(database_of(name), [name], request.transaction)
        if document is None:
            raise not_found(name)
        return with_mask(document, request)

    def batch_get_documents(self, request: Message) -> Iterator[Message]:
        """Return each document, found or missing."""
        database = checked_database(request.database)
        names = list(dict.fromkeys(checked_document(name, database) for name in request.documents))
        begun = self._begun(database, request)
        documents, moment = self._database.read(database, names, request.transaction or begun)
        self._tally.read("BatchGetDocuments", len(names))
        read_time = timestamp(moment)
        if begun or not names:
            yield new_batch_get_documents_response(transaction=begun, read_time=read_time)
        for name, document in zip(names, documents, strict=True):
            if document is None:
                yield new_batch_get_documents_response(missing=name, read_time=read_time)
            else:
                yield new_batch_get_documents_response(found=with_mask(document, request), read_time=read_time)

    def run_query(self, request: Message) -> Iterator[Message]:
        """Return what the query selects."""
        query = request.structured_query
        database = database_of(request.parent)
        selection = parse_query(request.parent, query)
        begun = self._begun(database, request)
        if begun:
            yield new_run_query_response(transaction=begun)
        documents, moment = self._database.select(database, selection, request.transaction or begun)
        self._tally.read("RunQuery", max(1, len(documents)))
        read_time = timestamp(moment)
        if query.offset or not documents:
            yield new_run_query_response(read_time=read_time, skipped_results=query.offset)
        for document in documents:
            yield new_run_query_response(document=projected(document, query), read_time=read_time)

    def list_documents(self, request: Message) -> Message:
        """Return a page of a collection's documents, in the order of their names."""
        if request.order_by not in {"", "__name__"} or not request.collection_id:
            refuse_unimplemented("ListDocuments without a collection, or in another order than by name")
        collection = f"{checked_parent(request.parent)}/{request.collection_id}"
        present, _ = self._database.select(database_of(collection), documents_in(collection), request.transaction)
        if request.show_missing:
            present = with_missing(collection, self._database.documents(), present)
        documents, token = page(present, request.page_size, request.page_token)
        self._tally.read("ListDocuments", len(documents))
        masks = [with_mask(document, request) for document in documents]
        return new_list_documents_response(documents=masks, next_page_token=token)

    def list_collection_ids(self, request: Message) -> Message:
        """Return a page of the ids of the collections under a document or at the root."""
        found = collections_in(checked_parent(request.parent), self._database.documents())
        ids, token = page(found, request.page_size, request.page_token)
        return new_list_collection_ids_response(collection_ids=ids, next_page_token=token)

    def _begun(self, database: str, request: Message) -> bytes:
        """Return the id of the transaction the request wants begun, nothing if it wants none."""
        if not request.HasField("new_transaction"):
            return b""
        return begin(self._database, database, request.new_transaction)


def begin(store: Database, database: str, options: Message) -> bytes:
    """Return the id of a new transaction with these options."""
    return store.begin(
        database, read_only=options.HasField("read_only"), retried=options.read_write.retry_transaction
    )


def with_mask(document: Document, request: Message) -> Document:
    """Return the document with only the fields of the request's mask, if it has one."""
    if not request.HasField("mask"):
        return document
    return masked(document, map(parse_field_path, request.mask.field_paths))
