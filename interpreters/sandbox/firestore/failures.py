"""The errors the server answers with.

Owns their status codes and words, as near to Google's as is known. Must not know who raises them.
"""

from __future__ import annotations

from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]


class FirestoreError(Exception):
    """An answer other than OK."""

    def __init__(self, code: Any, message: str) -> None:
        """Keep the grpc.StatusCode and the words."""
        super().__init__(message)
        self.code = code
        self.message = message


def contention() -> FirestoreError:
    """Return the error of a transaction or write that waited too long for a lock."""
    return FirestoreError(grpc.StatusCode.ABORTED, "Too much contention on these documents. Please try again.")


def transaction_expired() -> FirestoreError:
    """Return the error of a transaction id that is unknown or finished."""
    return FirestoreError(
        grpc.StatusCode.INVALID_ARGUMENT, "The referenced transaction has expired or is no longer valid."
    )


def read_only_transaction() -> FirestoreError:
    """Return the error of writes in a read-only transaction."""
    return _invalid("Cannot modify entities in a read-only transaction.")


def already_exists(name: str) -> FirestoreError:
    """Return the error of a document that should not have been there."""
    return FirestoreError(grpc.StatusCode.ALREADY_EXISTS, f"Document already exists: {name}")


def nothing_to_update(name: str) -> FirestoreError:
    """Return the error of a write to a document that should have been there."""
    return FirestoreError(grpc.StatusCode.NOT_FOUND, f"No document to update: {name}")


def not_found(name: str) -> FirestoreError:
    """Return the error of a get of a missing document."""
    return FirestoreError(grpc.StatusCode.NOT_FOUND, f'Document "{name}" not found.')


def wrong_version(stored: int, required: int) -> FirestoreError:
    """Return the error of an update time that is not the document's."""
    words = f"the stored version ({stored}) does not match the required base version ({required})"
    return FirestoreError(grpc.StatusCode.FAILED_PRECONDITION, words)


def unimplemented(what: str) -> FirestoreError:
    """Return the error of what this server does not do."""
    return FirestoreError(grpc.StatusCode.UNIMPLEMENTED, f"The sandbox's Firestore does not do {what}.")


def refuse(message: str) -> NoReturn:
    """Raise the error of a request that can never be right."""
    raise _invalid(message)


def refuse_unimplemented(what: str) -> NoReturn:
    """Raise the error of what this server does not do."""
    raise unimplemented(what)


def _invalid(message: str) -> FirestoreError:
    return FirestoreError(grpc.StatusCode.INVALID_ARGUMENT, message)
