"""Secrets: the one type that holds a key, and the search for keys in other people's text.

Owns masking. Nothing here, nor anything that prints a `Secret`, shows its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    """Return the text with every occurrence of a secret masked, whatever its case."""
    for secret in secrets:
        text = re.sub(re.escape(secret.reveal()), MASK, text, flags=re.IGNORECASE)
    return text
