"""A scripted world for the report program, and the documents, objects and answers that its tests start from."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import effects
from core.charts.naming import object_uri
from core.documents import field as field_of
from core.events import LogEvent
from core.hopes import Hopes
from core.program import Program
from core.reports.answers import NoReply, Reply, read_reply
from core.reports.events import events_begun, events_done, events_of_result
from core.reports.program import LLM_REPORT
from core.reports.registry import schema_sha256
from core.reports.settings import LOCAL_DEFAULTS, ReportConfiguration, parse_report_configuration
from core.reports.state import ReportInputs, ReportResult, State
from core.reports.step import ReportStep, parse_report_step
from core.secrets import Secret
from core.settings import Given
from effects import (
    HOPED_BLOB,
    Blob,
    CallModel,
    ClaimLost,
    ClaimStep,
    EffectFailed,
    FinalizeLost,
    FinalizeStep,
    LoadPrompt,
    LoadSchema,
    ModelAnswered,
    ModelRefused,
    ObjectNotRead,
    ObjectNotStored,
    Outcome,
    PromptLoaded,
    PutObject,
    ReadObject,
    SchemaLoaded,
    blob,
)
from tests.builders import NOW, RUN_ID, RUN_PATH, a_flow_run, a_png, a_step
from tests.world import VirtualWorld

BUCKET = "local-artifacts"
REPORT_ID = "report:1M"
CANDLES_ID, CHARTS_ID, OLD_ID = "candles:1M", "charts:1M", "report:0"
REPORT_NAME = f"{RUN_ID}/1M/{REPORT_ID}.json"
CANDLES_NAME, MANIFEST_NAME, OLD_NAME = "candles.json", "manifest.json", "old.json"
CHART_IDS = ("ctpl_price_ma1226_vol_v1", "ctpl_price_psar_adi_v1")
PROMPT_ID, SCHEMA_ID = "llm_prompt_1M_report_v1_0", "llm_report_output_v1"
GEMINI_KEY = "AIza-canary-gemini-2f81c0"
"""Planted as the API key; it must appear nowhere."""


# Documents.


def a_profile(**changes: Any) -> dict[str, Any]:
    """Return a profile; a change to None takes the field away."""
    profile = {
        "modelName": "gemini-2.5-pro",
        "temperature": 0.2,
        "responseMimeType": "application/json",
        "structuredOutput": {"schemaId": SCHEMA_ID, "kind": "LLM_REPORT_OUTPUT"},
        **changes,
    }
    return {name: value for name, value in profile.items() if value is not None}


def report_inputs(**changes: Any) -> dict[str, Any]:
    """Return the inputs of a report step; a change to None takes the field away."""
    inputs = {
        "llm": {"promptId": PROMPT_ID, "llmProfile": a_profile()},
        "ohlcvStepId": CANDLES_ID,
        "chartsManifestStepId": CHARTS_ID,
        **changes,
    }
    return {name: value for name, value in inputs.items() if value is not None}


def with_profile(**changes: Any) -> dict[str, Any]:
    return report_inputs(llm={"promptId": PROMPT_ID, "llmProfile": a_profile(**changes)})


def a_report_step(**changes: Any) -> dict[str, Any]:
    """Return a READY LLM_REPORT step; a change to None takes the field away."""
    mine = {
        "stepType": "LLM_REPORT",
        "timeframe": "1M",
        "dependsOn": [CANDLES_ID, CHARTS_ID],
        "inputs": report_inputs(),
    }
    return a_step(**{**mine, **changes})


def uri_of(name: str) -> str:
    return object_uri(BUCKET, name)


def report_steps(**changes: Any) -> dict[str, Any]:
    """Return candles, charts, an older report and a READY report; the changes are those of the last."""
    return {
        CANDLES_ID: done_step("OHLCV_EXPORT", gcs_uri=uri_of(CANDLES_NAME)),
        CHARTS_ID: done_step("CHART_EXPORT", outputsManifestGcsUri=uri_of(MANIFEST_NAME)),
        OLD_ID: done_step("LLM_REPORT", gcs_uri=uri_of(OLD_NAME)),
        REPORT_ID: a_report_step(**changes),
    }


def done_step(kind: str, **outputs: Any) -> dict[str, Any]:
    return a_step(stepType=kind, status="SUCCEEDED", timeframe="1M", inputs={}, outputs=outputs)


def a_report_flow_run(steps: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return a_flow_run(report_steps() if steps is None else steps, **changes)


def changed_step(**changes: Any) -> dict[str, Any]:
    """Return a flow_run whose report step is changed."""
    return a_report_flow_run(report_steps(**changes))


def a_prompt(**changes: Any) -> dict[str, Any]:
    texts = {"systemInstruction": "You are an analyst.", "userPrompt": "Write about the month."}
    return {"schemaVersion": 1, **texts, **changes}


def a_json_schema(**changes: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["summary", "details"],
        "properties": {
            "summary": {
                "type": "object",
                "required": ["markdown"],
                "properties": {"markdown": {"type": "string"}},
            },
            "details": {"type": "object"},
        },
        **changes,
    }


def a_schema(schema_id: str = SCHEMA_ID, **changes: Any) -> dict[str, Any]:
    json_schema = changes.pop("jsonSchema", a_json_schema())
    return {
        "schemaId": schema_id,
        "kind": "LLM_REPORT_OUTPUT",
        "createdAt": "2025-12-01T00:00:00Z",
        "jsonSchema": json_schema,
        "sha256": schema_sha256(json_schema),
        **changes,
    }


# Objects.

CANDLES = b'{"symbol": "BTCUSDT", "candles": [[1, 2, 3, 4, 5]]}'
OLD_REPORT = b'{"output": {"summary": {"markdown": "older"}}}'


def a_manifest(**changes: Any) -> bytes:
    items = [
        {
            "chartTemplateId": one,
            "kind": f"about {one}",
            "generatedAt": "2025-12-15T10:25:30Z",
            "png_gcs_uri": uri_of(f"{one}.png"),
        }
        for one in CHART_IDS
    ]
    manifest = {
        "schemaVersion": 1,
        "runId": RUN_ID,
        "stepId": CHARTS_ID,
        "createdAt": "2025-12-15T10:25:30Z",
        "symbol": "BTCUSDT",
        "timeframe": "1M",
        "minImages": 1,
        "requested": [{"chartTemplateId": one} for one in CHART_IDS],
        "items": items,
        **changes,
    }
    return json.dumps(manifest).encode()


def stored_objects() -> dict[str, bytes]:
    """Return what candles, charts and an older report have left in the bucket."""
    pictures = {f"{one}.png": a_png(padding=one.encode()) for one in CHART_IDS}
    return {CANDLES_NAME: CANDLES, MANIFEST_NAME: a_manifest(), OLD_NAME: OLD_REPORT, **pictures}


def a_report_file(**metadata: Any) -> dict[str, Any]:
    """Return a stored report of the step; the changes are those of its metadata."""
    return {
        "metadata": {
            "schemaVersion": 1,
            "runId": RUN_ID,
            "stepId": REPORT_ID,
            "createdAt": "2025-12-15T10:00:00Z",
            "finishedAt": "2025-12-15T10:00:40Z",
            "symbol": "BTCUSDT",
            "timeframe": "1M",
            "llm": {
                "promptId": PROMPT_ID,
                "modelName": "gemini-2.5-pro",
                "schemaId": SCHEMA_ID,
                "schemaSha256": "0" * 64,
                "llmProfile": a_profile(),
                "modelVersion": "gemini-2.5-pro-001",
                "finishReason": "STOP",
                "usageMetadata": {"totalTokenCount": 7},
            },
            "inputs": {
                "ohlcv_gcs_uri": uri_of(CANDLES_NAME),
                "charts_outputsManifestGcsUri": uri_of(MANIFEST_NAME),
                "report_gcs_uris": [],
            },
            **metadata,
        },
        "output": a_good_output(),
    }


def report_bytes(**metadata: Any) -> bytes:
    return json.dumps(a_report_file(**metadata)).encode()


# Answers.


def a_good_output() -> dict[str, Any]:
    return {"summary": {"markdown": "# Up"}, "details": {"trend": "up"}}


GOOD = json.dumps(a_good_output())


def a_response(*texts: str, finish: str | None = "STOP", **changes: Any) -> dict[str, Any]:
    """Return a provider's response with these parts."""
    candidate = {"content": {"parts": [{"text": one} for one in texts]}}
    return {
        "candidates": [candidate if finish is None else {**candidate, "finishReason": finish}],
        "modelVersion": "gemini-2.5-pro-001",
        "usageMetadata": {"promptTokenCount": 100, "totalTokenCount": 120},
        **changes,
    }


def as_reply(script: Any) -> Reply | NoReply:
    """Return what a script stands for.

    good; SAFETY, MAX_TOKENS or another finish reason, without text; timeout, network or missing; '429 STATUS what was said';
    {"text": ..., "finish": ...}; or a whole response.
    """
    if isinstance(script, Mapping):
        response = a_response(script["text"], finish=script.get("finish", "STOP")) if "text" in script else script
        return Reply(json.dumps(response).encode())
    if script == "good":
        return Reply(json.dumps(a_response(GOOD)).encode())
    if script in {"timeout", "network", "missing"}:
        kind: Any = "fixture_missing" if script == "missing" else script
        return NoReply(kind=kind, message=f"scripted {script}")
    status, _, said = script.partition(" ")
    if status.isdigit():
        name, _, message = said.partition(" ")
        return NoReply(kind="http", http_status=int(status), status=name or None, message=message)
    return Reply(json.dumps(a_response(finish=script)).encode())


# Inputs and the world.


def report_configuration(**variables: str) -> ReportConfiguration:
    """Return a configuration in real mode with the canary as its key, unless a variable says otherwise."""
    texts = {"LLM_API_MODE": "real", "GEMINI_API_KEY": GEMINI_KEY, **variables}
    given = {name: Given(text, name) for name, text in texts.items()}
    return parse_report_configuration(given, LOCAL_DEFAULTS).unwrap()


def some_report_inputs(flow_run: Mapping[str, Any] | None = None, **changes: Any) -> ReportInputs:
    variables: Mapping[str, str] = changes.pop("variables", {})
    return ReportInputs(
        flow_run=copy.deepcopy(flow_run) if flow_run is not None else a_report_flow_run(),
        flow_run_path=RUN_PATH,
        wanted_step=changes.pop("wanted_step", None),
        settings=report_configuration(**variables).settings,
        fixtures=changes.pop("fixtures", frozenset()),
        now=changes.pop("now", NOW),
        token=changes.pop("token", "token-1"),
        **changes,
    )


def parsed_step(flow_run: Mapping[str, Any] | None = None) -> ReportStep:
    return parse_report_step(flow_run or a_report_flow_run(), RUN_ID, REPORT_ID, None).unwrap()


@dataclass
class ReportWorld(VirtualWorld[State]):
    """Runs the report program on virtual time."""

    inputs: ReportInputs = field(default_factory=some_report_inputs)
    program: Program[Any, State] = LLM_REPORT
    prompts: Mapping[str, Any] = field(default_factory=lambda: {PROMPT_ID: a_prompt()})
    schemas: Mapping[str, Any] = field(default_factory=lambda: {SCHEMA_ID: a_schema()})
    answers: Sequence[Any] = ("good",)
    """What the calls are answered with (see `as_reply`); 'hoped' is an answer nobody has."""
    given: Mapping[str, bytes] = field(default_factory=stored_objects)

    def hopes(self) -> Hopes:
        """Return what happens where no reply says otherwise."""
        self.store(self.given)
        hopes = Hopes(self.documents)
        hopes.table |= {
            LoadPrompt: self._prompt,
            LoadSchema: self._schema,
            CallModel: self._answer,
        }
        return hopes

    def run(self) -> ReportResult:
        """Run to the end and return the result."""
        result: ReportResult = super().run()
        return result

    def log(self) -> list[LogEvent]:
        """Return everything that the log said."""
        result = None if self.state is None else self.state.result
        return [*self.said(events_begun, events_done), *(events_of_result(result) if result else ())]

    @property
    def report(self) -> Any:
        """Return the report as it is stored."""
        return json.loads(self.stored()[REPORT_NAME])

    @property
    def error(self) -> Mapping[str, Any]:
        """Return the step's error as it stands in the document."""
        error: Mapping[str, Any] = field_of(self.step, "error")
        return error

    def _prompt(self, effect: LoadPrompt, now: datetime) -> PromptLoaded:
        return PromptLoaded(content=_blob(self.prompts, effect.prompt_id), at=now)

    def _schema(self, effect: LoadSchema, now: datetime) -> SchemaLoaded:
        return SchemaLoaded(content=_blob(self.schemas, effect.schema_id), at=now)

    def _answer(self, effect: CallModel, now: datetime) -> ModelAnswered | ModelRefused:
        script = self.answers[min(len(self.outcomes(ModelAnswered)), len(self.answers) - 1)]
        if script == "hoped":
            return ModelAnswered(purpose=effect.purpose, response=HOPED_BLOB, duration_ms=0, at=now)
        return read_reply(effect, as_reply(script), (Secret(GEMINI_KEY),), now, now)


# A world as a golden file describes it.


def world_as_given(given: Mapping[str, Any]) -> ReportWorld:
    """Return the world of the builders' defaults, changed where the description says so.

    `step` changes the report step, `steps` others, `flowRun` the document, `claimed` the document by the time of the claim; an object, prompt
    or schema that is null is missing; `answers` are those of `as_reply`; `outcomes` are what goes wrong, by effect (see `_scripted`).
    """
    steps = {**report_steps(), **given.get("steps", {})}
    steps[REPORT_ID] = {**steps[REPORT_ID], **given.get("step", {})}
    flow_run = a_report_flow_run(steps, **given.get("flowRun", {}))
    inputs = some_report_inputs(
        flow_run,
        wanted_step=given.get("wanted"),
        variables=given.get("settings", {}),
        fixtures=frozenset(given.get("fixtures", ())),
    )
    world = ReportWorld(
        inputs,
        prompts=_present({PROMPT_ID: a_prompt(), **given.get("prompts", {})}),
        schemas=_present({SCHEMA_ID: a_schema(), **given.get("schemas", {})}),
        answers=given.get("answers", ["good"]),
        given={
            name: _content(one) for name, one in _present({**stored_objects(), **given.get("objects", {})}).items()
        },
        latency={getattr(effects, name): timedelta(seconds=n) for name, n in given.get("seconds", {}).items()},
    )
    scripts = {
        name: [one] if isinstance(one, str) else list(one) for name, one in given.get("outcomes", {}).items()
    }
    kinds = {getattr(effects, name.split()[0]) for name in scripts}
    world.replies = dict.fromkeys(kinds, lambda effect, at: _scripted(world, scripts, effect, at))
    world.documents[RUN_PATH] = {**world.documents[RUN_PATH], **given.get("claimed", {})}
    return world


def _present(documents: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in documents.items() if one is not None}


def _content(value: Any) -> bytes:
    """Return an object's bytes: as they are, a report, so many bytes, or JSON."""
    if isinstance(value, bytes):
        return value
    if value == "a report":
        return report_bytes()
    return b" " * value if isinstance(value, int) else json.dumps(value).encode()


def _scripted(world: ReportWorld, scripts: Mapping[str, list[str]], effect: Any, at: datetime) -> Outcome:
    """Return the next scripted outcome of the effect: a reason, or 'broken'; after the last one all goes well, unless it is 'always'."""
    name = type(effect).__name__
    script = scripts.get(f"{name} {getattr(effect, 'name', '')}", scripts.get(name, []))
    if not script:
        return world.hoped(effect, at)
    word, _, rest = script[0].partition(" ")
    if rest != "always":
        script.pop(0)
    if word == "broken":
        return EffectFailed(effect=effect, error_type="OSError", message="scripted", at=at)
    reason: Any = word
    outcomes: dict[type, Callable[[], Outcome]] = {
        ClaimStep: lambda: ClaimLost(reason=reason, at=at),
        FinalizeStep: lambda: FinalizeLost(reason=reason, at=at),
        ReadObject: lambda: ObjectNotRead(name=effect.name, reason=reason, message="scripted", at=at),
        PutObject: lambda: ObjectNotStored(name=effect.name, reason=reason, message="scripted", at=at),
    }
    return outcomes[type(effect)]()


def _blob(documents: Mapping[str, Any], name: str) -> Blob | None:
    return blob(json.dumps(documents[name]).encode()) if name in documents else None
