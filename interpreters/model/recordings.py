"""Recorded answers of a language model in a folder.

Owns finding, reading and writing them. Must not know when they are wanted.
"""

from __future__ import annotations

import json
from pathlib import Path

from core.documents import field
from core.reports.answers import NoReply, Reply
from core.reports.naming import answer_fixture_name, fixture_key_of, refusal_status
from effects import CallModel
from interpreters.files import replace_file

PROVIDER_FOLDER = Path("gemini")


class RecordingFolder:
    """Recordings below <folder>/gemini/."""

    def __init__(self, folder: Path) -> None:
        """Keep recordings below the folder."""
        self._folder = folder / PROVIDER_FOLDER

    def keys(self) -> frozenset[str]:
        """Return the keys that have a recording now, be it an answer or a refusal."""
        keys = (fixture_key_of(path.name) for path in self._folder.glob("*"))
        return frozenset(key for key in keys if key is not None)

    def ask(self, effect: CallModel) -> Reply | NoReply:
        """Return the recorded reply; where both exist the answer wins."""
        key = effect.fixture_key or ""
        answer = self._folder / answer_fixture_name(key)
        if answer.is_file():
            return Reply(answer.read_bytes())
        for path in sorted(self._folder.glob("*.json")):
            status = refusal_status(path.name, key)
            if status is not None:
                return _refusal(status, path.read_bytes())
        message = f"no recording {answer.name} and no {key}__<status>_<ERROR>.json in the recordings folder"
        return NoReply(kind="fixture_missing", message=message)

    def record(self, fixture_name: str, content: bytes) -> None:
        """Keep a reply."""
        replace_file(self._folder / fixture_name, content)


def _refusal(http_status: int, recorded: bytes) -> NoReply:
    try:
        error = field(json.loads(recorded), "error")
    except (ValueError, RecursionError):
        error = None
    status, message = field(error, "status"), field(error, "message")
    return NoReply(
        kind="http",
        http_status=http_status,
        status=status if isinstance(status, str) else None,
        message=message if isinstance(message, str) else "a recorded refusal",
    )
