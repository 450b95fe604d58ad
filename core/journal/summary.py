"""What a replay says: for people, and for machines.

Owns the words. Must not know how a replay is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.journal.naming import subject_of
from core.journal.replay import Difference, Replayed

MAX_LISTED = 20


def replay_as_text(replayed: Replayed, where: str) -> str:
    """Return what a person is told of one run."""
    run = replayed.run
    lines = [f"{where}:{run.line}: {run.kind.name} of {subject_of(run.inputs)}: {verdict(replayed)}"]
    lines += _listed(replayed.certain)
    if replayed.stopped is not None:
        lines.append(f"  line {replayed.stopped}: from here the journal cannot be followed")
    if run.is_cut:
        lines.append(
            "  the journal ends early: its run was killed, is still going on, or could not write more of it"
        )
    return "\n".join([*lines, *_unchecked(replayed)])


def all_as_text(all_replayed: Sequence[Replayed]) -> str:
    """Return in one line what a person is told of several runs."""
    different = sum(bool(one.certain) for one in all_replayed)
    unchecked = sum(bool(one.doubts) for one in all_replayed)
    said = (
        f"{_counted(len(all_replayed), 'run')}: {f'{different} decided differently' if different else 'all agree'}"
    )
    return f"{said}, {unchecked} could not be checked in full" if unchecked else said


def verdict(replayed: Replayed) -> str:
    """Return in a few words what came of a replay."""
    if replayed.certain:
        return f"{_counted(len(replayed.certain), 'difference')} in {_counted(replayed.decisions, 'decision')}"
    far = ", as far as can be checked" if replayed.doubts else ""
    return f"agrees in {_counted(replayed.decisions, 'decision')}{far}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(found: tuple[Difference, ...]) -> list[str]:
    said = [
        f"  line {one.line}: {one.what}\n    then: {one.was}\n    now:  {one.now}" for one in found[:MAX_LISTED]
    ]
    more = len(found) - MAX_LISTED
    return [*said, f"  and {more} more"] if more > 0 else said


def _unchecked(replayed: Replayed) -> list[str]:
    """Return which decisions could not be checked, and what would help."""
    if not replayed.doubts:
        return []
    lines = [f"line {one.line} ({one.outcome})" for one in replayed.doubts]
    said = [f"  not checked, for the journal does not hold their texts: what was made of {', '.join(lines)}"]
    if replayed.uncertain:
        said += ["  after them this is not as it was, which may come of that:", *_listed(replayed.uncertain)]
    return said if replayed.run.texts else [*said, "  a run with --journal-texts keeps them"]


def replay_as_json(replayed: Replayed, where: str) -> dict[str, Any]:
    """Return the same for machines."""
    return {
        "file": where,
        "line": replayed.run.line,
        "program": replayed.run.kind.name,
        "subject": subject_of(replayed.run.inputs),
        "agrees": not replayed.certain,
        "decisions": replayed.decisions,
        "endsEarly": replayed.run.is_cut,
        "stoppedAtLine": replayed.stopped,
        "differences": [_as_json(one) for one in replayed.certain],
        "uncertain": [_as_json(one) for one in replayed.uncertain],
        "unchecked": [{"line": one.line, "outcome": one.outcome} for one in replayed.doubts],
    }


def _as_json(one: Difference) -> dict[str, Any]:
    return {"line": one.line, "what": one.what, "was": one.was, "now": one.now}
