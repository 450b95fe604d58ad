"""The embedded interpreter: SQLite, a folder, fixtures or HTTP; nothing to configure.

Owns the layout of a state directory. Must not know what runs on it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from core.charts.settings import ChartConfiguration
from core.documents import Decision, ReplaceDocument
from core.flow.flow_run import FLOW_RUNS_COLLECTION, flow_run_path
from core.flow.settings import FlowSettings
from core.journal.settings import NO_JOURNAL, JournalSettings
from core.reports.settings import ReportConfiguration
from effects import Document
from interpreters import shipped
from interpreters.chart_export import ChartExport, chart_export_on, place
from interpreters.dispatcher import Dispatcher, WorkerOf
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.files import replace_file
from interpreters.given_steps import GivenSteps
from interpreters.journal import journals_on
from interpreters.objects.folder import ObjectFolder
from interpreters.objects.reading import read_artifact
from interpreters.orchestrator import Orchestrator, orchestrator_on
from interpreters.performers import Interpreter
from interpreters.ports import Clock, DocumentStore, StoreUnusableError
from interpreters.registry import RegistryFolders
from interpreters.report_writer import ReportWriter, report_writer_on
from interpreters.telemetry import Log
from interpreters.templates import TemplateFolder

DOCUMENTS = "documents.sqlite3"


class StateDirectory:
    """Where the embedded interpreter keeps everything: documents, artifacts, and flow_runs to look at."""

    def __init__(self, folder: Path, clock: Clock, journal: JournalSettings = NO_JOURNAL) -> None:
        """Open the directory, or create it, and the journal if there is one."""
        self._folder = folder
        self._clock = clock
        self.name = f"--state-dir {folder}"
        self._objects = ObjectFolder(folder / "artifacts")
        self._journals = journals_on(journal, self._objects, clock)
        self._sqlite = SqliteDocuments(folder / DOCUMENTS, announced=FLOW_RUNS_COLLECTION)
        self.documents: DocumentStore = self._sqlite

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether the folder has been used as a state directory."""
        return (folder / DOCUMENTS).is_file()

    def chart_export(
        self, configuration: ChartConfiguration, templates_dir: Path | None, fixtures_dir: Path
    ) -> ChartExport:
        """Return a chart export that works on this directory."""
        return chart_export_on(
            configuration,
            documents=self.documents,
            objects=self._objects,
            templates=TemplateFolder(templates_dir or shipped.TEMPLATES),
            fixtures_dir=fixtures_dir,
            clock=self._clock,
            journals=self._journals,
        )

    def report_writer(
        self, configuration: ReportConfiguration, registry_dirs: tuple[Path, Path] | None, recordings_dir: Path
    ) -> ReportWriter:
        """Return a report writer that works on this directory."""
        return report_writer_on(
            configuration,
            documents=self.documents,
            objects=self._objects,
            registry=RegistryFolders(*(registry_dirs or (shipped.PROMPTS, shipped.SCHEMAS))),
            recordings_dir=recordings_dir,
            clock=self._clock,
            journals=self._journals,
        )

    def orchestrator(self, settings: FlowSettings) -> Orchestrator:
        """Return an orchestrator of the flow_runs in this directory."""
        return orchestrator_on(settings, self.documents, self._clock, journals=self._journals)

    def given_steps(self, run_id: str, bucket: str) -> GivenSteps:
        """Return what satisfies steps of a run in this directory from files."""
        interpreter = Interpreter(documents=self.documents, clock=self._clock, objects=self._objects)
        return GivenSteps(interpreter, flow_run_path(run_id), bucket, self._journals)

    def dispatcher(
        self,
        run_id: str,
        orchestrator: Orchestrator,
        worker_of: WorkerOf,
        log: Log,
        show: Callable[[Document], None],
    ) -> Dispatcher:
        """Return what drives a run in this directory from change to change."""
        return Dispatcher(
            run_id=run_id,
            documents=self.documents,
            outbox=self._sqlite,
            orchestrator=orchestrator,
            worker_of=worker_of,
            log=log,
            show=show,
        )

    @contextmanager
    def holding(self, run_id: str, *, alone: bool) -> Iterator[bool]:
        """Hold a run for as long as this process lives: alone, or with others who do not want to be alone.

        Yield whether it could be had. The lock dies with its process, so whoever holds a run alone knows that no
        worker on this machine is at work on it.
        """
        file = self._folder / "locks" / f"{run_id}.lock"
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            yield False
            return
        yield True
        os.close(lock)  # not where the block broke: its workers may be at work until the process ends

    def flow_run(self, run_id: str) -> Document | None:
        """Return a stored flow_run, None where there is none."""
        path = flow_run_path(run_id)
        with _in_words():
            return self.documents.read((path,))[path]

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        with _in_words():
            return self.documents.collection(name)

    def place(self, flow_run: Document) -> tuple[str, ...]:
        """Store a flow_run; return the steps that a live worker holds, if that forbade it."""
        with _in_words():
            return place(self.documents, flow_run_path(flow_run["runId"]), flow_run, self._clock)

    def artifact(self, uri: str) -> bytes | None:
        """Return the bytes of a stored artifact, None where it cannot be read."""
        return read_artifact(self._objects, uri, self._clock)

    def place_alone(self, flow_run: Document) -> None:
        """Store a flow_run that is held alone: whoever was at work on the stored one is gone, whatever its lease says."""
        change = ReplaceDocument(path=flow_run_path(flow_run["runId"]), document=flow_run)
        with _in_words():
            self.documents.transact((change.path,), lambda _: Decision(None, (change,)))

    def export(self, run_id: str) -> None:
        """Write the stored flow_run as a file to look at."""
        path = flow_run_path(run_id)
        file = self._folder / f"{path}.json"
        written, stored = None, self.documents.read((path,))[path]
        while written != stored:  # another process may have changed it, and written it, meanwhile
            text = json.dumps(stored, indent=2, ensure_ascii=False) + "\n"
            replace_file(file, text.encode("utf-8", "backslashreplace"))
            written, stored = stored, self.documents.read((path,))[path]

    def close(self) -> None:
        """Close the documents."""
        self._sqlite.close()


@contextmanager
def _in_words() -> Iterator[None]:
    """Raise what SQLite refuses as an error that people can be shown."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnusableError(str(error)) from error
