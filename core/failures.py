"""The error model: codes, and errors that stay within their bounds (§8).

Owns the codes and the cutting of messages and details. Must not know who fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.problems import Problem
from effects import StepError

VALIDATION_FAILED = "VALIDATION_FAILED"
CHART_API_FAILED = "CHART_API_FAILED"
CHART_API_LIMIT_EXCEEDED = "CHART_API_LIMIT_EXCEEDED"
CHART_API_MOCK_MISSING = "CHART_API_MOCK_MISSING"
GCS_WRITE_FAILED = "GCS_WRITE_FAILED"
MANIFEST_WRITE_FAILED = "MANIFEST_WRITE_FAILED"
TIME_BUDGET_EXCEEDED = "TIME_BUDGET_EXCEEDED"
INTERNAL_ERROR = "INTERNAL_ERROR"
GCS_READ_FAILED = "GCS_READ_FAILED"
FLOW_RUN_INVALID = "FLOW_RUN_INVALID"
DEPENDENCY_UNSATISFIABLE = "DEPENDENCY_UNSATISFIABLE"
STEP_ABANDONED = "STEP_ABANDONED"
STEP_FAILED = "STEP_FAILED"
INVALID_STEP_INPUTS = "INVALID_STEP_INPUTS"
LLM_PROFILE_INVALID = "LLM_PROFILE_INVALID"
PROMPT_NOT_FOUND = "PROMPT_NOT_FOUND"
LLM_SAFETY_BLOCK = "LLM_SAFETY_BLOCK"
INVALID_STRUCTURED_OUTPUT = "INVALID_STRUCTURED_OUTPUT"
GEMINI_REQUEST_FAILED = "GEMINI_REQUEST_FAILED"
RATE_LIMITED = "RATE_LIMITED"

MAX_MESSAGE_CHARACTERS = 1_000
MAX_DETAILS_BYTES = 8 * 1024


def step_error(code: str, message: str, details: Mapping[str, Any] | None = None) -> StepError:
    """Return an error whose message and details are within their bounds."""
    return StepError(code=code, message=cut(message, MAX_MESSAGE_CHARACTERS), details=_bounded(details))


def invalid(subject: str, problems: Sequence[Problem], code: str = VALIDATION_FAILED) -> StepError:
    """Return the error that lists all problems."""
    listed = "; ".join(str(problem) for problem in problems)
    rows = [{"path": problem.where, "message": problem.message} for problem in problems]
    return step_error(code, f"{subject}: {listed}", {"problems": rows})


def error_document(error: StepError) -> dict[str, Any]:
    """Return the error as documents and manifests hold it: no `details` where there are none."""
    details = {} if error.details is None else {"details": error.details}
    return {"code": error.code, "message": error.message, **details}


def cut(text: str, length: int) -> str:
    """Return the text fit to be stored, with an ellipsis for its end where it is longer than allowed."""
    text = encodable(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def encodable(text: str) -> str:
    """Return the text with whatever UTF-8 has no form for (half a surrogate pair) as a question mark."""
    return text.encode("utf-8", "replace").decode()


def _bounded(details: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if details is None else _shortened(details)


def _shortened(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Halve the longest list until the details fit; without a list, keep only their size."""
    size = _size(details)
    if size <= MAX_DETAILS_BYTES:
        return details
    lists = {key: value for key, value in details.items() if isinstance(value, list) and value}
    if not lists:
        return {"omitted": f"{size} bytes of details"}
    longest = max(lists, key=lambda key: len(lists[key]))
    half = lists[longest][: len(lists[longest]) // 2]
    return _shortened({**details, longest: half, "truncated": True})


def _size(details: Mapping[str, Any]) -> int:
    return len(json.dumps(details, default=str).encode())
