from __future__ import annotations

from typing import Any

import pytest

from core.flow.graph import Graph, parse_graph
from core.flow.picture import graph_as_mermaid, graph_as_text, in_order, steps_in_order, what_it_waits_for
from tests.builders import RUN_ID, a_flow_run, a_plain_step

SERVED = {"CHART_EXPORT": "worker-chart-export"}


def a_flow(**depends_on: tuple[str, ...]) -> dict[str, Any]:
    return a_flow_run({one: a_plain_step("PENDING", ids) for one, ids in depends_on.items()})


def graph_of(flow_run: dict[str, Any]) -> Graph:
    return parse_graph(flow_run["steps"]).unwrap()


def text(flow_run: dict[str, Any]) -> list[str]:
    return graph_as_text(flow_run, graph_of(flow_run)).splitlines()


def mermaid(flow_run: dict[str, Any]) -> list[str]:
    return graph_as_mermaid(flow_run, graph_of(flow_run)).splitlines()


# The order.


def test_steps_stand_after_those_they_depend_on_and_else_in_order_of_their_ids() -> None:
    diamond = a_flow(d=("b", "c"), c=("a",), b=("a",), a=(), e=())
    assert in_order(graph_of(diamond)) == ["a", "e", "b", "c", "d"]


def test_steps_in_a_circle_stand_at_the_end_with_those_behind_them() -> None:
    assert in_order(graph_of(a_flow(z=(), b=("a",), a=("b",), behind=("a",)))) == ["z", "a", "b", "behind"]
    assert in_order(graph_of(a_flow(a=("a",)))) == ["a"]


def test_ids_that_do_not_exist_and_ids_named_twice_do_not_change_the_order() -> None:
    assert in_order(graph_of(a_flow(b=("a", "a", "nowhere"), a=()))) == ["a", "b"]


def test_the_order_of_a_document_is_none_where_its_steps_make_no_sense() -> None:
    assert steps_in_order(a_flow(b=("a",), a=())) == ["a", "b"]
    assert steps_in_order(a_flow_run({"a": a_plain_step("DONE")})) == []
    assert steps_in_order({}) == []


# Text.


def test_the_text_has_a_line_a_step_with_status_type_and_dependencies() -> None:
    flow_run = a_flow_run(
        {
            "charts:4h": a_plain_step("PENDING", ["candles"]),
            "candles": a_plain_step("SUCCEEDED", stepType="OHLCV_EXPORT"),
        }
    )
    assert text(flow_run) == [
        f"flow_run {RUN_ID}: RUNNING",
        "  SUCCEEDED  candles    OHLCV_EXPORT",
        "  PENDING    charts:4h  CHART_EXPORT  after candles",
    ]


def test_the_text_names_a_circle() -> None:
    lines = text(a_flow(a=("b",), b=("a",), c=("b",)))
    assert len(lines) == 4
    assert lines[1].startswith("  PENDING    a  CHART_EXPORT  CAN NEVER RUN: ")
    assert all("CAN NEVER RUN" in line for line in lines[1:])
    assert all(one in lines[1] for one in ("a", "b"))


def test_the_text_says_what_failed_and_what_is_behind_it() -> None:
    flow_run = a_flow_run(
        {
            "a": a_plain_step("FAILED", error={"code": "CHART_API_FAILED"}),
            "b": a_plain_step("PENDING", ["a"]),
            "c": a_plain_step("FAILED", ["a"], error={"code": 7}),
            "d": a_plain_step("SUCCEEDED", stepType=None),
        }
    )
    assert text(flow_run)[1:] == [
        "  FAILED     a  CHART_EXPORT  CHART_API_FAILED",
        "  SUCCEEDED  d  ?",
        "  PENDING    b  CHART_EXPORT  CAN NEVER RUN: depends on a, which is FAILED",
        "  FAILED     c  CHART_EXPORT  after a",
    ]


def test_a_run_without_steps_is_one_line() -> None:
    assert text(a_flow_run({})) == [f"flow_run {RUN_ID}: RUNNING"]


# Mermaid.


def test_mermaid_has_a_node_a_step_an_arrow_a_dependency_and_a_class_a_status() -> None:
    flow_run = a_flow_run(
        {
            "candles": a_plain_step("SUCCEEDED", stepType="OHLCV_EXPORT"),
            "charts": a_plain_step("READY", ["candles"]),
            "report": a_plain_step("PENDING", ["charts", "candles"], stepType=None),
        }
    )
    assert mermaid(flow_run)[:-3] == [
        "flowchart TD",
        '  s1["candles<br/>OHLCV_EXPORT<br/>SUCCEEDED"]:::SUCCEEDED',
        '  s2["charts<br/>CHART_EXPORT<br/>READY"]:::READY',
        '  s3["report<br/>?<br/>PENDING"]:::PENDING',
        "  s1 --> s2",
        "  s2 --> s3",
        "  s1 --> s3",
    ]
    assert [line.split()[1] for line in mermaid(flow_run)[-3:]] == ["PENDING", "READY", "SUCCEEDED"]


@pytest.mark.parametrize(
    ("step_id", "label"),
    [
        ('say "no"', "say #34;no#34;"),
        ("a#1", "a#35;1"),
        ("a<br/>b", "a#60;br/#62;b"),
        ("one\ntwo\ttab", "one#10;two#9;tab"),
        ("a&amp;b`c`\\d", "a#38;amp;b#96;c#96;#92;d"),
        ("\x1b[31m\u202e", "#27;[31m#8238;"),
        ("графики ✓", "графики ✓"),
        ('x"]; click s1 "javascript:1', "x#34;]; click s1 #34;javascript:1"),
    ],
)
def test_a_label_says_any_id_and_type_and_can_not_end_its_quotes(step_id: str, label: str) -> None:
    step = a_plain_step("READY", stepType=step_id)
    nodes = mermaid(a_flow_run({step_id: step}))
    assert nodes[1] == f'  s1["{label}<br/>{label}<br/>READY"]:::READY'
    assert len(nodes) == 3


def test_an_id_that_does_not_exist_is_a_node_of_its_own_that_says_so() -> None:
    lines = mermaid(a_flow(b=("nowhere", "a"), c=("nowhere", 'o"dd'), a=()))
    assert '  m1["nowhere<br/>does not exist"]:::FAILED' in lines
    assert '  m2["o#34;dd<br/>does not exist"]:::FAILED' in lines
    arrows = [line for line in lines if "-->" in line]
    assert arrows == ["  m1 --> s2", "  m2 --> s2", "  m1 --> s3", "  s1 --> s3"]
    assert [line.split()[1] for line in lines if "classDef" in line] == ["PENDING", "FAILED"]


def test_a_circle_is_drawn_as_one() -> None:
    lines = mermaid(a_flow(a=("b",), b=("a",), c=("c",)))
    assert [line for line in lines if "-->" in line] == ["  s2 --> s1", "  s1 --> s2", "  s3 --> s3"]


def test_a_run_without_steps_is_an_empty_flowchart() -> None:
    assert mermaid(a_flow_run({})) == ["flowchart TD"]


# What a run waits for.


def test_a_run_waits_for_ready_steps_that_nobody_serves_and_says_who_waits_for_them() -> None:
    flow_run = a_flow_run(
        {
            "candles": a_plain_step("READY", stepType="OHLCV_EXPORT"),
            "zeta": a_plain_step("PENDING", ["candles"]),
            "alpha": a_plain_step("PENDING", ["candles"]),
            "charts": a_plain_step("READY"),
            "later": a_plain_step("PENDING", ["zeta"], stepType="LLM_REPORT"),
            "odd": a_plain_step("READY", stepType=None),
        }
    )
    assert what_it_waits_for(flow_run, graph_of(flow_run), SERVED) == (
        "candles is READY, and no worker here serves OHLCV_EXPORT: --given candles=FILE; alpha, zeta wait for it",
        "odd is READY, and no worker here serves ?: --given odd=FILE",
    )


def test_a_run_whose_ready_steps_are_all_served_waits_for_nobody() -> None:
    flow_run = a_flow_run({"a": a_plain_step("READY"), "b": a_plain_step("RUNNING", stepType="OHLCV_EXPORT")})
    assert what_it_waits_for(flow_run, graph_of(flow_run), SERVED) == ()
