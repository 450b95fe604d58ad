"""The report service as Cloud Run runs it, and everything that a report is written from.

Owns a sandbox with prompt, schema, candles, manifest and pictures in it, flow_runs with a READY report step, and `leaks`: the
search for texts that were planted in all of them.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from google.cloud.firestore_v1 import _helpers

from core.charts.manifest import manifest_problems
from core.reports.report_file import report_problems
from core.secrets import Secret
from interpreters.sandbox.gemini import ModelFault
from interpreters.sandbox.whole import BUCKET, Sandbox
from interpreters.shipped import FLOW_RUNS, SCHEMAS
from tests.builders import CANARY, a_flow_run, a_png
from tests.end_to_end.service_world import QUICK, Service, World, _clients

STEP_ID = "report:4h"
KEY = f"AIza-{CANARY}"
PROMPT_TEXT = "canary-of-the-prompt-81c2"
CANDLES_TEXT = "canary-of-the-candles-3e77"
CHART_TEXT = "canary-of-a-chart-9ab4"
ANSWER_TEXT = "canary-of-the-answer-5d0e"
PLANTED = (KEY, PROMPT_TEXT, CANDLES_TEXT, CHART_TEXT, ANSWER_TEXT)
"""Texts that no log line, no flow_run and no metadata may have."""

SAMPLE: dict[str, Any] = json.loads((FLOW_RUNS / "candles_charts_report.json").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads(next(SCHEMAS.glob("*.json")).read_text("utf-8"))
PROMPT = {
    "schemaVersion": 1,
    "systemInstruction": f"You are an analyst. {PROMPT_TEXT}",
    "userPrompt": f"Describe the market. {PROMPT_TEXT}",
}
PICTURES = {f"inputs/chart{number}.png": a_png(padding=bytes([number]) * 2_000) for number in (1, 2)}
MANIFEST = {
    "schemaVersion": 1,
    "runId": "20251215-120000_BTCUSDT_inputs",
    "stepId": "charts:4h",
    "createdAt": "2025-12-15T12:00:00Z",
    "symbol": "BTCUSDT",
    "timeframe": "4h",
    "minImages": 1,
    "requested": [{"chartTemplateId": f"ctpl_{number}"} for number in (1, 2)],
    "items": [
        {
            "chartTemplateId": f"ctpl_{number}",
            "kind": f"price {CHART_TEXT}",
            "generatedAt": "2025-12-15T12:00:00Z",
            "png_gcs_uri": f"gs://{BUCKET}/{name}",
        }
        for number, name in enumerate(PICTURES, 1)
    ],
    "failures": [],
}
assert manifest_problems(MANIFEST) == ()
OBJECTS: dict[str, bytes] = {
    "inputs/candles.json": json.dumps({"note": CANDLES_TEXT, "candles": [[1, 2, 3, 4]]}).encode(),
    "inputs/large.json": json.dumps(["x" * 70_000]).encode(),
    "inputs/manifest.json": json.dumps(MANIFEST).encode(),
    **PICTURES,
}
ANSWER = json.dumps(
    {"summary": {"markdown": f"## Report\n\n{ANSWER_TEXT}"}, "details": {"trend": "up", "levels": []}}
)
GOOD = ModelFault(texts=(ANSWER,), delay_seconds=0.3)
"""An answer that comes late enough for the event of the claim to be dealt with first."""


def a_report_run(
    run_id: str, *, candles: str = "candles", depends: str = "SUCCEEDED", **changes: Any
) -> dict[str, Any]:
    """Return a flow_run with a READY report step and everything that it depends on; changes are the step's."""
    step = {**SAMPLE["steps"][STEP_ID], "status": "READY", "dependsOn": ["candles:4h", "charts:4h"], **changes}
    done = {
        "status": depends,
        "timeframe": "4h",
        "createdAt": "2025-12-15T12:00:00Z",
        "dependsOn": [],
        "inputs": {},
    }
    manifest = {"outputsManifestGcsUri": f"gs://{BUCKET}/inputs/manifest.json"}
    steps = {
        "candles:4h": {
            "stepType": "OHLCV_EXPORT",
            **done,
            "outputs": {"gcs_uri": f"gs://{BUCKET}/inputs/{candles}.json"},
        },
        "charts:4h": {"stepType": "CHART_EXPORT", **done, "outputs": manifest},
        STEP_ID: step,
    }
    return a_flow_run(copy.deepcopy(steps), runId=run_id)


def report_name(run_id: str) -> str:
    return f"reports/{run_id}/4h/{STEP_ID}.json"


def a_report(run_id: str) -> dict[str, Any]:
    """Return the report file of a run, as an earlier worker would have stored it."""
    profile = SAMPLE["steps"][STEP_ID]["inputs"]["llm"]
    report = {
        "metadata": {
            "schemaVersion": 1,
            "runId": run_id,
            "stepId": STEP_ID,
            "createdAt": "2025-12-15T12:00:00Z",
            "finishedAt": "2025-12-15T12:00:07Z",
            "symbol": "BTCUSDT",
            "timeframe": "4h",
            "llm": {
                "promptId": profile["promptId"],
                "modelName": profile["llmProfile"]["modelName"],
                "schemaId": SCHEMA["schemaId"],
                "schemaSha256": SCHEMA["sha256"],
                "llmProfile": profile["llmProfile"],
                "modelVersion": "an-earlier-one",
                "finishReason": "STOP",
                "usageMetadata": {"totalTokenCount": 7},
            },
            "inputs": {
                "ohlcv_gcs_uri": f"gs://{BUCKET}/inputs/candles.json",
                "charts_outputsManifestGcsUri": f"gs://{BUCKET}/inputs/manifest.json",
                "report_gcs_uris": [],
            },
        },
        "output": json.loads(ANSWER),
    }
    assert report_problems(report) == ()
    return report


@dataclass(kw_only=True)
class ReportWorld(World):
    """The sandbox, the report services that are subscribed to it, and the clients of a user."""

    def write(self, run_id: str | None = None, **changes: Any) -> str:
        run_id = run_id or a_run_id()
        self.runs.append(run_id)
        self.database.collection("flow_runs").document(run_id).set(a_report_run(run_id, **changes))
        return run_id

    def step(self, run_id: str, _: str = STEP_ID) -> dict[str, Any]:
        """Return the report step, whichever is asked for: there is no other in these runs."""
        return dict(self.run(run_id)["steps"][STEP_ID])

    def store_report(self, run_id: str) -> None:
        """Store a report under the name that the run's has."""
        blob = self.storage.bucket(BUCKET).blob(report_name(run_id))
        blob.upload_from_string(json.dumps(a_report(run_id)), content_type="application/json")

    def report(self, run_id: str) -> dict[str, Any]:
        """Return the stored report, which is valid."""
        report = json.loads(self.object(f"gs://{BUCKET}/{report_name(run_id)}"))
        assert report_problems(report) == ()
        return dict(report)

    def answers(self, *faults: ModelFault) -> None:
        """Let the next questions be answered like this."""
        self.sandbox.gemini.faults.add(*faults)

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The questions of this scenario."""
        return self.sandbox.gemini.questions

    @contextmanager
    def scenario(self) -> Iterator[Self]:
        """Begin with nothing planned to go wrong; check at the end that nothing was told that must not be."""
        self.settle()
        self.questions.clear()
        yield self
        self.settle()
        seen = len(self.changes)
        assert leaks(self, self.runs) == []
        calls = self.sandbox.firestore.calls
        assert calls["BeginTransaction"] == 0, "this service uses preconditions"
        assert all(len(self.claims(one)) <= 1 for one in self.runs)
        self.runs.clear()
        del self.changes[:seen]

    def settle(self) -> None:
        self.sandbox.gemini.faults.clear()
        self.sandbox.firestore.faults.clear()
        self.sandbox.storage.faults.clear()
        for service in self.services:
            service.ensure_running()
        self.drain()

    def claims(self, run_id: str) -> list[str]:
        """Return the tokens under which the step of a run became RUNNING, in order."""
        steps = [_steps(one.new) for one in self.versions(run_id)]
        found = [one[STEP_ID]["outputs"]["execution"]["claim"]["token"] for one in steps if _is_claimed(one)]
        return list(dict.fromkeys(found))

    def versions(self, run_id: str) -> list[Any]:
        return [one for one in list(self.changes) if one.name.endswith(f"/flow_runs/{run_id}") and one.new]


def a_run_id() -> str:
    return f"20251215-102530_BTCUSDT_{uuid.uuid4().hex[:6]}"


def _steps(document: Any) -> dict[str, Any]:
    return dict(_helpers.decode_dict(document.fields, None)["steps"])


def _is_claimed(steps: Mapping[str, Any]) -> bool:
    return bool(steps[STEP_ID].get("outputs", {}).get("execution", {}).get("claim"))


def leaks(world: ReportWorld, run_ids: Sequence[str]) -> list[str]:
    """Return every place that has a planted text: log lines, versions of flow_runs, metadata of reports."""
    places: dict[str, str] = {}
    for service in world.services:
        places |= {f"log {number}": line for number, line in enumerate([*service.stdout, *service.stderr])}
    for number, change in enumerate(list(world.changes)):
        if "/flow_runs/" in change.name and change.new is not None:
            places[f"version {number} of {change.name}"] = str(change.new)
    for run_id in run_ids:
        blob = world.storage.bucket(BUCKET).blob(report_name(run_id))
        if blob.exists():
            report = json.loads(blob.download_as_bytes())
            places[f"metadata of {run_id}"] = json.dumps(report["metadata"])
            places[f"output of {run_id}"] = json.dumps(report["output"]).replace(ANSWER_TEXT, "")
    return [f"{one} in {place}: {text:.300}" for place, text in places.items() for one in PLANTED if one in text]


@contextmanager
def a_report_world(variables: Mapping[str, str] | None = None, *, services: int = 1) -> Iterator[ReportWorld]:
    """Run a sandbox with everything a report needs, and report services that are subscribed to it."""
    with ExitStack() as running:
        sandbox = running.enter_context(Sandbox(model_key=Secret(KEY), retries=QUICK))
        given = {**sandbox.environment(), "THREADS": "8", "LOG_LEVEL": "DEBUG", **(variables or {})}
        processes = [Service(given, target="worker_llm_client").launch() for _ in range(services)]
        for process in processes:
            running.callback(process.stop)
        database, objects = _clients(sandbox.environment())
        running.callback(objects.close)
        running.callback(database.close)
        world = ReportWorld(sandbox=sandbox, services=processes, database=database, storage=objects)
        running.callback(sandbox.firestore.database.subscribe(world.changes.append))
        database.document("llm_prompts", SAMPLE["steps"][STEP_ID]["inputs"]["llm"]["promptId"]).set(PROMPT)
        database.document("llm_schemas", SCHEMA["schemaId"]).set(SCHEMA)
        for name, content in OBJECTS.items():
            objects.bucket(BUCKET).blob(name).upload_from_string(content)
        world.subscribe()
        for process in processes:
            process.await_port()
        yield world
