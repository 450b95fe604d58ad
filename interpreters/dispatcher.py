"""The dispatcher of one machine: it hears of every change of a flow_run, and tells the orchestrator and the workers.

Owns the delivery of changes, at least once, and the threads that workers work in. Stands where Eventarc and Cloud Run stand in the
cloud. Must not know what workers do, nor what the orchestrator decides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from core.documents import field as field_of
from core.flow.flow_run import flow_run_path
from core.flow.selection import is_ready
from core.flow.status import ENDED_RUNS
from effects import Document, LeasePolicy
from interpreters.orchestrator import Orchestrator
from interpreters.ports import DocumentStore, Outbox, StoreUnusableError
from interpreters.telemetry import Log

POLL_SECONDS = 0.02
"""How soon a change made by a worker is heard of."""
SIDE_BY_SIDE = 4
"""Steps of one run that are worked on at once."""
MAX_TELLINGS = 3
"""How often a step is offered to a worker that could not even claim it."""

Worker = Callable[[Document], bool]
"""Works on one step of the flow_run; returns whether nothing was claimed and trying again can help."""
WorkerOf = Callable[[str, str], Worker | None]
"""From step id and step type to whoever works on it here, None where nobody does."""


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """Drives one flow_run until it has ended, or waits for somebody who is not here."""

    run_id: str
    documents: DocumentStore
    outbox: Outbox
    orchestrator: Orchestrator
    worker_of: WorkerOf
    log: Log
    show: Callable[[Document], None]
    sleep: Callable[[float], None] = time.sleep
    _busy: dict[str, Worker] = field(default_factory=dict)
    _ended: SimpleQueue[tuple[str, bool | BaseException]] = field(default_factory=SimpleQueue)
    _tellings: Counter[str] = field(default_factory=Counter)

    def to_end(self, leases: LeasePolicy) -> Document:
        """Deliver changes until nothing more happens; a start counts as one, under its own policy for leases."""
        flow_run = self._deliver(leases)
        while self._busy or self.outbox.undelivered(self._path) is not None:
            self._await_news()
            flow_run = self._deliver(self.orchestrator.leases())
        return flow_run

    @property
    def _path(self) -> str:
        return flow_run_path(self.run_id, self.orchestrator.flow_runs_collection)

    def _deliver(self, leases: LeasePolicy) -> Document:
        """Tell the orchestrator, then the workers; only then has the change been heard of."""
        change = self.outbox.undelivered(self._path)
        flow_run = self._read()
        result = self.orchestrator.advance(self.run_id, self.log, flow_run, leases)
        if result.status == "FAILED":
            message = f"the run could not be moved on: {result.reason}"
            raise StoreUnusableError(message)
        if result.status == "CHANGED":
            flow_run = self._read()
        self.show(flow_run)
        self._tell_workers(flow_run)
        if change is not None:
            self.outbox.delivered(self._path, change)
        return flow_run

    def _read(self) -> Document:
        flow_run = self.documents.read((self._path,))[self._path]
        if flow_run is None:
            message = f"{self._path} is gone"
            raise StoreUnusableError(message)
        return flow_run

    def _tell_workers(self, flow_run: Document) -> None:
        if flow_run.get("status") in ENDED_RUNS:
            return
        steps: Mapping[str, Any] = flow_run["steps"]
        for step_id, step in sorted(steps.items()):
            step_type = str(step.get("stepType"))
            worker = self.worker_of(step_id, step_type) if is_ready(step, step_type) else None
            if worker is not None and step_id not in self._busy and len(self._busy) < SIDE_BY_SIDE:
                self._busy[step_id] = worker
                Thread(target=self._work, args=(step_id, worker, flow_run), daemon=True).start()

    def _work(self, step_id: str, worker: Worker, flow_run: Document) -> None:
        try:
            self._ended.put((step_id, worker(flow_run)))
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for the run
            self._ended.put((step_id, error))

    def _await_news(self) -> None:
        """Wait until a worker has ended, or the document has changed."""
        while self.outbox.undelivered(self._path) is None:
            try:
                step_id, came = self._ended.get(timeout=POLL_SECONDS)
            except Empty:
                continue
            del self._busy[step_id]
            if isinstance(came, BaseException):
                raise came
            if came or self._is_untouched(step_id):
                self._ask_again_later(step_id)
            return

    def _is_untouched(self, step_id: str) -> bool:
        """Return whether the step is READY though its worker has ended: telling it at once would go in circles."""
        step = self._read()["steps"].get(step_id)
        return is_ready(step, str(field_of(step, "stepType")))

    def _ask_again_later(self, step_id: str) -> None:
        self._tellings[step_id] += 1
        if self._tellings[step_id] >= MAX_TELLINGS:
            message = f"step {step_id} could not be claimed, {MAX_TELLINGS} times"
            raise StoreUnusableError(message)
        self.sleep(self._tellings[step_id])
