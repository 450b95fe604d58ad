"""Chart templates and the request bodies made from them (§13.3, §14.2).

Owns what a valid template is. Must not know where templates are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from returns.result import Result, Success

from core.charts.step import CHART_TEMPLATE_ID
from core.failures import encodable
from core.problems import Problem, Problems, kind_of

_MAX_DEPTH = 50
SYMBOL_PLACE = "{symbol}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartTemplate:
    """How one chart looks."""

    id: str
    description: str
    symbol_template: str
    request: Mapping[str, Any]

    def chart_img_symbol(self, symbol: str) -> str:
        """Return the symbol as TradingView knows it, e.g. BINANCE:BTCUSDT."""
        return self.symbol_template.replace(SYMBOL_PLACE, symbol)


def parse_template(key: str, document: object) -> Result[ChartTemplate, Problems]:
    """Return the template stored under the key, or everything that is wrong with it."""
    if not isinstance(document, Mapping):
        return Result.from_failure((Problem(key, f"is {kind_of(document)}; must be an object"),))
    description, symbol_template = document.get("description"), document.get("chartImgSymbolTemplate")
    problems = tuple(
        Problem(f"{key}.{name}", must)
        for name, is_right, must in (
            ("id", document.get("id") == key, f"must be {key!r}, the name it is stored under"),
            ("id", CHART_TEMPLATE_ID.fullmatch(key), "must be 1 to 128 letters, digits, '_' or '-'"),
            ("description", isinstance(description, str) and description.strip(), "must be a non-empty string"),
            (
                "chartImgSymbolTemplate",
                isinstance(symbol_template, str) and SYMBOL_PLACE in symbol_template,
                "must be a string with {symbol} in it, like BINANCE:{symbol}",
            ),
            ("request", isinstance(document.get("request"), Mapping), "must be an object"),
            (
                "request",
                _is_sendable(document.get("request")),
                f"must have finite numbers only, and not more than {_MAX_DEPTH} levels",
            ),
        )
        if not is_right
    )
    return (
        Result.from_failure(problems)
        if problems
        else Success(
            ChartTemplate(
                id=key,
                description=encodable(str(description)),
                symbol_template=str(symbol_template),
                request=document["request"],
            )
        )
    )


def _is_sendable(value: object, depth: int = 0) -> bool:
    """Return whether JSON has a form for the value: no infinity, no endless nesting."""
    if isinstance(value, float):
        return math.isfinite(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return depth <= _MAX_DEPTH and all(_is_sendable(one, depth + 1) for one in inner)


def compare_templates(stored: Mapping[str, object], given: Mapping[str, object]) -> dict[str, str]:
    """Return for each given template whether storing it would create it, change it, or leave it unchanged."""
    return {
        key: "created" if stored.get(key) is None else "unchanged" if stored[key] == document else "changed"
        for key, document in given.items()
    }


def request_body(
    template: ChartTemplate, symbol: str, timeframe: str, default_timezone: str | None
) -> dict[str, Any]:
    """Return the JSON body for Chart-IMG; symbol and interval are the worker's, whatever the template says."""
    timezone = {"timezone": default_timezone} if default_timezone else {}
    return {
        **timezone,
        **template.request,
        "symbol": template.chart_img_symbol(symbol),
        "interval": timeframe,
    }
