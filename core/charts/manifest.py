"""The ChartsOutputsManifest (§6): what was asked for, what came, and what did not.

Owns its form, and the check of a manifest against the schema. Must not know how pictures came about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core.charts.step import ChartStep
from core.failures import error_document
from core.problems import Problem, Problems, document_path
from core.schemas import charts_outputs_manifest
from effects import StepError
from effects.moments import floor_second, parse_moment, rfc3339

SCHEMA_VERSION = 1
_IDENTITY = ("schemaVersion", "runId", "stepId", "symbol", "timeframe", "minImages", "requested")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestItem:
    """One picture."""

    chart_template_id: str
    kind: str
    generated_at: datetime
    png_gcs_uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFailure:
    """One request without a picture."""

    chart_template_id: str
    error: StepError


def build_manifest(
    step: ChartStep,
    items: Sequence[ManifestItem],
    failures: Sequence[ManifestFailure],
    created_at: datetime,
) -> dict[str, Any]:
    """Return the manifest as JSON."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "runId": step.run_id,
        "stepId": step.step_id,
        "createdAt": rfc3339(created_at),
        "symbol": step.symbol,
        "timeframe": step.timeframe,
        "minImages": step.min_images,
        "requested": [_request(one) for one in step.chart_template_ids],
        "items": [_item(one) for one in items],
        "failures": [_failure(one) for one in failures],
    }


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the manifest as the bytes that are stored."""
    return (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def manifest_problems(document: object) -> Problems:
    """Return everything that keeps the document from being a ChartsOutputsManifest."""
    errors = sorted(charts_outputs_manifest().iter_errors(document), key=lambda error: str(error.path))
    return tuple(Problem(document_path(*error.absolute_path) or "(top)", error.message) for error in errors)


def fitting_manifest(content: bytes, step: ChartStep, since: datetime) -> Mapping[str, Any] | None:
    """Return the manifest if it is of this step as it is now, not of a second before this, and has enough pictures."""
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if manifest_problems(manifest):
        return None
    created_at = parse_moment(manifest["createdAt"])
    expected = build_manifest(step, (), (), since)
    is_of_this_step = all(manifest[key] == expected[key] for key in _IDENTITY)
    drawn = {item["chartTemplateId"] for item in manifest["items"]}.intersection(step.chart_template_ids)
    is_enough = len(drawn) >= step.min_images
    is_young = created_at is not None and created_at >= floor_second(since)
    return manifest if is_of_this_step and is_enough and is_young else None


def _request(chart_template_id: str) -> dict[str, str]:
    return {"chartTemplateId": chart_template_id}


def _item(item: ManifestItem) -> dict[str, Any]:
    return {
        "chartTemplateId": item.chart_template_id,
        "kind": item.kind,
        "generatedAt": rfc3339(item.generated_at),
        "png_gcs_uri": item.png_gcs_uri,
    }


def _failure(failure: ManifestFailure) -> dict[str, Any]:
    return {"request": _request(failure.chart_template_id), "error": error_document(failure.error)}
