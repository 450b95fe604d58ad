"""The orchestrator on any store: one flow_run moved on, or all that have not ended.

Owns the putting together of inputs, pool, log, journal and runtime. Must not know where documents are kept, nor what changes in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from core.flow.events import orchestrator_events
from core.flow.flow_run import FLOW_RUNS_COLLECTION, flow_run_path
from core.flow.leases import RETELL_AFTER_SECONDS
from core.flow.orchestrator import AdvanceInputs, AdvanceResult
from core.flow.reaper import ReapInputs, ReapState
from core.flow.settings import FlowSettings
from core.journal.kinds import ADVANCES, REAPINGS
from effects import Document, LeasePolicy
from effects.word import replace
from interpreters.journal import Journals, run_journalled
from interpreters.performers import Interpreter
from interpreters.ports import Clock, DocumentStore
from interpreters.telemetry import Log, LogWatcher

REAP_PLACES = 8
"""Flow_runs of a page that are moved on side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """Moves flow_runs on."""

    interpreter: Interpreter
    settings: FlowSettings
    flow_runs_collection: str = FLOW_RUNS_COLLECTION
    journals: Journals | None = None

    def leases(self, assume_lease_seconds: int | None = None, *, holders_gone: bool = False) -> LeasePolicy:
        """Return when a RUNNING step counts as abandoned."""
        return LeasePolicy(
            max_attempts=self.settings.step_max_attempts,
            assume_lease_seconds=assume_lease_seconds,
            holders_gone=holders_gone,
        )

    def advance(
        self, run_id: str, log: Log, flow_run: Document | None = None, leases: LeasePolicy | None = None
    ) -> AdvanceResult:
        """Move one flow_run on; where the document as known asks for no change, nothing is read or written."""
        inputs = AdvanceInputs(
            flow_run_path=flow_run_path(run_id, self.flow_runs_collection),
            flow_run=flow_run,
            leases=leases or self.leases(),
            now=self.interpreter.clock.now(),
        )
        state = run_journalled(ADVANCES, inputs, self.interpreter, 1, log, [_watcher(log)], self.journals)
        assert state.result is not None
        return state.result

    def reap(self, log: Log, assume_lease_seconds: int | None = None) -> ReapState:
        """Move all flow_runs on that have not ended."""
        budget = timedelta(seconds=self.settings.invocation_timeout_seconds)
        inputs = ReapInputs(
            collection=self.flow_runs_collection,
            leases=replace(self.leases(assume_lease_seconds), retell_after_seconds=RETELL_AFTER_SECONDS),
            ends_at=self.interpreter.clock.now() + budget,
        )
        return run_journalled(REAPINGS, inputs, self.interpreter, REAP_PLACES, log, [_watcher(log)], self.journals)


def orchestrator_on(
    settings: FlowSettings,
    documents: DocumentStore,
    clock: Clock,
    flow_runs_collection: str = FLOW_RUNS_COLLECTION,
    journals: Journals | None = None,
) -> Orchestrator:
    """Return an orchestrator of the flow_runs in this store."""
    return Orchestrator(
        interpreter=Interpreter(documents=documents, clock=clock),
        settings=settings,
        flow_runs_collection=flow_runs_collection,
        journals=journals,
    )


def _watcher(log: Log) -> LogWatcher:
    return LogWatcher(log, lambda _: (), orchestrator_events)
