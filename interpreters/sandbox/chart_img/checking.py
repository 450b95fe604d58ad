"""Whether a chart can be drawn for an account.

Owns which symbols, intervals, sizes and numbers of studies are refused. Must not know keys, limits of use or
pictures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from interpreters.sandbox.chart_img.plans import Plan
from interpreters.sandbox.chart_img.refusals import (
    INVALID_INTERVAL,
    INVALID_REQUEST,
    INVALID_SYMBOL,
    LIMIT_EXCEEDED,
    SOMETHING_WENT_WRONG,
    Refused,
    too_large,
    too_many_parameters,
)

SYMBOL_ANSWERS: Mapping[str, Refused] = {
    "BADUSDT": INVALID_SYMBOL,
    "DOWNUSDT": SOMETHING_WENT_WRONG,
    "LIMITUSDT": LIMIT_EXCEEDED,
}
"""What is said of a symbol on any exchange: as the error fixtures of `fixtures/chart-api` say it."""
INTERVALS = frozenset(
    {
        "1m", "3m", "5m", "15m", "30m", "45m", "1h", "2h", "3h", "4h", "6h", "12h",
        "1d", "1D", "1w", "1W", "1M", "3M", "6M", "1Y",
    }
)  # fmt: skip
SMALLEST_SIDE = 320
_DEFAULTS = {"symbol": "BINANCE:BTCUSDT", "interval": "1D"}
_DEFAULT_SIZE = {"width": 800, "height": 600}
_SYMBOL = re.compile(r"[A-Z0-9_]+:([A-Z0-9._!&/-]+)")


def check_chart(body: Any, plan: Plan) -> Refused | None:
    """Return why no chart is drawn, or None if it is."""
    if not isinstance(body, Mapping):
        return INVALID_REQUEST
    texts = {name: body.get(name, default) for name, default in _DEFAULTS.items()}
    parameters = [body.get(name, []) for name in ("studies", "drawings")]
    if not all(isinstance(one, str) for one in texts.values()) or not all(map(_is_objects, parameters)):
        return INVALID_REQUEST
    return (
        _check_symbol(texts["symbol"])
        or (None if texts["interval"] in INTERVALS else INVALID_INTERVAL)
        or (too_many_parameters(plan.parameters) if sum(map(len, parameters)) > plan.parameters else None)
        or _check_size(body, plan)
    )


def _check_symbol(symbol: str) -> Refused | None:
    found = _SYMBOL.fullmatch(symbol)
    return SYMBOL_ANSWERS.get(found[1]) if found else INVALID_SYMBOL


def _check_size(body: Mapping[str, Any], plan: Plan) -> Refused | None:
    sides = [body.get(name, default) for name, default in _DEFAULT_SIZE.items()]
    if not all(isinstance(side, int) and not isinstance(side, bool) for side in sides):
        return INVALID_REQUEST
    width, height = sides
    if min(sides) < SMALLEST_SIDE:
        return INVALID_REQUEST
    return too_large(plan.width, plan.height) if width > plan.width or height > plan.height else None


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) for one in value)
