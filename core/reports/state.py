"""The state of a report run: what is known so far, as values.

Owns the data that the program's functions pass on. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Literal

from core.flow.step_run import StepInputs, StepState, emit
from core.reports.output import Answer, StructuredOutputInvalid
from core.reports.references import GcsUri
from core.reports.registry import OutputSchema, Prompt
from core.reports.settings import ReportSettings
from core.reports.step import ReportStep
from core.reports.user_input import AttachedChart
from effects import Blob, Effect, StepError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs(StepInputs):
    """What a run of the program is given."""

    settings: ReportSettings

    @property
    def run_id(self) -> str:
        """Return the id of the run: that of its document."""
        return self.flow_run_path.rpartition("/")[2]


class Phase(Enum):
    """How far the step is."""

    RECOVERING = "looking for the report of a RUNNING step"
    CLAIMING = "claiming"
    LOOKING = "looking whether the report is there"
    LOADING = "loading prompt, schema and context"
    ASKING = "asking the model"
    WRITING = "storing the report"
    FINALIZING = "finalizing"
    ENDED = "ended"

    __hash__ = object.__hash__
    """Quick: states are looked up by it at every step."""


ArtifactRole = Literal["candles", "manifest", "previous", "image"]


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Something stored that the model is shown."""

    role: ArtifactRole
    uri: GcsUri
    max_bytes: int
    tries: int = 0
    content: Blob | None = None
    is_settled: bool = False
    """It was read, or there is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """What came of the run."""

    status: Literal["SUCCEEDED", "FAILED", "NOOP"]
    step_id: str | None = None
    report_uri: str | None = None
    error: StepError | None = None
    noop_reason: str | None = None
    attempts: int = 0
    """Calls of the model."""
    is_reused: bool = False
    """The report was there already."""
    is_claim_unknown: bool = False
    """The claim itself failed: nothing is known to be claimed, and trying again can help."""


@dataclass(frozen=True, kw_only=True)
class State(StepState):
    """Everything known so far, and the effects that may begin now."""

    inputs: ReportInputs
    phase: Phase = Phase.CLAIMING
    waiting_ids: tuple[str, ...] = ()
    """RUNNING steps yet to be looked at."""
    idle_reason: str = ""
    """Why nothing is done where none of them has a report."""
    claimed_at: datetime | None = None
    step: ReportStep | None = None
    report_name: str = ""
    prompt: Prompt | None = None
    is_prompt_settled: bool = False
    schema: OutputSchema | None = None
    is_schema_settled: bool = False
    artifacts: tuple[Artifact, ...] = ()
    """Candles, manifest, previous reports, then pictures, in order."""
    charts: tuple[AttachedChart, ...] = ()
    loading_since: datetime | None = None
    retrying: tuple[int, ...] = ()
    """Artifacts that are read again when the wait is over."""
    errors: tuple[StepError, ...] = ()
    """What is wrong with prompt, schema or context; all of it is said at once."""
    asked: str | None = None
    """The user content of the primary call; None where it is only hoped for."""
    attempts: int = 0
    invalid: StructuredOutputInvalid | None = None
    """What was wrong with the primary answer."""
    answer: Answer | None = None
    report: Blob | None = None
    writing_since: datetime | None = None
    execution: Mapping[str, Any] = field(default_factory=dict)
    """What the step's outputs say of the execution."""
    is_reused: bool = False
    report_uri: str | None = None
    is_waiting: bool = False
    """A Wait is in flight."""
    result: ReportResult | None = None

    def emit(self, *effects: Effect) -> State:
        """Return the state with effects that may begin now."""
        return emit(self, *effects)

    def of_role(self, role: ArtifactRole) -> tuple[Artifact, ...]:
        """Return the artifacts of a role, in order."""
        return tuple(one for one in self.artifacts if one.role == role)
