"""The flow_run document as a whole: what it must have for anyone to work on it.

Owns the checks that stand before any claim. Must not judge single steps: a wrong step ends as FAILED in the document.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from returns.result import Result, Success

from core.problems import Problem, Problems, kind_of
from effects import Document

FLOW_RUNS_COLLECTION = "flow_runs"
_MAX_ID_BYTES = 200


def parse_flow_run(value: object) -> Result[Document, Problems]:
    """Return the document, or everything that makes it unusable."""
    if not isinstance(value, Mapping):
        return Result.from_failure((Problem("(top)", f"is {kind_of(value)}; must be a flow_run object"),))
    run_id, steps = value.get("runId"), value.get("steps")
    problems = tuple(
        Problem(where, must)
        for where, is_right, must in (
            ("runId", is_usable_id(run_id), "must be a string like 20251215-102530_BTCUSDT_k3f7a"),
            ("steps", isinstance(steps, Mapping), f"is {kind_of(steps)}; must be an object of step id to step"),
        )
        if not is_right
    )
    return Result.from_failure(problems) if problems else Success(value)


def is_usable_id(value: object) -> bool:
    """Return whether the value can name a document and a file."""
    return (
        isinstance(value, str)
        and 0 < len(value.encode(errors="surrogatepass")) <= _MAX_ID_BYTES
        and not re.search(r"/|\\|^\.", value)
        and not any(unicodedata.category(character) in {"Cc", "Cs"} for character in value)
    )


def flow_run_path(run_id: str, collection: str = FLOW_RUNS_COLLECTION) -> str:
    """Return the path of a flow_run document."""
    return f"{collection}/{run_id}"
