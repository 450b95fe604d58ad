"""Words about a step of a flow_run: taking it, and ending it.

Owns claim and finalize and what became of them. Must not know what kind of work the step is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from effects.word import Document, word

TerminalStatus = Literal["SUCCEEDED", "FAILED"]


@word
class StepError:
    """Why a step or a request failed, as stored in documents and manifests."""

    code: str
    """Stable, upper-case code, e.g. CHART_API_FAILED."""
    message: str
    """One or two sentences for people, at most 1,000 characters."""
    details: Mapping[str, Any] | None = None
    """JSON for diagnosis, at most 8 KiB, without secrets."""


@word
class ClaimStep:
    """Take a READY step: it becomes RUNNING under this worker's token."""

    flow_run: str
    """Path of the flow_run document, e.g. flow_runs/20251215-102530_BTCUSDT_k3f7a."""
    step_id: str
    """Key of the step in the document's `steps`."""
    step_type: str
    """Type the step must still have."""
    token: str
    """Unique to this run of the worker; later writes are fenced by it."""
    lease_seconds: int
    """How long the claim holds; after that the step counts as abandoned."""
    in_order: bool = False
    """Take it only in a RUNNING run, and only if all steps it depends on have SUCCEEDED."""


@word
class StepClaimed:
    """The step is RUNNING under our token."""

    flow_run: Document
    """The document as the claim read it: the one the work is based on."""
    attempt: int
    """1 for the first claim of this step, one more for each later one."""
    first_claimed_at: datetime
    """When the first attempt began; what is older is not of this step's making."""
    lease_until: datetime
    """When the claim stops holding."""
    at: datetime
    """When it happened."""


@word
class ClaimLost:
    """The step was not to be had; nothing was written."""

    reason: str
    """Lower-case reason, e.g. step_not_ready."""
    at: datetime
    """When it happened."""


@word
class FinalizeStep:
    """End a RUNNING step, if it still runs under this worker's token."""

    flow_run: str
    """Path of the flow_run document."""
    step_id: str
    """Key of the step."""
    token: str | None
    """The token the claim wrote; None ends the step under whatever token it has."""
    status: TerminalStatus
    """What the step becomes."""
    outputs: Mapping[str, Any]
    """Fields of the step's `outputs` to set; None takes a field away."""
    execution: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `outputs.execution` to set, beside the claim."""
    error: StepError | None
    """Why the step failed; None takes an old error away."""


@word
class StepFinalized:
    """The step has its terminal status."""

    status: TerminalStatus
    """The status it has."""
    at: datetime
    """When it happened."""


@word
class FinalizeLost:
    """The step is no longer ours; nothing was written."""

    reason: str
    """Lower-case reason, e.g. claimed_by_another."""
    at: datetime
    """When it happened."""
