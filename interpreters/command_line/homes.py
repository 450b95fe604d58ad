"""Where a command works: a state directory on this machine, or Firestore and Cloud Storage.

Owns the flags that choose, and the opening. Must not know what is done there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from core.journal.settings import NO_JOURNAL, JournalSettings
from effects import Document
from interpreters.clock import SystemClock
from interpreters.command_line.inputs import (
    read_cloud_settings,
    stop,
)
from interpreters.embedded import StateDirectory
from interpreters.ports import Home, StoreUnusableError

if TYPE_CHECKING:
    from interpreters.cloud import Cloud

DEFAULT_STATE_DIR = ".tda"

Command = TypeVar("Command", bound=Callable[..., Any])


def store_option(command: Command) -> Command:
    """Add the flag that says where documents and objects are kept."""
    return click.option(
        "--store",
        type=click.Choice(["embedded", "firestore"]),
        default="embedded",
        show_default=True,
        help="Documents and objects on this machine, or in Firestore and Cloud Storage ($GOOGLE_CLOUD_PROJECT, …).",
    )(command)


def state_dir_option(command: Command) -> Command:
    """Add the flag that says where the embedded store is."""
    return click.option(
        "--state-dir",
        type=click.Path(path_type=Path),
        help=f"Where documents and artifacts are kept. Default: $TDA_STATE_DIR, else {DEFAULT_STATE_DIR}.",
    )(command)


def chosen_state_dir(given: Path | None) -> Path:
    """Return the state directory: as given, else of the environment, else the default."""
    return given or Path(os.environ.get("TDA_STATE_DIR") or DEFAULT_STATE_DIR)


def open_cloud(journal: JournalSettings = NO_JOURNAL) -> Cloud:
    """Return Firestore and Cloud Storage of the project that the environment names."""
    from interpreters.cloud import Cloud  # noqa: PLC0415 - the libraries are slow to import, and often not needed

    return Cloud(read_cloud_settings(), SystemClock(), journal)


@contextmanager
def opened(store: str, folder: Path, journal: JournalSettings = NO_JOURNAL) -> Iterator[Home]:
    """Open the store, or stop with what is wrong with it."""
    if store == "firestore":
        yield open_cloud(journal)
        return
    try:
        state = StateDirectory(folder, SystemClock(), journal)
    except (OSError, sqlite3.Error) as error:
        stop("--state-dir", f"{folder} cannot be used: {type(error).__name__}: {error}")
    with closing(state):
        yield state


def stored(store: str, folder: Path, collection: str) -> Mapping[str, Document]:
    """Return the documents of a collection; looking at a directory does not create anything in it."""
    if store == "embedded" and folder.exists() and not folder.is_dir():
        stop("--state-dir", f"{folder} is not a folder")
    if store == "embedded" and not StateDirectory.exists(folder):
        return {}
    with opened(store, folder) as home:
        try:
            return home.collection(collection)
        except StoreUnusableError as error:
            stop(home.name, f"cannot be read: {error}")


def stored_flow_run(home: Home, run_id: str) -> Document | None:
    """Return a stored flow_run, None where there is none; stop if the store cannot say."""
    try:
        return home.flow_run(run_id)
    except StoreUnusableError as error:
        stop(home.name, f"cannot be read: {error}")


@contextmanager
def held(home: Home, run_id: str, *, alone: bool) -> Iterator[None]:
    """Hold a run in a state directory while working on it, or stop because another process does."""
    if not isinstance(home, StateDirectory):
        yield
        return
    with ExitStack() as stack:
        try:
            is_ours = stack.enter_context(home.holding(run_id, alone=alone))
        except OSError as error:
            stop(home.name, f"cannot be used: {type(error).__name__}: {error}")
        if not is_ours:
            stop(home.name, f"another process is at work on run {run_id}; wait for its end")
        yield


def place(flow_run: Document, path: Path, home: Home) -> None:
    """Store the flow_run of a file, or stop because a worker is at work on the stored one."""
    try:
        steps = home.place(flow_run)
    except StoreUnusableError as error:
        stop(home.name, f"cannot be written: {error}")
    if steps:
        message = f"a worker is at work on {', '.join(steps)} of this run in {home.name}; wait for its end"
        stop(f"--flow-run-path {path}", message)
