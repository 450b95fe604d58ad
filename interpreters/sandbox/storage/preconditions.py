"""Preconditions on generations.

Owns reading them from a query, and whether they hold for what is there. Must not know what is done once they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interpreters.sandbox.storage.refusals import condition_not_met, invalid, not_modified


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What a request demands of the object it meets; generation 0 stands for no object."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    def check(self, generation: int, metageneration: int, *, reading: bool = False) -> None:
        """Refuse if one of them does not hold; a reader who has what is there is told so."""
        if _differs(self.generation_match, generation) or _differs(self.metageneration_match, metageneration):
            raise condition_not_met()
        if self.generation_not_match == generation or self.metageneration_not_match == metageneration:
            raise not_modified() if reading else condition_not_met()


def parse_preconditions(query: Mapping[str, str], prefix: str = "if") -> Preconditions:
    """Return the preconditions of a query; with the prefix `ifSource`, those on a copy's source."""
    return Preconditions(
        generation_match=parse_number(query, f"{prefix}GenerationMatch"),
        generation_not_match=parse_number(query, f"{prefix}GenerationNotMatch"),
        metageneration_match=parse_number(query, f"{prefix}MetagenerationMatch"),
        metageneration_not_match=parse_number(query, f"{prefix}MetagenerationNotMatch"),
    )


def parse_number(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of the query, or None if it is not given."""
    value = query.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()):
        message = f"Invalid value for {name}: {value}"
        raise invalid(message)
    return int(value)


def _differs(wanted: int | None, found: int) -> bool:
    return wanted is not None and wanted != found
