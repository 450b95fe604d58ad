"""The ports an interpreter is composed from.

Owns the meaning of each: what a store, a chart API, a clock or a watcher promises. Must not know any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.charts.answers import Answer, NoAnswer
from core.charts.settings import ChartConfiguration
from core.documents import Documents, Rule
from core.flow.settings import FlowSettings
from core.reports.answers import NoReply, Reply
from core.reports.settings import ReportConfiguration
from effects import (
    CallChartApi,
    CallModel,
    Document,
    Effect,
    FindFlowRuns,
    ListObjects,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PutObject,
    ReadObject,
)

if TYPE_CHECKING:
    from interpreters.chart_export import ChartExport
    from interpreters.orchestrator import Orchestrator
    from interpreters.report_writer import ReportWriter

T = TypeVar("T")


class Clock(Protocol):
    """What time it is."""

    def now(self) -> datetime:
        """Return this moment, in UTC."""


class DocumentStore(Protocol):
    """Documents by path (collection/id)."""

    def read(self, paths: Sequence[str]) -> Documents:
        """Return the documents, None for those that are not there."""

    def transact(self, paths: Sequence[str], rule: Rule[T]) -> T:
        """Read, run the rule, commit its changes if nothing it writes has moved, else run it again."""

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""

    def page(self, effect: FindFlowRuns) -> Mapping[str, Document]:
        """Return the documents of a collection that have the status, in order of their paths, after the last page."""


class Outbox(Protocol):
    """Changes of documents that nobody has heard of yet; each is heard of at least once."""

    def undelivered(self, path: str) -> int | None:
        """Return the number of the document's last change, None if whoever wanted to hear of it has."""

    def delivered(self, path: str, change: int) -> None:
        """Take note that the change, and all before it, were heard of."""


class ObjectStore(Protocol):
    """Objects by bucket and name."""

    def put(self, effect: PutObject, now: datetime) -> ObjectStored | ObjectNotStored:
        """Store the bytes, whole or not at all; a create-only name that has the same bytes counts as stored."""

    def list(self, effect: ListObjects, now: datetime) -> ObjectsListed | ObjectNotRead:
        """Return names and sizes of the objects under a prefix."""

    def read(self, effect: ReadObject, now: datetime) -> ObjectRead | ObjectNotRead:
        """Return the bytes of an object."""


class TemplateSource(Protocol):
    """Chart templates by id."""

    def load(self, chart_template_ids: Sequence[str]) -> tuple[dict[str, Document], dict[str, str]]:
        """Return the templates that are there, and what is wrong with those that cannot be read."""


class ChartApi(Protocol):
    """Chart-IMG, or whatever stands for it."""

    def ask(self, effect: CallChartApi) -> Answer | NoAnswer:
        """Return the answer to one call."""


class Model(Protocol):
    """A language model, or whatever stands for it."""

    def ask(self, effect: CallModel) -> Reply | NoReply:
        """Return the reply to one call."""


class Registry(Protocol):
    """Prompts and schemas by id."""

    def prompt(self, prompt_id: str) -> bytes | None:
        """Return the prompt document as JSON, None where there is none."""

    def schema(self, schema_id: str) -> bytes | None:
        """Return the schema document as JSON, None where there is none."""


class Recorder(Protocol):
    """Where answers are kept as fixtures."""

    def record(self, fixture_name: str, content: bytes) -> None:
        """Keep an answer as a fixture."""


class PortMissingError(Exception):
    """An interpreter was asked for what it has no port for: a bug."""


class NoPort:
    """Stands where an interpreter has no port, because its programs never ask for it."""

    def __getattr__(self, name: str) -> Any:
        """Refuse, whatever is asked."""
        message = f"this interpreter has no port that could {name}"
        raise PortMissingError(message)


class StoreUnusableError(Exception):
    """A store cannot be read or written, for a reason that a person can do something about."""


class Home(Protocol):
    """A place where documents and objects are kept, and charts can be exported to."""

    name: str
    """What a person calls it."""

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""

    def place(self, flow_run: Document) -> tuple[str, ...]:
        """Store a flow_run; return the steps that a live worker holds, if that forbade it."""

    def chart_export(
        self, configuration: ChartConfiguration, templates_dir: Path | None, fixtures_dir: Path
    ) -> ChartExport:
        """Return a chart export that works here."""

    def report_writer(
        self, configuration: ReportConfiguration, registry_dirs: tuple[Path, Path] | None, recordings_dir: Path
    ) -> ReportWriter:
        """Return a report writer that works here; prompts and schemas come from folders where they are given."""

    def orchestrator(self, settings: FlowSettings) -> Orchestrator:
        """Return an orchestrator of the flow_runs here."""

    def flow_run(self, run_id: str) -> Document | None:
        """Return a stored flow_run, None where there is none."""

    def artifact(self, uri: str) -> bytes | None:
        """Return the bytes of a stored artifact, None where it cannot be read."""

    def export(self, run_id: str) -> None:
        """Write the stored flow_run as a file to look at, where there is a place for it."""


class Watcher(Protocol):
    """Someone who is told what happens: a log, a journal, a progress display."""

    def begun(self, effect: Effect) -> None:
        """Take note that an effect begins."""

    def done(self, effect: Effect, outcome: Outcome) -> None:
        """Take note of its outcome."""


class Pool(Protocol):
    """Where effects are performed side by side."""

    def submit(self, effect: Effect) -> None:
        """Begin an effect."""

    def next(self, until: datetime | None) -> tuple[Effect, Outcome] | None:
        """Return the next outcome, or None when the moment has come first."""
