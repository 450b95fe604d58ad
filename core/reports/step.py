"""An LLM_REPORT step as the worker needs it, parsed from the flow_run (4.3, 4.4).

Owns the validation of a whole step, with all problems at once and the code that they earn. Must not read any artifact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Failure, Result, Success

from core.documents import field
from core.failures import FLOW_RUN_INVALID, INVALID_STEP_INPUTS, LLM_PROFILE_INVALID, invalid
from core.flow.flow_run import is_usable_id
from core.problems import Problem, Problems, collect, document_path, kind_or_missing, problem
from core.reports.profile import Profile, parse_profile
from core.reports.references import (
    GcsUri,
    PreviousReport,
    candles_uri,
    manifest_uri,
    previous_reports,
)
from effects import Document, StepError

_TIMEFRAME = re.compile(r"[0-9]+[A-Za-z]+")
_PROMPT_ID = re.compile(r"[^/\x00-\x1f]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStep:
    """What is to be written."""

    run_id: str
    step_id: str
    symbol: str
    timeframe: str
    scope: Mapping[str, Any]
    prompt_id: str
    profile: Profile
    candles: GcsUri
    manifest: GcsUri
    previous: tuple[PreviousReport, ...]


def parse_report_step(
    flow_run: Document, run_id: str, step_id: str, allowed_models: Collection[str] | None
) -> Result[ReportStep, StepError]:
    """Return the step, or the error that names everything that is wrong with it."""
    step = field(flow_run, "steps", step_id)
    inputs = field(step, "inputs")
    where = document_path("steps", step_id, "inputs")
    own_step_id = _step_id(step_id)
    own_id = _run_id(flow_run.get("runId"), run_id)
    profile = parse_profile(field(inputs, "llm", "llmProfile"), f"{where}.llm.llmProfile", allowed_models)
    symbol = _text(field(flow_run, "scope", "symbol"), re.compile(r"\S{1,64}"), "scope.symbol", "like BTCUSDT")
    timeframe = _text(
        field(step, "timeframe"), _TIMEFRAME, document_path("steps", step_id, "timeframe"), "like 1M, 4h or 1d"
    )
    prompt_id = _text(field(inputs, "llm", "promptId"), _PROMPT_ID, f"{where}.llm.promptId", "that names a prompt")
    given = inputs if isinstance(inputs, Mapping) else {}
    candles, manifest = candles_uri(flow_run, given, where), manifest_uri(flow_run, given, where)
    previous = previous_reports(flow_run, given, where)
    depends_on = _depends_on(flow_run, step_id)
    own = (own_step_id, symbol, timeframe, prompt_id, candles, manifest, previous, depends_on)
    error = _error(collect(own_id), collect(*own), collect(profile))
    if error is not None:
        return Failure(error)
    return Success(
        ReportStep(
            run_id=run_id,
            step_id=step_id,
            symbol=symbol.unwrap(),
            timeframe=timeframe.unwrap(),
            scope=flow_run["scope"],
            prompt_id=prompt_id.unwrap(),
            profile=profile.unwrap(),
            candles=candles.unwrap(),
            manifest=manifest.unwrap(),
            previous=previous.unwrap(),
        )
    )


def _error(run: Problems, inputs: Problems, profile: Problems) -> StepError | None:
    """Return one error for all problems, with the code of the first kind there is."""
    kinds = ((FLOW_RUN_INVALID, run), (INVALID_STEP_INPUTS, inputs), (LLM_PROFILE_INVALID, profile))
    code = next((code for code, problems in kinds if problems), None)
    return None if code is None else invalid("the step's input is not valid", (*run, *inputs, *profile), code)


def _run_id(value: object, run_id: str) -> Result[str, Problems]:
    if value == run_id:
        return Success(run_id)
    return problem("runId", f"is {value!r:.80}; must be the document's id, {run_id}")


def _step_id(step_id: str) -> Result[str, Problems]:
    if is_usable_id(step_id):
        return Success(step_id)
    return problem(document_path("steps", step_id[:200]), "the step id must be fit to name an object (4.17)")


def _text(value: object, pattern: re.Pattern[str], where: str, example: str) -> Result[str, Problems]:
    if isinstance(value, str) and pattern.fullmatch(value):
        return Success(value)
    got = f"is {value!r:.80}" if isinstance(value, str) else f"is {kind_or_missing(value)}"
    return problem(where, f"{got}; must be a string {example}")


def _depends_on(flow_run: Document, step_id: str) -> Result[None, Problems]:
    steps = flow_run["steps"]
    depends_on = steps[step_id].get("dependsOn") or ()
    where = document_path("steps", step_id, "dependsOn")
    if not isinstance(depends_on, list | tuple):
        return problem(where, "must be a list of step ids")
    unknown = tuple(
        Problem(f"{where}[{number}]", f"there is no step {one!r:.120}")
        for number, one in enumerate(depends_on)
        if not isinstance(one, str) or one not in steps
    )
    return Result.from_failure(unknown) if unknown else Success(None)
