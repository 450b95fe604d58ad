"""The dry-run interpreter: what a run would do, printed instead of done.

Owns how planned effects look to people and to machines. Must not perform anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from core.charts.answers import read_answer
from core.charts.planning import Plan
from core.charts.summary import text_summary
from core.hopes import hoped_chart
from core.reports.planning import ReportPlan
from core.reports.summary import text_summary as report_summary
from core.secrets import Secret
from effects import (
    AdvanceFlow,
    CallChartApi,
    CallModel,
    ChartRefused,
    ChartRendered,
    ClaimStep,
    Effect,
    ExhaustAccount,
    FinalizeStep,
    FindFlowRuns,
    ListObjects,
    LoadPrompt,
    LoadSchema,
    LoadTemplates,
    PutObject,
    ReadObject,
    RecordReply,
    ReserveAccount,
    SetAccountAside,
    Wait,
)
from effects.encoding import encode_effect
from effects.moments import rfc3339
from interpreters.chart_api.fixtures import FixtureFolder


def expected_chart(
    fixtures: FixtureFolder, secrets: Collection[Secret]
) -> Callable[[CallChartApi, datetime], ChartRendered | ChartRefused]:
    """Return what a call is expected to bring: a replay its fixture, any other call what is hoped for."""

    def draw(effect: CallChartApi, now: datetime) -> ChartRendered | ChartRefused:
        if not effect.replay:
            return hoped_chart(effect, now)
        return read_answer(effect, fixtures.ask(effect), secrets, now, now)

    return draw


def plan_as_json(plan: Plan | ReportPlan, run_id: str) -> str:
    """Return the plan for machines: stable, with sorted keys."""
    document = {
        "runId": run_id,
        "stepId": plan.result.step_id,
        "status": plan.result.status,
        "noopReason": plan.result.noop_reason,
        "effects": [encode_effect(effect) for effect in plan.effects],
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)


def plan_as_text(plan: Plan | ReportPlan) -> str:
    """Return the plan for people: one line an effect, and what would come of it."""
    if plan.result.status == "NOOP":
        return f"nothing to do: {plan.result.noop_reason}"
    width = len(str(len(plan.effects)))
    lines = [
        f"{number:>{width}}. {type(effect).__name__:<15} {describe(effect)}"
        for number, effect in enumerate(plan.effects, 1)
    ]
    said = text_summary(plan.result) if isinstance(plan, Plan) else report_summary(plan.result)
    return "\n".join([*lines, f"expected: {said}"])


def describe(effect: Effect) -> str:
    """Return what the effect would do, in a few words."""
    return _DESCRIPTIONS[type(effect)](effect)


def _describe_reservation(effect: ReserveAccount) -> str:
    requests = ", ".join(need.chart_template_id for need in effect.for_requests)
    accounts = ", ".join(account.id for account in effect.accounts)
    return f"{len(effect.for_requests)} of {effect.usage_collection} (from {accounts}) for {requests}"


def _describe_call(effect: CallChartApi) -> str:
    source = f"fixture {effect.fixture_key}" if effect.replay else f"account {effect.account_id}"
    return f"{effect.chart_template_id}: {effect.body.get('symbol')} {effect.timeframe} from {source}"


def _describe_question(effect: CallModel) -> str:
    source = f"recording {effect.fixture_key}" if effect.replay else "the API"
    size = "text not known yet" if effect.user.size is None else f"{effect.user.size:,} bytes"
    return f"{effect.model} ({effect.purpose}; {size}, {len(effect.images)} pictures) from {source}"


def _describe_put(effect: PutObject) -> str:
    size = "size not known yet" if effect.content.size is None else f"{effect.content.size:,} bytes"
    how = "create only" if effect.create_only else "may overwrite"
    return f"gs://{effect.bucket}/{effect.name} ({size}, {how})"


def _describe_finalize(effect: FinalizeStep) -> str:
    said = f", {effect.error.code}: {effect.error.message}" if effect.error else ""
    return f"{effect.step_id} RUNNING -> {effect.status}{said}"


_DESCRIPTIONS: dict[type, Callable[[Any], str]] = {
    FindFlowRuns: lambda effect: f"{effect.status} in {effect.collection}, at most {effect.limit} at a time",
    AdvanceFlow: lambda effect: effect.flow_run,
    ListObjects: lambda effect: f"gs://{effect.bucket}/{effect.prefix}",
    ReadObject: lambda effect: f"gs://{effect.bucket}/{effect.name}",
    ClaimStep: lambda effect: f"{effect.step_id} of {effect.flow_run} READY -> RUNNING",
    LoadTemplates: lambda effect: ", ".join(effect.chart_template_ids),
    ReserveAccount: _describe_reservation,
    Wait: lambda effect: f"until {rfc3339(effect.until)} for {effect.chart_template_id} ({effect.reason})",
    LoadPrompt: lambda effect: effect.prompt_id,
    LoadSchema: lambda effect: effect.schema_id,
    CallChartApi: _describe_call,
    CallModel: _describe_question,
    ExhaustAccount: lambda effect: f"{effect.account.id} in {effect.usage_collection}",
    SetAccountAside: lambda effect: f"{effect.account_id}: {effect.reason}",
    RecordReply: lambda effect: effect.fixture_name,
    PutObject: _describe_put,
    FinalizeStep: _describe_finalize,
}
