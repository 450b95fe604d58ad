"""The outcomes that effects hope for.

Owns the hopes, and a run of a program in which they all come true. Compare-and-set effects are decided by the same pure rules
that the stores run. Must not perform anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, TypeVar

from core.charts.naming import object_uri
from core.documents import apply_change
from core.program import Program
from core.rules import RULES, decide, paths_of
from effects import (
    HOPED_BLOB,
    AccountSetAside,
    CallChartApi,
    CallModel,
    ChartRefused,
    ChartRendered,
    Document,
    Effect,
    FindFlowRuns,
    FlowRunsFound,
    ListObjects,
    LoadPrompt,
    LoadSchema,
    LoadTemplates,
    ModelAnswered,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    Outcome,
    PromptLoaded,
    PutObject,
    ReadObject,
    RecordReply,
    ReplyRecorded,
    SchemaLoaded,
    SetAccountAside,
    TemplatesLoaded,
    Wait,
    Waited,
)

InputsT = TypeVar("InputsT")
StateT = TypeVar("StateT")
Draw = Callable[[CallChartApi, datetime], ChartRendered | ChartRefused]
"""What a call of the chart API is expected to bring."""

PLANNED_TOKEN = "planned"  # noqa: S105 - names a claim, opens nothing


def hoped_run(
    program: Program[InputsT, StateT], inputs: InputsT, hopes: Hopes, clock: datetime
) -> tuple[tuple[Effect, ...], StateT]:
    """Return the effects of a run that goes as hoped, in the order they would begin, and its last state."""
    following = program.start(inputs)
    effects = [*following.effects]
    due: list[tuple[datetime, int, Effect]] = []
    _add(due, following.effects, clock, 0)
    while due:
        at, _, effect = heappop(due)
        following = program.react(following.state, hopes.outcome(effect, at))
        _add(due, following.effects, at, len(effects))
        effects += following.effects
    return tuple(effects), following.state


def _add(due: list[tuple[datetime, int, Effect]], effects: tuple[Effect, ...], now: datetime, number: int) -> None:
    for offset, effect in enumerate(effects):
        at = max(now, effect.until) if isinstance(effect, Wait) else now
        heappush(due, (at, number + offset, effect))


def hoped_chart(effect: CallChartApi, now: datetime) -> ChartRendered:
    """Return the picture that a call hopes for."""
    return ChartRendered(
        chart_template_id=effect.chart_template_id,
        account_id=effect.account_id,
        image=HOPED_BLOB,
        duration_ms=0,
        at=now,
    )


class Hopes:
    """A world in which rules are run on the given documents and everything else succeeds."""

    def __init__(
        self,
        documents: dict[str, Document],
        *,
        templates: Mapping[str, Document] | None = None,
        unreadable: Mapping[str, str] | None = None,
        draw: Draw = hoped_chart,
    ) -> None:
        """Begin with these documents; what is not given is hoped for."""
        self._documents = documents
        self._templates = templates or {}
        self._unreadable = unreadable or {}
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
            LoadPrompt: lambda _, at: PromptLoaded(content=HOPED_BLOB, at=at),
            LoadSchema: lambda _, at: SchemaLoaded(content=HOPED_BLOB, at=at),
            CallModel: _hoped_answer,
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


def _hoped_answer(effect: CallModel, at: datetime) -> ModelAnswered:
    return ModelAnswered(purpose=effect.purpose, response=HOPED_BLOB, duration_ms=0, at=at)
