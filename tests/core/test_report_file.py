from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.reports.output import Answer
from core.reports.report_file import build_report, encode_report, facts_of, report_problems
from effects.moments import parse_moment
from tests.builders import NOW, RUN_ID
from tests.report_world import (
    CANDLES_NAME,
    MANIFEST_NAME,
    OLD_ID,
    OLD_NAME,
    PROMPT_ID,
    REPORT_ID,
    SCHEMA_ID,
    a_good_output,
    a_profile,
    a_report_file,
    changed_step,
    parsed_step,
    report_bytes,
    report_inputs,
    uri_of,
)

ANSWER = Answer(text=None, finish_reason="STOP", block_reason=None, model_version="m-001", usage={"n": 1})
STEP = parsed_step(changed_step(inputs=report_inputs(previousReportStepIds=[OLD_ID])))
LATER = NOW + timedelta(seconds=40)


def test_4_15_a_report_has_everything_of_the_contract() -> None:
    assert build_report(STEP, "hash", ANSWER, a_good_output(), NOW, LATER) == {
        "metadata": {
            "schemaVersion": 1,
            "runId": RUN_ID,
            "stepId": REPORT_ID,
            "createdAt": "2025-12-15T10:25:30Z",
            "finishedAt": "2025-12-15T10:26:10Z",
            "symbol": "BTCUSDT",
            "timeframe": "1M",
            "llm": {
                "promptId": PROMPT_ID,
                "modelName": "gemini-2.5-pro",
                "schemaId": SCHEMA_ID,
                "schemaSha256": "hash",
                "llmProfile": a_profile(),
                "modelVersion": "m-001",
                "finishReason": "STOP",
                "usageMetadata": {"n": 1},
            },
            "inputs": {
                "ohlcv_gcs_uri": uri_of(CANDLES_NAME),
                "charts_outputsManifestGcsUri": uri_of(MANIFEST_NAME),
                "report_gcs_uris": [uri_of(OLD_NAME)],
            },
        },
        "output": a_good_output(),
    }


@pytest.mark.parametrize("answer", [ANSWER, replace(ANSWER, finish_reason=None, model_version=None, usage=None)])
def test_4_15_a_report_conforms_to_its_schema(answer: Answer) -> None:
    report = build_report(STEP, "hash", answer, a_good_output(), NOW, LATER)
    assert report_problems(json.loads(encode_report(report))) == ()


def test_4_15_the_bytes_of_a_report_are_stable_and_readable() -> None:
    report = build_report(STEP, "hash", ANSWER, {**a_good_output(), "ä": "\ud800"}, NOW, LATER)
    content = encode_report(report)
    assert content == encode_report(json.loads(content))
    assert content.startswith(b'{\n  "metadata": {\n')
    assert content.endswith(b"}\n")
    assert "ä".encode() in content


@pytest.mark.parametrize("name", sorted(a_report_file()["metadata"]))
def test_4_15_no_field_of_the_metadata_may_be_missing(name: str) -> None:
    report = a_report_file()
    del report["metadata"][name]
    assert [one.where for one in report_problems(report)] == ["metadata"]
    assert facts_of(json.dumps(report).encode(), RUN_ID, REPORT_ID) is None


def test_what_a_stored_report_says_of_its_execution() -> None:
    facts = facts_of(report_bytes(), RUN_ID, REPORT_ID)
    assert facts is not None
    assert (facts.finish_reason, facts.model_version) == ("STOP", "gemini-2.5-pro-001")
    assert facts.usage == {"totalTokenCount": 7}
    assert facts.started_at == parse_moment("2025-12-15T10:00:00Z")
    assert facts.finished_at == parse_moment("2025-12-15T10:00:40Z")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff",
        b"{}",
        b"null",
        report_bytes(runId="another"),
        report_bytes(stepId="another"),
        report_bytes(createdAt="some day"),
        report_bytes(finishedAt="0001-01-01T00:00:00+14:00"),
        report_bytes(createdAt="0001-01-01T00:00:00+14:00"),
    ],
)
def test_4_33_what_is_no_report_of_this_run_and_step_is_not_taken_for_one(content: bytes) -> None:
    assert facts_of(content, RUN_ID, REPORT_ID) is None


@pytest.mark.parametrize("document", [None, 7, [], {"metadata": 7, "output": {}}])
def test_whatever_is_no_report_has_problems(document: Any) -> None:
    assert report_problems(document)
