from __future__ import annotations

import hashlib
from typing import Any

import pytest

from core.reports.registry import OutputSchema, Prompt, parse_prompt, parse_schema, schema_sha256
from tests.report_world import SCHEMA_ID, a_json_schema, a_prompt, a_schema


def test_4_8_a_prompt_is_two_texts() -> None:
    assert parse_prompt(a_prompt(extra=1)).unwrap() == Prompt("You are an analyst.", "Write about the month.")


def test_4_8_the_texts_of_a_prompt_are_kept_as_they_are() -> None:
    texts = {"systemInstruction": "  {symbol} %s\n", "userPrompt": ""}
    assert parse_prompt(a_prompt(**texts)).unwrap() == Prompt("  {symbol} %s\n", "")


@pytest.mark.parametrize("document", [None, [], "text", 7])
def test_what_is_no_object_is_no_prompt_and_no_schema(document: Any) -> None:
    assert [one.where for one in parse_prompt(document).failure()] == ["(top)"]
    assert [one.where for one in parse_schema(SCHEMA_ID, document).failure()] == ["(top)"]


def test_all_that_is_wrong_with_a_prompt_is_said_at_once() -> None:
    problems = parse_prompt({"schemaVersion": True, "userPrompt": 7}).failure()
    assert [one.where for one in problems] == ["schemaVersion", "systemInstruction", "userPrompt"]


def test_4_9_a_schema_is_its_json_schema_and_its_hash() -> None:
    document = a_schema(sha256="as the registry says", isActive=True)
    assert parse_schema(SCHEMA_ID, document).unwrap() == OutputSchema(a_json_schema(), "as the registry says")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"schemaId": "other"}, ["schemaId"]),
        ({"kind": "OTHER"}, ["kind"]),
        ({"sha256": None}, ["sha256"]),
        ({"isActive": False}, ["isActive"]),
        (
            {"schemaId": None, "kind": None, "sha256": 7, "isActive": False},
            ["schemaId", "kind", "sha256", "isActive"],
        ),
    ],
)
def test_4_25_a_record_that_is_not_valid_is_refused(changes: dict[str, Any], where: list[str]) -> None:
    assert [one.where for one in parse_schema(SCHEMA_ID, a_schema(**changes)).failure()] == where


@pytest.mark.parametrize("json_schema", [None, "text", [], {"type": "strange"}, {"required": "summary"}])
def test_4_25_what_is_no_json_schema_is_refused(json_schema: Any) -> None:
    (found,) = parse_schema(SCHEMA_ID, {**a_schema(), "jsonSchema": json_schema}).failure()
    assert found.where == "jsonSchema"


def without(*path: str) -> dict[str, Any]:
    schema = a_json_schema()
    here = schema
    for name in path[:-1]:
        here = here[name]
    here["required"].remove(path[-1])
    return schema


@pytest.mark.parametrize(
    ("json_schema", "missing"),
    [
        ({}, ["summary", "details", "summary.markdown"]),
        ({"type": "object"}, ["summary", "details", "summary.markdown"]),
        (without("summary"), ["summary"]),
        (without("details"), ["details"]),
        (without("properties", "summary", "markdown"), ["summary.markdown"]),
        (a_json_schema(properties={}), ["summary.markdown"]),
        (a_json_schema(properties={"summary": True}), ["summary.markdown"]),
    ],
)
def test_4_9_a_schema_must_require_summary_details_and_summary_markdown(
    json_schema: dict[str, Any], missing: list[str]
) -> None:
    problems = parse_schema(SCHEMA_ID, a_schema(jsonSchema=json_schema)).failure()
    assert [one.message for one in problems] == [f"must require {name}" for name in missing]


def test_4_9_references_inside_the_schema_are_followed() -> None:
    inner = a_json_schema()
    summary = inner["properties"]["summary"]
    inner["properties"]["summary"] = {"$ref": "#/$defs/summary"}
    whole = {"$ref": "#/$defs/whole", "$defs": {"whole": inner, "summary": summary}}
    assert parse_schema(SCHEMA_ID, a_schema(jsonSchema=whole)).unwrap().json_schema == whole


def with_details(details: Any, **more: Any) -> dict[str, Any]:
    schema = a_json_schema(**more)
    schema["properties"]["details"] = details
    return schema


@pytest.mark.parametrize(
    "json_schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        with_details({"$ref": "#/$defs/nowhere"}),
        with_details({"$ref": "#/properties/details"}),
        with_details({"$ref": "#/x-any/odd"}, **{"x-any": {"odd": {"type": "strange"}}}),
        with_details({"$ref": "https://example.com/schema.json"}),
        {**a_json_schema(), "$schema": 7},
        {**a_json_schema(), "$schema": ["x"]},
    ],
)
def test_4_25_a_schema_that_cannot_be_applied_is_refused_before_the_model_is_asked(
    json_schema: dict[str, Any],
) -> None:
    problems = parse_schema(SCHEMA_ID, a_schema(jsonSchema=json_schema)).failure()
    assert {one.where for one in problems} == {"jsonSchema"}


def test_references_are_not_followed_for_ever() -> None:
    chain = {f"n{number}": {"$ref": f"#/$defs/n{number + 1}"} for number in range(30)}
    whole = {"$ref": "#/$defs/n0", "$defs": {**chain, "n30": a_json_schema()}}
    problems = parse_schema(SCHEMA_ID, a_schema(jsonSchema=whole)).failure()
    assert {one.message for one in problems} == {
        f"must require {one}" for one in ("summary", "details", "summary.markdown")
    }


def test_a_schema_of_an_unknown_draft_is_judged_by_the_latest() -> None:
    schema = {**a_json_schema(), "$schema": "https://example.com/my-draft"}
    assert parse_schema(SCHEMA_ID, a_schema(jsonSchema=schema)).unwrap().json_schema == schema


def test_the_hash_is_of_sorted_keys_without_spaces_in_utf_8() -> None:
    expected = hashlib.sha256('{"a":"ä","b":[1,2]}'.encode()).hexdigest()
    assert schema_sha256({"b": [1, 2], "a": "ä"}) == expected
