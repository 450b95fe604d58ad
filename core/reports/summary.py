"""The summary of a report run, for people and for machines.

Owns both forms. Must not print.
"""

from __future__ import annotations

from typing import Any

from core.reports.state import ReportResult


def text_summary(result: ReportResult) -> str:
    """Return the one line that says how it went."""
    if result.status == "NOOP":
        return f"LLM_REPORT NOOP: {result.noop_reason}"
    parts = [
        f"report={result.report_uri or 'none'}",
        f"calls={result.attempts}",
        *(["reused"] if result.is_reused else []),
        *([f"error={result.error.code}"] if result.error else []),
    ]
    return f"LLM_REPORT {result.status}: {', '.join(parts)}"


def json_summary(result: ReportResult, run_id: str, mode: str) -> dict[str, Any]:
    """Return the same as one JSON object."""
    return {
        "status": result.status,
        "runId": run_id,
        "stepId": result.step_id,
        "reportGcsUri": result.report_uri,
        "attempts": result.attempts,
        "reused": result.is_reused,
        "llmApiMode": mode,
        "errorCode": result.error.code if result.error else None,
        "noopReason": result.noop_reason,
    }
