"""The layers: arrows point down only, and core and effects touch nothing of the world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from core.charts.program import _BREAKDOWNS, _REACTIONS
from core.hopes import Hopes
from core.reports import program as reports
from effects import Effect, Outcome
from interpreters.chart_api import FixturesOrHttp
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.chart_api.http import ChartImg
from interpreters.clock import SystemClock
from interpreters.documents.memory import DocumentMemory
from interpreters.dry_run import _DESCRIPTIONS
from interpreters.objects.memory import ObjectMemory
from interpreters.performers import AccountsAside, Interpreter
from interpreters.templates import TemplateFolder

ROOT = Path(__file__).parent.parent
LAYERS = {"effects": 0, "core": 1, "interpreters": 2, "cli": 3}
IMPURE_MODULES = {
    "asyncio", "concurrent", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random", "requests",
    "secrets", "shutil", "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
IMPURE_NAMES = {"open", "print", "input", "exec", "eval", "breakpoint"}
IMPURE_CALLS = {"now", "utcnow", "today"}
PURE_FILES = sorted([*(ROOT / "core").rglob("*.py"), *(ROOT / "effects").rglob("*.py")])


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


def layer_files() -> list[Path]:
    return [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")] + [ROOT / "cli.py"]


@pytest.mark.parametrize("path", layer_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down_only(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    above = [one for one in imports(path) if LAYERS.get(one.split(".")[0], -1) > LAYERS[own]]
    assert above == []


@pytest.mark.parametrize("path", PURE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_core_and_effects_import_nothing_that_touches_the_world(path: Path) -> None:
    assert [one for one in imports(path) if one.split(".")[0] in IMPURE_MODULES] == []


@pytest.mark.parametrize("path", PURE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_core_and_effects_call_nothing_that_touches_the_world(path: Path) -> None:
    found = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Name) and node.id in IMPURE_NAMES)
        or (isinstance(node, ast.Attribute) and node.attr in IMPURE_CALLS and _is_a_clock(node))
    ]
    assert found == []


def _is_a_clock(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date"}


def test_the_ban_would_notice_a_clock(tmp_path: Path) -> None:
    tree = ast.parse("from datetime import datetime\ndatetime.now()")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert [node.attr in IMPURE_CALLS and _is_a_clock(node) for node in calls] == [True]


def test_every_interpreter_covers_every_effect_exactly(tmp_path: Path) -> None:
    effects = set(get_args(Effect))
    interpreter = Interpreter(
        documents=DocumentMemory(),
        objects=ObjectMemory(),
        templates=TemplateFolder(tmp_path),
        chart_api=FixturesOrHttp(FixtureFolder(tmp_path), ChartImg("http://127.0.0.1", {}, 1, 1, SystemClock())),
        clock=SystemClock(),
        accounts_aside=AccountsAside(),
        secrets=(),
    )
    assert effects == set(interpreter.table)
    assert effects == set(Hopes({}).table)
    assert effects == set(_DESCRIPTIONS)


def test_the_tables_of_the_program_name_only_words_of_the_vocabulary() -> None:
    assert {kind for _, kind in (*_REACTIONS, *reports._REACTIONS)} <= set(get_args(Outcome))
    assert {kind for _, kind in (*_BREAKDOWNS, *reports._BREAKDOWNS)} <= set(get_args(Effect))


@pytest.mark.parametrize("kind", [*get_args(Effect), *get_args(Outcome)], ids=lambda kind: kind.__name__)
def test_every_field_of_a_word_says_what_it_is(kind: type) -> None:
    tree = ast.parse(Path(str(__import__(kind.__module__, fromlist=["x"]).__file__)).read_text("utf-8"))
    (node,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == kind.__name__)
    for field, following in zip(node.body[1:-1], node.body[2:], strict=True):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(following, ast.Expr), f"{kind.__name__}.{ast.unparse(field.target)}"


@pytest.mark.parametrize("kind", get_args(Outcome), ids=lambda kind: kind.__name__)
def test_every_outcome_carries_its_moment(kind: type) -> None:
    assert "at" in kind.__dataclass_fields__
