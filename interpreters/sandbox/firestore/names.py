"""Names of databases, collections and documents.

Owns their form: projects/P/databases/D/documents/collection/id/… Must not know what is stored under them.
"""

from __future__ import annotations

import re

from interpreters.sandbox.firestore.failures import refuse

_DATABASE = re.compile(r"projects/[^/]+/databases/[^/]+")
_ROOT = re.compile(r"projects/[^/]+/databases/[^/]+/documents")
_ROOT_SEGMENTS = 5
_MAX_ID_BYTES = 1500


def database_of(name: str) -> str:
    """Return the name of the database something is in."""
    found = _DATABASE.match(name)
    if found is None:
        refuse(f'Invalid resource name "{name}".')
    return found.group()


def checked_database(name: str) -> str:
    """Return the name if it is a database's."""
    if _DATABASE.fullmatch(name) is None:
        refuse(f'Invalid database name "{name}".')
    return name


def checked_document(name: str, database: str) -> str:
    """Return the name if it is of a document in the database."""
    ids = relative(name)
    if not ids or len(ids) % 2 or not all(map(_is_id, ids)):
        refuse(f'Document name "{name}" is not the name of a document.')
    if database_of(name) != database:
        refuse(f'Document name "{name}" is not in database "{database}".')
    return name


def checked_parent(name: str) -> str:
    """Return the name if it is of a document or of the root of all."""
    ids = relative(name)
    if len(ids) % 2 or not all(map(_is_id, ids)):
        refuse(f'Parent name "{name}" is neither a document nor the root of documents.')
    return name


def relative(name: str) -> list[str]:
    """Return the ids of collections and documents in a name."""
    if _ROOT.match(name) is None:
        refuse(f'Invalid resource name "{name}".')
    return name.split("/")[_ROOT_SEGMENTS:]


def collection_of(name: str) -> tuple[str, str]:
    """Return the parent of a document's collection, and the collection's id."""
    parent, collection, _ = name.rsplit("/", 2)
    return parent, collection


def order_key(name: str) -> tuple[bytes, ...]:
    """Return what names are sorted by: segment by segment, by bytes."""
    return tuple(segment.encode() for segment in name.split("/"))


def _is_id(segment: str) -> bool:
    return segment not in {"", ".", ".."} and len(segment.encode()) <= _MAX_ID_BYTES
