"""Where journals go: JOURNAL_URI and JOURNAL_TEXTS.

Owns their names, defaults and checks. Must not know how a journal is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from returns.result import Result, Success

from core.problems import Problem, Problems, collect, problem
from core.settings import Given, Table, bucket_name, one_of, parse_table

URI_VARIABLE, TEXTS_VARIABLE = "JOURNAL_URI", "JOURNAL_TEXTS"
_MUST = "must be gs://BUCKET/PREFIX, a folder, or file:///FOLDER"


@dataclass(frozen=True, slots=True)
class OneFile:
    """All runs are appended to one file."""

    path: str


@dataclass(frozen=True, slots=True)
class Folder:
    """Each run has a file of its own."""

    path: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Each run has an object of its own."""

    name: str
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Whether there are journals, where, and with what in them."""

    place: OneFile | Folder | Bucket | None = None
    """None is nowhere."""
    texts: bool = False
    """Prompts, answers and artifacts are kept, not only their sizes and hashes."""


NO_JOURNAL = JournalSettings()


def _place(given: Given) -> Result[Folder | Bucket | None, Problems]:
    text = given.text
    if text.startswith("gs://"):
        name, _, prefix = text.removeprefix("gs://").partition("/")
        bucket = bucket_name(Given(name, given.where)).value_or(None)
        return Success(Bucket(bucket, prefix.strip("/"))) if bucket else _wrong(given)
    if text.startswith("file://"):
        url = urlsplit(text)
        is_right = url.netloc in {"", "localhost"} and url.path
        return Success(Folder(unquote(url.path))) if is_right else _wrong(given)
    return _wrong(given) if "://" in text or "\0" in text else Success(Folder(text) if text else None)


def _wrong(given: Given) -> Result[Folder | Bucket | None, Problems]:
    return problem(given.where, _MUST)


_VARIABLES: Table = {"place": (URI_VARIABLE, _place), "texts": (TEXTS_VARIABLE, one_of("true", "false"))}
VARIABLES = tuple(name for name, _ in _VARIABLES.values())
_DEFAULTS: Mapping[str, str] = {URI_VARIABLE: "", TEXTS_VARIABLE: "false"}


def parse_journal_settings(
    given: Mapping[str, Given], file: str | None = None, *, texts: bool = False
) -> Result[JournalSettings, Problems]:
    """Return the settings; a file, or the wish for texts, that was given by flag beats the variable."""
    values = parse_table(_VARIABLES, given, _DEFAULTS)
    problems = collect(*values.values())
    if problems:
        return Result.from_failure(problems)
    place = values["place"].unwrap() if file is None else OneFile(file)
    if texts and place is None:
        return Result.from_failure((Problem("--journal-texts", f"needs --journal FILE, or {URI_VARIABLE}"),))
    return Success(JournalSettings(place=place, texts=texts or values["texts"].unwrap() == "true"))
