"""Lists of documents and of collections, page by page.

Owns paging, and documents that are missing but have documents below them. Must not know the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from interpreters.sandbox.firestore.failures import refuse
from interpreters.sandbox.firestore.names import order_key
from interpreters.sandbox.firestore.transactions import Documents, Selection
from interpreters.sandbox.firestore.wire import Document, new_document

T = TypeVar("T")

_MAX_PAGE = 300


def documents_in(collection: str) -> Selection:
    """Return the function that selects a collection's documents by name."""
    depth = collection.count("/") + 1

    def select(documents: Documents) -> list[Document]:
        inside = [name for name in documents if name.startswith(f"{collection}/") and name.count("/") == depth]
        return [documents[name] for name in sorted(inside, key=order_key)]

    return select


def with_missing(collection: str, documents: Documents, present: Sequence[Document]) -> list[Document]:
    """Return the collection's documents, and by name alone those that only have documents below them."""
    depth = collection.count("/") + 2
    below = {"/".join(name.split("/")[:depth]) for name in documents if name.startswith(f"{collection}/")} - {
        document.name for document in present
    }
    return sorted([*present, *(new_document(name=name) for name in below)], key=lambda one: order_key(one.name))


def collections_in(parent: str, documents: Documents) -> list[str]:
    """Return the ids of the collections right under a parent."""
    return sorted({name[len(parent) + 1 :].split("/")[0] for name in documents if name.startswith(f"{parent}/")})


def page(items: Sequence[T], size: int, token: str) -> tuple[Sequence[T], str]:
    """Return a page and the token of the next, empty on the last."""
    if not (token == "" or token.isdecimal()) or size < 0:
        refuse("Invalid page token or page size.")
    start = int(token or 0)
    end = start + (size or _MAX_PAGE)
    return items[start:end], str(end) if end < len(items) else ""
