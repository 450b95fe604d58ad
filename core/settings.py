"""Settings as text becoming settings as values, with every problem named by its flag or variable.

Owns the parsing of single values. Must not know which settings there are, or where the text came from.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from returns.result import Result, Success

from core.problems import Problems, problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's text and where it was given: a flag, a variable, or the default."""

    text: str
    where: str


_MAX_DIGITS = 18
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_COLLECTION = re.compile(r"(?!__.*__$)(?!\.{1,2}$)[^/\s]{1,200}")

Parser = Callable[[Given], Result[Any, Problems]]


def whole_number(least: int, most: int | None = None) -> Parser:
    """Return a parser of integers within bounds."""
    bounds = f">= {least}" if most is None else f"from {least} to {most}"

    def parse(given: Given) -> Result[int, Problems]:
        text = given.text.strip()
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else -1
        is_right = number >= least and (most is None or number <= most)
        return Success(number) if is_right else problem(given.where, f"must be a whole number {bounds}")

    return parse


def number(least: float, most: float) -> Parser:
    """Return a parser of numbers within bounds."""

    def parse(given: Given) -> Result[float, Problems]:
        try:
            value = float(given.text)
        except ValueError:
            value = float("nan")
        is_right = least <= value <= most
        return Success(value) if is_right else problem(given.where, f"must be a number from {least:g} to {most:g}")

    return parse


def one_of(*choices: str) -> Parser:
    """Return a parser that accepts only these words."""

    def parse(given: Given) -> Result[str, Problems]:
        is_right = given.text in choices
        return Success(given.text) if is_right else problem(given.where, f"must be one of {', '.join(choices)}")

    return parse


def text(given: Given) -> Result[str, Problems]:
    """Return the text as it is."""
    return Success(given.text)


def optional_text(given: Given) -> Result[str | None, Problems]:
    """Return the text, None where it is empty."""
    return Success(given.text or None)


def bucket_name(given: Given) -> Result[str, Problems]:
    """Return the name of a bucket."""
    name = given.text.removeprefix("gs://").removesuffix("/")
    if _BUCKET.fullmatch(name) and ".." not in name:
        return Success(name)
    return problem(given.where, "must be a bucket name, NAME or gs://NAME, without a path")


def safe_origin(given: Given) -> Result[str, Problems]:
    """Return an origin: only https, or http to this machine, for a key travels with every request."""
    try:
        url = urlsplit(given.text)
        is_bare = url.path in {"", "/"} and not (url.query or url.fragment or url.username or url.password)
        is_safe = url.scheme == "https" or (url.scheme == "http" and _is_loopback(url.hostname or ""))
        is_right = bool(url.hostname) and is_bare and is_safe and url.port != 0
    except ValueError:
        is_right = False
    message = "must be an origin like https://api.example.com, or http to a loopback address"
    return Success(given.text.rstrip("/")) if is_right else problem(given.where, message)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def collection_name(given: Given) -> Result[str, Problems]:
    """Return the name of a collection of documents."""
    is_right = _COLLECTION.fullmatch(given.text)
    return Success(given.text) if is_right else problem(given.where, "must be the name of a collection")


Table = Mapping[str, tuple[str, Parser]]
"""Fields of a settings class, each with its variable and parser."""


def parse_table(
    table: Table, given: Mapping[str, Given], defaults: Mapping[str, str]
) -> dict[str, Result[Any, Problems]]:
    """Return each field's value, or what is wrong with it."""
    return {field: choose(name, given, defaults).bind(parse) for field, (name, parse) in table.items()}


def choose(name: str, given: Mapping[str, Given], defaults: Mapping[str, str]) -> Result[Given, Problems]:
    """Return the text of a setting: as given, else its default, else the problem that it is required."""
    if name in given and (given[name].text or not defaults.get(name)):
        return Success(given[name])
    if name in defaults:
        return Success(Given(defaults[name], name))
    return problem(name, "is required")
