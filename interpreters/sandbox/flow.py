"""One flow_run in the sandbox, from its first write to the moment when nothing more happens.

Owns the writing, the giving of files to steps that no service serves, and the waiting. Must not decide anything about steps: that
is the services' business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.documents import field
from core.flow.selection import is_ready
from core.flow.status import ENDED_RUNS
from effects import Document
from interpreters.cloud import Cloud
from interpreters.given_steps import GivenFile
from interpreters.sandbox.whole import BUCKET, Sandbox
from interpreters.sandbox.workers import Workers
from interpreters.telemetry import Log

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFlow:
    """A flow_run, and those who see it through."""

    sandbox: Sandbox
    cloud: Cloud
    workers: Workers
    files: Mapping[str, GivenFile]
    """What becomes the artifact of a step, by step id."""
    log_of: Callable[[str], Log]
    """The log of a step."""
    show: Callable[[Document], None]
    """Called with every state that is seen."""

    def to_end(self, flow_run: Document, is_stopped: Callable[[], bool]) -> Document:
        """Write the flow_run as any client would; return it as it is when it has ended, or no event is left to change it."""
        run_id = str(flow_run["runId"])
        self.cloud.place(flow_run)
        while True:
            is_quiet = self.sandbox.eventarc.drain(
                POLL_SECONDS
            )  # before the document is read: what came of all events is in it
            self.workers.check()
            current = self.cloud.flow_run(run_id) or {}
            self.show(current)
            ready = [one for one in self.files if _is_ready(field(current, "steps", one))]
            if current.get("status") in ENDED_RUNS or is_stopped() or (is_quiet and not ready):
                return current
            for step_id in ready:
                self._give(run_id, step_id, current["steps"][step_id]["stepType"])

    def _give(self, run_id: str, step_id: str, step_type: str) -> None:
        """Give a step its file; where it could not be claimed, it is still READY when it is seen again."""
        given_steps = self.cloud.given_steps(run_id, BUCKET)
        given_steps.give(step_id, step_type, self.files[step_id], self.log_of(step_id))


def _is_ready(step: object) -> bool:
    return is_ready(step, str(field(step, "stepType")))
