"""How long to wait before trying again: exponential, with jitter that repeats.

Owns the formula. Two runs of the same step wait the same; two steps do not.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 8.0


def backoff(tries: int, *who: str) -> timedelta:
    """Return the delay after so many tries: between a half and the whole of 1, 2, 4, 8 seconds."""
    longest = min(FIRST_DELAY_SECONDS * 2 ** (max(tries, 1) - 1), LONGEST_DELAY_SECONDS)
    digest = hashlib.sha256("|".join((*who, str(tries))).encode()).digest()
    return timedelta(seconds=longest * (0.5 + digest[0] / 510))
