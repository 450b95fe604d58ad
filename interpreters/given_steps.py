"""Steps satisfied from files, on any store.

Owns the putting together of inputs, log, journal and runtime. Must not know what the files hold.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from core.flow.events import given_step_events
from core.flow.given import GivenInputs
from core.journal.kinds import GIVEN_STEPS
from effects import blob
from interpreters.journal import Journals, run_journalled
from interpreters.performers import Interpreter
from interpreters.telemetry import Log, LogWatcher


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that becomes a step's artifact."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class GivenSteps:
    """Gives files to the steps of one run."""

    interpreter: Interpreter
    flow_run_path: str
    bucket: str
    journals: Journals | None = None

    def give(self, step_id: str, step_type: str, file: GivenFile, log: Log) -> bool:
        """Make the file the step's artifact; return whether nothing was claimed and trying again can help."""
        inputs = GivenInputs(
            flow_run_path=self.flow_run_path,
            step_id=step_id,
            step_type=step_type,
            bucket=self.bucket,
            file_name=file.name,
            content=blob(file.content),
            token=uuid.uuid4().hex,
            now=self.interpreter.clock.now(),
        )
        watcher = LogWatcher(log, lambda _: (), given_step_events)
        state = run_journalled(GIVEN_STEPS, inputs, self.interpreter, 1, log, [watcher], self.journals)
        return state.is_claim_unknown
