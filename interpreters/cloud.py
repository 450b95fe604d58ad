"""The production interpreter: Firestore, Cloud Storage, Chart-IMG.

Owns the clients, made once per process and only when first used. Must not know what runs on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from google.api_core.exceptions import GoogleAPIError
from google.auth.exceptions import GoogleAuthError
from requests.adapters import HTTPAdapter

from core.charts.settings import ChartConfiguration
from core.cloud import CloudSettings
from core.flow.flow_run import flow_run_path
from core.flow.settings import FlowSettings
from core.journal.settings import NO_JOURNAL, JournalSettings
from core.reports.settings import PROMPTS_COLLECTION, SCHEMAS_COLLECTION, ReportConfiguration
from effects import Document
from interpreters import shipped
from interpreters.chart_export import ChartExport, chart_export_on, place
from interpreters.documents.firestore import FirestoreDocuments
from interpreters.given_steps import GivenSteps
from interpreters.journal import journals_on
from interpreters.objects.gcs import GcsObjects
from interpreters.objects.reading import read_artifact
from interpreters.once import Once
from interpreters.orchestrator import Orchestrator, orchestrator_on
from interpreters.performers import Interpreter
from interpreters.ports import Clock, DocumentStore, StoreUnusableError
from interpreters.registry import RegistryDocuments, RegistryFolders, store_registry
from interpreters.report_writer import ReportWriter, report_writer_on
from interpreters.templates import TemplateDocuments, TemplateFolder, store_templates

if TYPE_CHECKING:
    from google.cloud import firestore, storage


CONNECTIONS = 256
"""Connections to Cloud Storage that are kept for the next upload: as many as there may be uploads side by side."""


def firestore_client(settings: CloudSettings) -> firestore.Client:
    """Return a client of the database; FIRESTORE_EMULATOR_HOST points it elsewhere."""
    from google.cloud import firestore  # noqa: PLC0415 - the library is slow to import

    return firestore.Client(project=settings.project, database=settings.database)


def storage_client(settings: CloudSettings) -> storage.Client:
    """Return a client of Cloud Storage; STORAGE_EMULATOR_HOST points it elsewhere."""
    from google.cloud import storage  # noqa: PLC0415 - the library is slow to import

    # Else the library asks for the bucket's metadata in the background, which the worker has no right to read.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = storage.Client(project=settings.project)
    session: requests.Session = client._http  # noqa: SLF001 - where the library has its session
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=CONNECTIONS))
    origin = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")
    # What the environment says of proxies and certificates is read once, not anew for each request.
    said = session.merge_environment_settings(origin, {}, None, None, None)
    session.proxies, session.verify, session.trust_env = said["proxies"], said["verify"], False
    return client


class Cloud:
    """Firestore and Cloud Storage of one project."""

    def __init__(self, settings: CloudSettings, clock: Clock, journal: JournalSettings = NO_JOURNAL) -> None:
        """Make no client yet."""
        self.name = f"database {settings.database} of project {settings.project}"
        self._firestore = Once(partial(firestore_client, settings))
        self.documents: DocumentStore = FirestoreDocuments(self._firestore, settings.concurrency)
        self._objects = GcsObjects(Once(partial(storage_client, settings)))
        self._journals = journals_on(journal, self._objects, clock)
        self._settings = settings
        self._clock = clock

    def chart_export(
        self,
        configuration: ChartConfiguration,
        templates_dir: Path | None = None,
        fixtures_dir: Path = shipped.CHART_API_FIXTURES,
    ) -> ChartExport:
        """Return a chart export that works on this project; templates come from Firestore unless a folder is given."""
        return chart_export_on(
            configuration,
            documents=self.documents,
            objects=self._objects,
            templates=TemplateFolder(templates_dir) if templates_dir else TemplateDocuments(self.documents),
            fixtures_dir=fixtures_dir,
            clock=self._clock,
            flow_runs_collection=self._settings.flow_runs_collection,
            journals=self._journals,
        )

    def report_writer(
        self,
        configuration: ReportConfiguration,
        registry_dirs: tuple[Path, Path] | None = None,
        recordings_dir: Path = shipped.MODEL_FIXTURES,
    ) -> ReportWriter:
        """Return a report writer that works on this project; its commits are guarded by preconditions, as its model asks."""
        settings = configuration.settings
        documents = FirestoreDocuments(self._firestore, "precondition")
        stored = RegistryDocuments(documents, settings.prompts_collection, settings.schemas_collection)
        return report_writer_on(
            configuration,
            documents=documents,
            objects=self._objects,
            registry=RegistryFolders(*registry_dirs) if registry_dirs else stored,
            recordings_dir=recordings_dir,
            clock=self._clock,
            flow_runs_collection=self._settings.flow_runs_collection,
            journals=self._journals,
        )

    def orchestrator(self, settings: FlowSettings) -> Orchestrator:
        """Return an orchestrator of the flow_runs of this project."""
        return orchestrator_on(
            settings, self.documents, self._clock, self._settings.flow_runs_collection, self._journals
        )

    def given_steps(self, run_id: str, bucket: str) -> GivenSteps:
        """Return what satisfies steps of a run in this project from files."""
        interpreter = Interpreter(documents=self.documents, clock=self._clock, objects=self._objects)
        path = flow_run_path(run_id, self._settings.flow_runs_collection)
        return GivenSteps(interpreter, path, bucket, self._journals)

    def flow_run(self, run_id: str) -> Document | None:
        """Return a stored flow_run, None where there is none."""
        path = flow_run_path(run_id, self._settings.flow_runs_collection)
        with _in_words():
            return self.documents.read((path,))[path]

    def place(self, flow_run: Document) -> tuple[str, ...]:
        """Store a flow_run; return the steps that a live worker holds, if that forbade it."""
        path = flow_run_path(flow_run["runId"], self._settings.flow_runs_collection)
        with _in_words():
            return place(self.documents, path, flow_run, self._clock)

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        with _in_words():
            return self.documents.collection(name)

    def store_templates(self, templates: Mapping[str, Document], *, dry_run: bool) -> dict[str, str]:
        """Store templates; return for each whether it was created, changed or left unchanged."""
        with _in_words():
            return store_templates(self.documents, templates, dry_run=dry_run)

    def store_registry(self, folders: RegistryFolders) -> tuple[int, int]:
        """Store prompts and schemas where reports look for them by default; return how many there are of each."""
        with _in_words():
            return store_registry(self.documents, folders, PROMPTS_COLLECTION, SCHEMAS_COLLECTION)

    def artifact(self, uri: str) -> bytes | None:
        """Return the bytes of a stored artifact, None where it cannot be read."""
        return read_artifact(self._objects, uri, self._clock)

    def export(self, run_id: str) -> None:
        """Write nothing: the document is in Firestore for everyone to look at."""


@contextmanager
def _in_words() -> Iterator[None]:
    """Raise what the cloud refuses, or cannot hold, as an error that people can be shown."""
    try:
        yield
    except (GoogleAPIError, GoogleAuthError, ValueError) as error:
        raise StoreUnusableError(str(error)) from error
