from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charts.step import ChartStep, parse_chart_step
from tests.builders import STEP_ID, TEMPLATE_IDS, a_flow_run, a_step, an_input
from tests.strategies import json_values


def problems(flow_run: dict[str, Any], step_id: str = STEP_ID) -> list[str]:
    return [str(one) for one in parse_chart_step(flow_run, step_id).failure()]


def with_step(step_id: str = STEP_ID, **changes: Any) -> dict[str, Any]:
    return a_flow_run({step_id: {**a_step(), **changes}})


def with_inputs(**inputs: Any) -> dict[str, Any]:
    return with_step(inputs={**an_input(TEMPLATE_IDS), **inputs})


def test_a_valid_step_is_parsed() -> None:
    assert parse_chart_step(a_flow_run(), STEP_ID).unwrap() == ChartStep(
        run_id="20251215-102530_BTCUSDT_k3f7a",
        step_id=STEP_ID,
        symbol="BTCUSDT",
        timeframe="4h",
        min_images=1,
        chart_template_ids=TEMPLATE_IDS,
    )


HERE = f'steps["{STEP_ID}"]'


@pytest.mark.parametrize(
    ("flow_run", "where"),
    [
        (a_flow_run(runId="20251215_BTC"), "runId"),
        (a_flow_run(runId="20251215-102530_BTCUSDT_k3f7a\n"), "runId"),
        (a_flow_run(runId=7), "runId"),
        (a_flow_run(scope={}), "scope.symbol"),
        (a_flow_run(scope="BTCUSDT"), "scope.symbol"),
        (a_flow_run(scope={"symbol": "BTC/USDT"}), "scope.symbol"),
        (a_flow_run(scope={"symbol": "btcusdt"}), "scope.symbol"),
        (a_flow_run(scope={"symbol": ".BTC"}), "scope.symbol"),
        (a_flow_run(scope={"symbol": ""}), "scope.symbol"),
        (with_step(timeframe=None), f"{HERE}.timeframe"),
        (with_step(timeframe="h4"), f"{HERE}.timeframe"),
        (with_step(timeframe="4"), f"{HERE}.timeframe"),
        (with_step(timeframe="٤h"), f"{HERE}.timeframe"),
        (with_step(timeframe="4h/../x"), f"{HERE}.timeframe"),
        (with_step(inputs=None), f"{HERE}.inputs"),
        (with_step(inputs="charts"), f"{HERE}.inputs"),
        (with_step(outputs="done"), f"{HERE}.outputs"),
        (with_step(outputs=[]), f"{HERE}.outputs"),
        (with_inputs(requests=None), f"{HERE}.inputs.requests"),
        (with_inputs(requests=[]), f"{HERE}.inputs.requests"),
        (with_inputs(requests={}), f"{HERE}.inputs.requests"),
        (with_inputs(requests=None, chartTemplateId="x"), f"{HERE}.inputs.chartTemplateId"),
        (with_inputs(requests=["x"], minImages=0), f"{HERE}.inputs.requests[0]"),
        (with_inputs(requests=[{}], minImages=0), f"{HERE}.inputs.requests[0].chartTemplateId"),
        (with_inputs(requests=[{"chartTemplateId": "a/b"}]), f"{HERE}.inputs.requests[0].chartTemplateId"),
        (with_inputs(requests=[{"chartTemplateId": ""}]), f"{HERE}.inputs.requests[0].chartTemplateId"),
        (with_inputs(requests=[{"chartTemplateId": "x" * 129}]), f"{HERE}.inputs.requests[0].chartTemplateId"),
        (with_inputs(requests=[{"chartTemplateId": "x"}] * 2), f"{HERE}.inputs.requests[1].chartTemplateId"),
        (with_inputs(minImages=None), f"{HERE}.inputs.minImages"),
        (with_inputs(minImages=True), f"{HERE}.inputs.minImages"),
        (with_inputs(minImages=1.0), f"{HERE}.inputs.minImages"),
        (with_inputs(minImages="1"), f"{HERE}.inputs.minImages"),
        (with_inputs(minImages=-1), f"{HERE}.inputs.minImages"),
        (with_inputs(minImages=4), f"{HERE}.inputs.minImages"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(flow_run: dict[str, Any], where: str) -> None:
    (said,) = problems(flow_run)
    assert said.startswith(f"{where}: ")


@pytest.mark.parametrize("step_id", ["a/b", "..", "a..b", "", ".", "a\nb", "a\x7fb", "\ud800", "x" * 129])
def test_a_step_id_that_cannot_be_part_of_a_name_is_refused(step_id: str) -> None:
    (said,) = problems(with_step(step_id), step_id)
    assert "step id must have 1 to 128 characters" in said


@pytest.mark.parametrize("step_id", ["charts.1M", "charts:1M:x", "charts 1M", "x" * 128, "графики", ".hidden"])
def test_dots_colons_and_spaces_are_fine(step_id: str) -> None:
    assert parse_chart_step(with_step(step_id), step_id).unwrap().step_id == step_id


@pytest.mark.parametrize(
    "changes", [{"minImages": 0}, {"minImages": 3}, {"requests": [{"chartTemplateId": "x", "y": 1}]}]
)
def test_what_is_legal_is_accepted(changes: dict[str, Any]) -> None:
    assert parse_chart_step(with_inputs(**changes), STEP_ID).unwrap()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    flow_run = with_step(timeframe="", inputs={"minImages": -1, "requests": [{}, "x"]})
    assert len(problems({**flow_run, "runId": "", "scope": None})) == 6


@given(flow_run=st.dictionaries(st.sampled_from(["runId", "scope", "steps"]), json_values), inputs=json_values)
def test_any_json_gives_a_step_or_problems(flow_run: dict[str, Any], inputs: Any) -> None:
    document = {**flow_run, "steps": {STEP_ID: {"inputs": inputs, "timeframe": flow_run.get("runId")}}}
    parse_chart_step(document, STEP_ID)
    parse_chart_step(flow_run, STEP_ID)
