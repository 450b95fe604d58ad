"""The report file: worker-owned `metadata` and model-owned `output` (4.15).

Owns its form, both ways. Must not know how the output came about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core.problems import Problem, Problems, document_path
from core.reports.output import Answer
from core.reports.step import ReportStep
from core.schemas import llm_report_file
from effects.moments import parse_moment, rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """What a report's execution is described by, in the step's outputs."""

    finish_reason: str | None
    model_version: str | None
    usage: Mapping[str, Any] | None
    started_at: datetime
    finished_at: datetime


def build_report(
    step: ReportStep,
    schema_sha256: str,
    answer: Answer,
    output: Mapping[str, Any],
    created_at: datetime,
    finished_at: datetime,
) -> dict[str, Any]:
    """Return the report as JSON."""
    return {
        "metadata": {
            "schemaVersion": step.profile.schema_version,
            "runId": step.run_id,
            "stepId": step.step_id,
            "createdAt": rfc3339(created_at),
            "finishedAt": rfc3339(finished_at),
            "symbol": step.symbol,
            "timeframe": step.timeframe,
            "llm": {
                "promptId": step.prompt_id,
                "modelName": step.profile.model,
                "schemaId": step.profile.schema_id,
                "schemaSha256": schema_sha256,
                "llmProfile": dict(step.profile.raw),
                "modelVersion": answer.model_version,
                "finishReason": answer.finish_reason,
                "usageMetadata": answer.usage,
            },
            "inputs": {
                "ohlcv_gcs_uri": str(step.candles),
                "charts_outputsManifestGcsUri": str(step.manifest),
                "report_gcs_uris": [str(one.uri) for one in step.previous],
            },
        },
        "output": dict(output),
    }


def encode_report(report: Mapping[str, Any]) -> bytes:
    """Return the report as the bytes that are stored."""
    text = json.dumps(report, indent=2, ensure_ascii=False, default=str)
    return (text + "\n").encode("utf-8", "backslashreplace")


def report_problems(document: object) -> Problems:
    """Return everything that keeps the document from being a report file."""
    errors = sorted(llm_report_file().iter_errors(document), key=lambda error: str(error.path))
    return tuple(Problem(document_path(*error.absolute_path) or "(top)", error.message) for error in errors)


def facts_of(content: bytes, run_id: str, step_id: str) -> ReportFacts | None:
    """Return what a stored report says of its execution, None where it is no report of this run and step."""
    try:
        report = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if report_problems(report):
        return None
    metadata = report["metadata"]
    if (metadata["runId"], metadata["stepId"]) != (run_id, step_id):
        return None
    llm = metadata["llm"]
    started_at, finished_at = parse_moment(metadata["createdAt"]), parse_moment(metadata["finishedAt"])
    if started_at is None or finished_at is None:
        return None
    return ReportFacts(
        finish_reason=llm.get("finishReason"),
        model_version=llm.get("modelVersion"),
        usage=llm.get("usageMetadata"),
        started_at=started_at,
        finished_at=finished_at,
    )
