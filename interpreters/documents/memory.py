"""Documents in memory, for tests and simulation."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TypeVar

from core.documents import Documents, Rule, apply_change
from effects import Document, FindFlowRuns

T = TypeVar("T")


class DocumentMemory:
    """A document store that forgets everything with the process."""

    def __init__(self, documents: Mapping[str, Document] | None = None) -> None:
        """Begin with these documents."""
        self._documents: dict[str, Document] = dict(documents or {})
        self._lock = Lock()

    def read(self, paths: Sequence[str]) -> Documents:
        """Return the documents, None for those that are not there."""
        with self._lock:
            return {path: copy.deepcopy(self._documents.get(path)) for path in paths}

    def transact(self, paths: Sequence[str], rule: Rule[T]) -> T:
        """Run the rule and apply its changes, one transaction at a time."""
        with self._lock:
            decision = rule({path: copy.deepcopy(self._documents.get(path)) for path in paths})
            for change in decision.changes:
                changed = apply_change(self._documents.get(change.path), change)
                self._documents[change.path] = copy.deepcopy(changed)
            return decision.outcome

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        with self._lock:
            return {path: one for path, one in self._documents.items() if path.rpartition("/")[0] == name}

    def page(self, effect: FindFlowRuns) -> Mapping[str, Document]:
        """Return the documents of a collection that have the status, in order of their paths, after the last page."""
        found = [
            (path, one)
            for path, one in sorted(self.collection(effect.collection).items())
            if one.get("status") == effect.status and path > (effect.after or "")
        ]
        return copy.deepcopy(dict(found[: effect.limit]))
