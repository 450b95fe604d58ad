"""Calls that are wrong: exit 2, a message that says what would be right, and nothing claimed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.builders import STEP_ID, a_flow_run
from tests.end_to_end.console import (
    EVERY_ENTRY,
    FIVE_CHARTS,
    Call,
    Ended,
    call,
    call_all,
    run_local,
    under_file_limit,
    write_flow_run,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wrong")


@dataclass(frozen=True)
class Wrong:
    """A call with something wrong, and what the message must say."""

    says: tuple[str, ...]
    content: bytes | None = json.dumps(FIVE_CHARTS).encode()
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def holding(**changes: Any) -> bytes:
    return json.dumps(a_flow_run(**changes)).encode()


ACCOUNT = '[{"id": "acc1", "apiKey": "k"}]'
REAL = {
    "CHARTS_API_MODE": "real",
    "CHART_IMG_ACCOUNTS_JSON": ACCOUNT,
    "CHART_IMG_BASE_URL": "http://127.0.0.1:1",
    "CHARTS_MAX_ATTEMPTS": "1",
}
"""Real settings that reach nobody, should a wrong call be taken for a right one."""
WRONG: dict[str, Wrong] = {
    "file missing": Wrong(("--flow-run-path", "flow_run.json", "No such file"), content=None),
    "file not UTF-8": Wrong(("--flow-run-path", "UTF-8"), content=b'{"runId": "\xff"}'),
    "file not JSON": Wrong(("--flow-run-path", "not JSON"), content=b'{"runId": '),
    "file nested too deep": Wrong(("--flow-run-path", "not JSON"), content=b"[" * 100_000),
    "top a list": Wrong(("flow_run.json", "is a list", "object"), content=b"[]"),
    "no runId and steps a list": Wrong(
        ("flow_run.json: runId", "flow_run.json: steps", "is a list"), content=b'{"steps": []}'
    ),
    "runId a number": Wrong(("flow_run.json: runId", "like 2025"), content=holding(runId=7)),
    "runId a path": Wrong(("flow_run.json: runId",), content=holding(runId="../outside")),
    "runId too long for a file": Wrong(("flow_run.json: runId",), content=holding(runId="é" * 150)),
    "steps missing": Wrong(("flow_run.json: steps", "object"), content=b'{"runId": "r"}'),
    "step unknown": Wrong(("--step-id", "'nope'", STEP_ID), flags=("--step-id", "nope")),
    "step empty": Wrong(("--step-id",), flags=("--step-id", "")),
    "step of another type": Wrong(
        ("--step-id", "LLM_REPORT"),
        content=holding(steps={"report": {"stepType": "LLM_REPORT", "status": "READY"}}),
        flags=("--step-id", "report"),
    ),
    "mode flag": Wrong(("--charts-api-mode", "real, mock, record"), flags=("--charts-api-mode", "fake")),
    "bucket flag": Wrong(("--charts-bucket", "gs://NAME"), flags=("--charts-bucket", "gs://a/b")),
    "many variables": Wrong(
        (
            "CHARTS_API_MODE: must be one of real, mock, record",
            "CHARTS_BUCKET: must be",
            "CHART_IMG_BASE_URL: must be",
            "CHART_IMG_DAILY_LIMIT: must be",
            "CHART_IMG_REQUESTS_PER_SECOND: must be",
            "CHART_IMG_TIMEOUT_SECONDS: must be",
            "CHARTS_MAX_PARALLEL: must be",
            "CHARTS_MAX_ATTEMPTS: must be",
            "CHARTS_MAX_IMAGE_BYTES: must be",
            "INVOCATION_TIMEOUT_SECONDS: must be",
            "FINALIZE_BUDGET_SECONDS: must be",
            "LOG_LEVEL: must be one of DEBUG, INFO, WARNING, ERROR",
            "CHART_IMG_ACCOUNTS_JSON[0].apiKey: must be",
        ),
        variables={
            "CHARTS_API_MODE": "MOCK",
            "CHARTS_BUCKET": "gs://UPPER",
            "CHART_IMG_BASE_URL": "http://api.chart-img.com",
            "CHART_IMG_DAILY_LIMIT": "-1",
            "CHART_IMG_REQUESTS_PER_SECOND": "0",
            "CHART_IMG_TIMEOUT_SECONDS": "inf",
            "CHARTS_MAX_PARALLEL": "0",
            "CHARTS_MAX_ATTEMPTS": "three",
            "CHARTS_MAX_IMAGE_BYTES": "1e6",
            "INVOCATION_TIMEOUT_SECONDS": "0",
            "FINALIZE_BUDGET_SECONDS": "soon",
            "LOG_LEVEL": "LOUD",
            "CHART_IMG_ACCOUNTS_JSON": '[{"id": "acc1"}]',
        },
    ),
    "number with too many digits": Wrong(
        ("CHART_IMG_DAILY_LIMIT",), variables={"CHART_IMG_DAILY_LIMIT": "9" * 5000}
    ),
    "reserve as long as the whole": Wrong(
        ("FINALIZE_BUDGET_SECONDS", "INVOCATION_TIMEOUT_SECONDS"),
        variables={"FINALIZE_BUDGET_SECONDS": "540"},
    ),
    "real without accounts": Wrong(
        ("CHART_IMG_ACCOUNTS_JSON", "real mode", "apiKey"), variables={"CHARTS_API_MODE": "real"}
    ),
    "record without fixtures-dir": Wrong(
        ("--fixtures-dir", "record"),
        flags=("--charts-api-mode", "record"),
        variables=REAL,
    ),
    "record with ENV=prod": Wrong(
        ("--charts-api-mode", "record", "ENV"),
        flags=("--charts-api-mode", "record", "--fixtures-dir", "."),
        variables={**REAL, "ENV": "prod"},
    ),
    "record into a file": Wrong(
        ("--fixtures-dir", "flow_run.json"),
        flags=("--charts-api-mode", "record", "--fixtures-dir", "flow_run.json"),
        variables=REAL,
    ),
    "accounts file missing": Wrong(
        ("--accounts-config-path nowhere.json", "No such file"), flags=("--accounts-config-path", "nowhere.json")
    ),
    "accounts file nested too deep": Wrong(
        ("--accounts-config-path deep.json", "not JSON"), flags=("--accounts-config-path", "deep.json")
    ),
    "templates folder missing": Wrong(
        ("--templates-dir", "nowhere", "not a folder"), flags=("--templates-dir", "nowhere")
    ),
    "fixtures folder missing": Wrong(
        ("--fixtures-dir", "nowhere", "not a folder"), flags=("--fixtures-dir", "nowhere")
    ),
    "state dir a file": Wrong(
        ("--state-dir", "flow_run.json", "cannot be used"), flags=("--state-dir", "flow_run.json")
    ),
}


@pytest.fixture(scope="module")
def wrong_runs(folder: Path) -> dict[str, Ended]:
    calls = {}
    for name, wrong in WRONG.items():
        here = folder / f"wrong, {name}"
        here.mkdir()
        (here / "deep.json").write_bytes(b"[" * 100_000)
        if wrong.content is not None:
            (here / "flow_run.json").write_bytes(wrong.content)
        flags = ("--flow-run-path", "flow_run.json", "--state-dir", "state", *wrong.flags)
        calls[name] = Call(here, ("run-local", *flags), variables=wrong.variables)
    return call_all(calls)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_exits_2_and_names_what_is_wrong(
    wrong_runs: Mapping[str, Ended], folder: Path, name: str
) -> None:
    ended = wrong_runs[name]
    assert "Traceback" not in ended.stderr
    assert (ended.code, ended.stdout) == (2, "")
    (entry,) = ended.events()
    assert (entry["event"], entry["severity"]) == ("config_error", "ERROR")
    missing = [text for text in WRONG[name].says if not any(text in line for line in ended.problems())]
    assert missing == []
    assert not (folder / f"wrong, {name}" / "state").exists()


def test_a_config_error_has_the_fields_every_entry_has(wrong_runs: Mapping[str, Ended]) -> None:
    (entry,) = wrong_runs["file missing"].events()
    assert entry.keys() >= EVERY_ENTRY


def test_a_wrong_flag_is_named_without_a_traceback(tmp_path: Path) -> None:
    flow_run = ("--flow-run-path", write_flow_run(tmp_path, FIVE_CHARTS))
    calls = {
        "--flow-run-path": Call(tmp_path, ("run-local",)),
        "--output-summary": Call(tmp_path, ("run-local", *flow_run, "--output-summary", "xml")),
        "--surprise": Call(tmp_path, ("run-local", *flow_run, "--surprise")),
    }
    for flag, ended in call_all(calls).items():
        assert (ended.code, ended.stdout) == (2, "")
        assert flag in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_disk_too_full_for_the_document_exits_2_and_names_the_state_directory(tmp_path: Path) -> None:
    document = a_flow_run(padding="x" * 400_000)
    made = run_local(tmp_path, document, command=under_file_limit(300))
    ended = call(tmp_path, *made.arguments, command=made.command)
    assert "Traceback" not in ended.stderr
    assert ended.code == 2
    assert any("state" in line for line in ended.problems())


def test_a_document_that_cannot_be_put_beside_the_artifacts_is_said_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "flow_runs").write_text("in the way")
    made = run_local(tmp_path, a_flow_run())
    ended = call(tmp_path, *made.arguments)
    assert "Traceback" not in ended.stderr
    assert "flow_runs" in ended.stderr
