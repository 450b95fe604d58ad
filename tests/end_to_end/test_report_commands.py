"""`worker-llm-client`, which is `tda reports`, as processes; and whole flows that end with a report."""

from __future__ import annotations

import copy
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from core.reports.registry import schema_sha256
from core.reports.report_file import report_problems
from core.secrets import Secret
from interpreters.sandbox.gemini import BROKEN_JSON, RATE_LIMITED, SAFETY, GeminiServer, ModelFault
from interpreters.shipped import CANDLES, FLOW_RUNS, MODEL_FIXTURES, PROMPTS, SCHEMAS
from tests.builders import CANARY
from tests.end_to_end.console import (
    EVERY_ENTRY,
    PATIENCE_SECONDS,
    SCRIPTS,
    Call,
    Ended,
    call_all,
    environment,
    exported,
    exported_step,
    finish,
    object_file,
    start,
    write_json,
)
from tests.end_to_end.zygote import ROOT

TDA = (str(SCRIPTS / "tda"),)
REPORTS = (*TDA, "reports")
SAMPLE = FLOW_RUNS / "candles_charts_report.json"
FLOW_RUN: dict[str, Any] = json.loads(SAMPLE.read_text("utf-8"))
RUN_ID: str = FLOW_RUN["runId"]
STEP_ID = "report:4h"
STEPS = ["candles:4h", "charts:4h", "charts:1d", STEP_ID]
STATE = ("--state-dir", "state")
GIVEN = ("--given", f"candles:4h={CANDLES / 'BTCUSDT_4h.json'}")
RUN_FLOW = ("flow", "run", "--flow-run-path", SAMPLE, *GIVEN, *STATE)
JSON = ("--output-summary", "json")
KEY = f"AIza-{CANARY}"
SHIPPED_KEY = "BTCUSDT__4h__llm_prompt_4h_report_v1_0__gemini-2.5-flash__llm_schema_4h_report_v1_0"
RECORDED: dict[str, Any] = json.loads((MODEL_FIXTURES / "gemini" / f"{SHIPPED_KEY}.json").read_text("utf-8"))


def report_at(state: Path, uri: str) -> dict[str, Any]:
    """Return a report file, which is valid."""
    report = json.loads(object_file(state, uri).read_text("utf-8"))
    assert report_problems(report) == ()
    return dict(report)


# A whole flow.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Ended:
    """Run the shipped sample; what it leaves in its state directory is what reports are written from."""
    return finish(start(Call(folder, RUN_FLOW, TDA)))


def test_the_shipped_sample_ends_with_a_report_by_one_command(whole: Ended, folder: Path) -> None:
    assert whole.code == 0, whole.stderr
    assert whole.stdout == f"FLOW SUCCEEDED: {', '.join(f'{one}=SUCCEEDED' for one in STEPS)}\n"
    outputs = exported_step(folder / "state", RUN_ID, STEP_ID)["outputs"]
    assert outputs["gcs_uri"] == f"gs://local-artifacts/{RUN_ID}/4h/{STEP_ID}.json"
    report = report_at(folder / "state", outputs["gcs_uri"])
    assert report["output"] == json.loads(RECORDED["candidates"][0]["content"]["parts"][0]["text"])
    llm = outputs["execution"]["llm"]
    assert llm == {
        "finishReason": "STOP",
        "modelVersion": RECORDED["modelVersion"],
        "usageMetadata": RECORDED["usageMetadata"],
        "attempts": {"total": 1},
    }
    inputs = report["metadata"]["inputs"]
    candles, charts = (exported(folder / "state", RUN_ID)["steps"][one]["outputs"] for one in STEPS[:2])
    assert inputs["ohlcv_gcs_uri"] == candles["gcs_uri"]
    assert inputs["charts_outputsManifestGcsUri"] == charts["outputsManifestGcsUri"]


def test_the_log_of_a_report_has_the_events_that_dashboards_know(whole: Ended) -> None:
    entries = [one for one in whole.events() if one.get("stepId") == STEP_ID]
    assert all(set(one) >= EVERY_ENTRY for one in entries)
    names = [one["event"] for one in entries]
    for name in (
        "ready_step_selected",
        "claim_attempt",
        "context_resolve_started",
        "prompt_fetch_started",
        "prompt_fetch_finished",
        "gcs_read_finished",
        "context_resolve_finished",
        "llm_request_started",
        "llm_request_finished",
        "gcs_write_finished",
        "step_completed",
    ):
        assert name in names
    assert names.index("llm_request_finished") < names.index("gcs_write_finished") < names.index("step_completed")


_KILLED_BEFORE_FINALIZE = """
import os, signal, sys
from cli import tda
from effects import PutObject
from interpreters.performers import Interpreter

perform = Interpreter.perform

def mortal(interpreter, effect):
    outcome = perform(interpreter, effect)
    if isinstance(effect, PutObject) and effect.name.endswith("report:4h.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome

Interpreter.perform = mortal
tda(sys.argv[1:])
"""


def test_killed_between_the_report_and_the_finalize_a_flow_goes_on_without_a_second_call(tmp_path: Path) -> None:
    with GeminiServer(Secret(KEY)) as server:
        variables = {"LLM_API_MODE": "real", "GEMINI_BASE_URL": server.address, "GEMINI_API_KEY": KEY}
        killed = subprocess.run(
            [sys.executable, "-P", "-c", _KILLED_BEFORE_FINALIZE, *map(str, RUN_FLOW)],
            cwd=tmp_path,
            env=environment({**variables, "PYTHONPATH": str(ROOT)}),
            capture_output=True,
            check=False,
            text=True,
        )
        assert (killed.returncode, len(server.questions)) == (-signal.SIGKILL, 1), killed.stderr
        (stored,) = (tmp_path / "state" / "artifacts").rglob(f"{STEP_ID}.json")
        content = stored.read_bytes()
        resume = ("flow", "resume", RUN_ID, *GIVEN, *STATE, *JSON)
        ended = finish(start(Call(tmp_path, resume, TDA, variables)))
        assert (ended.code, ended.summary()["status"]) == (0, "SUCCEEDED"), ended.stderr
        assert len(server.questions) == 1
    execution = exported_step(tmp_path / "state", RUN_ID, STEP_ID)["outputs"]["execution"]
    assert (execution["reused"], execution["claim"]["attempt"]) == (True, 2)
    assert stored.read_bytes() == content
    assert ended.events("llm_request_started") == []
    assert ended.events("step_completed")[-1]["reused"] is True


# run-local, on what the flow left.


def a_report_run(folder: Path, name: str, **changes: Any) -> dict[str, Any]:
    """Return the flow_run of the sample, with its report yet to be written, under a run id of its own."""
    document = copy.deepcopy(exported(folder / "state", RUN_ID))
    step = {**FLOW_RUN["steps"][STEP_ID], "status": "READY"}
    document |= {"runId": f"20251215-130000_BTCUSDT_{name}", "status": "RUNNING"}
    document["steps"][STEP_ID] = copy.deepcopy({**step, **changes})
    return document


def run_local(folder: Path, name: str, *flags: str | Path, **changes: Any) -> Call:
    """Return the call that writes the report of a run of its own."""
    variables = changes.pop("variables", {})
    path = write_json(folder / f"{name}.json", a_report_run(folder, name, **changes))
    arguments = ("run-local", "--flow-run-path", path, "--step-id", STEP_ID, *STATE, *(flags or JSON))
    return Call(folder, arguments, REPORTS, variables)


FAULTS: dict[str, tuple[ModelFault, ...]] = {
    "real": (),
    "record": (),
    "repaired": (BROKEN_JSON,),
    "unrepaired": (BROKEN_JSON, BROKEN_JSON),
    "unsafe": (SAFETY,),
    "busy": (RATE_LIMITED,),
    "record-busy": (RATE_LIMITED,),
    "echo": (ModelFault(status=403, message=f"no entry for {KEY}"),),
    "known": (),
    "allowed": (),
}
"""What goes wrong at the model's side, in runs that ask it."""


@pytest.fixture(scope="module")
def asked() -> dict[str, GeminiServer]:
    """Return the servers, each of which one run asks: they keep what they were asked."""
    return {}


@pytest.fixture(scope="module")
def runs(whole: Ended, folder: Path, asked: dict[str, GeminiServer]) -> dict[str, Ended]:
    assert whole.code == 0
    (folder / "empty").mkdir()
    record = ("--llm-api-mode", "record", "--recordings-dir", "recorded", *JSON)
    with ExitStack() as running:
        for name, faults in FAULTS.items():
            asked[name] = running.enter_context(GeminiServer(Secret(KEY)))
            asked[name].faults.add(*faults)

        def of(name: str, **variables: str) -> dict[str, str]:
            place = {"GEMINI_BASE_URL": asked[name].address, "GEMINI_API_KEY": KEY, "LOG_LEVEL": "DEBUG"}
            return {"LLM_API_MODE": "real", **place, **variables}

        plain = [name for name in FAULTS if name not in {"record", "record-busy", "allowed", "known"}]
        first = {
            **{name: run_local(folder, name, variables=of(name)) for name in plain},
            "text": run_local(folder, "text", "--output-summary", "text"),
            "none": run_local(folder, "none", "--output-summary", "none"),
            "json": run_local(folder, "json"),
            "record": run_local(folder, "record", *record, variables=of("record")),
            "record-busy": run_local(
                folder,
                "record-busy",
                *("--llm-api-mode", "record", "--recordings-dir", "recorded busy", *JSON),
                variables=of("record-busy"),
            ),
            "allowed": run_local(
                folder, "allowed", variables=of("allowed", GEMINI_ALLOWED_MODELS="other, gemini-2.5-flash")
            ),
            "not allowed": run_local(folder, "not-allowed", variables={"GEMINI_ALLOWED_MODELS": "other,another"}),
            "no prompt": run_local(folder, "no-prompt", "--prompts-dir", "empty", *JSON),
            "no schema": run_local(folder, "no-schema", "--schemas-dir", "empty", *JSON),
            "no recording": run_local(folder, "no-recording", "--recordings-dir", "empty", *JSON),
            "pending": run_local(folder, "pending", status="PENDING"),
            "first step": Call(
                folder,
                (
                    *(
                        "run-local",
                        "--flow-run-path",
                        write_json(folder / "f.json", a_report_run(folder, "first")),
                    ),
                    *(*STATE, *JSON),
                ),
                REPORTS,
            ),
        }
        ended = call_all(first)
        found = {**a_report_run(folder, "unused"), "runId": RUN_ID}
        flags = ("run-local", "--flow-run-path", write_json(folder / "found.json", found), *STATE, *JSON)
        replayed = ("--recordings-dir", "recorded", *JSON)
        second = {
            "replayed": run_local(folder, "replayed", *replayed),
            "known": run_local(folder, "known", *record, variables=of("known")),
            "replayed busy": run_local(folder, "replayed-busy", "--recordings-dir", "recorded busy", *JSON),
            "already there": Call(folder, flags, REPORTS),
        }
        return ended | call_all(second)


def run_id_of(name: str) -> str:
    return f"20251215-130000_BTCUSDT_{name}"


def test_run_local_writes_the_report_from_recordings(runs: Mapping[str, Ended], folder: Path) -> None:
    ended = runs["json"]
    uri = f"gs://local-artifacts/{run_id_of('json')}/4h/{STEP_ID}.json"
    assert ended.code == 0, ended.stderr
    assert ended.summary() == {
        "status": "SUCCEEDED",
        "runId": run_id_of("json"),
        "stepId": STEP_ID,
        "reportGcsUri": uri,
        "attempts": 1,
        "reused": False,
        "llmApiMode": "mock",
        "errorCode": None,
        "noopReason": None,
    }
    assert report_at(folder / "state", uri)["metadata"]["runId"] == run_id_of("json")
    assert exported_step(folder / "state", run_id_of("json"), STEP_ID)["status"] == "SUCCEEDED"


def test_what_stdout_says_is_chosen(runs: Mapping[str, Ended]) -> None:
    assert runs["text"].stdout == (
        f"LLM_REPORT SUCCEEDED: report=gs://local-artifacts/{run_id_of('text')}/4h/{STEP_ID}.json, calls=1\n"
    )
    assert (runs["none"].code, runs["none"].stdout) == (0, "")


def test_without_a_step_id_the_first_executable_step_is_taken(runs: Mapping[str, Ended]) -> None:
    assert (runs["first step"].code, runs["first step"].summary()["stepId"]) == (0, STEP_ID)


def test_the_entries_are_of_the_worker(runs: Mapping[str, Ended]) -> None:
    for entry in runs["json"].events():
        assert set(entry) >= EVERY_ENTRY
        assert (entry["service"], entry["runId"]) == ("worker-llm-client", run_id_of("json"))


def test_a_step_that_is_not_ready_is_nothing_to_do(runs: Mapping[str, Ended]) -> None:
    assert (runs["pending"].code, runs["pending"].summary()["noopReason"]) == (0, "no_ready_step")


def test_a_report_that_is_there_is_used_and_the_model_not_asked(runs: Mapping[str, Ended]) -> None:
    summary = runs["already there"].summary()
    assert (summary["status"], summary["reused"], summary["attempts"]) == ("SUCCEEDED", True, 0)


FAILURES = {
    "not allowed": "LLM_PROFILE_INVALID",
    "no prompt": "PROMPT_NOT_FOUND",
    "no schema": "LLM_PROFILE_INVALID",
    "no recording": "GEMINI_REQUEST_FAILED",
    "unrepaired": "INVALID_STRUCTURED_OUTPUT",
    "unsafe": "LLM_SAFETY_BLOCK",
    "busy": "RATE_LIMITED",
    "record-busy": "RATE_LIMITED",
    "replayed busy": "RATE_LIMITED",
    "echo": "LLM_PROFILE_INVALID",
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_step_that_fails_exits_1_with_its_code(runs: Mapping[str, Ended], folder: Path, name: str) -> None:
    ended = runs[name]
    assert (ended.code, ended.summary()["status"]) == (1, "FAILED"), ended.stderr
    assert ended.summary()["errorCode"] == FAILURES[name]
    step = exported_step(folder / "state", run_id_of(name.replace(" ", "-")), STEP_ID)
    assert (step["status"], step["error"]["code"]) == ("FAILED", FAILURES[name])
    assert ended.events("step_failed")[0]["errorCode"] == FAILURES[name]


def test_a_model_that_is_allowed_is_asked(runs: Mapping[str, Ended], asked: Mapping[str, GeminiServer]) -> None:
    assert (runs["allowed"].code, len(asked["allowed"].questions)) == (0, 1)
    assert runs["not allowed"].events("llm_request_started") == []


def test_real_mode_asks_with_prompt_candles_and_pictures(
    runs: Mapping[str, Ended], asked: Mapping[str, GeminiServer], folder: Path
) -> None:
    assert (runs["real"].code, runs["real"].summary()["llmApiMode"]) == (0, "real")
    (question,) = asked["real"].questions
    prompt = json.loads((PROMPTS / "llm_prompt_4h_report_v1_0.json").read_text("utf-8"))
    assert question["systemInstruction"]["parts"][0]["text"] == prompt["systemInstruction"]
    text, *images = question["contents"][0]["parts"]
    assert text["text"].startswith(f"{prompt['userPrompt']}\n\n## UserInput\n\n### Scope")
    candles = (CANDLES / "BTCUSDT_4h.json").read_text("utf-8").strip()
    assert candles in text["text"]
    assert len(images) == len(FLOW_RUN["steps"]["charts:4h"]["inputs"]["requests"])
    report = report_at(folder / "state", runs["real"].summary()["reportGcsUri"])
    assert report["metadata"]["llm"]["modelVersion"] == "gemini-2.5-flash-sandbox"


def test_an_answer_that_cannot_be_used_is_repaired_once(
    runs: Mapping[str, Ended], asked: Mapping[str, GeminiServer], folder: Path
) -> None:
    assert (runs["repaired"].summary()["attempts"], len(asked["repaired"].questions)) == (2, 2)
    assert len(asked["unrepaired"].questions) == 2, "never more than two calls"
    step = exported_step(folder / "state", run_id_of("repaired"), STEP_ID)
    assert step["outputs"]["execution"]["llm"]["attempts"] == {"total": 2}
    assert len(runs["repaired"].events("structured_output_repair_attempt_finished")) == 1


def test_what_was_recorded_is_replayed_as_the_same_report(
    runs: Mapping[str, Ended], asked: Mapping[str, GeminiServer], folder: Path
) -> None:
    recorded, replayed = (
        report_at(folder / "state", runs[name].summary()["reportGcsUri"]) for name in ("record", "replayed")
    )
    assert recorded["output"] == replayed["output"]
    assert recorded["metadata"]["llm"] == replayed["metadata"]["llm"]
    assert len(asked["record"].questions) == 1
    (kept,) = (folder / "recorded" / "gemini").iterdir()
    assert kept.name == f"{SHIPPED_KEY}.json"


def test_record_mode_asks_for_nothing_that_is_recorded(
    runs: Mapping[str, Ended], asked: Mapping[str, GeminiServer]
) -> None:
    assert (runs["known"].code, runs["known"].summary()["llmApiMode"]) == (0, "record")
    assert asked["known"].requests == []


def test_a_refusal_is_recorded_and_replayed(runs: Mapping[str, Ended], folder: Path) -> None:
    (kept,) = (folder / "recorded busy" / "gemini").iterdir()
    assert kept.name == f"{SHIPPED_KEY}__429_RESOURCE_EXHAUSTED.json"
    assert runs["replayed busy"].events("llm_request_finished")[0]["httpStatus"] == 429


def test_a_planted_key_appears_nowhere(runs: Mapping[str, Ended], folder: Path) -> None:
    for ended in runs.values():
        assert KEY not in ended.stdout + ended.stderr
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert "no entry for ***" in runs["echo"].stderr


# plan.


@pytest.fixture(scope="module")
def plans(whole: Ended, folder: Path) -> dict[str, Ended]:
    here = folder / "plans"
    path = write_json(here / "flow_run.json", a_report_run(folder, "planned"))
    document = a_report_run(folder, "blocked")
    document["steps"]["charts:1d"]["status"] = "RUNNING"
    blocked = write_json(here / "blocked.json", document)
    wrong = a_report_run(folder, "wrong", inputs={"llm": {}})
    now = ("--now", "2025-12-15T12:00:00Z")
    return call_all(
        {
            "text": Call(here, ("plan", "--flow-run-path", path, *now), REPORTS),
            "json": Call(here, ("plan", "--flow-run-path", path, *now, "--format", "json"), REPORTS),
            "again": Call(here, ("plan", "--flow-run-path", path, *now, "--format", "json"), REPORTS),
            "blocked": Call(here, ("plan", "--flow-run-path", blocked), REPORTS),
            "wrong": Call(here, ("plan", "--flow-run-path", write_json(here / "wrong.json", wrong)), REPORTS),
        }
    )


def test_a_plan_needs_only_the_flow_run_and_does_nothing(plans: Mapping[str, Ended], folder: Path) -> None:
    assert plans["text"].code == 0
    *lines, expected = plans["text"].stdout.splitlines()
    kinds = [line.split()[1] for line in lines]
    assert (kinds[0], kinds[-3:]) == ("ClaimStep", ["CallModel", "PutObject", "FinalizeStep"])
    uri = f"gs://local-artifacts/{run_id_of('planned')}/4h/{STEP_ID}.json"
    assert expected == f"expected: LLM_REPORT SUCCEEDED: report={uri}, calls=1"
    assert sorted(one.name for one in (folder / "plans").iterdir()) == [
        "blocked.json",
        "flow_run.json",
        "wrong.json",
    ]


def test_a_plan_as_json_is_the_same_for_the_same_moment(plans: Mapping[str, Ended]) -> None:
    assert plans["json"].stdout == plans["again"].stdout
    planned = plans["json"].summary()
    kinds = [one["effect"] for one in planned["effects"]]
    assert kinds[0] == "ClaimStep"
    assert kinds[-3:] == ["CallModel", "PutObject", "FinalizeStep"]
    assert {"LoadPrompt", "LoadSchema", "ReadObject"} <= set(kinds)


def test_a_plan_says_why_there_is_nothing_to_do(plans: Mapping[str, Ended]) -> None:
    assert plans["blocked"].stdout == "nothing to do: dependency_not_succeeded\n"


def test_a_plan_of_a_step_that_will_fail_says_so(plans: Mapping[str, Ended]) -> None:
    assert plans["wrong"].code == 0
    assert "INVALID_STEP_INPUTS" in plans["wrong"].stdout


# Prompts and schemas.

SCHEMA: dict[str, Any] = json.loads((SCHEMAS / "llm_schema_4h_report_v1_0.json").read_text("utf-8"))


def a_schema(schema_id: str, **changes: Any) -> dict[str, Any]:
    """Return a schema document whose sha256 is right for its jsonSchema unless it is changed."""
    document = copy.deepcopy({**SCHEMA, "schemaId": schema_id, **changes})
    return {**document, "sha256": changes.get("sha256", schema_sha256(document["jsonSchema"]))}


def without(required: str, *path: str) -> dict[str, Any]:
    """Return the shipped JSON Schema with one name less that is required, there."""
    schema = copy.deepcopy(SCHEMA["jsonSchema"])
    here = schema
    for key in path:
        here = here["properties"][key]
    here["required"].remove(required)
    return dict(schema)


WRONG_SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "llm_report_output_v1": (a_schema("llm_report_output_v1", sha256="0" * 64), "sha256: must be "),
    "llm_report_output_v2": (
        a_schema("llm_report_output_v2", jsonSchema=without("summary")),
        "jsonSchema: must require summary",
    ),
    "llm_report_output_v3": (
        a_schema("llm_report_output_v3", jsonSchema=without("details")),
        "jsonSchema: must require details",
    ),
    "llm_report_output_v4": (
        a_schema("llm_report_output_v4", jsonSchema=without("markdown", "summary")),
        "jsonSchema: must require summary.markdown",
    ),
    "llm_report_output_v5": (a_schema("another"), "schemaId: must be llm_report_output_v5"),
    "llm_report_output_v6": (a_schema("llm_report_output_v6", kind="OTHER"), "kind: must be LLM_REPORT_OUTPUT"),
    "llm_report_output_v7": (
        {**a_schema("llm_report_output_v7"), "jsonSchema": {"type": "nothing"}},
        "jsonSchema: is not a JSON Schema",
    ),
}
WRONG_PROMPTS: dict[str, tuple[Any, str]] = {
    "version": ({"schemaVersion": 2, "systemInstruction": "", "userPrompt": ""}, "schemaVersion: must be 1"),
    "missing": ({"schemaVersion": 1, "systemInstruction": ""}, "userPrompt: is missing"),
    "list": ([], "(top): must be an object"),
}


@pytest.fixture(scope="module")
def validations(folder: Path) -> dict[str, Ended]:
    for name, (document, _) in WRONG_SCHEMAS.items():
        write_json(folder / "schemas" / f"{name}.json", document)
    write_json(folder / "schemas" / "llm_report_output_v8.json", a_schema("llm_report_output_v8"))
    for name, (document, _) in WRONG_PROMPTS.items():
        write_json(folder / "prompts" / f"{name}.json", document)
    (folder / "prompts" / "text.json").write_text("{", "utf-8")
    return call_all(
        {
            "shipped prompts": Call(folder, ("prompts", "validate"), REPORTS),
            "shipped schemas": Call(folder, ("schemas", "validate"), REPORTS),
            "prompts": Call(folder, ("prompts", "validate", "prompts"), REPORTS),
            "schemas": Call(folder, ("schemas", "validate", "schemas"), REPORTS),
            "nowhere": Call(folder, ("schemas", "validate", "nowhere"), REPORTS),
        }
    )


def test_the_shipped_prompts_and_schemas_are_valid(validations: Mapping[str, Ended]) -> None:
    assert (validations["shipped prompts"].code, validations["shipped prompts"].stdout) == (
        0,
        "1 of 1 prompts are valid\n",
    )
    assert (validations["shipped schemas"].code, validations["shipped schemas"].stdout) == (
        0,
        "1 of 1 schemas are valid\n",
    )


@pytest.mark.parametrize("name", WRONG_SCHEMAS)
def test_a_schema_that_reports_cannot_be_checked_by_is_named(validations: Mapping[str, Ended], name: str) -> None:
    ended = validations["schemas"]
    assert ended.code == 1
    lines = [line for line in ended.stdout.splitlines() if line.startswith(f"not valid: {name}.json: ")]
    assert any(line.startswith(f"not valid: {name}.json: {WRONG_SCHEMAS[name][1]}") for line in lines), lines
    assert ended.stdout.splitlines()[-1] == f"1 of {len(WRONG_SCHEMAS) + 1} schemas are valid"


@pytest.mark.parametrize("name", WRONG_PROMPTS)
def test_a_prompt_that_is_none_is_named(validations: Mapping[str, Ended], name: str) -> None:
    ended = validations["prompts"]
    assert ended.code == 1
    assert f"not valid: {name}.json: {WRONG_PROMPTS[name][1]}" in ended.stdout
    assert "not valid: text.json: (top): is not readable JSON" in ended.stdout


def test_a_folder_that_is_none_exits_2(validations: Mapping[str, Ended]) -> None:
    assert (validations["nowhere"].code, validations["nowhere"].problems()) == (
        2,
        ["DIR: nowhere is not a folder"],
    )


# Wrong calls.

FILE = ("--flow-run-path", "flow_run.json")
SETTINGS = {
    "LLM_API_MODE": "realy",
    "GEMINI_BASE_URL": "ftp://x",
    "GEMINI_TIMEOUT_SECONDS": "never",
    "FINALIZE_BUDGET_SECONDS": "780",
    "ARTIFACTS_BUCKET": "no bucket",
    "ARTIFACTS_PREFIX": "../up",
    "LLM_PROMPTS_COLLECTION": "a/b",
    "GEMINI_API_KEY": f"{CANARY} with spaces",
    "LOG_LEVEL": "LOUD",
}
WRONG: dict[str, tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]] = {
    "settings": (("run-local", *FILE), SETTINGS, tuple(SETTINGS)),
    "no key": (("run-local", *FILE, "--llm-api-mode", "real"), {}, ("GEMINI_API_KEY: is required in real mode",)),
    "a flag beats a variable": (
        ("plan", *FILE, "--llm-api-mode", "other", "--artifacts-bucket", "/"),
        {"LLM_API_MODE": "mock"},
        ("--llm-api-mode", "--artifacts-bucket"),
    ),
    "record in prod": (
        ("run-local", *FILE, "--llm-api-mode", "record", "--recordings-dir", "rec"),
        {"ENV": "prod", "GEMINI_API_KEY": "k"},
        ("LLM_API_MODE: record is refused where ENV is prod",),
    ),
    "record without a folder": (
        ("run-local", *FILE, "--llm-api-mode", "record"),
        {"GEMINI_API_KEY": "k"},
        ("--recordings-dir: is required in record mode",),
    ),
    "no folder of prompts": (
        ("run-local", *FILE, "--prompts-dir", "nowhere"),
        {},
        ("--prompts-dir: nowhere is not a folder",),
    ),
    "no such file": (
        ("plan", "--flow-run-path", "nowhere.json"),
        {},
        ("--flow-run-path nowhere.json: cannot be read: No such file or directory",),
    ),
    "no such step": (("plan", *FILE, "--step-id", "nope"), {}, ("--step-id: ",)),
    "a step of another type": (("run-local", *FILE, "--step-id", "charts:4h"), {}, ("--step-id: ",)),
}


@pytest.fixture(scope="module")
def wrong(folder: Path) -> dict[str, Ended]:
    here = folder / "wrong"
    write_json(here / "flow_run.json", FLOW_RUN)
    calls = {name: Call(here, arguments, REPORTS, variables) for name, (arguments, variables, _) in WRONG.items()}
    return call_all(calls)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_everything_that_is_wrong_and_exits_2(
    wrong: Mapping[str, Ended], folder: Path, name: str
) -> None:
    ended, expected = wrong[name], WRONG[name][2]
    assert "Traceback" not in ended.stderr
    assert (ended.code, ended.stdout) == (2, "")
    problems = ended.problems()
    assert len(problems) == len(expected), problems
    for start_of in expected:
        assert any(problem.startswith(start_of) for problem in problems), (start_of, problems)
    assert CANARY not in ended.stderr
    assert not (folder / "wrong" / ".tda").exists(), "nothing was stored"


# A person at a terminal.


def on_a_terminal(folder: Path, *arguments: str | Path) -> tuple[int, str, str]:
    """Run `tda` with a terminal as its stderr; return its exit code, its stdout and what was shown."""
    terminal, line = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", "from cli import tda; tda(prog_name='tda')", *map(str, arguments)],
        cwd=folder,
        env=environment({"TERM": "xterm", "PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE,
        stderr=line,
        text=True,
    ) as process:
        os.close(line)
        shown = b""
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:  # how Linux says that the other side is gone
            pass
        stdout, _ = process.communicate(timeout=PATIENCE_SECONDS)
    os.close(terminal)
    return process.returncode, stdout, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8", "replace"))


def test_a_terminal_shows_the_report_of_run_local(whole: Ended, folder: Path) -> None:
    path = write_json(folder / "terminal.json", a_report_run(folder, "terminal"))
    code, stdout, shown = on_a_terminal(folder, "reports", "run-local", "--flow-run-path", path, *STATE)
    assert (code, stdout.partition(":")[0]) == (0, "LLM_REPORT SUCCEEDED")
    for words in ("report", "BTCUSDT, 4h", "The market rises", "resistance", "What would prove this wrong"):
        assert words in shown
    assert "**" not in shown, "it is rendered, not shown as it is written"
    assert not [line for line in shown.splitlines() if line.startswith("{")]


def test_a_terminal_shows_the_report_at_the_end_of_a_flow(tmp_path: Path) -> None:
    code, stdout, shown = on_a_terminal(tmp_path, *RUN_FLOW)
    assert (code, stdout.partition(":")[0]) == (0, "FLOW SUCCEEDED")
    assert "The market rises" in shown
    assert shown.index(STEP_ID) < shown.index("The market rises")
