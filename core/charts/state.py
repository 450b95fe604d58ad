"""The state of a chart export: what is known so far, as values.

Owns the data that the program's functions pass on. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal

from core.charts.accounts import mock_policies, real_policies
from core.charts.settings import ChartConfiguration, ChartSettings
from core.charts.step import ChartStep
from core.charts.templates import ChartTemplate
from core.flow.step_run import StepInputs, StepState, emit
from effects import (
    AccountAssignment,
    AccountPolicy,
    Blob,
    ChartRefused,
    Document,
    Effect,
    StepError,
)
from effects.moments import utc_day
from effects.word import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs(StepInputs):
    """What a run of the program is given."""

    settings: ChartSettings
    real_accounts: tuple[AccountPolicy, ...]
    mock_accounts: tuple[AccountPolicy, ...]
    set_aside: frozenset[str]
    """Accounts this process uses no more."""


def chart_inputs(
    configuration: ChartConfiguration,
    flow_run: Document,
    path: str,
    wanted_step: str | None,
    *,
    now: datetime,
    token: str,
    set_aside: frozenset[str] = frozenset(),
    fixtures: frozenset[str] = frozenset(),
) -> Inputs:
    """Return the inputs of a run on this flow_run with this configuration."""
    settings, accounts = configuration.settings, configuration.accounts
    return Inputs(
        flow_run=flow_run,
        flow_run_path=path,
        wanted_step=wanted_step,
        settings=settings,
        real_accounts=real_policies(accounts, settings.daily_limit, settings.requests_per_second),
        mock_accounts=mock_policies(accounts),
        set_aside=set_aside,
        fixtures=fixtures,
        now=now,
        token=token,
    )


class Phase(Enum):
    """How far the step is."""

    CLAIMING = "claiming"
    RECALLING = "recalling an earlier attempt"
    LOADING = "loading"
    DRAWING = "drawing"
    WRITING_MANIFEST = "writing manifest"
    FINALIZING = "finalizing"
    ENDED = "ended"

    __hash__ = object.__hash__
    """Quick: states are looked up by it at every step."""


class Stage(Enum):
    """How far one request is."""

    LOADING = "loading its template"
    NEEDS_READ = "needs a look at what is stored"
    READING = "reading what is stored"
    NEEDS_ACCOUNT = "needs account"
    RESERVING = "reserving"
    HOLDING = "holding a slot"
    CALLING = "calling"
    NEEDS_STORE = "needs store"
    STORING = "storing"
    DRAWN = "drawn"
    FAILED = "failed"

    __hash__ = object.__hash__
    """Quick: states are looked up by it at every step."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One request of the step."""

    chart_template_id: str
    stage: Stage
    template: ChartTemplate | None = None
    replay: bool = False
    fixture_key: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    found: tuple[str, ...] = ()
    """Names of pictures that an earlier attempt stored, the latest first."""
    read_since: datetime | None = None
    """When the reading of the first of them began."""
    read_tries: int = 0
    resume_at: datetime | None = None
    """Nothing happens to it before this moment."""
    is_waiting: bool = False
    """A Wait for it is in flight."""
    assignment: AccountAssignment | None = None
    held: AccountAssignment | None = None
    """A counted assignment whose slot was missed."""
    tries: int = 0
    """Calls that ended in a transient failure."""
    reservations: int = 0
    slots_missed: int = 0
    refused_by: tuple[str, ...] = ()
    refusal: ChartRefused | None = None
    """The last refusal."""
    complaint: ChartRefused | None = None
    """The last refusal that was not about a limit."""
    image: Blob | None = None
    generated_at: datetime | None = None
    store_since: datetime | None = None
    store_tries: int = 0
    png_uri: str | None = None
    error: StepError | None = None

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more happens to it."""
        return self.stage in {Stage.DRAWN, Stage.FAILED}


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What this run knows of the accounts counted in one usage collection."""

    usage_collection: str
    accounts: tuple[AccountPolicy, ...]
    limited: Mapping[str, datetime] = field(default_factory=dict)
    """Accounts the provider said are used up, and the window it said it in."""
    full: Mapping[str, datetime] = field(default_factory=dict)
    """Accounts whose usage document has no quota left, and the window."""
    rejected: frozenset[str] = frozenset()
    """Accounts whose key the provider rejected."""
    dry_window: datetime | None = None
    """The window in which a reservation found every account used up; there is no point in asking again."""

    def limited_at(self, now: datetime) -> tuple[str, ...]:
        """Return the accounts that the provider's limit keeps from being called today."""
        return tuple(one.id for one in self.accounts if _is_in(self.limited, one.id, now))

    def exhausted_at(self, now: datetime) -> tuple[str, ...]:
        """Return the accounts with no quota left today, as far as is known."""
        return tuple(
            one.id for one in self.accounts if _is_in(self.limited, one.id, now) or _is_in(self.full, one.id, now)
        )

    def is_dry(self, now: datetime) -> bool:
        """Return whether a reservation has already found every account used up today."""
        return self.dry_window is not None and self.dry_window >= utc_day(now)


def _is_in(windows: Mapping[str, datetime], account_id: str, now: datetime) -> bool:
    return account_id in windows and windows[account_id] >= utc_day(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came of the run."""

    status: Literal["SUCCEEDED", "FAILED", "NOOP"]
    step_id: str | None = None
    manifest_uri: str | None = None
    items_count: int = 0
    failures_count: int = 0
    min_images: int | None = None
    error: StepError | None = None
    noop_reason: str | None = None
    reused_count: int = 0
    """Pictures that an earlier attempt had stored."""
    is_claim_unknown: bool = False
    """The claim itself failed: nothing is known to be claimed, and trying again can help."""


@dataclass(frozen=True, kw_only=True)
class State(StepState):
    """Everything known so far, and the effects that may begin now."""

    inputs: Inputs
    phase: Phase = Phase.CLAIMING
    step: ChartStep | None = None
    recall_since: datetime | None = None
    """When this attempt, not the first, began to look for what is stored, and for a manifest."""
    first_claimed_at: datetime | None = None
    stored_names: tuple[str, ...] | None = None
    """What is stored under the step's folder; None where nobody looked."""
    recalled: Mapping[str, Any] | None = None
    """The manifest of an earlier attempt that the step is finalized from."""
    charts: Mapping[str, Chart] = field(default_factory=dict)
    """Requests by chartTemplateId, in request order."""
    ledgers: Mapping[bool, Ledger] = field(default_factory=dict)
    """Ledger of replayed (True) and of live (False) calls."""
    reservations: int = 0
    """How many reservations were made: the next one's number."""
    asked_at: datetime | None = None
    """When the templates, and later the last reservation, were asked for."""
    reservation_takes: timedelta = timedelta(0)
    """How long a reservation takes, as far as is known: at first as long as the claim, or as the templates' reading suggests if that
    is less, for a first claim may have had to connect; then measured."""
    manifest: Blob | None = None
    manifest_since: datetime | None = None
    manifest_uri: str | None = None
    result: StepResult | None = None

    @property
    def free_places(self) -> int:
        """Return how many more calls and uploads may run side by side."""
        busy = sum(chart.stage in {Stage.READING, Stage.CALLING, Stage.STORING} for chart in self.charts.values())
        return self.inputs.settings.max_parallel - busy

    def chart_at(self, chart_template_id: str, stage: Stage) -> Chart | None:
        """Return the request if it is at this stage; None where an outcome for it came late or twice."""
        chart = self.charts.get(chart_template_id)
        return chart if chart is not None and chart.stage is stage else None

    def due(self, stage: Stage) -> Iterator[Chart]:
        """Return the requests at this stage that wait for no moment, in request order."""
        return (chart for chart in self.charts.values() if chart.stage is stage and chart.resume_at is None)

    def emit(self, *effects: Effect) -> State:
        """Return the state with effects that may begin now."""
        return emit(self, *effects)

    def with_chart(self, chart: Chart) -> State:
        """Return the state with one request changed."""
        return replace(self, charts={**self.charts, chart.chart_template_id: chart})

    def with_ledger(self, replay: bool, ledger: Ledger) -> State:  # noqa: FBT001
        """Return the state with one ledger changed."""
        return replace(self, ledgers={**self.ledgers, replay: ledger})
