from __future__ import annotations

from typing import Any

import pytest
from google.events.cloud.firestore_v1 import ArrayValue, Document, DocumentEventData, MapValue, Value

from core.flow.hints import Hint, Ignored
from interpreters.firestore_events import read_event

RUN = "20251215-102530_BTCUSDT_k3f7a"
SUBJECT = f"documents/flow_runs/{RUN}"


def value(content: Any) -> Value:
    if isinstance(content, dict):
        return Value(map_value=MapValue(fields={key: value(one) for key, one in content.items()}))
    if isinstance(content, list):
        return Value(array_value=ArrayValue(values=[value(one) for one in content]))
    return Value(string_value=content) if isinstance(content, str) else Value(integer_value=content)


def event(document: dict[str, Any] | None, old: dict[str, Any] | None = None) -> bytes:
    data = DocumentEventData()
    for name, content in (("value", document), ("old_value", old)):
        if content is not None:
            fields = {key: value(one) for key, one in content.items()}
            setattr(data, name, Document(name=f"projects/p/databases/d/{SUBJECT}", fields=fields))
    return bytes(DocumentEventData.serialize(data))


def test_a_protobuf_event_gives_type_and_status_of_each_step() -> None:
    steps = {"a:1": {"stepType": "CHART_EXPORT", "status": "READY", "inputs": {"x": 1}}, "b": "odd", "c": {}}
    old = {"steps": {"a:1": {"stepType": "CHART_EXPORT", "status": "PENDING"}}}
    assert read_event(SUBJECT, event({"flowKey": "f_v1", "steps": steps}, old), "flow_runs") == Hint(
        RUN,
        {
            "runId": RUN,
            "flowKey": "f_v1",
            "status": None,
            "steps": {"a:1": {"stepType": "CHART_EXPORT", "status": "READY"}, "b": {}, "c": {}},
        },
    )


def test_of_a_report_step_a_protobuf_event_also_gives_timeframe_and_dependencies() -> None:
    steps = {
        "r": {"stepType": "LLM_REPORT", "status": "READY", "timeframe": "1M", "dependsOn": ["a", "b"]},
        "s": {"stepType": "LLM_REPORT", "status": "RUNNING"},
    }
    hint = read_event(SUBJECT, event({"status": "RUNNING", "steps": steps}), "flow_runs")
    assert isinstance(hint, Hint)
    assert hint.document is not None
    assert hint.document["status"] == "RUNNING"
    assert hint.document["steps"] == {"r": steps["r"], "s": {**steps["s"], "timeframe": None, "dependsOn": []}}


def test_of_steps_in_some_statuses_a_protobuf_event_gives_no_other() -> None:
    steps = {
        "a": {"stepType": "CHART_EXPORT", "status": "READY"},
        "b": {"stepType": "CHART_EXPORT", "status": "PENDING", "inputs": {"status": "READY"}},
        "c": {"stepType": "READY", "status": "RUNNING"},
        "d": {"status": "SUCCEEDED"},
    }
    hint = read_event(SUBJECT, event({"steps": steps}), "flow_runs", frozenset({"READY"}))
    assert isinstance(hint, Hint)
    assert hint.document is not None
    assert hint.document["steps"] == {"a": steps["a"]}


@pytest.mark.parametrize("statuses", [frozenset({"READY"}), frozenset()])
def test_where_no_step_has_one_of_the_statuses_the_steps_are_still_a_map(statuses: frozenset[str]) -> None:
    steps = {"a": {"stepType": "CHART_EXPORT", "status": "RUNNING"}}
    hint = read_event(SUBJECT, event({"steps": steps}), "flow_runs", statuses)
    assert isinstance(hint, Hint)
    assert hint.document is not None
    assert hint.document["steps"] == {}


def test_only_the_new_document_counts() -> None:
    ready = {"steps": {"a": {"stepType": "CHART_EXPORT", "status": "READY"}}}
    hint = read_event(SUBJECT, event({"steps": {}}, ready), "flow_runs")
    assert isinstance(hint, Hint)
    assert hint.document is not None
    assert hint.document["steps"] == {}


@pytest.mark.parametrize(
    "data", [b"\xff\xfe not protobuf", b"", event(None), event(None, {"x": 1}), None, "text", 7]
)
def test_what_cannot_be_read_is_a_hint_to_read_the_document(data: object) -> None:
    assert read_event(SUBJECT, data, "flow_runs") == Hint(RUN, None)


def test_steps_that_are_no_map_stay_so() -> None:
    hint = read_event(SUBJECT, event({"steps": "odd"}), "flow_runs")
    assert isinstance(hint, Hint)
    assert hint.document is not None
    assert hint.document["steps"] is None


def test_json_is_read_too() -> None:
    hint = read_event(SUBJECT, {"value": {"fields": {}}}, "flow_runs")
    assert hint == Hint(RUN, {"runId": RUN, "flowKey": None, "status": None, "steps": None})


def test_another_collection_is_ignored() -> None:
    assert read_event("documents/x/y", event({}), "flow_runs") == Ignored("other_collection")
