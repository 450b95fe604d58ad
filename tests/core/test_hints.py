from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from core.flow.hints import Hint, Ignored, hint_from_json, run_id_of
from tests.strategies import json_values

RUN = "20251215-102530_BTCUSDT_k3f7a"


def test_the_run_id_is_in_the_subject() -> None:
    assert run_id_of(f"documents/flow_runs/{RUN}", "flow_runs") == RUN


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (None, "no_subject"),
        (7, "no_subject"),
        (f"documents/other/{RUN}", "other_collection"),
        ("documents/flow_runs", "bad_subject"),
        ("documents/flow_runs/", "bad_subject"),
        (f"documents/flow_runs/{RUN}/steps/x", "bad_subject"),
        ("", "bad_subject"),
    ],
)
def test_4_20_a_subject_that_makes_no_sense_is_ignored_with_a_reason(subject: Any, reason: str) -> None:
    assert run_id_of(subject, "flow_runs") == Ignored(reason)


def text(value: str) -> dict[str, str]:
    return {"stringValue": value}


def step(**fields: Any) -> dict[str, Any]:
    return {"mapValue": {"fields": fields}}


def test_an_event_as_json_gives_type_and_status_of_each_step() -> None:
    steps = {
        "a": step(stepType=text("CHART_EXPORT"), status=text("READY"), inputs=step()),
        "b": step(status={"integerValue": "7"}),
        "c": text("odd"),
    }
    data = {"value": {"fields": {"flowKey": text("f_v1"), "steps": {"mapValue": {"fields": steps}}}}}
    assert hint_from_json(RUN, data) == Hint(
        RUN,
        {
            "runId": RUN,
            "flowKey": "f_v1",
            "status": None,
            "steps": {
                "a": {"stepType": "CHART_EXPORT", "status": "READY"},
                "b": {"stepType": None, "status": None},
                "c": {"stepType": None, "status": None},
            },
        },
    )


def test_of_a_report_step_an_event_also_gives_timeframe_and_dependencies() -> None:
    depends_on = {"arrayValue": {"values": [text("a"), {"integerValue": "7"}]}}
    steps = {
        "r": step(stepType=text("LLM_REPORT"), status=text("READY"), timeframe=text("1M"), dependsOn=depends_on),
        "s": step(stepType=text("LLM_REPORT"), status=text("RUNNING"), dependsOn={"arrayValue": {}}),
    }
    hint = hint_from_json(
        RUN, {"value": {"fields": {"status": text("RUNNING"), "steps": {"mapValue": {"fields": steps}}}}}
    )
    assert hint.document is not None
    assert hint.document["status"] == "RUNNING"
    assert hint.document["steps"] == {
        "r": {"stepType": "LLM_REPORT", "status": "READY", "timeframe": "1M", "dependsOn": ["a", None]},
        "s": {"stepType": "LLM_REPORT", "status": "RUNNING", "timeframe": None, "dependsOn": []},
    }


@pytest.mark.parametrize("data", [None, {}, [], {"value": None}, {"value": {}}, {"value": {"fields": 7}}])
def test_an_event_without_a_document_is_a_hint_to_read_it(data: Any) -> None:
    assert hint_from_json(RUN, data) == Hint(RUN, None)


def test_steps_that_are_no_map_stay_so() -> None:
    hint = hint_from_json(RUN, {"value": {"fields": {"steps": text("odd")}}})
    assert hint.document is not None
    assert hint.document["steps"] is None


@given(data=json_values)
def test_any_json_gives_a_hint(data: Any) -> None:
    assert isinstance(hint_from_json(RUN, data), Hint)
