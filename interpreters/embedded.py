"""The embedded interpreter: SQLite, a folder, fixtures or HTTP; nothing to configure.

Owns the layout of a state directory. Must not know what runs on it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from core.charts.settings import ChartConfiguration
from core.flow.flow_run import FLOW_RUNS_COLLECTION, flow_run_path
from effects import Document
from interpreters import shipped
from interpreters.chart_export import ChartExport, chart_export_on, place
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.files import replace_file
from interpreters.objects.folder import ObjectFolder
from interpreters.ports import Clock, DocumentStore, StoreUnusableError
from interpreters.templates import TemplateFolder

DOCUMENTS = "documents.sqlite3"


class StateDirectory:
    """Where the embedded interpreter keeps everything: documents, artifacts, and flow_runs to look at."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Open the directory, or create it."""
        self._folder = folder
        self._clock = clock
        self.name = f"--state-dir {folder}"
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
            objects=ObjectFolder(self._folder / "artifacts"),
            templates=TemplateFolder(templates_dir or shipped.TEMPLATES),
            fixtures_dir=fixtures_dir,
            clock=self._clock,
        )

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        with _in_words():
            return self.documents.collection(name)

    def place(self, flow_run: Document) -> tuple[str, ...]:
        """Store a flow_run; return the steps that a live worker holds, if that forbade it."""
        with _in_words():
            return place(self.documents, flow_run_path(flow_run["runId"]), flow_run, self._clock)

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
