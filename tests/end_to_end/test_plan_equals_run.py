from __future__ import annotations

import copy
import io
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from effects import Effect, Outcome
from effects.encoding import encode_effect
from interpreters import shipped
from interpreters.clock import SystemClock
from interpreters.embedded import StateDirectory
from interpreters.telemetry import JsonLog
from tests.builders import STEP_ID, TEMPLATE_IDS, a_configuration, a_flow_run, a_step, an_input
from tests.end_to_end.console import Call, Ended, call_all, write_flow_run

FIVE_CHARTS: dict[str, Any] = json.loads((shipped.FLOW_RUNS / "five_charts.json").read_text("utf-8"))


def five_charts(symbol: str) -> dict[str, Any]:
    document = copy.deepcopy(FIVE_CHARTS)
    document["scope"]["symbol"] = symbol
    document["steps"][STEP_ID]["timeframe"] = "1h"
    return document


CASES: dict[str, dict[str, Any]] = {
    "the shipped five charts": FIVE_CHARTS,
    "a symbol that is refused (400)": five_charts("BADUSDT"),
    "a symbol that is limited (429)": five_charts("LIMITUSDT"),
    "a symbol that is down (500)": five_charts("DOWNUSDT"),
    "a symbol without fixtures": five_charts("NONEUSDT"),
    "a missing template": a_flow_run({STEP_ID: a_step(inputs=an_input([*TEMPLATE_IDS, "unheard_of_v1"], 4))}),
    "an invalid step": a_flow_run({STEP_ID: a_step(inputs="all")}),
    "nothing to do": a_flow_run({STEP_ID: a_step(status="PENDING")}),
}


class Collector:
    """A watcher that keeps what begins."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def begun(self, effect: Effect) -> None:
        self.effects.append(effect)

    def done(self, effect: Effect, outcome: Outcome) -> None:
        """Take no note of it."""


def performed(
    folder: Path, document: dict[str, Any], variables: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Run the document as `run-local` does, and return the effects that began."""
    clock, collector = SystemClock(), Collector()
    state = StateDirectory(folder, clock)
    try:
        assert state.place(document) == ()
        export = state.chart_export(
            a_configuration((), **(variables or {})), shipped.TEMPLATES, shipped.CHART_API_FIXTURES
        )
        export.run(document, None, JsonLog(io.StringIO(), clock), [collector])
    finally:
        state.close()
    return [encode_effect(effect) for effect in collector.effects]


ONE_BY_ONE = {"CHARTS_MAX_PARALLEL": "1"}
IN_ORDER = ("the shipped five charts", "a symbol that is limited (429)", "a missing template")


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    folder = tmp_path_factory.mktemp("plans")
    calls = {}
    for number, (name, document) in enumerate(CASES.items()):
        path = write_flow_run(folder, document, f"{number}.json")
        calls[name] = Call(folder, ("plan", "--flow-run-path", path, "--format", "json"))
    one_by_one = {f"{name}, in order": replace(calls[name], variables=ONE_BY_ONE) for name in IN_ORDER}
    return call_all({**calls, **one_by_one})


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SECOND = re.compile(r"/\d{8}-\d{6}_")
_UNCERTAIN = {"token", "reservationId", "size", "sha256"}


def normal(value: Any) -> Any:
    """Return the value without times, token, sizes and hashes."""
    if isinstance(value, Mapping):
        return {key: "…" if key in _UNCERTAIN else normal(one) for key, one in value.items()}
    if isinstance(value, list):
        return [normal(one) for one in value]
    return _SECOND.sub("/…_", _MOMENT.sub("…", value)) if isinstance(value, str) else value


def text(effect: Mapping[str, Any]) -> str:
    return json.dumps(normal(effect), sort_keys=True)


def bag(effects: list[dict[str, Any]]) -> Counter[str]:
    return Counter(text(_asked_by_anyone(effect)) for effect in effects)


def _asked_by_anyone(effect: dict[str, Any]) -> dict[str, Any]:
    """Return a reservation that follows a refusal without who asks: of calls side by side, any may be first."""
    if effect["effect"] != "ReserveAccount" or not effect["exhausted"]:
        return effect
    return {**effect, "forRequests": [{**one, "chartTemplateId": "…"} for one in effect["forRequests"]]}


@pytest.mark.parametrize("name", CASES)
def test_what_plan_prints_is_what_run_local_performs(
    plans: Mapping[str, Ended], tmp_path: Path, name: str
) -> None:
    assert plans[name].code == 0
    planned, done = bag(json.loads(plans[name].stdout)["effects"]), bag(performed(tmp_path, CASES[name]))
    assert sorted((planned - done).elements()) == []
    assert sorted((done - planned).elements()) == []


@pytest.mark.parametrize("name", IN_ORDER)
def test_where_nothing_runs_side_by_side_the_order_is_the_same_too(
    plans: Mapping[str, Ended], tmp_path: Path, name: str
) -> None:
    planned = json.loads(plans[f"{name}, in order"].stdout)["effects"]
    done = performed(tmp_path, CASES[name], ONE_BY_ONE)
    assert [text(effect) for effect in done] == [text(effect) for effect in planned]
