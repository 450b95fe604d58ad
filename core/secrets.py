"""Secrets: the one type that holds a key, and the search for keys in other people's text.

Owns masking. Nothing here, nor anything that prints a `Secret`, shows its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

MASK = "***"


class Secret:
    """A value that never prints itself; `reveal` is for the one performer that sends it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Hold the value."""
        self._value = value

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        """Return a mask."""
        return f"Secret({MASK})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same value."""
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        """Return a hash of the value."""
        return hash(self._value)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Refuse to be pickled: the value would travel."""
        message = "a Secret cannot be pickled"
        raise TypeError(message)


def without_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """Return the text with every secret masked: in any case, and as JSON may have escaped it."""
    for secret in sorted(secrets, key=lambda one: len(one.reveal()), reverse=True):
        text = _anywhere(secret).sub(MASK, text)
    return text


@cache
def _anywhere(secret: Secret) -> re.Pattern[str]:
    return re.compile("".join(_character(one) for one in secret.reveal()), re.IGNORECASE)


def _character(one: str) -> str:
    """Match a character as itself, behind backslashes, or as a JSON escape of either case."""
    codes = "|".join(f"{ord(form):02x}" for form in sorted({one.lower(), one.upper()}))
    return rf"\\{{0,3}}(?:{re.escape(one)}|u00(?:{codes}))"
