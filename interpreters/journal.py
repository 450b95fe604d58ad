"""Runs with a journal: every effect and outcome becomes a line, as it happens.

Owns where lines go, and that a journal which cannot be written never costs the step. Must not know what the lines say.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from core.events import LogEvent
from core.failures import cut
from core.journal.kinds import InputsT, Kind, StateT
from core.journal.naming import journal_name
from core.journal.settings import Bucket, Folder, JournalSettings, OneFile
from core.program import Next
from effects import Effect, ObjectStored, Outcome, PutObject, blob
from interpreters.performers import Interpreter
from interpreters.ports import Clock, ObjectStore, Watcher
from interpreters.runtime import run_to_end
from interpreters.telemetry import Log

if TYPE_CHECKING:
    from core.journal.lines import Pen

UPLOAD_SECONDS = 30
MAX_SAID_CHARACTERS = 300
RUN_CHARACTERS = 12
"""Of a token: enough to tell the runs of one file apart."""


class Sink(Protocol):
    """Where the lines of one run go."""

    def write(self, line: str) -> None:
        """Write one line."""

    def close(self) -> None:
        """Take note that no line comes any more."""


class JournalFile:
    """A file that lines are appended to, each by one write; any number of runs may share it."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, size - 1))
        self._is_torn = self._file.read(1) not in {b"", b"\n"}

    def write(self, line: str) -> None:
        """Append the line; after one that was not written to its end, on a line of its own."""
        data = b"\n" * self._is_torn + line.encode() + b"\n"
        self._is_torn = False
        if self._file.write(data) != len(data):
            message = "the line was not written to its end"
            raise OSError(message)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JournalObject:
    """Lines that are stored as one object when the run has ended."""

    def __init__(self, objects: ObjectStore, bucket: str, name: str, clock: Clock) -> None:
        """Hold the lines until then."""
        self._objects = objects
        self._bucket = bucket
        self._name = name
        self._clock = clock
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        """Hold the line."""
        self._lines.append(line)

    def close(self) -> None:
        """Store the object."""
        now = self._clock.now()
        content = blob("".join(f"{line}\n" for line in self._lines).encode())
        effect = PutObject(
            bucket=self._bucket,
            name=self._name,
            content=content,
            content_type="application/x-ndjson",
            create_only=True,
            give_up_at=now + timedelta(seconds=UPLOAD_SECONDS),
        )
        stored = self._objects.put(effect, now)
        if not isinstance(stored, ObjectStored):
            raise OSError(stored.message)


class Journal:
    """The journal of one run. What is wrong with it is said once, and the run goes on without."""

    def __init__(self, kind: Kind[Any, Any], pen: Pen, log: Log) -> None:
        """Write no line yet."""
        self._kind = kind
        self._pen = pen
        self._log = log
        self._sink: Sink | None = None
        self._begun = 0
        self._in_flight: dict[int, tuple[int, Effect]] = {}
        """Number and effect by identity: two effects in flight may be equal."""

    def open(self, sink: Callable[[], Sink], inputs: object) -> None:
        """Write the first line."""
        try:
            self._sink = sink()
        except Exception as error:  # noqa: BLE001 - whatever it is, the step is worth more
            self._give_up(error)
        self._write(lambda: self._pen.header(self._kind, inputs))

    def begun(self, effect: Effect) -> None:
        """Write that an effect begins."""
        self._begun += 1
        self._in_flight[id(effect)] = (self._begun, effect)
        self._write(lambda: self._pen.begun(self._begun, effect))

    def done(self, effect: Effect, outcome: Outcome) -> None:
        """Write its outcome."""
        self._write(lambda: self._pen.done(self._in_flight.pop(id(effect))[0], outcome))

    def aborted(self, error_type: str) -> None:
        """Write that the program broke, or was interrupted."""
        self._write(lambda: self._pen.aborted(error_type))

    def ended(self, state: object) -> None:
        """Write what came of the run."""
        self._write(lambda: self._pen.ended(self._kind, state))

    def close(self) -> None:
        """Write no more."""
        sink, self._sink = self._sink, None
        try:
            if sink is not None:
                sink.close()
        except Exception as error:  # noqa: BLE001 - see above
            self._give_up(error)

    def _write(self, line: Callable[[], str]) -> None:
        try:
            if self._sink is not None:
                self._sink.write(line())
        except Exception as error:  # noqa: BLE001 - see above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._sink = None
        said = cut(f"{type(error).__name__}: {error}", MAX_SAID_CHARACTERS)
        fields = {"errorType": type(error).__name__}
        self._log.write(LogEvent("journal_failed", f"the journal is not written: {said}", "WARNING", fields))


class Journals:
    """The journals of all runs of this process."""

    def __init__(self, sink: Callable[[str], Sink], *, texts: bool) -> None:
        """Open a sink for each run, by the name of its journal."""
        self._sink = sink
        self._texts = texts

    def of(self, kind: Kind[InputsT, StateT], inputs: InputsT, log: Log, clock: Clock) -> Journal:
        """Return the journal of a run that begins now; its first line is written."""
        from core.journal.lines import Pen  # noqa: PLC0415 - its encodings take long to make, and most runs have no journal

        run = str(getattr(inputs, "token", None) or uuid.uuid4().hex)[:RUN_CHARACTERS]
        journal = Journal(kind, Pen(run, self._texts), log)
        journal.open(lambda: self._sink(journal_name(kind, inputs, run, clock.now())), inputs)
        return journal


def journals_on(settings: JournalSettings, objects: ObjectStore, clock: Clock) -> Journals | None:
    """Return the journals that the settings ask for, if they do."""
    match settings.place:
        case None:
            return None
        case OneFile(path=path):
            return Journals(lambda _: JournalFile(Path(path)), texts=settings.texts)
        case Folder(path=path):
            return Journals(lambda name: JournalFile(Path(path) / name), texts=settings.texts)
        case Bucket(name=bucket, prefix=prefix):
            return Journals(
                lambda name: JournalObject(objects, bucket, f"{prefix}/{name}".lstrip("/"), clock),
                texts=settings.texts,
            )


def run_journalled(
    kind: Kind[InputsT, StateT],
    inputs: InputsT,
    interpreter: Interpreter,
    places: int,
    log: Log,
    watchers: Sequence[Watcher],
    journals: Journals | None,
) -> StateT:
    """Run a program to its end, with a journal if there are any; return its last state."""
    if journals is None:
        return run_to_end(kind.program, inputs, interpreter.perform, interpreter.clock, places, watchers)
    journal = journals.of(kind, inputs, log, interpreter.clock)

    def abort(state: StateT, error_type: str) -> Next[StateT]:
        journal.aborted(error_type)
        return kind.program.abort(state, error_type)

    program = replace(kind.program, abort=abort)
    try:
        state = run_to_end(program, inputs, interpreter.perform, interpreter.clock, places, [*watchers, journal])
        journal.ended(state)
    finally:
        journal.close()
    return state
