"""Every benchmark has the frame that `make bench` runs it in, and the cheap ones work. What they say of speed is not tested."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import QUESTIONS
from benchmarks.measuring import Spread, repeated, spread
from benchmarks.servers import a_picture
from benchmarks.tables import Table, held
from core.charts.images import is_whole_png

FOLDER = Path(__file__).parent.parent / "benchmarks"
SHARED = {"__init__", "__main__", "measuring", "tables", "servers", "steps", "events"}
CHEAP = ("decisions", "growing_events", "simulated_runs")


def test_every_question_has_a_module_and_every_module_a_question() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*QUESTIONS, *SHARED}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_benchmark_says_what_it_measures_and_can_be_asked(name: str) -> None:
    module = import_module(f"benchmarks.{name}")
    assert module.__doc__
    assert callable(module.measure)


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_benchmark_answers_with_a_table(name: str) -> None:
    tables = import_module(f"benchmarks.{name}").measure(True)
    assert all(isinstance(one, Table) and one.rows and one.markdown() for one in tables)


def test_results_of_the_day_name_every_command() -> None:
    results = (FOLDER / "RESULTS.md").read_text("utf-8")
    assert [name for name in QUESTIONS if f"`python -m benchmarks.{name}`" not in results] == []


def test_a_spread_is_the_median_and_the_middle_half() -> None:
    assert spread([5, 1, 2, 3, 4]) == Spread(1, 2, 3, 4)
    assert spread([7]) == Spread(7, 7, 7, 7)
    values = iter([1.0, 2.0, 3.0])
    assert repeated(lambda: next(values), 3).text(1, 10) == "20.0 (15.0-25.0)"


def test_a_value_is_held_to_the_limit_as_it_is_shown() -> None:
    assert [held(one, 1.15) for one in (1.1, 1.1549, 1.156)] == ["yes", "yes", "no"]


def test_a_table_keeps_its_columns_in_line() -> None:
    table = Table(title="T", reach="far", columns=("a", "long"), rows=[("wide", "b")], notes=("A note.",))
    assert table.markdown().splitlines()[4:] == [
        "| a    | long |",
        "| ---- | ---- |",
        "| wide | b    |",
        "",
        "A note.",
    ]


@pytest.mark.parametrize("size", [0, 100, 5_000])
def test_pictures_of_any_size_are_whole(size: int) -> None:
    picture = a_picture(size)
    assert is_whole_png(picture)
    assert size in {0, len(picture)}
