"""`tda replay`: a journal against today's code.

Owns the command's input, output and exit codes. Must not decide what differs: that is the core's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from returns.result import Failure

from core.journal.reading import JournalledRun, read_journal
from core.journal.replay import replay as replay_run
from core.journal.summary import all_as_text, replay_as_json, replay_as_text
from core.problems import Problem
from interpreters.command_line.inputs import WrongCall, say

EXIT_DIFFERENT = 1


@click.command("replay")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each run, a line each.")
def replay(files: tuple[Path, ...], as_json: bool) -> None:  # noqa: FBT001 - click's
    """Run programs against journals of earlier runs, and say where today's code would decide differently.

    Nothing is performed: every outcome comes from the journal, and what the program begins after it is compared with
    what it began then. A journal is written by every command that runs a program (--journal FILE), and in Cloud Run
    (JOURNAL_URI). It holds texts only where --journal-texts asked for them; what was made of a text that is not there
    cannot be checked, and is not called different.

    \b
    Example:
      tda charts run-local --flow-run-path flow_run.json --journal run.jsonl
      tda replay run.jsonl

    Exit codes: 0 everything agrees, as far as it can be checked, 1 something differs, 2 a file cannot be read.
    """
    replayed = [(str(path), replay_run(run)) for path, runs in _read(files) for run in runs]
    for where, one in replayed:
        say(json.dumps(replay_as_json(one, where), ensure_ascii=False) if as_json else replay_as_text(one, where))
    if len(replayed) > 1 and not as_json:
        say(all_as_text([one for _, one in replayed]))
    sys.exit(EXIT_DIFFERENT if any(one.certain for _, one in replayed) else 0)


def _read(files: tuple[Path, ...]) -> list[tuple[Path, tuple[JournalledRun, ...]]]:
    """Return the runs of all files, or stop with everything that is wrong."""
    read, problems = [], []
    for path in files:
        try:
            runs = read_journal(path.read_text("utf-8", "replace"))
        except OSError as error:
            problems.append(Problem(str(path), f"cannot be read: {error.strerror}"))
            continue
        if isinstance(runs, Failure):
            problems += [Problem(f"{path}: {one.where}", one.message) for one in runs.failure()]
        else:
            read.append((path, runs.unwrap()))
    if problems:
        raise WrongCall(tuple(problems))
    return read
