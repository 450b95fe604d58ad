"""Chance, from one seed.

Owns the generator: what is drawn at one point does not depend on what was drawn at any other, so that a fault can be taken out
of a run and all else stays as it was. Must not know what is drawn for.
"""

from __future__ import annotations

_MASK = 2**64 - 1


def draw(seed: int, actor: int, number: int) -> int:
    """Return 64 bits for this point: those of SplitMix64, whose state is counted from seed, actor and number."""
    bits = (seed * 0x9E3779B97F4A7C15 + actor * 0xD1342543DE82EF95 + number * 0xA24BAED4963EE407 + 1) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def choose(bits: int, count: int) -> int:
    """Return a number below the count, of 16 bits."""
    return (bits & 0xFFFF) * count >> 16
