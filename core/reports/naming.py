"""Names of recorded answers: of what was asked, and of nothing that changes from run to run.

Owns the formulas, both ways. Must not know whether anything is recorded under a name.
"""

from __future__ import annotations

import hashlib
import re

from core.reports.step import ReportStep
from effects import ModelCallPurpose

_MAX_KEY_CHARACTERS = 180
_REFUSAL_ENDING = r"__([0-9]{3})_[A-Z0-9_]+\.json"


def fixture_key(step: ReportStep, purpose: ModelCallPurpose) -> str:
    """Return the file name, without ending, of the recording of a call; bounded and safe as a file name."""
    words = [step.symbol, step.timeframe, step.prompt_id, step.profile.model, step.profile.schema_id]
    key = re.sub(r"[^A-Za-z0-9._-]", "_", "__".join([*words, *(["repair"] if purpose == "repair" else [])]))
    if len(key) <= _MAX_KEY_CHARACTERS and not key.startswith("."):
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"{key[: _MAX_KEY_CHARACTERS - 20].lstrip('.')}__{digest}"


def answer_fixture_name(key: str) -> str:
    """Return the file name of a recording that answers."""
    return f"{key}.json"


def refusal_fixture_name(key: str, http_status: int, status: str | None) -> str:
    """Return the file name of a recording that refuses, e.g. …__429_RESOURCE_EXHAUSTED.json."""
    words = re.sub(r"[^A-Z0-9]+", "_", (status or "").upper())[:40].strip("_")
    return f"{key}__{http_status:03}_{words or 'ERROR'}.json"


def fixture_key_of(name: str) -> str | None:
    """Return the key that a recording's file name stands for, None for any other file name."""
    refused = re.fullmatch(r"(.+)" + _REFUSAL_ENDING, name)
    if refused:
        return refused[1]
    return name.removesuffix(".json") if name.endswith(".json") else None


def refusal_status(name: str, key: str) -> int | None:
    """Return the HTTP status that a recorded refusal of this key stands for, None for any other file name."""
    found = re.fullmatch(re.escape(key) + _REFUSAL_ENDING, name)
    return int(found[1]) if found else None
