"""Names: of objects in the bucket (§5) and of fixtures (§12.2).

Owns the formulas. Must not know whether anything is stored under a name.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from core.charts.step import ChartStep

_MAX_KEY_CHARACTERS = 180
_MAX_ERROR_CHARACTERS = 40
_ERROR_ENDING = r"__([0-9]{3})_[A-Z0-9]+(?:_[A-Z0-9]+)*\.json"


def png_name(step: ChartStep, chart_template_id: str, generated_at: datetime) -> str:
    """Return the object name of a picture that arrived in this second."""
    second = generated_at.astimezone(UTC).strftime("%Y%m%d-%H%M%S")
    slug = re.sub(r"[^A-Za-z0-9]", "-", step.symbol)
    return f"{_folder(step)}/{second}_{slug}_{step.timeframe}_{chart_template_id}.png"


def manifest_name(step: ChartStep) -> str:
    """Return the object name of the step's manifest: of run and step alone."""
    return f"{_folder(step)}/manifest.json"


def object_uri(bucket: str, name: str) -> str:
    """Return the gs:// URI of an object."""
    return f"gs://{bucket}/{name}"


def fixture_key(chart_img_symbol: str, timeframe: str, chart_template_id: str) -> str:
    """Return the file name, without ending, of the fixtures of a request; bounded and safe as a file name."""
    key = re.sub(r"[^A-Za-z0-9._!-]", "_", f"{chart_img_symbol}__{timeframe}__{chart_template_id}")
    if len(key) <= _MAX_KEY_CHARACTERS and not key.startswith("."):
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return f"{key[: _MAX_KEY_CHARACTERS - 20].lstrip('.')}__{digest}"


def png_fixture_name(key: str) -> str:
    """Return the file name of a fixture that answers with a picture."""
    return f"{key}.png"


def error_fixture_name(key: str, http_status: int, message: str) -> str:
    """Return the file name of a fixture that answers with an error, e.g. …__429_LIMIT_EXCEEDED.json."""
    words = re.sub(r"[^A-Z0-9]+", "_", message.upper())[:_MAX_ERROR_CHARACTERS].strip("_")
    return f"{key}__{http_status:03}_{words or 'ERROR'}.json"


def fixture_key_of(name: str) -> str | None:
    """Return the key that a fixture's file name stands for, None for any other file name."""
    found = re.fullmatch(r"(.+)(?:\.png|" + _ERROR_ENDING + ")", name)
    return found[1] if found else None


def error_fixture_status(name: str, key: str) -> int | None:
    """Return the HTTP status that an error fixture of this key stands for, None for any other file name."""
    found = re.fullmatch(re.escape(key) + _ERROR_ENDING, name)
    return int(found[1]) if found else None


def _folder(step: ChartStep) -> str:
    return f"charts/{step.run_id}/{step.step_id}"
