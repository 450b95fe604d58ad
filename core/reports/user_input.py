"""What the model is told: the prompt's text, then everything generated under `## UserInput` (4.8, 4.12).

Owns the form and the size limits. No templating: the prompt's text is used as it is. Must not read any artifact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.charts.images import png_size
from core.charts.manifest import manifest_problems
from core.problems import Problem, Problems
from core.reports.registry import Prompt
from core.reports.step import ReportStep

MAX_JSON_BYTES = 64 * 1024
MAX_IMAGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class AttachedChart:
    """A picture that goes with the question."""

    chart_template_id: str
    description: str
    uri: str


def json_problems(content: bytes, where: str) -> Problems:
    """Return what keeps an artifact from being shown to the model as JSON."""
    if len(content) > MAX_JSON_BYTES:
        return (Problem(where, f"has {len(content):,} bytes; at most {MAX_JSON_BYTES:,} are shown to the model"),)
    try:
        json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return (Problem(where, "is not JSON in UTF-8"),)
    return ()


def image_problems(content: bytes, where: str) -> Problems:
    """Return what keeps a picture from being attached."""
    if len(content) > MAX_IMAGE_BYTES:
        return (Problem(where, f"has {len(content):,} bytes; at most {MAX_IMAGE_BYTES:,} are attached"),)
    return () if png_size(content) else (Problem(where, "is not a PNG"),)


@lru_cache(maxsize=8)
def charts_of(content: bytes, where: str) -> tuple[tuple[AttachedChart, ...], Problems]:
    """Return the pictures that a manifest names, or everything that is wrong with it."""
    problems = json_problems(content, where)
    if problems:
        return (), problems
    manifest = json.loads(content)
    wrong = tuple(Problem(f"{where}: {one.where}", one.message) for one in manifest_problems(manifest))
    return ((), wrong) if wrong else (tuple(_chart(item) for item in manifest["items"]), ())


def _chart(item: Mapping[str, Any]) -> AttachedChart:
    return AttachedChart(item["chartTemplateId"], item.get("label") or item["kind"], item["png_gcs_uri"])


def user_text(
    prompt: Prompt,
    step: ReportStep,
    candles: bytes,
    charts: Sequence[AttachedChart],
    previous: Sequence[bytes],
) -> str:
    """Return the user content: prompt, scope, candles, list of pictures, previous reports, task."""
    blocks = [
        prompt.user,
        "## UserInput",
        _scope(step),
        f"### Candles ({step.timeframe})\n\nSource: {step.candles}\n\n{_fenced(candles)}",
        _pictures(charts),
        *(
            f"### Previous report: {one.label}\n\nSource: {one.uri}\n\n{_fenced(content)}"
            for one, content in zip(step.previous, previous, strict=True)
        ),
        _task(step),
    ]
    return "\n\n".join(blocks)


def _scope(step: ReportStep) -> str:
    scope = {**step.scope, "timeframe": step.timeframe}
    text = json.dumps(scope, ensure_ascii=False, default=str)
    return f"### Scope\n\n{_fenced(text.encode('utf-8', 'replace'))}"


def _pictures(charts: Sequence[AttachedChart]) -> str:
    lines = [f"{number}. {one.description} ({one.chart_template_id})" for number, one in enumerate(charts, 1)] or [
        "none"
    ]
    return "\n".join(["### Charts, attached as images in this order", "", *lines])


def _task(step: ReportStep) -> str:
    return (
        f"### Task\n\nWrite the report for {step.symbol}, timeframe {step.timeframe}. "
        "Answer with one JSON object that matches the response schema, and with nothing else."
    )


def _fenced(content: bytes) -> str:
    return f"```json\n{content.decode('utf-8').strip()}\n```"


def repair_text(asked: str, answered: str | None, why: str) -> str:
    """Return the user content of the one repair: the question again, the answer, and what is wrong with it."""
    shown = f"\n\nYour answer was:\n\n{answered}" if answered else ""
    return (
        f"{asked}\n\n### Repair\n\nYour previous answer cannot be used: {why}.{shown}\n\n"
        "Answer again: one JSON object that matches the response schema, and nothing else."
    )
