"""One run of the chart-export program on any interpreter.

Owns the putting together of inputs, pool, log, journal and runtime. Must not know where documents or objects are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.charts.events import events_begun, events_done, events_of_result
from core.charts.settings import ChartConfiguration
from core.charts.state import Inputs, StepResult, chart_inputs
from core.flow.claims import place_flow_run
from core.flow.flow_run import FLOW_RUNS_COLLECTION, flow_run_path
from core.journal.kinds import CHARTS
from effects import Document
from interpreters.chart_api import FixturesOrHttp
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.chart_api.http import ChartImg
from interpreters.journal import Journals, run_journalled
from interpreters.performers import AccountsAside, Interpreter
from interpreters.ports import Clock, DocumentStore, ObjectStore, TemplateSource, Watcher
from interpreters.telemetry import Log, LogWatcher

CONTROL_PLACES = 2
"""Places beside those for calls and uploads: a reservation or an exhaustion never waits for a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartExport:
    """Everything a run needs but the flow_run."""

    configuration: ChartConfiguration
    interpreter: Interpreter
    fixtures: FixtureFolder
    flow_runs_collection: str = FLOW_RUNS_COLLECTION
    journals: Journals | None = None

    def inputs(self, flow_run: Document, wanted_step: str | None) -> Inputs:
        """Return the program's inputs for this moment."""
        return chart_inputs(
            self.configuration,
            flow_run,
            flow_run_path(str(flow_run["runId"]), self.flow_runs_collection),
            wanted_step,
            now=self.interpreter.clock.now(),
            token=uuid.uuid4().hex,
            set_aside=self.interpreter.accounts_aside.ids(),
            fixtures=self.fixtures.keys() if self.configuration.settings.mode == "record" else frozenset(),
        )

    def run(
        self, flow_run: Document, wanted_step: str | None, log: Log, watchers: Sequence[Watcher] = ()
    ) -> StepResult:
        """Run the program to its end and return what came of it."""
        state = run_journalled(
            CHARTS,
            self.inputs(flow_run, wanted_step),
            self.interpreter,
            self.configuration.settings.max_parallel + CONTROL_PLACES,
            log,
            [LogWatcher(log, events_begun, events_done), *watchers],
            self.journals,
        )
        assert state.result is not None
        for event in events_of_result(state.result):
            log.write(event)
        return state.result


def chart_export_on(
    configuration: ChartConfiguration,
    *,
    documents: DocumentStore,
    objects: ObjectStore,
    templates: TemplateSource,
    fixtures_dir: Path,
    clock: Clock,
    flow_runs_collection: str = FLOW_RUNS_COLLECTION,
    journals: Journals | None = None,
) -> ChartExport:
    """Return a chart export on these stores, with the chart API that the configuration names."""
    settings = configuration.settings
    keys = {account.id: account.api_key for account in configuration.accounts}
    fixtures = FixtureFolder(fixtures_dir)
    http = ChartImg(settings.base_url, keys, settings.max_image_bytes, settings.max_parallel, clock)
    interpreter = Interpreter(
        documents=documents,
        objects=objects,
        templates=templates,
        chart_api=FixturesOrHttp(fixtures, http),
        recorder=fixtures,
        clock=clock,
        accounts_aside=AccountsAside(),
        secrets=tuple(keys.values()),
    )
    return ChartExport(
        configuration=configuration,
        interpreter=interpreter,
        fixtures=fixtures,
        flow_runs_collection=flow_runs_collection,
        journals=journals,
    )


def place(documents: DocumentStore, path: str, flow_run: Document, clock: Clock) -> tuple[str, ...]:
    """Store a flow_run; return the steps that a live worker holds, if that forbade it."""
    return documents.transact((path,), lambda found: place_flow_run(found, path, flow_run, clock.now()))
