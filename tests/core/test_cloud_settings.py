from __future__ import annotations

from typing import Any

import pytest

from core.charts.templates import compare_templates
from core.cloud import CloudSettings, parse_cloud_settings
from core.settings import Given


def parsed(**variables: str) -> Any:
    given = {"GOOGLE_CLOUD_PROJECT": "my-project", **variables}
    return parse_cloud_settings({name: Given(text, name) for name, text in given.items()})


def test_only_the_project_is_required() -> None:
    assert parsed().unwrap() == CloudSettings(
        project="my-project", database="(default)", concurrency="transaction", flow_runs_collection="flow_runs"
    )
    (problem,) = parse_cloud_settings({}).failure()
    assert problem.where == "GOOGLE_CLOUD_PROJECT"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GOOGLE_CLOUD_PROJECT", "My Project"),
        ("FIRESTORE_DATABASE", "X"),
        ("FIRESTORE_DATABASE", "default/x"),
        ("FIRESTORE_CONCURRENCY", "optimistic"),
        ("FLOW_RUNS_COLLECTION", "a/b"),
        ("FLOW_RUNS_COLLECTION", "__x__"),
        ("FLOW_RUNS_COLLECTION", ".."),
    ],
)
def test_a_bad_value_names_its_variable(name: str, text: str) -> None:
    (problem,) = parsed(**{name: text}).failure()
    assert problem.where == name


def test_templates_are_created_changed_or_unchanged() -> None:
    stored = {"a": {"x": 1}, "b": {"x": 1}, "c": None}
    given = {"a": {"x": 1}, "b": {"x": 2}, "c": {}, "d": {}}
    assert compare_templates(stored, given) == {"a": "unchanged", "b": "changed", "c": "created", "d": "created"}
