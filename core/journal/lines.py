"""The lines of a journal: JSON, one object a line, in the order things happened.

    {"run": "3f9a…", "journal": 1, "program": "chart-export", "texts": false, "inputs": {…}}
    {"run": "3f9a…", "begun": 1, "effect": {"effect": "ClaimStep", …}}
    {"run": "3f9a…", "done": 1, "outcome": {"outcome": "StepClaimed", …}}
    {"run": "3f9a…", "aborted": "KeyboardInterrupt"}
    {"run": "3f9a…", "ended": {…}}

Owns the writing of each line. Runs side by side may share a file: every line names its run. Must not know where lines go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from core.journal.blobs import read_blob, show_blob, show_text
from core.journal.kinds import InputsT, Kind, StateT
from effects import CallModel, Effect, EffectFailed, LoadPrompt, Outcome, SchemaLoaded
from effects.encoding import Encoding

FORMAT = 1
"""Version of the format."""
WITHHELD = "withheld: it may quote a text"

WITHOUT_TEXTS = Encoding(show_blob, read_blob)
WITH_TEXTS = Encoding(show_text, read_blob)


@dataclass(frozen=True, slots=True)
class Pen:
    """Writes the lines of one run."""

    run: str
    """Names the run in every line."""
    texts: bool
    """Prompts, answers and artifacts are kept, not only their sizes and hashes."""

    def header(self, kind: Kind[InputsT, StateT], inputs: InputsT) -> str:
        """Return the first line: which program, and what it was given."""
        said = {"journal": FORMAT, "program": kind.name, "texts": self.texts}
        return self._line(**said, inputs=self._encoding(self.texts).value(inputs))

    def begun(self, number: int, effect: Effect) -> str:
        """Return the line of an effect that begins."""
        return self._line(begun=number, effect=self._encoding(self.texts).effect(effect))

    def done(self, number: int, outcome: Outcome) -> str:
        """Return the line of an outcome; a schema is no text, and calls show it anyway."""
        if isinstance(outcome, EffectFailed) and not self.texts:
            outcome = _without_quotation(outcome)
        encoding = self._encoding(self.texts or isinstance(outcome, SchemaLoaded))
        return self._line(done=number, outcome=encoding.outcome(outcome))

    def aborted(self, error_type: str) -> str:
        """Return the line of a program that broke, or was interrupted."""
        return self._line(aborted=error_type)

    def ended(self, kind: Kind[InputsT, StateT], state: StateT) -> str:
        """Return the last line: what came of the run."""
        return self._line(ended=encoded_result(kind, state))

    def _encoding(self, texts: bool) -> Encoding:  # noqa: FBT001
        return WITH_TEXTS if texts else WITHOUT_TEXTS

    def _line(self, **said: Any) -> str:
        return _json({"run": self.run, **said})


def encoded_result(kind: Kind[Any, StateT], state: StateT) -> Any:
    """Return what came of a run, as JSON."""
    return WITHOUT_TEXTS.value(kind.result(state))


def as_read(value: Any) -> Any:
    """Return what is read where the value was written."""
    return json.loads(_json(value))


def _json(value: Any) -> str:
    """Return JSON of one line; what JSON has no form for, and a document may hold all the same, as text."""
    return json.dumps(value, default=str)


def _without_quotation(outcome: EffectFailed) -> EffectFailed:
    """Return the outcome without what the exception said, where that can be a part of a prompt or an answer."""
    return replace(outcome, message=WITHHELD) if isinstance(outcome.effect, CallModel | LoadPrompt) else outcome
