"""The language model: from recordings, over the network, or first the one and then the other.

Owns the choice the effect already made: `replay` asks the recordings, everything else goes to the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from core.reports.answers import NoReply, Reply
from effects import CallModel
from interpreters.model.recordings import RecordingFolder


class Asks(Protocol):
    """Whoever can be asked."""

    def ask(self, effect: CallModel) -> Reply | NoReply:
        """Return the reply to one call."""


class RecordingsOrModel:
    """The model of every mode: mock replays all, real none, record what existed when the run began."""

    def __init__(self, recordings: RecordingFolder, model: Callable[[], Asks]) -> None:
        """Ask these two; the model's client is made at its first use."""
        self._recordings = recordings
        self._model = model

    def ask(self, effect: CallModel) -> Reply | NoReply:
        """Return the reply to one call."""
        return self._recordings.ask(effect) if effect.replay else self._model().ask(effect)
