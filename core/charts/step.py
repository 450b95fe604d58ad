"""A CHART_EXPORT step as the worker needs it, parsed from the flow_run (§4).

Owns the validation of a whole step, with all problems at once. Must not know templates or accounts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Result, Success

from core.documents import field
from core.problems import Problem, Problems, collect, document_path, kind_of, problem
from effects import Document

STEP_TYPE = "CHART_EXPORT"

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}_[A-Z0-9]+(?:-[A-Z0-9]+)*_[a-z0-9]{3,6}")
SYMBOL = re.compile(r"[A-Z0-9][A-Z0-9._!-]*")
TIMEFRAME = re.compile(r"[0-9]+[A-Za-z]+")
CHART_TEMPLATE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
MAX_STEP_ID_CHARACTERS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartStep:
    """What is to be drawn."""

    run_id: str
    step_id: str
    symbol: str
    timeframe: str
    min_images: int
    chart_template_ids: tuple[str, ...]


def parse_chart_step(flow_run: Document, step_id: str) -> Result[ChartStep, Problems]:
    """Return the step, or everything that is wrong with it."""
    step = field(flow_run, "steps", step_id)
    here = ("steps", step_id)
    run_id = _text(flow_run.get("runId"), RUN_ID, "runId", "like 20251215-102530_BTCUSDT_k3f7a")
    symbol = _text(field(flow_run, "scope", "symbol"), SYMBOL, "scope.symbol", "like BTCUSDT, without a slash")
    timeframe = _text(field(step, "timeframe"), TIMEFRAME, document_path(*here, "timeframe"), "like 1M, 4h or 1d")
    requests = _requests(field(step, "inputs"), (*here, "inputs"))
    min_images = _min_images(field(step, "inputs"), requests.value_or(None), (*here, "inputs"))
    outputs = _absent_or_object(field(step, "outputs"), document_path(*here, "outputs"))
    problems = collect(run_id, _step_id(step_id), symbol, timeframe, requests, min_images, outputs)
    return (
        Result.from_failure(problems)
        if problems
        else Success(
            ChartStep(
                run_id=run_id.unwrap(),
                step_id=step_id,
                symbol=symbol.unwrap(),
                timeframe=timeframe.unwrap(),
                min_images=min_images.unwrap(),
                chart_template_ids=requests.unwrap(),
            )
        )
    )


def _text(value: object, pattern: re.Pattern[str], where: str, example: str) -> Result[str, Problems]:
    if isinstance(value, str) and pattern.fullmatch(value):
        return Success(value)
    got = f"is {value!r:.80}" if isinstance(value, str) else f"is {_kind(value)}"
    return problem(where, f"{got}; must be a string {example} ({pattern.pattern})")


def _step_id(step_id: str) -> Result[str, Problems]:
    wrong = (
        step_id in {"", "."}
        or "/" in step_id
        or ".." in step_id
        or len(step_id) > MAX_STEP_ID_CHARACTERS
        or any(unicodedata.category(character) in {"Cc", "Cs"} for character in step_id)
    )
    message = (
        f"step id must have 1 to {MAX_STEP_ID_CHARACTERS} characters, without '/', '..' or control characters"
    )
    return (
        problem(document_path("steps", step_id[:MAX_STEP_ID_CHARACTERS]), message) if wrong else Success(step_id)
    )


def _absent_or_object(value: object, where: str) -> Result[None, Problems]:
    if value is None or isinstance(value, Mapping):
        return Success(None)
    return problem(where, f"is {kind_of(value)} ({value!r:.80}); must be an object or absent")


def _requests(inputs: Any, here: tuple[str, ...]) -> Result[tuple[str, ...], Problems]:
    if not isinstance(inputs, Mapping):
        return problem(document_path(*here), f"is {_kind(inputs)}; must be an object with requests and minImages")
    requests = inputs.get("requests")
    where = document_path(*here, "requests")
    if requests is None and "chartTemplateId" in inputs:
        return problem(
            document_path(*here, "chartTemplateId"),
            'the short form is not accepted; write "requests": [{"chartTemplateId": "…"}]',
        )
    if not isinstance(requests, list) or not requests:
        got = "is empty" if requests == [] else f"is {_kind(requests)}"
        return problem(where, f'{got}; must be a list with at least one {{"chartTemplateId": "…"}}')
    ids = [_chart_template_id(request, document_path(*here, "requests", i)) for i, request in enumerate(requests)]
    found = (*collect(*ids), *_repeated([one.value_or(None) for one in ids], here))
    return Result.from_failure(found) if found else Success(tuple(one.unwrap() for one in ids))


def _chart_template_id(request: object, where: str) -> Result[str, Problems]:
    if not isinstance(request, Mapping):
        return problem(where, f'is {kind_of(request)}; must be an object {{"chartTemplateId": "…"}}')
    return _text(
        request.get("chartTemplateId"),
        CHART_TEMPLATE_ID,
        f"{where}.chartTemplateId",
        "like ctpl_price_psar_adi_v1",
    )


def _repeated(ids: list[str | None], here: tuple[str, ...]) -> Problems:
    return tuple(
        Problem(document_path(*here, "requests", i, "chartTemplateId"), f"{one!r} stands here twice; name it once")
        for i, one in enumerate(ids)
        if one is not None and one in ids[:i]
    )


def _min_images(
    inputs: Any, chart_template_ids: tuple[str, ...] | None, here: tuple[str, ...]
) -> Result[int, Problems]:
    if not isinstance(inputs, Mapping):
        return Success(0)
    value = inputs.get("minImages")
    where = document_path(*here, "minImages")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        got = f"is {value}" if isinstance(value, int | float) else f"is {_kind(value)}"
        return problem(where, f"{got}; must be an integer >= 0")
    if chart_template_ids is not None and value > len(chart_template_ids):
        return problem(where, f"is {value}, more than the {len(chart_template_ids)} requests")
    return Success(value)


def _kind(value: object) -> str:
    return "missing" if value is None else kind_of(value)
