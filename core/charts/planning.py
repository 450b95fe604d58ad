"""`plan`: the chart-export program fed with the outcomes it hopes for.

Owns the hopes. They come from the same pure rules that the stores run, so there is no second planner to drift
from the program. Must not perform anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Any

from core.charts.naming import object_uri
from core.charts.program import react, start
from core.charts.settings import ChartConfiguration
from core.charts.state import State, StepResult, chart_inputs
from core.documents import apply_change
from core.flow.flow_run import flow_run_path
from core.rules import RULES, decide, paths_of
from effects import (
    HOPED_BLOB,
    AccountSetAside,
    CallChartApi,
    ChartRefused,
    ChartRendered,
    Document,
    Effect,
    FindFlowRuns,
    FlowRunsFound,
    ListObjects,
    LoadTemplates,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PutObject,
    ReadObject,
    RecordReply,
    ReplyRecorded,
    SetAccountAside,
    TemplatesLoaded,
    Wait,
    Waited,
)

Draw = Callable[[CallChartApi, datetime], ChartRendered | ChartRefused]
"""What a call is expected to bring."""

PLANNED_TOKEN = "planned"  # noqa: S105 - names a claim, opens nothing


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects in the order they would begin, and what would come of them."""

    effects: tuple[Effect, ...]
    result: StepResult


def hoped_chart(effect: CallChartApi, now: datetime) -> ChartRendered:
    """Return the picture that a call hopes for."""
    return ChartRendered(
        chart_template_id=effect.chart_template_id,
        account_id=effect.account_id,
        image=HOPED_BLOB,
        duration_ms=0,
        at=now,
    )


def plan(
    flow_run: Document,
    templates: Mapping[str, Document],
    usage: Mapping[str, Document],
    clock: datetime,
    *,
    configuration: ChartConfiguration,
    wanted_step: str | None = None,
    fixtures: frozenset[str] = frozenset(),
    draw: Draw = hoped_chart,
    unreadable: Mapping[str, str] | None = None,
) -> Plan:
    """Return the effects of a run at this moment in which everything that is not given goes as hoped."""
    path = flow_run_path(str(flow_run["runId"]))
    inputs = chart_inputs(
        configuration, flow_run, path, wanted_step, now=clock, token=PLANNED_TOKEN, fixtures=fixtures
    )
    documents = {inputs.flow_run_path: flow_run, **usage}
    hopes = _Hopes(documents, templates, unreadable or {}, draw)
    following = start(inputs)
    effects = [*following.effects]
    due: list[tuple[datetime, int, Effect]] = []
    _add(due, following.effects, clock, 0)
    while due:
        at, _, effect = heappop(due)
        following = react(following.state, hopes.outcome(effect, at))
        _add(due, following.effects, at, len(effects))
        effects += following.effects
    return Plan(tuple(effects), _result(following.state))


def _add(due: list[tuple[datetime, int, Effect]], effects: tuple[Effect, ...], now: datetime, number: int) -> None:
    for offset, effect in enumerate(effects):
        at = max(now, effect.until) if isinstance(effect, Wait) else now
        heappush(due, (at, number + offset, effect))


def _result(state: State) -> StepResult:
    assert state.result is not None
    return state.result


class _Hopes:
    """A world in which rules are run on the given documents and everything else succeeds."""

    def __init__(
        self,
        documents: dict[str, Document],
        templates: Mapping[str, Document],
        unreadable: Mapping[str, str],
        draw: Draw,
    ) -> None:
        self._documents = documents
        self._templates = templates
        self._unreadable = unreadable
        self.table: dict[type, Callable[[Any, datetime], Outcome]] = {
            **dict.fromkeys(RULES, self._decide),
            LoadTemplates: self._load,
            Wait: _waited,
            CallChartApi: draw,
            SetAccountAside: lambda effect, at: AccountSetAside(account_id=effect.account_id, at=at),
            RecordReply: lambda effect, at: ReplyRecorded(fixture_name=effect.fixture_name, at=at),
            PutObject: _stored,
            FindFlowRuns: self._find,
            ListObjects: lambda effect, at: ObjectsListed(prefix=effect.prefix, sizes={}, at=at),
            ReadObject: lambda effect, at: ObjectRead(name=effect.name, content=HOPED_BLOB, at=at),
        }

    def outcome(self, effect: Effect, at: datetime) -> Outcome:
        """Return the outcome that the effect hopes for."""
        return self.table[type(effect)](effect, at)

    def _decide(self, effect: Effect, at: datetime) -> Outcome:
        decision = decide({path: self._documents.get(path) for path in paths_of(effect)}, effect, at)
        for change in decision.changes:
            self._documents[change.path] = apply_change(self._documents.get(change.path), change)
        return decision.outcome

    def _find(self, effect: FindFlowRuns, at: datetime) -> FlowRunsFound:
        page = sorted(
            path
            for path, document in self._documents.items()
            if path.rpartition("/")[0] == effect.collection
            and document.get("status") == effect.status
            and path > (effect.after or "")
        )[: effect.limit]
        return FlowRunsFound(flow_runs={path: self._documents[path] for path in page}, at=at)

    def _load(self, effect: LoadTemplates, at: datetime) -> TemplatesLoaded:
        wanted = effect.chart_template_ids
        return TemplatesLoaded(
            templates={one: self._templates[one] for one in wanted if one in self._templates},
            unreadable={one: self._unreadable[one] for one in wanted if one in self._unreadable},
            at=at,
        )


def _waited(effect: Wait, at: datetime) -> Waited:
    return Waited(reason=effect.reason, chart_template_id=effect.chart_template_id, at=at)


def _stored(effect: PutObject, at: datetime) -> ObjectStored:
    return ObjectStored(name=effect.name, uri=object_uri(effect.bucket, effect.name), at=at)
