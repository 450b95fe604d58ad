from __future__ import annotations

import copy
import json
import os
import pty
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.charts.images import png_size
from core.charts.manifest import manifest_problems
from core.documents import Decision, ReplaceDocument
from effects.moments import parse_moment, rfc3339
from interpreters.documents.sqlite import SqliteDocuments
from interpreters.shipped import CHART_API_FIXTURES
from tests.builders import RUN_ID, RUN_PATH, STEP_ID, TEMPLATE_IDS, a_flow_run, a_png, a_step, an_input
from tests.end_to_end.console import (
    EVERY_ENTRY,
    FIVE_CHARTS,
    PATIENCE_SECONDS,
    TDA_CHARTS,
    WORKER,
    Call,
    Ended,
    artifacts,
    call,
    call_all,
    environment,
    exported,
    exported_step,
    manifest,
    manifest_uri,
    object_file,
    run_local,
    under_file_limit,
    write_flow_run,
    write_json,
)

FIVE_TEMPLATE_IDS = [one["chartTemplateId"] for one in FIVE_CHARTS["steps"][STEP_ID]["inputs"]["requests"]]
FIXTURE_FOLDER = Path("chart-img", "advanced-chart-v2")
SUMMARY_KEYS = [
    "status",
    "runId",
    "stepId",
    "outputsManifestGcsUri",
    "itemsCount",
    "failuresCount",
    "minImages",
    "chartsApiMode",
    "errorCode",
    "noopReason",
]
QUICK_TO_GIVE_UP = {"INVOCATION_TIMEOUT_SECONDS": "4", "FINALIZE_BUDGET_SECONDS": "2"}


def five_charts(symbol: str = "BTCUSDT", timeframe: str = "4h", min_images: int = 4) -> dict[str, Any]:
    document = copy.deepcopy(FIVE_CHARTS)
    document["scope"]["symbol"] = symbol
    document["steps"][STEP_ID]["timeframe"] = timeframe
    document["steps"][STEP_ID]["inputs"]["minImages"] = min_images
    return document


def with_extras() -> dict[str, Any]:
    """Return the sample with fields nobody has heard of, at every level."""
    document = five_charts()
    document["x-top"] = {"deep": [1, None, "ü"]}
    document["scope"]["x-scope"] = 1.5
    document["steps"][STEP_ID]["x-step"] = "kept"
    document["steps"][STEP_ID]["outputs"] = {"x-output": "kept", "execution": {"x-execution": "kept"}}
    document["steps"]["report"] = {"stepType": "LLM_REPORT", "status": "PENDING", "x-report": [True]}
    return document


def big_and_small_pictures(folder: Path) -> Path:
    """Fill a fixtures folder in which the first picture is larger than a nearly full disk takes."""
    target = folder / FIXTURE_FOLDER
    target.mkdir(parents=True)
    for one, padding in zip(TEMPLATE_IDS, (b"x" * 500_000, b"", b""), strict=True):
        (target / f"BINANCE_BTCUSDT__4h__{one}.png").write_bytes(a_png(padding=padding))
    return folder


def all_three_needed() -> dict[str, Any]:
    return a_flow_run({STEP_ID: a_step(inputs=an_input(TEMPLATE_IDS, 3))})


def two_accounts(*, limit: int | None = None) -> str:
    stated = {} if limit is None else {"dailyLimit": limit}
    return json.dumps([{"id": one, "apiKey": f"key-{one}", **stated} for one in ("acc1", "acc2")])


def the_calls(folder: Path) -> dict[str, Call]:
    """Return the runs that many tests look at, each in a folder of its own."""
    artifacts_file = folder / "artifacts is a file" / "state" / "artifacts"
    artifacts_file.parent.mkdir(parents=True)
    artifacts_file.write_text("in the way")
    pictures = big_and_small_pictures(folder / "pictures")
    missing_template = an_input([TEMPLATE_IDS[0], "ctpl_unheard_of_v1"], 1)
    documents: dict[str, tuple[object, dict[str, Any]]] = {
        "DOWNUSDT": (five_charts("DOWNUSDT", "1h"), {}),
        "artifacts is a file": (five_charts(), {"variables": QUICK_TO_GIVE_UP}),
        "disk nearly full": (
            all_three_needed(),
            {
                "variables": QUICK_TO_GIVE_UP,
                "flags": ("--fixtures-dir", pictures),
                "command": under_file_limit(600),
            },
        ),
        "five charts": (with_extras(), {"real": True}),
        "LIMITUSDT": (five_charts("LIMITUSDT", "1h"), {}),
        "LIMITUSDT, two accounts": (
            five_charts("LIMITUSDT", "1h"),
            {"variables": {"CHART_IMG_ACCOUNTS_JSON": two_accounts()}},
        ),
        "stated limits": (
            five_charts(),
            {"variables": {"CHART_IMG_ACCOUNTS_JSON": two_accounts(limit=2)}},
        ),
        "BADUSDT": (five_charts("BADUSDT", "1h"), {}),
        "no fixtures": (five_charts("NONEUSDT", "1h"), {}),
        "no fixtures, minImages 0": (five_charts("NONEUSDT", "1h", 0), {}),
        "missing template": (a_flow_run({STEP_ID: a_step(inputs=missing_template)}), {}),
        "bucket of the environment": (five_charts(), {"variables": {"CHARTS_BUCKET": "gs://from-env"}}),
        "bucket of the flag": (
            five_charts(),
            {"variables": {"CHARTS_BUCKET": "gs://from-env"}, "flags": ("--charts-bucket", "gs://from-flag")},
        ),
        "mode of the flag": (
            five_charts(),
            {"variables": {"CHARTS_API_MODE": "real"}, "flags": ("--charts-api-mode", "mock")},
        ),
        "no summary": (five_charts(), {"flags": ("--output-summary", "none")}),
        "no READY step": (a_flow_run({STEP_ID: a_step(status="SUCCEEDED")}), {}),
        "no steps at all": (a_flow_run({}), {}),
        "wanted step not READY": (
            a_flow_run({STEP_ID: a_step(), "done": a_step(status="FAILED")}),
            {"flags": ("--step-id", "done")},
        ),
        "several READY steps": (
            a_flow_run({one: a_step() for one in ("a", "b c.d", "B")}, status="FAILED"),
            {},
        ),
        "wanted of several READY steps": (
            a_flow_run({one: a_step() for one in ("a", "b c.d", "B")}),
            {"flags": ("--step-id", "b c.d")},
        ),
        "unmet dependency": (
            a_flow_run(
                {STEP_ID: a_step(dependsOn=["ohlcv"]), "ohlcv": {"stepType": "OHLCV_EXPORT", "status": "FAILED"}}
            ),
            {},
        ),
        "stderr closed": (five_charts(), {"command": ("sh", "-c", 'exec "$@" 2>&-', "sh", *WORKER)}),
        "warnings only": (five_charts("BADUSDT", "1h"), {"variables": {"LOG_LEVEL": "WARNING"}}),
    }
    return {name: run_local(folder / name, document, **how) for name, (document, how) in documents.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run_local")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Ended]:
    return call_all(the_calls(folder))


def state_of(folder: Path, name: str) -> Path:
    return folder / name / "state"


def failures_of(state: Path) -> dict[str, dict[str, Any]]:
    return {one["request"]["chartTemplateId"]: one["error"] for one in manifest(state)["failures"]}


# Five charts.


def test_five_charts_succeed_in_mock_mode_with_nothing_configured(runs: Mapping[str, Ended]) -> None:
    ended = runs["five charts"]
    assert (ended.code, ended.summary()) == (
        0,
        {
            "status": "SUCCEEDED",
            "runId": RUN_ID,
            "stepId": STEP_ID,
            "outputsManifestGcsUri": manifest_uri(),
            "itemsCount": 5,
            "failuresCount": 0,
            "minImages": 4,
            "chartsApiMode": "mock",
            "errorCode": None,
            "noopReason": None,
        },
    )


def test_the_json_summary_is_one_line_with_exactly_the_ten_keys(runs: Mapping[str, Ended]) -> None:
    for name in ("five charts", "BADUSDT", "no READY step", "wanted step not READY"):
        assert runs[name].stdout.count("\n") == 1
        assert list(runs[name].summary()) == SUMMARY_KEYS


def test_the_manifest_is_valid_and_names_every_picture(runs: Mapping[str, Ended], folder: Path) -> None:
    state = state_of(folder, "five charts")
    document = manifest(state, runs["five charts"].summary()["outputsManifestGcsUri"])
    assert manifest_problems(document) == ()
    assert [one["chartTemplateId"] for one in document["items"]] == FIVE_TEMPLATE_IDS
    assert [one["chartTemplateId"] for one in document["requested"]] == FIVE_TEMPLATE_IDS
    assert document["failures"] == []


def test_every_picture_of_the_manifest_is_a_png_file_with_the_contracts_name(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    state = state_of(folder, "five charts")
    for item in manifest(state)["items"]:
        file = object_file(state, item["png_gcs_uri"])
        assert png_size(file.read_bytes()) == (800, 600)
        second = datetime.fromisoformat(item["generatedAt"]).strftime("%Y%m%d-%H%M%S")
        assert file.name == f"{second}_BTCUSDT_4h_{item['chartTemplateId']}.png"
        assert file.parent == state / "artifacts" / "local-artifacts" / "charts" / RUN_ID / STEP_ID


def test_nothing_but_pictures_and_manifest_lies_under_artifacts(runs: Mapping[str, Ended], folder: Path) -> None:
    files = artifacts(state_of(folder, "five charts"))
    assert Counter(file.suffix for file in files) == {".png": 5, ".json": 1}


def test_the_updated_document_is_the_input_with_only_the_steps_own_fields_changed(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    document = exported(state_of(folder, "five charts"))
    step = document["steps"][STEP_ID]
    claim = step["outputs"]["execution"].pop("claim")
    assert step.pop("status") == "SUCCEEDED"
    assert parse_moment(step.pop("finishedAt")) is not None
    assert step["outputs"].pop("outputsManifestGcsUri") == manifest_uri()
    before = with_extras()
    assert before["steps"][STEP_ID].pop("status") == "READY"
    assert document == before
    assert set(claim) == {"token", "attempt", "firstStartedAt", "startedAt", "leaseUntil"}
    assert claim["attempt"] == 1
    lease = parse_moment(claim["leaseUntil"]) - parse_moment(claim["startedAt"])  # type: ignore[operator]
    assert lease == timedelta(seconds=540 + 60)


def test_the_input_file_is_unchanged_and_the_default_folder_and_summary_are_used(tmp_path: Path) -> None:
    odd = json.dumps(with_extras(), indent=7, ensure_ascii=False).encode() + b"\n\n  "
    path = tmp_path / "flow run.json"
    path.write_bytes(odd)
    ended = call(tmp_path, "run-local", "--flow-run-path", path.name, command=TDA_CHARTS)
    assert path.read_bytes() == odd
    assert ended.code == 0
    expected = f"CHART_EXPORT SUCCEEDED: manifest={manifest_uri()}, items=5, failures=0, minImages=4\n"
    assert ended.stdout == expected
    assert exported_step(tmp_path / ".tda")["status"] == "SUCCEEDED"
    assert len(artifacts(tmp_path / ".tda", "*.png")) == 5


def test_no_summary_means_an_empty_stdout(runs: Mapping[str, Ended], folder: Path) -> None:
    assert (runs["no summary"].code, runs["no summary"].stdout) == (0, "")
    assert exported_step(state_of(folder, "no summary"))["status"] == "SUCCEEDED"


# The log.


def test_stderr_has_only_json_lines_with_the_fields_every_entry_has(runs: Mapping[str, Ended]) -> None:
    for name, ended in runs.items():
        for entry in ended.events():
            assert entry.keys() >= {*EVERY_ENTRY, "runId", "flowKey", "stepId"}, name
            assert (entry["service"], entry["env"], entry["runId"]) == ("worker-chart-export", "local", RUN_ID)
            assert entry["flowKey"] == FIVE_CHARTS["flowKey"]
            assert entry["severity"] in {"DEBUG", "INFO", "WARNING", "ERROR"}
            assert parse_moment(entry["time"]) is not None


def test_the_log_tells_the_story_of_a_run_in_order(runs: Mapping[str, Ended]) -> None:
    names = [entry["event"] for entry in runs["five charts"].events()]
    assert names[:3] == ["local_run_started", "ready_step_selected", "claim_attempt"]
    assert names[-2:] == ["manifest_written", "step_completed"]
    assert Counter(names[3:-2]) == {
        "chart_api_call_started": 5,
        "chart_api_call_finished": 5,
        "png_written": 5,
    }


def test_the_first_entry_says_local_and_the_mode_and_the_file(runs: Mapping[str, Ended], folder: Path) -> None:
    (entry,) = runs["five charts"].events("local_run_started")
    assert (entry["mode"], entry["chartsApi"], entry["stepId"]) == ("local", {"mode": "mock"}, STEP_ID)
    assert entry["flowRunPath"] == str(folder / "five charts" / "flow_run.json")


def test_every_call_entry_says_what_was_asked_of_whom(runs: Mapping[str, Ended]) -> None:
    calls = runs["five charts"].events("chart_api_call_finished")
    for entry in calls:
        key = f"BINANCE_BTCUSDT__4h__{entry['chartTemplateId']}"
        assert entry["chartsApi"] == {"mode": "mock", "fixtureKey": key}
        said = [entry[name] for name in ("accountId", "symbol", "timeframe", "status", "httpStatus", "errorCode")]
        assert said == ["local", "BINANCE:BTCUSDT", "4h", "ok", 200, None]
        assert isinstance(entry["durationMs"], int)


def test_the_last_entry_counts_what_came_of_it(runs: Mapping[str, Ended]) -> None:
    (done,) = runs["BADUSDT"].events("step_completed")
    said = {name: done[name] for name in ("severity", "status", "itemsCount", "failuresCount", "minImages")}
    assert said == {
        "severity": "ERROR",
        "status": "FAILED",
        "itemsCount": 0,
        "failuresCount": 5,
        "minImages": 4,
    }
    assert done["errorCode"] == "CHART_API_FAILED"


def test_log_level_leaves_out_what_is_less_severe(runs: Mapping[str, Ended]) -> None:
    severities = {entry["severity"] for entry in runs["warnings only"].events()}
    assert severities == {"WARNING", "ERROR"}


def test_a_log_that_cannot_be_written_never_stops_the_work(runs: Mapping[str, Ended], folder: Path) -> None:
    assert runs["stderr closed"].code == 0
    assert exported_step(state_of(folder, "stderr closed"))["status"] == "SUCCEEDED"


def test_an_unmet_dependency_is_a_warning_not_a_refusal(runs: Mapping[str, Ended]) -> None:
    (warning,) = runs["unmet dependency"].events("dependencies_unmet")
    assert (warning["severity"], warning["dependsOn"]) == ("WARNING", ["ohlcv"])
    assert runs["unmet dependency"].summary()["status"] == "SUCCEEDED"


# Flag beats environment beats default.


def test_the_bucket_of_the_environment_beats_the_default(runs: Mapping[str, Ended], folder: Path) -> None:
    uri = runs["bucket of the environment"].summary()["outputsManifestGcsUri"]
    assert uri == manifest_uri(bucket="from-env")
    assert manifest(state_of(folder, "bucket of the environment"), uri)["items"]


def test_the_bucket_of_the_flag_beats_the_environment(runs: Mapping[str, Ended], folder: Path) -> None:
    uri = runs["bucket of the flag"].summary()["outputsManifestGcsUri"]
    assert uri == manifest_uri(bucket="from-flag")
    assert {one.name for one in (state_of(folder, "bucket of the flag") / "artifacts").iterdir()} == {"from-flag"}


def test_the_mode_of_the_flag_beats_the_environment(runs: Mapping[str, Ended]) -> None:
    ended = runs["mode of the flag"]
    assert (ended.code, ended.summary()["chartsApiMode"]) == (0, "mock")


# Selection and nothing to do.


def test_the_smallest_ready_step_is_taken_in_plain_string_order_whatever_the_runs_status(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    assert runs["several READY steps"].summary()["stepId"] == "B"
    steps = exported(state_of(folder, "several READY steps"))["steps"]
    statuses = {name: step["status"] for name, step in steps.items()}
    assert statuses == {"a": "READY", "b c.d": "READY", "B": "SUCCEEDED"}


def test_step_id_takes_that_step_and_no_other(runs: Mapping[str, Ended], folder: Path) -> None:
    assert runs["wanted of several READY steps"].summary()["stepId"] == "b c.d"
    steps = exported(state_of(folder, "wanted of several READY steps"))["steps"]
    assert [name for name, step in steps.items() if step["status"] == "SUCCEEDED"] == ["b c.d"]


@pytest.mark.parametrize(
    ("name", "step_id", "reason"),
    [
        ("no READY step", None, "no_ready_step"),
        ("no steps at all", None, "no_ready_step"),
        ("wanted step not READY", "done", "step_not_ready"),
    ],
)
def test_nothing_to_do_is_no_failure_and_says_why(
    runs: Mapping[str, Ended], folder: Path, name: str, step_id: str | None, reason: str
) -> None:
    summary = runs[name].summary()
    assert runs[name].code == 0
    said = [summary[key] for key in ("status", "stepId", "noopReason", "errorCode", "itemsCount")]
    assert said == ["NOOP", step_id, reason, None, 0]
    state = state_of(folder, name)
    assert exported(state) == json.loads((folder / name / "flow_run.json").read_text("utf-8"))
    assert not artifacts(state)


# Refusals.


def test_a_used_up_account_fails_every_request_with_the_limit_code(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    state = state_of(folder, "LIMITUSDT")
    assert (runs["LIMITUSDT"].code, runs["LIMITUSDT"].summary()["errorCode"]) == (1, "CHART_API_LIMIT_EXCEEDED")
    assert {error["code"] for error in failures_of(state).values()} == {"CHART_API_LIMIT_EXCEEDED"}
    error = exported_step(state)["error"]
    assert error["code"] == "CHART_API_LIMIT_EXCEEDED"
    assert error["details"] == {"failuresByCode": {"CHART_API_LIMIT_EXCEEDED": 5}}


@pytest.mark.parametrize(
    ("name", "accounts"),
    [
        ("LIMITUSDT", ["local"]),
        ("LIMITUSDT, two accounts", ["acc1", "acc2"]),
        ("stated limits", ["acc1", "acc2"]),
    ],
)
def test_exhausted_accounts_are_one_error_event_that_names_them(
    runs: Mapping[str, Ended], name: str, accounts: list[str]
) -> None:
    events = runs[name].events("chart_api_limit_exceeded")
    said = [(one["severity"], one["error"]["code"], one["exhaustedAccounts"]) for one in events]
    assert said == [("ERROR", "CHART_API_LIMIT_EXCEEDED", accounts)]


def test_a_limit_that_mock_accounts_state_is_kept(runs: Mapping[str, Ended], folder: Path) -> None:
    summary = runs["stated limits"].summary()
    assert (summary["itemsCount"], summary["failuresCount"], summary["status"]) == (4, 1, "SUCCEEDED")
    documents = SqliteDocuments(state_of(folder, "stated limits") / "documents.sqlite3")
    usage = documents.collection("chart_img_accounts_usage_mock")
    real = documents.collection("chart_img_accounts_usage")
    documents.close()
    assert {path.partition("/")[2]: one["usageToday"] for path, one in usage.items()} == {"acc1": 2, "acc2": 2}
    assert real == {}


def test_an_error_of_ours_is_not_tried_again(runs: Mapping[str, Ended], folder: Path) -> None:
    ended = runs["BADUSDT"]
    assert (ended.code, ended.summary()["errorCode"]) == (1, "CHART_API_FAILED")
    tries = Counter(one["chartTemplateId"] for one in ended.events("chart_api_call_finished"))
    assert tries == dict.fromkeys(FIVE_TEMPLATE_IDS, 1)
    assert {one["httpStatus"] for one in ended.events("chart_api_call_finished")} == {400}
    assert exported_step(state_of(folder, "BADUSDT"))["outputs"]["outputsManifestGcsUri"] == manifest_uri()


def test_an_error_of_theirs_is_tried_three_times(runs: Mapping[str, Ended]) -> None:
    ended = runs["DOWNUSDT"]
    assert (ended.code, ended.summary()["errorCode"]) == (1, "CHART_API_FAILED")
    tries = Counter(one["chartTemplateId"] for one in ended.events("chart_api_call_finished"))
    assert tries == dict.fromkeys(FIVE_TEMPLATE_IDS, 3)


def test_a_missing_fixture_is_named_in_the_manifest_and_in_the_log(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    ended, errors = runs["no fixtures"], failures_of(state_of(folder, "no fixtures"))
    assert (ended.code, ended.summary()["errorCode"]) == (1, "CHART_API_MOCK_MISSING")
    keys = {one: f"BINANCE_NONEUSDT__1h__{one}" for one in FIVE_TEMPLATE_IDS}
    assert {one: error["details"]["fixtureKey"] for one, error in errors.items()} == keys
    assert {error["code"] for error in errors.values()} == {"CHART_API_MOCK_MISSING"}
    logged = [one["chartsApi"]["fixtureKey"] for one in ended.events("chart_api_mock_missing")]
    assert sorted(logged) == sorted(keys.values())


def test_a_missing_template_fails_its_own_request_only(runs: Mapping[str, Ended], folder: Path) -> None:
    ended, errors = runs["missing template"], failures_of(state_of(folder, "missing template"))
    assert ended.code == 0
    summary = ended.summary()
    assert (summary["status"], summary["itemsCount"], summary["failuresCount"]) == ("SUCCEEDED", 1, 1)
    assert {one: error["code"] for one, error in errors.items()} == {"ctpl_unheard_of_v1": "VALIDATION_FAILED"}


def test_min_images_0_succeeds_without_any_picture(runs: Mapping[str, Ended], folder: Path) -> None:
    ended, state = runs["no fixtures, minImages 0"], state_of(folder, "no fixtures, minImages 0")
    summary = ended.summary()
    assert (ended.code, summary["status"], summary["itemsCount"]) == (0, "SUCCEEDED", 0)
    assert len(failures_of(state)) == 5
    assert "error" not in exported_step(state)


def test_every_manifest_is_valid(runs: Mapping[str, Ended], folder: Path) -> None:
    manifests = [path for path in folder.rglob("manifest.json") if path.is_file()]
    assert len(manifests) >= 12
    for path in manifests:
        assert manifest_problems(json.loads(path.read_text("utf-8"))) == (), path


# Objects that cannot be stored.


def test_a_picture_that_does_not_fit_on_the_disk_fails_its_request(
    runs: Mapping[str, Ended], folder: Path
) -> None:
    ended, state = runs["disk nearly full"], state_of(folder, "disk nearly full")
    assert (ended.code, ended.summary()["errorCode"]) == (1, "GCS_WRITE_FAILED")
    assert {one: error["code"] for one, error in failures_of(state).items()} == {
        TEMPLATE_IDS[0]: "GCS_WRITE_FAILED"
    }
    step = exported_step(state)
    assert (step["status"], step["error"]["code"]) == ("FAILED", "GCS_WRITE_FAILED")
    assert step["outputs"]["outputsManifestGcsUri"] == manifest_uri()
    assert Counter(file.suffix for file in artifacts(state)) == {".png": 2, ".json": 1}


def test_a_manifest_that_cannot_be_stored_fails_the_step(runs: Mapping[str, Ended], folder: Path) -> None:
    ended, state = runs["artifacts is a file"], state_of(folder, "artifacts is a file")
    summary = ended.summary()
    assert (ended.code, summary["errorCode"]) == (1, "MANIFEST_WRITE_FAILED")
    assert summary["outputsManifestGcsUri"] is None
    step = exported_step(state)
    assert (step["status"], step["error"]["code"]) == ("FAILED", "MANIFEST_WRITE_FAILED")
    assert "outputsManifestGcsUri" not in step["outputs"]


# Steps that are not valid end as FAILED in the document.


def with_step(**changes: Any) -> dict[str, Any]:
    return a_flow_run({STEP_ID: a_step(**changes)})


def with_requests(*requests: object, min_images: object = 1) -> dict[str, Any]:
    return with_step(inputs={"minImages": min_images, "requests": list(requests)})


GOOD = {"chartTemplateId": TEMPLATE_IDS[0]}
HERE = f'steps["{STEP_ID}"]'
INVALID: dict[str, tuple[dict[str, Any], list[str]]] = {
    "runId of another form": (a_flow_run(runId="run-1"), ["runId"]),
    "stepId with a slash": (a_flow_run({"a/b": a_step()}), ['steps["a/b"]']),
    "stepId with a control character": (a_flow_run({"a\u0007b": a_step()}), ['steps["a\u0007b"]']),
    "stepId too long": (a_flow_run({"s" * 129: a_step()}), [f"steps.{'s' * 128}"]),
    "symbol with a slash": (a_flow_run(scope={"symbol": "BTC/USDT"}), ["scope.symbol"]),
    "scope a string, timeframe missing": (
        a_flow_run({STEP_ID: a_step(timeframe=None)}, scope="BTCUSDT"),
        ["scope.symbol", f"{HERE}.timeframe"],
    ),
    "timeframe reversed": (with_step(timeframe="h4"), [f"{HERE}.timeframe"]),
    "inputs a string": (with_step(inputs="all"), [f"{HERE}.inputs"]),
    "outputs a string": (with_step(outputs="none"), [f"{HERE}.outputs"]),
    "requests empty, minImages true": (
        with_requests(min_images=True),
        [f"{HERE}.inputs.requests", f"{HERE}.inputs.minImages"],
    ),
    "the short form": (
        with_step(inputs={"minImages": 1, "chartTemplateId": TEMPLATE_IDS[0]}),
        [f"{HERE}.inputs.chartTemplateId"],
    ),
    "requests of wrong forms": (
        with_requests("text", {"chartTemplateId": "../x"}, GOOD, GOOD, min_images=-1),
        [
            f"{HERE}.inputs.requests[0]",
            f"{HERE}.inputs.requests[1].chartTemplateId",
            f"{HERE}.inputs.requests[3].chartTemplateId",
            f"{HERE}.inputs.minImages",
        ],
    ),
    "more images than requests": (with_requests(GOOD, min_images=2), [f"{HERE}.inputs.minImages"]),
    "minImages a fraction": (with_requests(GOOD, min_images=0.5), [f"{HERE}.inputs.minImages"]),
}


@pytest.fixture(scope="module")
def invalid_runs(folder: Path) -> dict[str, Ended]:
    return call_all({name: run_local(folder / name, document) for name, (document, _) in INVALID.items()})


@pytest.mark.parametrize("name", INVALID)
def test_a_step_that_is_not_valid_ends_failed_with_every_problem_and_its_path(
    invalid_runs: Mapping[str, Ended], folder: Path, name: str
) -> None:
    ended, (document, paths) = invalid_runs[name], INVALID[name]
    summary = ended.summary()
    assert (ended.code, summary["status"], summary["errorCode"]) == (1, "FAILED", "VALIDATION_FAILED")
    (step,) = exported(state_of(folder, name), document["runId"])["steps"].values()
    assert (step["status"], step["error"]["code"]) == ("FAILED", "VALIDATION_FAILED")
    assert [one["path"] for one in step["error"]["details"]["problems"]] == paths
    assert all(path in step["error"]["message"] for path in paths)
    assert parse_moment(step["finishedAt"]) is not None


# The same document again.


def test_a_second_run_writes_new_pictures_keeps_the_old_and_replaces_the_manifest(tmp_path: Path) -> None:
    made = run_local(tmp_path, a_flow_run())
    state = tmp_path / "state"
    assert call(tmp_path, *made.arguments).code == 0
    first = {path: path.read_bytes() for path in artifacts(state, "*.png")}
    earlier = manifest(state)
    time.sleep(1.0)  # the same second would be the same name with the same bytes: the same object
    assert call(tmp_path, *made.arguments).code == 0
    second = {path: path.read_bytes() for path in artifacts(state, "*.png")}
    assert (len(first), len(second)) == (3, 6)
    assert first.items() <= second.items()
    named = {object_file(state, item["png_gcs_uri"]) for item in manifest(state)["items"]}
    assert named == set(second) - set(first)
    assert manifest(state)["createdAt"] > earlier["createdAt"]


def put_document(state: Path, document: dict[str, Any]) -> None:
    documents = SqliteDocuments(state / "documents.sqlite3")
    change = ReplaceDocument(path=RUN_PATH, document=document)
    documents.transact((RUN_PATH,), lambda _: Decision(None, (change,)))
    documents.close()


def stored_document(state: Path) -> Any:
    documents = SqliteDocuments(state / "documents.sqlite3")
    document = documents.read((RUN_PATH,))[RUN_PATH]
    documents.close()
    return document


def leased(lease: timedelta) -> dict[str, Any]:
    now = datetime.now(UTC)
    claim = {
        "token": "another's",
        "attempt": 1,
        "startedAt": rfc3339(now - timedelta(hours=1)),
        "leaseUntil": rfc3339(now + lease),
    }
    return with_step(status="RUNNING", outputs={"execution": {"claim": claim}})


def test_a_document_under_a_live_lease_is_left_alone(tmp_path: Path) -> None:
    held = leased(timedelta(minutes=5))
    put_document(tmp_path / "state", held)
    made = run_local(tmp_path, a_flow_run())
    ended = call(tmp_path, *made.arguments)
    assert (ended.code, ended.stdout) == (2, "")
    (problem,) = ended.problems()
    assert "flow_run.json" in problem
    assert STEP_ID in problem
    assert stored_document(tmp_path / "state") == held


def test_a_document_whose_lease_has_run_out_is_replaced(tmp_path: Path) -> None:
    put_document(tmp_path / "state", leased(timedelta(seconds=-1)))
    made = run_local(tmp_path, a_flow_run())
    ended = call(tmp_path, *made.arguments)
    assert (ended.code, ended.summary()["status"]) == (0, "SUCCEEDED")
    assert exported(tmp_path / "state") == stored_document(tmp_path / "state")


# Accounts and folders given by flag.


def test_accounts_templates_and_fixtures_can_be_given_by_flag(tmp_path: Path) -> None:
    template = json.loads((CHART_API_FIXTURES.parent / "chart-templates" / f"{TEMPLATE_IDS[0]}.json").read_bytes())
    write_json(tmp_path / "templates" / "own_v1.json", {**template, "id": "own_v1", "description": "mine"})
    picture = a_png(padding=b"mine")
    (tmp_path / "fixtures" / FIXTURE_FOLDER).mkdir(parents=True)
    (tmp_path / "fixtures" / FIXTURE_FOLDER / "BINANCE_BTCUSDT__4h__own_v1.png").write_bytes(picture)
    write_json(tmp_path / "accounts.json", [{"id": "mine", "apiKey": "k"}])
    flags = (
        "--templates-dir",
        "templates",
        "--fixtures-dir",
        "fixtures",
        "--accounts-config-path",
        "accounts.json",
    )
    made = run_local(tmp_path, with_step(inputs=an_input(["own_v1"])), flags=flags)
    ended = call(tmp_path, *made.arguments, variables={"CHART_IMG_ACCOUNTS_JSON": "not even JSON"})
    assert ended.code == 0
    (item,) = manifest(tmp_path / "state")["items"]
    assert item["kind"] == "mine"
    assert object_file(tmp_path / "state", item["png_gcs_uri"]).read_bytes() == picture
    assert [one["accountId"] for one in ended.events("chart_api_call_finished")] == ["mine"]


# A person at a terminal.


def on_a_terminal(folder: Path, *arguments: str | Path) -> tuple[int, str, str]:
    """Return exit code, stdout, and what a terminal at stderr was told."""
    terminal, line = pty.openpty()
    with subprocess.Popen(
        [*WORKER, *map(str, arguments)],
        cwd=folder,
        env=environment({"TERM": "xterm"}),
        stdout=subprocess.PIPE,
        stderr=line,
        text=True,
    ) as process:
        os.close(line)
        shown = _read_all(terminal)
        stdout, _ = process.communicate(timeout=PATIENCE_SECONDS)
    os.close(terminal)
    return process.returncode, stdout, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def _read_all(terminal: int) -> str:
    """Read until the other side is gone, which Linux says with an error."""
    shown = b""
    try:
        while part := os.read(terminal, 65536):
            shown += part
    except OSError:
        pass
    return shown.decode("utf-8", "replace")


def test_a_terminal_shows_readable_lines_and_every_chart(tmp_path: Path) -> None:
    path = write_flow_run(tmp_path, FIVE_CHARTS)
    code, stdout, shown = on_a_terminal(tmp_path, "run-local", "--flow-run-path", path)
    assert code == 0
    assert stdout.startswith("CHART_EXPORT SUCCEEDED: ")
    lines = [line.strip() for line in shown.splitlines()]
    assert not [line for line in lines if line.startswith("{")]
    for one in FIVE_TEMPLATE_IDS:
        assert any(one in line and "stored" in line for line in lines), one
    assert any("mock mode" in line for line in lines)


def test_a_terminal_shows_a_wrong_call_as_readable_lines(tmp_path: Path) -> None:
    code, stdout, shown = on_a_terminal(tmp_path, "run-local", "--flow-run-path", "nowhere.json")
    assert (code, stdout) == (2, "")
    assert shown.splitlines() == ["error: --flow-run-path nowhere.json: cannot be read: No such file or directory"]
