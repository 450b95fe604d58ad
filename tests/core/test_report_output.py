from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from core.reports.output import (
    MAX_ERRORS,
    MAX_LEVELS,
    Answer,
    StructuredOutputInvalid,
    is_blocked,
    read_response,
    validate_output,
)
from tests.report_world import GOOD, a_good_output, a_json_schema, a_response


def read(response: Any) -> Answer:
    return read_response(json.dumps(response).encode())


def judged(text: str | None, schema: Any = None, finish: str | None = "STOP") -> Any:
    answer = Answer(text=text, finish_reason=finish, block_reason=None, model_version=None, usage=None)
    return validate_output(answer, a_json_schema() if schema is None else schema)


def kind_of(text: str | None, schema: Any = None, finish: str | None = "STOP") -> str:
    invalid = judged(text, schema, finish)
    assert isinstance(invalid, StructuredOutputInvalid)
    return invalid.kind


def test_4_13_the_text_is_all_parts_joined_and_untrimmed() -> None:
    response = a_response("  {", "\n", "", '"a": 1} ')
    response["candidates"][0]["content"]["parts"].insert(1, {"inlineData": {}})
    response["candidates"].append({"content": {"parts": [{"text": "second candidate"}]}})
    assert read(response).text == '  {\n"a": 1} '


@pytest.mark.parametrize(
    "response",
    [
        {},
        [],
        {"candidates": []},
        {"candidates": {}},
        {"candidates": [None]},
        {"candidates": [{"content": {"parts": {}}}]},
        {"candidates": [{"content": {"parts": [{"text": 7}, "x", None]}}]},
        a_response(),
        a_response(""),
    ],
)
def test_4_13_where_there_is_no_text_it_is_missing(response: Any) -> None:
    assert read(response).text is None


@pytest.mark.parametrize("response", [b"", b"{", b"\xff", b"[" * 100_000])
def test_4_13_a_response_that_is_no_json_says_nothing(response: bytes) -> None:
    assert read_response(response) == Answer(
        text=None, finish_reason=None, block_reason=None, model_version=None, usage=None
    )


def test_4_27_finish_reason_and_usage_are_exposed() -> None:
    answer = read(a_response("x", finish="MAX_TOKENS", promptFeedback={"blockReason": "OTHER"}))
    assert (answer.finish_reason, answer.block_reason) == ("MAX_TOKENS", "OTHER")
    assert answer.usage == {"promptTokenCount": 100, "totalTokenCount": 120}
    assert answer.model_version == "gemini-2.5-pro-001"
    odd = read(a_response("x", finish=None, usageMetadata=[1], modelVersion=7))
    assert (odd.finish_reason, odd.usage, odd.model_version) == (None, None, None)


@pytest.mark.parametrize(
    ("finish", "block", "texts", "blocked"),
    [
        ("SAFETY", None, (), True),
        ("SAFETY", None, (GOOD,), True),
        (None, "PROHIBITED_CONTENT", (), True),
        ("STOP", "OTHER", (GOOD,), False),
        ("MAX_TOKENS", None, (), False),
        ("STOP", None, (GOOD,), False),
    ],
)
def test_4_28_an_answer_kept_back_for_safety_is_blocked(
    finish: Any, block: Any, texts: Any, blocked: bool
) -> None:
    feedback = {} if block is None else {"promptFeedback": {"blockReason": block}}
    assert is_blocked(read(a_response(*texts, finish=finish, **feedback))) is blocked


def test_a_good_answer_is_its_object() -> None:
    assert judged(GOOD) == a_good_output()
    assert judged(f" \n{GOOD}\t") == a_good_output()


@pytest.mark.parametrize(
    ("finish", "kind"), [(None, "missing_text"), ("STOP", "missing_text"), ("MAX_TOKENS", "finish_reason")]
)
def test_4_14_no_text_is_missing_or_the_finish_reason_says_why(finish: str | None, kind: str) -> None:
    assert kind_of(None, finish=finish) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "{",
        f"```json\n{GOOD}\n```",
        f"```{GOOD}```",
        f"Here it is: {GOOD}",
        f"{GOOD} I hope this helps.",
        f"{GOOD}{GOOD}",
        "\ufeff" + GOOD,
        '{"summary": {"markdown": "x"}, "details": {"a": NaN}}',
        '{"summary": {"markdown": "x"}, "details": {"a": -Infinity}}',
        '{"summary": {"markdown": "x"}, "details": {"a": 1e999}}',
        '{"summary": {"markdown": "x"}, "details": {"a": ' + "9" * 5_000 + "}}",
        "[" * 100_000,
    ],
)
def test_4_13_nothing_is_trimmed_unwrapped_or_searched_for(text: str) -> None:
    assert kind_of(text) == "json_parse"


def test_an_answer_cut_at_its_largest_size_is_said_to_be() -> None:
    assert "cut at the largest number of tokens" in judged('{"summ', finish="MAX_TOKENS").message
    assert "cut" not in judged('{"summ').message


@pytest.mark.parametrize(
    "output",
    [
        None,
        7,
        [],
        {},
        {"summary": {"markdown": "x"}},
        {"summary": {}, "details": {}},
        {"summary": {"markdown": 7}, "details": {}},
        {"summary": {"markdown": "x"}, "details": []},
    ],
)
def test_4_13_what_does_not_match_the_schema_is_invalid(output: Any) -> None:
    assert kind_of(json.dumps(output)) == "schema_validation"


@pytest.mark.parametrize(
    "output", [[], {"summary": "x", "details": {}}, {"summary": {"markdown": "x"}, "details": 7}]
)
def test_4_13_what_every_report_needs_is_checked_even_where_the_schema_does_not(output: Any) -> None:
    assert kind_of(json.dumps(output), {}) == "schema_validation"


def test_4_14_rules_are_named_by_their_place_in_the_schema() -> None:
    message = judged(json.dumps({"summary": {"markdown": 7}})).message
    assert message == "does not match the schema: properties/summary/properties/markdown/type; required"


def test_only_so_many_broken_rules_are_named() -> None:
    names = [f"n{number:02}" for number in range(MAX_ERRORS + 3)]
    schema = {"properties": {name: {"type": "string"} for name in names}}
    message = judged(json.dumps(dict.fromkeys(names, 7)), schema).message
    assert message.count("/type") == MAX_ERRORS
    assert message.endswith("and 3 more")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#"},
        {"$ref": "#/x", "x": {"type": "strange"}},
        {"$ref": "#/x", "x": {"pattern": 7, "minLength": "x"}},
        {"$schema": 7},
    ],
)
def test_4_13_a_schema_that_cannot_be_applied_is_no_exception(schema: Any) -> None:
    assert kind_of('"text"', schema) == "schema_validation"


def nested(levels: int) -> str:
    """Return a report with so many levels."""
    return '{"summary": {"markdown": ""}, "details": {"x": ' + "[" * (levels - 2) + "]" * (levels - 2) + "}}"


@pytest.mark.parametrize(
    ("levels", "is_right"), [(MAX_LEVELS, True), (MAX_LEVELS + 1, False), (900, False), (980, False)]
)
def test_4_13_an_answer_nested_too_deeply_is_invalid(levels: int, is_right: bool) -> None:
    assert isinstance(judged(nested(levels)), dict) is is_right


def test_4_14_size_and_hash_stand_for_the_text() -> None:
    invalid = judged("ä{")
    assert (invalid.text_bytes, invalid.text_sha256) == (3, hashlib.sha256("ä{".encode()).hexdigest())
    missing = judged(None)
    assert (missing.text_bytes, missing.text_sha256) == (0, None)


def test_half_a_surrogate_pair_has_a_size_and_a_hash_too() -> None:
    assert judged("\ud800").text_bytes == 3
