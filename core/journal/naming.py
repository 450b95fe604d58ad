"""Names of journals: of the flow_run, the moment, the program, the step, and the run itself.

Owns their form, which sorts by time within a flow_run. Must not know where journals are kept.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from core.journal.kinds import InputsT, Kind
from effects import ClaimStep

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PART = 80


def journal_name(kind: Kind[InputsT, Any], inputs: InputsT, run: str, now: datetime) -> str:
    """Return the name of a run's journal."""
    claimed = (one.step_id for one in kind.program.start(inputs).effects if isinstance(one, ClaimStep))
    parts = (f"{now:%Y%m%d-%H%M%S}", kind.name, *claimed, run)
    return f"{_part(subject_of(inputs))}/{'_'.join(map(_part, parts))}.jsonl"


def subject_of(inputs: object) -> str:
    """Return what a run is about: the id of its flow_run, or the collection where it is about all of them."""
    path = getattr(inputs, "flow_run_path", None) or getattr(inputs, "collection", "")
    return str(path).rpartition("/")[2]


def _part(text: str) -> str:
    """Return the text as a part of a name: whatever is unusual in one becomes a hyphen."""
    return _UNUSUAL.sub("-", text)[:_MAX_PART].strip(".") or "-"
