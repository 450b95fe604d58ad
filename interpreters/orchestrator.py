"""The orchestrator on any store: one flow_run moved on, or all that have not ended.

Owns the putting together of inputs, pool, log and runtime. Must not know where documents are kept, nor what changes in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from core.flow.events import orchestrator_events
from core.flow.flow_run import FLOW_RUNS_COLLECTION, flow_run_path
from core.flow.orchestrator import ADVANCE_FLOW, AdvanceInputs, AdvanceResult
from core.flow.reaper import REAP, ReapInputs, ReapState
from core.flow.settings import FlowSettings
from effects import Document, LeasePolicy
from effects.word import replace
from interpreters.performers import Interpreter
from interpreters.ports import Clock, DocumentStore
from interpreters.runtime import run_to_end
from interpreters.telemetry import Log, LogWatcher

REAP_PLACES = 8
"""Flow_runs of a page that are moved on side by side."""
RETELL_AFTER_SECONDS = 600
"""READY steps that nobody took for so long are told of again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """Moves flow_runs on."""

    interpreter: Interpreter
    settings: FlowSettings
    flow_runs_collection: str = FLOW_RUNS_COLLECTION

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
        state = run_to_end(
            ADVANCE_FLOW, inputs, self.interpreter.perform, self.interpreter.clock, 1, [_watcher(log)]
        )
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
        return run_to_end(
            REAP, inputs, self.interpreter.perform, self.interpreter.clock, REAP_PLACES, [_watcher(log)]
        )


def orchestrator_on(
    settings: FlowSettings,
    documents: DocumentStore,
    clock: Clock,
    flow_runs_collection: str = FLOW_RUNS_COLLECTION,
) -> Orchestrator:
    """Return an orchestrator of the flow_runs in this store."""
    return Orchestrator(
        interpreter=Interpreter(documents=documents, clock=clock),
        settings=settings,
        flow_runs_collection=flow_runs_collection,
    )


def _watcher(log: Log) -> LogWatcher:
    return LogWatcher(log, lambda _: (), orchestrator_events)
