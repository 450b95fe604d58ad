"""Words about a flow_run as a whole: finding runs, and moving one on.

Owns the orchestrator's words. Must not know what the steps do.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from effects.word import Document, word


@word
class FindFlowRuns:
    """Look for flow_runs of a status, a page at a time."""

    collection: str
    """Collection of the flow_runs."""
    status: str
    """The status they have."""
    after: str | None
    """Path of the last one of the page before; None begins."""
    limit: int
    """How many a page has at most."""


@word
class FlowRunsFound:
    """One page of flow_runs, in order of their paths."""

    flow_runs: Mapping[str, Document]
    """The documents by path."""
    at: datetime
    """When it happened."""


@word
class LeasePolicy:
    """When a RUNNING step counts as abandoned, and what becomes of it."""

    max_attempts: int
    """How often a step may be claimed before it is given up."""
    assume_lease_seconds: int | None = None
    """Lease of a step whose claim states none; None leaves such a step alone."""
    holders_gone: bool = False
    """No worker is alive that could hold a claim: every lease counts as run out."""
    retell_after_seconds: int | None = None
    """A document with READY steps that nobody touched for so long is touched, so that workers hear of it again."""


@word
class AdvanceFlow:
    """Move a flow_run on: leases, promotion, status, progress; nothing to change means no write."""

    flow_run: str
    """Path of the flow_run document."""
    leases: LeasePolicy
    """When a RUNNING step counts as abandoned."""


@word
class FieldChange:
    """One field of a document that changes, and why."""

    path: tuple[str, ...]
    """Keys from the top of the document to the field."""
    before: Any
    """What it was; None where it was not there."""
    after: Any
    """What it becomes; None takes it away."""
    why: str
    """The reason, for people."""


@word
class FlowAdvanced:
    """The flow_run was changed."""

    flow_run: str
    """Path of the flow_run document."""
    status: str
    """Its status now."""
    changes: tuple[FieldChange, ...]
    """Everything that changed."""
    at: datetime
    """When it happened."""


@word
class FlowUnchanged:
    """There was nothing to change, and nothing was written."""

    flow_run: str
    """Path of the flow_run document."""
    reason: str
    """Lower-case reason, e.g. nothing_to_change."""
    at: datetime
    """When it happened."""
