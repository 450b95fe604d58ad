"""One run of the report program on any interpreter.

Owns the putting together of inputs, pool, log, journal and runtime. Must not know where documents or objects are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.flow.flow_run import FLOW_RUNS_COLLECTION, flow_run_path
from core.journal.kinds import REPORTS
from core.reports.events import events_begun, events_done, events_of_result
from core.reports.settings import ReportConfiguration
from core.reports.state import ReportInputs, ReportResult
from effects import Document
from interpreters.journal import Journals, run_journalled
from interpreters.model import Asks, RecordingsOrModel
from interpreters.model.recordings import RecordingFolder
from interpreters.once import Once
from interpreters.performers import Interpreter
from interpreters.ports import Clock, DocumentStore, ObjectStore, Registry, Watcher
from interpreters.telemetry import Log, LogWatcher

PLACES = 8
"""Effects side by side: what the model is shown is read all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWriter:
    """Everything a run needs but the flow_run."""

    configuration: ReportConfiguration
    interpreter: Interpreter
    recordings: RecordingFolder
    flow_runs_collection: str = FLOW_RUNS_COLLECTION
    journals: Journals | None = None

    def inputs(self, flow_run: Document, wanted_step: str | None) -> ReportInputs:
        """Return the program's inputs for this moment."""
        settings = self.configuration.settings
        return ReportInputs(
            flow_run=flow_run,
            flow_run_path=flow_run_path(str(flow_run["runId"]), self.flow_runs_collection),
            wanted_step=wanted_step,
            settings=settings,
            fixtures=self.recordings.keys() if settings.mode == "record" else frozenset(),
            now=self.interpreter.clock.now(),
            token=uuid.uuid4().hex,
        )

    def run(
        self, flow_run: Document, wanted_step: str | None, log: Log, watchers: Sequence[Watcher] = ()
    ) -> ReportResult:
        """Run the program to its end and return what came of it."""
        state = run_journalled(
            REPORTS,
            self.inputs(flow_run, wanted_step),
            self.interpreter,
            PLACES,
            log,
            [LogWatcher(log, events_begun, events_done), *watchers],
            self.journals,
        )
        assert state.result is not None
        for event in events_of_result(state.result):
            log.write(event)
        return state.result


def report_writer_on(
    configuration: ReportConfiguration,
    *,
    documents: DocumentStore,
    objects: ObjectStore,
    registry: Registry,
    recordings_dir: Path,
    clock: Clock,
    flow_runs_collection: str = FLOW_RUNS_COLLECTION,
    journals: Journals | None = None,
) -> ReportWriter:
    """Return a report writer on these stores, with the model that the configuration names."""
    recordings = RecordingFolder(recordings_dir)
    key = configuration.api_key

    def gemini() -> Asks:
        from interpreters.model.gemini import Gemini  # noqa: PLC0415 - slow to import, and not needed by recordings

        assert key is not None
        return Gemini(configuration.settings.base_url, key, clock)

    interpreter = Interpreter(
        documents=documents,
        objects=objects,
        registry=registry,
        model=RecordingsOrModel(recordings, Once(gemini)),
        recorder=recordings,
        clock=clock,
        secrets=() if key is None else (key,),
    )
    return ReportWriter(
        configuration=configuration,
        interpreter=interpreter,
        recordings=recordings,
        flow_runs_collection=flow_runs_collection,
        journals=journals,
    )
