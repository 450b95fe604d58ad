"""The summary of a run, for people and for machines (§12.1).

Owns both forms. Must not print.
"""

from __future__ import annotations

from typing import Any

from core.charts.state import StepResult


def text_summary(result: StepResult) -> str:
    """Return the one line that says how it went."""
    if result.status == "NOOP":
        return f"CHART_EXPORT NOOP: {result.noop_reason}"
    parts = [
        f"manifest={result.manifest_uri or 'none'}",
        f"items={result.items_count}",
        f"failures={result.failures_count}",
        f"minImages={'unknown' if result.min_images is None else result.min_images}",
        *([f"error={result.error.code}"] if result.error else []),
    ]
    return f"CHART_EXPORT {result.status}: {', '.join(parts)}"


def json_summary(result: StepResult, run_id: str, mode: str) -> dict[str, Any]:
    """Return the same as one JSON object."""
    return {
        "status": result.status,
        "runId": run_id,
        "stepId": result.step_id,
        "outputsManifestGcsUri": result.manifest_uri,
        "itemsCount": result.items_count,
        "failuresCount": result.failures_count,
        "minImages": result.min_images,
        "chartsApiMode": mode,
        "errorCode": result.error.code if result.error else None,
        "noopReason": result.noop_reason,
    }
