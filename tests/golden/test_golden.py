"""Golden files: what is given, then what is planned, logged, or changed by the orchestrator.

One runner for all; `pytest tests/golden --update-golden` writes what is, for a person to read before committing it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.charts.accounts import parse_accounts
from core.charts.events import events_begun, events_done, events_of_result
from core.charts.planning import plan
from core.charts.settings import LOCAL_DEFAULTS, ChartConfiguration, parse_configuration
from core.charts.state import chart_inputs
from core.charts.summary import text_summary
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION, usage_path
from core.documents import field
from core.events import LogEvent
from core.problems import document_path
from core.reports.summary import text_summary as report_summary
from core.rules import decide
from core.settings import Given
from effects import AdvanceFlow, CallChartApi, FieldChange, FlowAdvanced, FlowUnchanged, LeasePolicy
from effects.encoding import encode_effect
from effects.moments import parse_moment
from interpreters.dry_run import describe
from tests.builders import CANARY, NOW, RUN_PATH, STEP_ID, a_flow_run, a_plain_step, a_step, templates
from tests.report_world import GEMINI_KEY, REPORT_ID, world_as_given
from tests.world import World, answered

STEP_MAX_ATTEMPTS = 3
FOLDER = Path(__file__).parent
FOLDERS = ("advances", "logs", "plans", "report_logs", "reports")
CASES = sorted(path for folder in FOLDERS for path in (FOLDER / folder).glob("*.json"))


class Case:
    """What a golden file gives: the builders' defaults, changed where it says so."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.wanted: str | None = given.get("wanted")
        self.now = parse_moment(given["now"]) if "now" in given else NOW
        self.templates = {**templates(), **given.get("templates", {})}
        self.answers: Mapping[str, list[str]] = given.get("answers", {})
        self.fixtures = frozenset(given.get("fixtures", ()))
        self.form: str = given.get("as", "text")
        steps = given.get("steps") or {STEP_ID: {**a_step(), **given.get("step", {})}}
        self.flow_run = a_flow_run(steps, **given.get("flowRun", {}))
        variables = {"CHARTS_API_MODE": "real", **given.get("settings", {})}
        accounts = [{"apiKey": f"{CANARY}-{one['id']}", **one} for one in given.get("accounts", [{"id": "acc1"}])]
        self.configuration = self._configuration(variables, accounts)
        collection = MOCK_USAGE_COLLECTION if variables["CHARTS_API_MODE"] == "mock" else USAGE_COLLECTION
        self.usage = {usage_path(collection, one): document for one, document in given.get("usage", {}).items()}

    @staticmethod
    def _configuration(variables: Mapping[str, str], accounts: list[dict[str, Any]]) -> ChartConfiguration:
        texts = {**variables, "CHART_IMG_ACCOUNTS_JSON": json.dumps(accounts)}
        given = {name: Given(text, name) for name, text in texts.items()}
        assert parse_accounts(texts["CHART_IMG_ACCOUNTS_JSON"], "accounts").unwrap()
        return parse_configuration(given, LOCAL_DEFAULTS).unwrap()

    def planned(self) -> dict[str, Any]:
        calls: dict[str, int] = {}

        def draw(effect: CallChartApi, now: Any) -> Any:
            number = calls[effect.chart_template_id] = calls.get(effect.chart_template_id, 0) + 1
            script = self.answers.get(effect.chart_template_id, ["hoped"])
            return answered(effect, script[min(number, len(script)) - 1], now)

        assert self.now is not None
        made = plan(
            self.flow_run,
            self.templates,
            self.usage,
            self.now,
            configuration=self.configuration,
            wanted_step=self.wanted,
            fixtures=self.fixtures,
            draw=draw,
        )
        effects: list[Any] = (
            [encode_effect(effect) for effect in made.effects]
            if self.form == "json"
            else [f"{type(effect).__name__}: {describe(effect)}" for effect in made.effects]
        )
        return {"planned": effects, "result": text_summary(made.result)}

    def logged(self) -> dict[str, Any]:
        assert self.now is not None
        inputs = chart_inputs(
            self.configuration,
            self.flow_run,
            RUN_PATH,
            self.wanted,
            now=self.now,
            token="token-1",
            fixtures=self.fixtures,
        )
        world = World(inputs, templates=self.templates, usage=self.usage, answers=self.answers)
        result = world.run()
        said = world.said(events_begun, events_done)
        return {"logged": [_entry(event) for event in [*said, *events_of_result(result)]]}


def planned(given: Mapping[str, Any]) -> dict[str, Any]:
    return Case(given).planned()


def logged(given: Mapping[str, Any]) -> dict[str, Any]:
    return Case(given).logged()


def advanced(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the orchestrator changes; a step is what `a_plain_step` gives, changed where the file says so."""
    steps = {step_id: {**a_plain_step("PENDING"), **step} for step_id, step in given["steps"].items()}
    flow_run = a_flow_run(steps, **given.get("flowRun", {}))
    given_leases = {"max_attempts": STEP_MAX_ATTEMPTS, **given.get("leases", {})}
    effect = AdvanceFlow(flow_run=RUN_PATH, leases=LeasePolicy(**given_leases))
    outcome = decide({RUN_PATH: flow_run}, effect, parse_moment(given.get("now")) or NOW).outcome
    if isinstance(outcome, FlowUnchanged):
        return {"status": flow_run["status"], "changes": []}
    assert isinstance(outcome, FlowAdvanced)
    return {"status": outcome.status, "changes": [_change(change) for change in outcome.changes]}


def reported(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run of the report program does in a scripted world, and what becomes of the step."""
    world = world_as_given(given)
    result = world.run()
    begun = [effect for effect, outcome in world.history if outcome is None]
    effects: list[Any] = (
        [encode_effect(effect) for effect in begun]
        if given.get("as") == "json"
        else [f"{type(effect).__name__}: {describe(effect)}" for effect in begun]
    )
    step = field(world.documents[RUN_PATH], "steps", given.get("wanted") or REPORT_ID)
    became = {name: step[name] for name in ("status", "error") if name in step}
    return {"effects": effects, "result": report_summary(result), "step": became}


def report_logged(given: Mapping[str, Any]) -> dict[str, Any]:
    world = world_as_given(given)
    world.run()
    return {"logged": [_entry(event) for event in world.log()]}


RUNNERS = {
    "plans": planned,
    "logs": logged,
    "advances": advanced,
    "reports": reported,
    "report_logs": report_logged,
}


def _change(change: FieldChange) -> dict[str, Any]:
    path = document_path(*change.path)
    return {"path": path, "before": change.before, "after": change.after, "why": change.why}


def _entry(event: LogEvent) -> dict[str, Any]:
    return {"event": event.event, "severity": event.severity, "message": event.message, **event.fields}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    golden = json.loads(path.read_text("utf-8"))
    actual = json.loads(json.dumps(RUNNERS[path.parent.name](golden["given"])))
    expected = {key: golden.get(key) for key in actual}
    if expected != actual and request.config.getoption("--update-golden"):
        document = {"case": golden["case"], "given": golden["given"], **actual}
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
        return
    assert expected == actual


def test_there_are_enough_cases() -> None:
    assert len(list((FOLDER / "plans").glob("*.json"))) >= 25
    assert len(list((FOLDER / "logs").glob("*.json"))) >= 5


def test_there_are_enough_cases_of_the_orchestrator() -> None:
    assert len(list((FOLDER / "advances").glob("*.json"))) >= 20


CODES = {
    "FLOW_RUN_INVALID", "INVALID_STEP_INPUTS", "LLM_PROFILE_INVALID", "PROMPT_NOT_FOUND", "LLM_SAFETY_BLOCK",
    "INVALID_STRUCTURED_OUTPUT", "GEMINI_REQUEST_FAILED", "RATE_LIMITED", "GCS_WRITE_FAILED", "TIME_BUDGET_EXCEEDED",
    "GCS_READ_FAILED", "INTERNAL_ERROR",
}  # fmt: skip
REASONS = {
    "flow_run_missing", "flow_run_invalid", "flow_run_not_running", "no_ready_step", "dependency_not_succeeded",
    "not_ready", "already_final", "not_running", "claimed_by_another", "lease_expired",
}  # fmt: skip


def test_4_6_there_is_a_case_of_every_error_code_and_every_no_op_reason_of_a_report() -> None:
    results = [json.loads(path.read_text("utf-8"))["result"] for path in (FOLDER / "reports").glob("*.json")]
    assert {one.rpartition("error=")[2] for one in results if "error=" in one} == CODES
    assert {one.rpartition("NOOP: ")[2] for one in results if "NOOP: " in one} == REASONS


def test_no_golden_file_holds_a_key() -> None:
    held = [path.name for path in CASES if any(key in path.read_text("utf-8") for key in (CANARY, GEMINI_KEY))]
    assert held == []


def test_file_names_are_what_the_cases_say() -> None:
    for path in CASES:
        words = "".join(c if c.isalnum() else "_" for c in json.loads(path.read_text("utf-8"))["case"].lower())
        assert path.stem == "_".join(part for part in words.split("_") if part)
