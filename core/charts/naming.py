"""Names: of objects in the bucket (§5) and of fixtures (§12.2).

Owns the formulas. Must not know whether anything is stored under a name.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from core.charts.step import ChartStep

_SECOND = "%Y%m%d-%H%M%S"
_MAX_KEY_CHARACTERS = 180
_MAX_ERROR_CHARACTERS = 40
_ERROR_ENDING = r"__([0-9]{3})_[A-Z0-9]+(?:_[A-Z0-9]+)*\.json"


def png_name(step: ChartStep, chart_template_id: str, generated_at: datetime) -> str:
    """Return the object name of a picture that arrived in this second."""
    second = generated_at.astimezone(UTC).strftime(_SECOND)
    return f"{step_folder(step)}{second}{_png_ending(step, chart_template_id)}"


def _png_ending(step: ChartStep, chart_template_id: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9]", "-", step.symbol)
    return f"_{slug}_{step.timeframe}_{chart_template_id}.png"


def png_second(step: ChartStep, chart_template_id: str, name: str) -> datetime | None:
    """Return the second that a picture of this request arrived in, None for any other object name."""
    second = name.removeprefix(step_folder(step)).removesuffix(_png_ending(step, chart_template_id))
    if not re.fullmatch(r"[0-9]{8}-[0-9]{6}", second):
        return None
    try:
        moment = datetime.strptime(second, _SECOND).replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment if png_name(step, chart_template_id, moment) == name else None


def manifest_name(step: ChartStep) -> str:
    """Return the object name of the step's manifest: of run and step alone."""
    return f"{step_folder(step)}manifest.json"


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


def step_folder(step: ChartStep) -> str:
    """Return what the names of all the step's objects begin with."""
    return f"charts/{step.run_id}/{step.step_id}/"
