"""What is wrong with an input: where, and what would be right.

Owns `Problem` and the collecting of problems, so that a person gets the whole list at once.
Must not know any particular input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Failure, Result

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    where: str
    """Path in the document, or the name of a flag, variable or file."""
    message: str
    """What is wrong and what would be right; never the value of a secret."""

    def __str__(self) -> str:
        """Return both as one line."""
        return f"{self.where}: {self.message}"


Problems = tuple[Problem, ...]


def problem(where: str, message: str) -> Failure[Problems]:
    """Return a failure with this one problem."""
    return Failure((Problem(where, message),))


def collect(*results: Result[Any, Problems]) -> Problems:
    """Return the problems of all the results that failed, in order."""
    return tuple(found for result in results if isinstance(result, Failure) for found in result.failure())


def document_path(*keys: str | int) -> str:
    """Return a readable path: steps["charts:1M"].inputs.requests[0]."""
    path = ""
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key):
            path += f".{key}" if path else key
        else:
            path += f'["{key}"]'
    return path


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def kind_of(value: object) -> str:
    """Return what JSON calls a value of this type."""
    return next((name for kind, name in _KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def kind_or_missing(value: object) -> str:
    """Return what JSON calls a value of this type; a value that is not there is missing."""
    return "missing" if value is None else kind_of(value)
