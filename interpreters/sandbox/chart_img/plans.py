"""The plans of Chart-IMG.

Owns what each plan allows. Must not know who has which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an account may do."""

    name: str
    requests_per_second: int
    requests_per_day: int
    parameters: int
    """How many studies and drawings a chart may have together."""
    width: int
    height: int


def _plan(name: str, second: int, day: int, parameters: int, width: int, height: int) -> Plan:
    return Plan(
        name=name,
        requests_per_second=second,
        requests_per_day=day,
        parameters=parameters,
        width=width,
        height=height,
    )


BASIC = _plan("BASIC", 1, 50, 3, 800, 600)
PRO = _plan("PRO", 10, 500, 5, 1920, 1080)
MEGA = _plan("MEGA", 15, 1_000, 10, 1920, 1600)
ULTRA = _plan("ULTRA", 35, 3_000, 25, 2048, 1920)
PLANS: Mapping[str, Plan] = {plan.name: plan for plan in (BASIC, PRO, MEGA, ULTRA)}
