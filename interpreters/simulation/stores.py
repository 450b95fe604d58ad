"""Stores in memory that can be slow, refuse, or lose their answer.

Owns how a fault of a store is acted out. Documents are not copied: nobody changes one in place. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from core.charts.naming import object_uri
from core.documents import Decision, Documents, Rule, apply_change
from effects import (
    Document,
    FindFlowRuns,
    ListObjects,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    PutObject,
    ReadObject,
    blob,
)
from interpreters.objects.refusals import not_read, not_stored
from interpreters.simulation.faults import Fault
from interpreters.simulation.scenarios import PROMPT, SCHEMA, TEMPLATES

if TYPE_CHECKING:
    from interpreters.simulation.world import World

T = TypeVar("T")


class UnavailableError(Exception):
    """A store that cannot be reached, or whose answer did not come."""


@dataclass(slots=True)
class SimulatedDocuments:
    """Documents by path."""

    world: World
    documents: dict[str, Document]

    def read(self, paths: Sequence[str]) -> Documents:
        """Return the documents, None for those that are not there."""
        return {path: self.documents.get(path) for path in paths}

    def transact(self, paths: Sequence[str], rule: Rule[T]) -> T:
        """Run the rule and apply its changes, as often as the fault says."""
        fault = self.world.fault
        if fault is Fault.BROKEN:
            raise UnavailableError
        if fault is Fault.CONTENTION:
            rule(self.read(paths))
        decision = rule(self.read(paths))
        self._commit(decision)
        if fault is Fault.COMMIT_RETRIED:
            decision = rule(self.read(paths))
            self._commit(decision)
        if fault is Fault.ANSWER_LOST:
            raise UnavailableError
        return decision.outcome

    def _commit(self, decision: Decision[T]) -> None:
        for change in decision.changes:
            before = self.documents.get(change.path)
            after = apply_change(before, change)
            self.documents[change.path] = after
            self.world.committed(change.path, before, after)

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        return {path: one for path, one in self.documents.items() if path.rpartition("/")[0] == name}

    def page(self, effect: FindFlowRuns) -> Mapping[str, Document]:
        """Return the documents of a collection that have the status, in order of their paths, after the last page."""
        if self.world.fault is Fault.BROKEN:
            raise UnavailableError
        found = sorted(self.collection(effect.collection).items())
        page = [
            (path, one)
            for path, one in found
            if one.get("status") == effect.status and path > (effect.after or "")
        ]
        return dict(page[: effect.limit])


@dataclass(slots=True)
class SimulatedObjects:
    """Objects by URI."""

    world: World
    objects: dict[str, bytes]

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        """Store the bytes."""
        fault = self.world.fault
        if fault is Fault.BROKEN:
            raise UnavailableError
        if fault is Fault.TRANSIENT:
            return not_stored(effect, "failed", "unavailable", now)
        uri, data = object_uri(effect.bucket, effect.name), effect.content.data or b""
        before = self.objects.get(uri)
        if effect.create_only and before is not None and before != data:
            return not_stored(effect, "name_taken", "the name has other bytes", now)
        self.objects[uri] = data
        self.world.invariants.stored(uri, before, data)
        if fault is Fault.ANSWER_LOST:
            return not_stored(effect, "failed", "no answer", now)
        return ObjectStored(name=effect.name, uri=uri, at=now)

    def list(self, effect: ListObjects, now: datetime) -> ObjectsListed | ObjectNotRead:
        """Return names and sizes of the objects under a prefix."""
        if refused := self._refused(effect.prefix, now):
            return refused
        bucket = object_uri(effect.bucket, "")
        found = sorted(uri for uri in self.objects if uri.startswith(bucket + effect.prefix))
        sizes = {uri.removeprefix(bucket): len(self.objects[uri]) for uri in found}
        return ObjectsListed(prefix=effect.prefix, sizes=sizes, at=now)

    def read(self, effect: ReadObject, now: datetime) -> ObjectRead | ObjectNotRead:
        """Return the bytes of an object."""
        if refused := self._refused(effect.name, now):
            return refused
        data = self.objects.get(object_uri(effect.bucket, effect.name))
        if data is None:
            return not_read(effect.name, "missing", "there is no such object", now)
        return ObjectRead(name=effect.name, content=blob(data), at=now)

    def _refused(self, name: str, now: datetime) -> ObjectNotRead | None:
        if self.world.fault is Fault.BROKEN:
            raise UnavailableError
        return not_read(name, "failed", "unavailable", now) if self.world.fault is Fault.TRANSIENT else None


@dataclass(slots=True)
class SimulatedLibrary:
    """Templates, prompts and schemas."""

    world: World

    def load(self, chart_template_ids: Sequence[str]) -> tuple[dict[str, Document], dict[str, str]]:
        """Return the templates that are there."""
        self._check()
        return {one: TEMPLATES[one] for one in chart_template_ids if one in TEMPLATES}, {}

    def prompt(self, prompt_id: str) -> bytes | None:  # noqa: ARG002
        """Return the prompt."""
        self._check()
        return PROMPT

    def schema(self, schema_id: str) -> bytes | None:  # noqa: ARG002
        """Return the schema."""
        self._check()
        return SCHEMA

    def _check(self) -> None:
        if self.world.fault is Fault.BROKEN:
            raise UnavailableError
