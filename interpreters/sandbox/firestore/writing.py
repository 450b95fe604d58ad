"""The calls that write: begin, commit, roll back, batch write, and one document at a time.

Owns what each asks of the database and answers. Must not know the network or faults.
"""

from __future__ import annotations

import secrets
from collections import Counter

from interpreters.sandbox.firestore.database import Commit, Database
from interpreters.sandbox.firestore.failures import FirestoreError, refuse
from interpreters.sandbox.firestore.names import (
    checked_database,
    checked_document,
    checked_parent,
    database_of,
)
from interpreters.sandbox.firestore.reading import begin, with_mask
from interpreters.sandbox.firestore.tally import Tally
from interpreters.sandbox.firestore.timestamps import timestamp
from interpreters.sandbox.firestore.wire import (
    Message,
    Write,
    WriteResult,
    new_batch_write_response,
    new_begin_transaction_response,
    new_commit_response,
    new_document,
    new_empty,
    new_status,
    new_write,
    new_write_result,
)
from interpreters.sandbox.firestore.writes import written_name

_MAX_REQUEST_BYTES = 10 * 1_048_576


class Writing:
    """Answers the calls that write."""

    def __init__(self, database: Database, tally: Tally) -> None:
        """Write to the database, and count."""
        self._database = database
        self._tally = tally

    def begin_transaction(self, request: Message) -> Message:
        """Return the id of a new transaction."""
        identifier = begin(self._database, checked_database(request.database), request.options)
        return new_begin_transaction_response(transaction=identifier)

    def rollback(self, request: Message) -> Message:
        """End a transaction."""
        self._database.roll_back(checked_database(request.database), request.transaction)
        return new_empty()

    def commit(self, request: Message) -> Message:
        """Apply all writes, or none."""
        if request.ByteSize() > _MAX_REQUEST_BYTES:
            refuse("Transaction too big. Decrease transaction size.")
        database = checked_database(request.database)
        committed = self._commit("Commit", database, list(request.writes), request.transaction)
        return new_commit_response(write_results=committed.results, commit_time=timestamp(committed.time))

    def batch_write(self, request: Message) -> Message:
        """Apply each write on its own, in any order."""
        database = checked_database(request.database)
        if any(times > 1 for times in Counter(map(written_name, request.writes)).values()):
            refuse("Cannot write to the same document twice in one BatchWrite.")
        answer = new_batch_write_response()
        for write in request.writes:
            result, status = self._write_alone(database, write)
            answer.write_results.append(result)
            answer.status.append(status)
        return answer

    def create_document(self, request: Message) -> Message:
        """Create a document, under an id of its own where the request names none."""
        identifier = request.document_id or secrets.token_hex(10)
        name = f"{checked_parent(request.parent)}/{request.collection_id}/{identifier}"
        write = new_write(update=new_document(name=name, fields=request.document.fields))
        write.current_document.exists = False
        return self._write_one("CreateDocument", write, request)

    def update_document(self, request: Message) -> Message:
        """Update a document, or create it."""
        write = new_write(update=request.document)
        if request.HasField("update_mask"):
            write.update_mask.CopyFrom(request.update_mask)
        return self._write_one("UpdateDocument", _with_precondition(write, request), request)

    def delete_document(self, request: Message) -> Message:
        """Delete a document, if it is there."""
        write = _with_precondition(new_write(delete=request.name), request)
        self._commit("DeleteDocument", database_of(request.name), [write])
        return new_empty()

    def _write_one(self, method: str, write: Write, request: Message) -> Message:
        committed = self._commit(method, database_of(write.update.name), [write])
        return with_mask(committed.documents[0], request)

    def _write_alone(self, database: str, write: Write) -> tuple[WriteResult, Message]:
        try:
            (result,) = self._commit("BatchWrite", database, [write]).results
        except FirestoreError as error:
            return new_write_result(), new_status(code=error.code.value[0], message=error.message)
        return result, new_status()

    def _commit(self, method: str, database: str, writes: list[Write], transaction: bytes = b"") -> Commit:
        for write in writes:
            checked_document(written_name(write), database)
        committed = self._database.commit(database, writes, transaction)
        self._tally.wrote(method, len(writes))
        return committed


def _with_precondition(write: Write, request: Message) -> Write:
    if request.HasField("current_document"):
        write.current_document.CopyFrom(request.current_document)
    return write
