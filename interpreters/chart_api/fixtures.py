"""Recorded answers of Chart-IMG in a folder (§12.2).

Owns finding, reading and writing them. Must not know when they are wanted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from core.charts.answers import OK, Answer, NoAnswer
from core.charts.naming import error_fixture_status, fixture_key_of, png_fixture_name
from effects import CallChartApi
from interpreters.files import replace_file

ENDPOINT_FOLDER = Path("chart-img", "advanced-chart-v2")


class FixtureFolder:
    """Fixtures below <folder>/chart-img/advanced-chart-v2/."""

    def __init__(self, folder: Path) -> None:
        """Keep fixtures below the folder."""
        self._folder = folder / ENDPOINT_FOLDER

    def keys(self) -> frozenset[str]:
        """Return the keys that have a fixture now, be it a picture or an error."""
        keys = (fixture_key_of(path.name) for path in self._folder.glob("*"))
        return frozenset(key for key in keys if key is not None)

    def ask(self, effect: CallChartApi) -> Answer | NoAnswer:
        """Return the recorded answer; where both exist the picture wins."""
        key = effect.fixture_key or ""
        picture = self._folder / png_fixture_name(key)
        if picture.is_file():
            return Answer(status=OK, body=picture.read_bytes())
        for path in sorted(self._folder.glob("*.json")):
            status = error_fixture_status(path.name, key)
            if status is not None:
                return _error_answer(status, path.read_bytes())
        message = f"no fixture {picture.name} and no {key}__<status>_<ERROR>.json in the fixtures folder"
        return NoAnswer(kind="fixture_missing", message=message)

    def record(self, fixture_name: str, content: bytes) -> None:
        """Keep an answer."""
        replace_file(self._folder / fixture_name, content)


def _error_answer(status: int, recorded: bytes) -> Answer:
    """Read {"status": …, "body": …}; any other content is the body itself."""
    try:
        content = json.loads(recorded)
    except (ValueError, RecursionError):
        return Answer(status=status, body=recorded)
    if isinstance(content, Mapping) and isinstance(content.get("status"), int) and "body" in content:
        body = content["body"]
        return Answer(
            status=content["status"], body=(body if isinstance(body, str) else json.dumps(body)).encode()
        )
    return Answer(status=status, body=recorded)
