"""The embedded interpreter: SQLite, a folder, fixtures or HTTP; nothing to configure.

Owns the layout of a state directory. Must not know what runs on it.
"""

from __future__ import annotations

import json
from pathlib import Path

from core.charts.settings import ChartConfiguration
from core.flow.claims import place_flow_run
from core.flow.flow_run import flow_run_path
from effects import Document
from interpreters.chart_api import FixturesOrHttp
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.chart_api.http import ChartImg
from interpreters.chart_export import ChartExport
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.files import replace_file
from interpreters.objects.folder import ObjectFolder
from interpreters.performers import AccountsAside, Interpreter
from interpreters.ports import Clock
from interpreters.templates import TemplateFolder

DOCUMENTS = "documents.sqlite3"


class StateDirectory:
    """Where the embedded interpreter keeps everything: documents, artifacts, and flow_runs to look at."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Open the directory, or create it."""
        self._folder = folder
        self._clock = clock
        self.documents = SqliteDocuments(folder / DOCUMENTS)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether the folder has been used as a state directory."""
        return (folder / DOCUMENTS).is_file()

    def chart_export(
        self, configuration: ChartConfiguration, templates_dir: Path, fixtures_dir: Path
    ) -> ChartExport:
        """Return a chart export that works on this directory."""
        settings, accounts = configuration.settings, configuration.accounts
        fixtures = FixtureFolder(fixtures_dir)
        keys = {account.id: account.api_key for account in accounts}
        http = ChartImg(settings.base_url, keys, settings.max_image_bytes, settings.max_parallel, self._clock)
        interpreter = Interpreter(
            documents=self.documents,
            objects=ObjectFolder(self._folder / "artifacts"),
            templates=TemplateFolder(templates_dir),
            chart_api=FixturesOrHttp(fixtures, http),
            clock=self._clock,
            accounts_aside=AccountsAside(),
            secrets=tuple(keys.values()),
        )
        return ChartExport(configuration=configuration, interpreter=interpreter, fixtures=fixtures.keys())

    def place(self, flow_run: Document) -> tuple[str, ...]:
        """Store a flow_run; return the steps that a live worker holds, if that forbade it."""
        path = flow_run_path(flow_run["runId"])
        return self.documents.transact(
            (path,), lambda documents: place_flow_run(documents, path, flow_run, self._clock.now())
        )

    def export(self, run_id: str) -> Path:
        """Write the stored flow_run as a file to look at; return its path."""
        path = flow_run_path(run_id)
        file = self._folder / f"{path}.json"
        written, stored = None, self.documents.read((path,))[path]
        while written != stored:  # another process may have changed it, and written it, meanwhile
            text = json.dumps(stored, indent=2, ensure_ascii=False) + "\n"
            replace_file(file, text.encode("utf-8", "backslashreplace"))
            written, stored = stored, self.documents.read((path,))[path]
        return file

    def close(self) -> None:
        """Close the documents."""
        self.documents.close()
