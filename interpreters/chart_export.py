"""One run of the chart-export program on any interpreter.

Owns the putting together of inputs, pool, log and runtime. Must not know where documents or objects are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from core.charts import program
from core.charts.events import events_begun, events_done, events_of_result
from core.charts.settings import ChartConfiguration
from core.charts.state import Inputs, State, StepResult, chart_inputs
from effects import Document
from interpreters.performers import Interpreter
from interpreters.ports import Watcher
from interpreters.runtime import Run, ThreadPool
from interpreters.telemetry import Log, LogWatcher

CONTROL_PLACES = 2
"""Places beside those for calls and uploads: a reservation or an exhaustion never waits for a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartExport:
    """Everything a run needs but the flow_run."""

    configuration: ChartConfiguration
    interpreter: Interpreter
    fixtures: frozenset[str] = frozenset()
    """Keys of the fixtures that exist now (record mode)."""

    def inputs(self, flow_run: Document, wanted_step: str | None) -> Inputs:
        """Return the program's inputs for this moment."""
        return chart_inputs(
            self.configuration,
            flow_run,
            wanted_step,
            now=self.interpreter.clock.now(),
            token=uuid.uuid4().hex,
            set_aside=self.interpreter.accounts_aside.ids(),
            fixtures=self.fixtures,
        )

    def run(
        self, flow_run: Document, wanted_step: str | None, log: Log, watchers: Sequence[Watcher] = ()
    ) -> StepResult:
        """Run the program to its end and return what came of it."""
        places = self.configuration.settings.max_parallel + CONTROL_PLACES
        pool = ThreadPool(self.interpreter.perform, self.interpreter.clock, places)
        log_watcher = LogWatcher(log, events_begun, events_done)
        run: Run[Inputs, State] = Run(program, self.interpreter.perform, pool, [log_watcher, *watchers])
        try:
            state = run.to_end(self.inputs(flow_run, wanted_step))
        finally:
            pool.close()
        assert state.result is not None
        for event in events_of_result(state.result):
            log.write(event)
        return state.result
