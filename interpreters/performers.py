"""The table from effect to performer, composed from ports.

Owns the one way each effect is performed, whatever stands behind the ports. Performers decide nothing: a rule, a
reading of an answer, a classification is a pure function of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

from core.charts.answers import SLOT_MISSED, read_answer
from core.failures import cut
from core.flow.leases import is_too_late
from core.reports.answers import TOO_LATE, read_reply
from core.rules import RULES, decide, paths_of
from core.secrets import Secret, without_secrets
from effects import (
    AccountSetAside,
    CallChartApi,
    CallModel,
    ChartRefused,
    ChartRendered,
    Effect,
    EffectFailed,
    FindFlowRuns,
    FlowRunsFound,
    ListObjects,
    LoadPrompt,
    LoadSchema,
    LoadTemplates,
    ModelAnswered,
    ModelRefused,
    ObjectNotRead,
    ObjectNotStored,
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
    blob,
)
from effects.word import replace
from interpreters.objects.refusals import not_stored
from interpreters.ports import (
    ChartApi,
    Clock,
    DocumentStore,
    Model,
    NoPort,
    ObjectStore,
    Recorder,
    Registry,
    TemplateSource,
)

MAX_SAID_CHARACTERS = 300


class AccountsAside:
    """Accounts that this process uses no more; shared by all its runs."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ids: set[str] = set()
        self._lock = Lock()

    def add(self, account_id: str) -> None:
        """Use the account no more."""
        with self._lock:
            self._ids.add(account_id)

    def ids(self) -> frozenset[str]:
        """Return the accounts not to use."""
        with self._lock:
            return frozenset(self._ids)


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """Performs effects through its ports."""

    documents: DocumentStore
    clock: Clock
    objects: ObjectStore = field(default_factory=NoPort)
    templates: TemplateSource = field(default_factory=NoPort)
    chart_api: ChartApi = field(default_factory=NoPort)
    registry: Registry = field(default_factory=NoPort)
    model: Model = field(default_factory=NoPort)
    recorder: Recorder = field(default_factory=NoPort)
    accounts_aside: AccountsAside = field(default_factory=AccountsAside)
    secrets: Collection[Secret] = ()

    @cached_property
    def table(self) -> dict[type, Callable[[Any], Outcome]]:
        """Return the performer of every effect."""
        return {
            **dict.fromkeys(RULES, self.perform_transaction),
            LoadTemplates: self.perform_load_templates,
            Wait: self.perform_wait,
            LoadPrompt: self.perform_load_prompt,
            LoadSchema: self.perform_load_schema,
            CallChartApi: self.perform_call_chart_api,
            CallModel: self.perform_call_model,
            SetAccountAside: self.perform_set_account_aside,
            RecordReply: self.perform_record_reply,
            PutObject: self.perform_put_object,
            ListObjects: self.perform_list_objects,
            ReadObject: self.perform_read_object,
            FindFlowRuns: self.perform_find_flow_runs,
        }

    def perform(self, effect: Effect) -> Outcome:
        """Return the outcome of an effect; an exception is an outcome too."""
        try:
            return self.table[type(effect)](effect)
        except Exception as error:  # noqa: BLE001 - whatever breaks, the program is told
            said = cut(without_secrets(str(error), self.secrets), MAX_SAID_CHARACTERS)
            name = type(error).__name__
            return EffectFailed(effect=effect, error_type=name, message=said, at=self.clock.now())

    def perform_transaction(self, effect: Effect) -> Outcome:
        """Commit what the effect's rule decides; its moment is that of the commit."""
        outcome = self.documents.transact(
            paths_of(effect), lambda documents: decide(documents, effect, self.clock.now())
        )
        return replace(outcome, at=self.clock.now())

    def perform_load_templates(self, effect: LoadTemplates) -> TemplatesLoaded:
        """Read templates."""
        templates, unreadable = self.templates.load(effect.chart_template_ids)
        return TemplatesLoaded(templates=templates, unreadable=unreadable, at=self.clock.now())

    def perform_wait(self, effect: Wait) -> Waited:
        """Say that the moment has come; the runtime has waited for it."""
        return Waited(reason=effect.reason, chart_template_id=effect.chart_template_id, at=self.clock.now())

    def perform_call_chart_api(self, effect: CallChartApi) -> ChartRendered | ChartRefused:
        """Ask once, unless it is too late to, and read the answer."""
        started_at = self.clock.now()
        answer = self.chart_api.ask(effect) if started_at <= effect.start_by else SLOT_MISSED
        return read_answer(effect, answer, self.secrets, started_at, self.clock.now())

    def perform_load_prompt(self, effect: LoadPrompt) -> PromptLoaded:
        """Read a prompt."""
        content = self.registry.prompt(effect.prompt_id)
        return PromptLoaded(content=None if content is None else blob(content), at=self.clock.now())

    def perform_load_schema(self, effect: LoadSchema) -> SchemaLoaded:
        """Read a schema."""
        content = self.registry.schema(effect.schema_id)
        return SchemaLoaded(content=None if content is None else blob(content), at=self.clock.now())

    def perform_call_model(self, effect: CallModel) -> ModelAnswered | ModelRefused:
        """Ask once, unless it is too late to, and read the reply."""
        started_at = self.clock.now()
        reply = self.model.ask(effect) if started_at < effect.ends_by else TOO_LATE
        return read_reply(effect, reply, self.secrets, started_at, self.clock.now())

    def perform_set_account_aside(self, effect: SetAccountAside) -> AccountSetAside:
        """Use the account no more in this process."""
        self.accounts_aside.add(effect.account_id)
        return AccountSetAside(account_id=effect.account_id, at=self.clock.now())

    def perform_record_reply(self, effect: RecordReply) -> ReplyRecorded:
        """Keep an answer as a fixture."""
        self.recorder.record(effect.fixture_name, effect.content.data or b"")
        return ReplyRecorded(fixture_name=effect.fixture_name, at=self.clock.now())

    def perform_put_object(self, effect: PutObject) -> ObjectStored | ObjectNotStored:
        """Store an object, unless it is too late to."""
        now = self.clock.now()
        if is_too_late(effect.give_up_at, now):
            return not_stored(effect, "failed", "not sent: it was held up for too long", now)
        return replace(self.objects.put(effect, now), at=self.clock.now())

    def perform_list_objects(self, effect: ListObjects) -> ObjectsListed | ObjectNotRead:
        """List objects."""
        return replace(self.objects.list(effect, self.clock.now()), at=self.clock.now())

    def perform_read_object(self, effect: ReadObject) -> ObjectRead | ObjectNotRead:
        """Read an object."""
        return replace(self.objects.read(effect, self.clock.now()), at=self.clock.now())

    def perform_find_flow_runs(self, effect: FindFlowRuns) -> FlowRunsFound:
        """Query one page of flow_runs."""
        return FlowRunsFound(flow_runs=self.documents.page(effect), at=self.clock.now())
