from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from core.charts.templates import parse_template, request_body
from tests.builders import a_template
from tests.strategies import json_values


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"id": "other"}, "tpl.id"),
        ({"description": ""}, "tpl.description"),
        ({"description": "  "}, "tpl.description"),
        ({"description": 7}, "tpl.description"),
        ({"chartImgSymbolTemplate": "BINANCE:BTC"}, "tpl.chartImgSymbolTemplate"),
        ({"chartImgSymbolTemplate": None}, "tpl.chartImgSymbolTemplate"),
        ({"request": []}, "tpl.request"),
        ({"request": {"x": [float("inf")]}}, "tpl.request"),
        ({"request": {"x": {"y": float("nan")}}}, "tpl.request"),
    ],
)
def test_each_rule_of_a_template_names_its_field(changes: dict[str, Any], where: str) -> None:
    (problem,) = parse_template("tpl", {**a_template("tpl"), **changes}).failure()
    assert problem.where == where


def test_all_that_is_wrong_with_a_template_is_said_at_once() -> None:
    assert len(parse_template("tpl", {}).failure()) == 4


@given(document=json_values)
def test_any_json_is_a_template_or_has_problems(document: Any) -> None:
    parse_template("tpl", document)


def test_a_request_nested_too_deep_is_refused() -> None:
    nested: Any = {}
    for _ in range(60):
        nested = {"x": nested}
    (problem,) = parse_template("tpl", a_template("tpl", request=nested)).failure()
    assert "levels" in problem.message


def test_a_template_whose_name_no_request_can_have_is_refused() -> None:
    (problem,) = parse_template("a b", a_template("a b")).failure()
    assert problem.where == "a b.id"


def body(**changes: Any) -> dict[str, Any]:
    template = parse_template("tpl", a_template("tpl", **changes)).unwrap()
    return request_body(template, "BTCUSDT", "4h", "Etc/UTC")


def test_symbol_and_interval_are_the_worker_s_whatever_the_template_says() -> None:
    made = body(request={"symbol": "X", "interval": "1m", "height": 600})
    assert made == {"symbol": "BINANCE:BTCUSDT", "interval": "4h", "height": 600, "timezone": "Etc/UTC"}


def test_a_template_s_own_timezone_wins() -> None:
    assert body(request={"timezone": "Europe/Riga"})["timezone"] == "Europe/Riga"


def test_without_a_default_timezone_none_is_sent() -> None:
    template = parse_template("tpl", a_template("tpl")).unwrap()
    assert "timezone" not in request_body(template, "BTCUSDT", "4h", None)


def test_the_symbol_goes_wherever_its_place_is() -> None:
    assert body(chartImgSymbolTemplate="BYBIT:{symbol}.P")["symbol"] == "BYBIT:BTCUSDT.P"
