from __future__ import annotations

from typing import Any

import pytest

from core.flow.graph import Vain, parse_graph, promotable, waiting_in_vain
from core.problems import Problem
from tests.builders import a_plain_step

ONE_OF = "must be one of PENDING, READY, RUNNING, SUCCEEDED, FAILED, SKIPPED, CANCELLED"


def pending(**depends_on: list[str]) -> dict[str, Any]:
    return {step_id: a_plain_step("PENDING", needed) for step_id, needed in depends_on.items()}


def vain(steps: dict[str, Any]) -> tuple[Vain, ...]:
    return waiting_in_vain(parse_graph(steps).unwrap())


def test_a_graph_is_who_is_how_and_who_depends_on_whom() -> None:
    graph = parse_graph({"a": a_plain_step("READY"), "b": a_plain_step("PENDING", ["a", "c", "a"])}).unwrap()
    assert graph.statuses == {"a": "READY", "b": "PENDING"}
    assert graph.depends_on == {"a": (), "b": ("a", "c")}


@pytest.mark.parametrize("step", [{"status": "READY"}, {"status": "READY", "dependsOn": None}])
def test_a_step_without_dependencies_depends_on_nothing(step: dict[str, Any]) -> None:
    assert parse_graph({"a": step}).unwrap().depends_on == {"a": ()}


@pytest.mark.parametrize(
    ("steps", "found"),
    [(None, "missing"), ([], "a list"), ("a", "a string"), (7, "a number"), (True, "a boolean")],
)
def test_steps_must_be_an_object(steps: object, found: str) -> None:
    must = f"is {found}; must be an object of step id to step"
    assert parse_graph(steps).failure() == (Problem("steps", must),)


def test_all_that_is_wrong_with_the_steps_is_said_at_once() -> None:
    steps = {
        "charts:4h": "READY",
        "a": {"status": "DONE", "dependsOn": "b"},
        "b": {"dependsOn": ["a", 7]},
        "c": {"status": ["READY"], "dependsOn": {}},
        "d": {"status": "READY"},
        "e": {"status": "x" * 200},
        "f": {"status": "READY", "dependsOn": ["a", None]},
    }
    assert parse_graph(steps).failure() == (
        Problem('steps["charts:4h"]', "is a string; must be an object"),
        Problem("steps.a.status", f"is 'DONE'; {ONE_OF}"),
        Problem("steps.a.dependsOn", "must be a list of step ids"),
        Problem("steps.b.status", f"is missing; {ONE_OF}"),
        Problem("steps.b.dependsOn", "must be a list of step ids"),
        Problem("steps.c.status", f"is ['READY']; {ONE_OF}"),
        Problem("steps.c.dependsOn", "must be a list of step ids"),
        Problem("steps.e.status", f"is '{'x' * 79}; {ONE_OF}"),
        Problem("steps.f.dependsOn", "must be a list of step ids"),
    )


@pytest.mark.parametrize(
    ("status", "promoted"),
    [
        ("PENDING", []),
        ("READY", []),
        ("RUNNING", []),
        ("SUCCEEDED", ["b"]),
        ("FAILED", []),
        ("SKIPPED", []),
        ("CANCELLED", []),
    ],
)
def test_only_what_succeeded_lets_a_step_go_on(status: str, promoted: list[str]) -> None:
    steps = {"a": a_plain_step(status, ["b"]), "b": a_plain_step("PENDING", ["a"])}
    assert list(promotable(parse_graph(steps).unwrap())) == promoted


def test_a_pending_step_is_promotable_only_when_every_dependency_succeeded() -> None:
    steps = {
        "a": a_plain_step("SUCCEEDED"),
        "b": a_plain_step("RUNNING"),
        "c": a_plain_step("PENDING", ["a", "b"]),
        "d": a_plain_step("PENDING", ["a"]),
        "e": a_plain_step("PENDING"),
        "f": a_plain_step("PENDING", ["missing"]),
    }
    assert list(promotable(parse_graph(steps).unwrap())) == ["d", "e"]


def test_an_unknown_id_is_a_mistake() -> None:
    assert vain(pending(a=[], b=["a", "x"])) == (Vain("b", "depends on x, which does not exist", is_mistake=True),)


@pytest.mark.parametrize("status", ["FAILED", "SKIPPED", "CANCELLED"])
def test_behind_what_never_succeeds_a_step_waits_in_vain_and_so_do_all_behind_it(status: str) -> None:
    steps = {"a": a_plain_step(status), **pending(b=["a"], c=["d", "b"], d=[])}
    assert vain(steps) == (
        Vain("b", f"depends on a, which is {status}", is_mistake=False),
        Vain("c", "depends on b, which can never run", is_mistake=False, is_behind=True),
    )


def test_a_step_that_depends_on_itself_is_a_circle() -> None:
    assert vain(pending(a=["a"])) == (Vain("a", "depends on itself: a -> a", is_mistake=True),)


def test_the_way_round_a_circle_is_named_and_what_hangs_on_it_is_behind() -> None:
    assert vain(pending(a=["b"], b=["e", "c"], c=["b"], d=["c", "e"], e=[])) == (
        Vain("a", "depends on b, which can never run", is_mistake=False, is_behind=True),
        Vain("b", "depends on itself: b -> c -> b", is_mistake=True),
        Vain("c", "depends on itself: b -> c -> b", is_mistake=True),
        Vain("d", "depends on c, which can never run", is_mistake=False, is_behind=True),
    )


def test_two_circles_are_two() -> None:
    reasons = [one.because for one in vain(pending(a=["b"], b=["a"], c=["d"], d=["c"]))]
    assert reasons == ["depends on itself: a -> b -> a"] * 2 + ["depends on itself: c -> d -> c"] * 2


def test_only_the_beginning_of_a_long_circle_is_named() -> None:
    steps = pending(**{f"s{number:03}": [f"s{(number + 1) % 200:03}"] for number in range(200)})
    beginning = " -> ".join(f"s{number:03}" for number in range(11))
    assert {one.because for one in vain(steps)} == {f"depends on itself: {beginning} -> … -> s000"}


def test_a_circle_of_steps_that_may_still_succeed_is_none() -> None:
    assert vain({"a": a_plain_step("RUNNING", ["b"]), "b": a_plain_step("PENDING", ["a"])}) == ()


def test_a_mistake_is_named_before_a_loss() -> None:
    steps = {"a": a_plain_step("FAILED"), **pending(b=["a", "x"])}
    assert vain(steps) == (Vain("b", "depends on x, which does not exist", is_mistake=True),)
