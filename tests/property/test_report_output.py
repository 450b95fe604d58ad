"""Extraction and validation for any response, any text, any schema."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import example, given, reject
from hypothesis import strategies as st

from core.reports.output import Answer, StructuredOutputInvalid, is_blocked, read_response, validate_output
from core.reports.registry import parse_schema
from core.reports.report_file import build_report, encode_report, facts_of, report_problems
from tests.builders import NOW, RUN_ID
from tests.report_world import REPORT_ID, SCHEMA_ID, a_json_schema, a_response, a_schema, parsed_step
from tests.strategies import json_values

CANARY = "canary in the answer"
KINDS = {"missing_text", "json_parse", "schema_validation", "finish_reason"}

parts = st.lists(
    st.fixed_dictionaries({"text": st.text()}) | st.fixed_dictionaries({"inlineData": json_values}) | json_values,
    max_size=6,
)

_WORDS = st.sampled_from(["summary", "details", "markdown", "x"])
_TYPES = st.sampled_from(["object", "string", "array", "number", "boolean", "null", "integer"])


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    optional = {
        "type": _TYPES,
        "required": st.lists(_WORDS, unique=True, max_size=3),
        "properties": st.dictionaries(_WORDS, inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^x", ".*"]), inner, max_size=1),
        "additionalProperties": inner,
        "unevaluatedProperties": inner,
        "propertyNames": inner,
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "contains": inner,
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "not": inner,
        "if": inner,
        "then": inner,
        "dependentSchemas": st.dictionaries(_WORDS, inner, max_size=2),
        "dependentRequired": st.dictionaries(_WORDS, st.lists(_WORDS, unique=True, max_size=2), max_size=2),
        "maxProperties": st.integers(0, 3),
        "minLength": st.integers(0, 3),
        "pattern": st.sampled_from(["^a", "[0-9]+"]),
        "enum": st.lists(json_values, min_size=1, max_size=2),
        "const": json_values,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "uniqueItems": st.booleans(),
        "$ref": st.sampled_from(
            ["#", "#/properties/x", "#/$defs/a", "#/nowhere", "https://example.com/x", "#/const"]
        ),
        "$defs": st.fixed_dictionaries({"a": inner}),
        "$schema": st.sampled_from(["http://json-schema.org/draft-07/schema#", "https://example.com/my", "x", ""]),
    }
    return st.fixed_dictionaries({}, optional=optional) | st.booleans()


schemas = st.recursive(st.just({}), _grow, max_leaves=6).map(
    lambda one: one if isinstance(one, dict) else {"not": {}}
)

reports = st.builds(
    lambda markdown, details, more: {**more, "summary": {"markdown": markdown}, "details": details},
    st.text(),
    st.dictionaries(st.text(max_size=8), json_values, max_size=3),
    st.dictionaries(st.text(max_size=8), json_values, max_size=2),
)

texts = (
    st.text()
    | json_values.map(json.dumps)
    | reports.map(json.dumps)
    | st.builds("```json\n{}\n```".format, st.just("{}"))
)


def an_answer(text: str | None, finish: str | None = "STOP") -> Answer:
    return Answer(text=text, finish_reason=finish, block_reason=None, model_version=None, usage=None)


@given(parts=parts, more=json_values)
def test_4_13_the_text_of_any_parts_is_their_texts_joined_and_untrimmed(parts: list[Any], more: Any) -> None:
    response = a_response()
    response["candidates"] = [{"content": {"parts": parts}}, more]
    expected = "".join(one["text"] for one in parts if isinstance(one, dict) and isinstance(one.get("text"), str))
    assert (read_response(json.dumps(response).encode()).text or "") == expected


@given(content=st.binary() | json_values.map(lambda one: json.dumps(one).encode()))
def test_4_13_any_response_can_be_read(content: bytes) -> None:
    answer = read_response(content)
    assert answer.text is None or answer.text
    assert isinstance(is_blocked(answer), bool)


_anything = st.recursive(
    json_values,
    lambda inner: st.dictionaries(
        st.sampled_from(
            ["candidates", "content", "parts", "text", "finishReason", "promptFeedback", "usageMetadata"]
        ),
        inner | st.lists(inner, max_size=3),
        max_size=4,
    ),
    max_leaves=12,
)


@given(response=_anything)
def test_4_13_any_json_where_a_response_should_be_can_be_read_and_judged(response: Any) -> None:
    answer = read_response(json.dumps(response).encode())
    judged = validate_output(answer, a_json_schema())
    assert isinstance(judged, StructuredOutputInvalid) or judged["summary"]


@given(
    text=st.none() | texts,
    schema=schemas,
    finish=st.none() | st.sampled_from(["STOP", "MAX_TOKENS", "RECITATION"]),
)
@example(text='{"x": 1}', schema={"properties": {"x": {"$ref": "#/properties/x"}}}, finish=None)
@example(text="[]", schema={"$schema": ""}, finish=None)
def test_4_13_any_text_is_judged_by_any_schema_without_an_exception(
    text: str | None, schema: dict[str, Any], finish: str | None
) -> None:
    judged = validate_output(an_answer(text or None, finish), schema)
    if isinstance(judged, StructuredOutputInvalid):
        assert judged.kind in KINDS
        data = (text or "").encode("utf-8", "surrogatepass")
        assert judged.text_bytes == len(data)
        assert judged.text_sha256 == (hashlib.sha256(data).hexdigest() if text else None)
    else:
        assert text is not None
        assert judged == json.loads(text)


@given(report=reports, before=st.text(max_size=3), after=st.text(max_size=3))
def test_4_13_only_json_s_own_white_space_may_surround_an_answer(
    report: dict[str, Any], before: str, after: str
) -> None:
    try:
        text = json.dumps(report, allow_nan=False)
    except ValueError:
        reject()
    judged = validate_output(an_answer(f"{before}{text}{after}"), {})
    is_white = not (set(before + after) - set(" \t\r\n"))
    assert (judged == report) if is_white else getattr(judged, "kind", None) == "json_parse"


canaries = st.recursive(
    st.just(CANARY) | st.text(max_size=4) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just(CANARY) | _WORDS, inner, max_size=3),
    max_leaves=8,
)
plantings = canaries.map(json.dumps) | st.builds("{}{}".format, st.text(max_size=4), st.just(CANARY))


@given(text=plantings, schema=schemas, finish=st.none() | st.sampled_from(["STOP", "MAX_TOKENS"]))
def test_4_14_what_is_said_of_an_answer_never_holds_a_part_of_it(
    text: str, schema: dict[str, Any], finish: str | None
) -> None:
    judged = validate_output(an_answer(text, finish), schema)
    assert not isinstance(judged, StructuredOutputInvalid) or CANARY not in repr(judged)


@given(schema=schemas | json_values)
def test_4_9_any_json_where_a_schema_should_be_is_a_schema_or_a_list_of_problems(schema: Any) -> None:
    result = parse_schema(SCHEMA_ID, {**a_schema(), "jsonSchema": schema})
    found = result.value_or(None)
    if found is not None:
        assert {"summary", "details"} <= set(_required(found.json_schema))
    else:
        assert {one.where for one in result.failure()} == {"jsonSchema"}


def _required(schema: Any) -> list[str]:
    reference = schema.get("$ref")
    if reference is None:
        return list(schema.get("required", ()))
    below: Any = schema
    for name in reference.removeprefix("#/").split("/"):
        below = below[name]
    return _required(below)


@given(
    report=reports,
    finish=st.none() | st.text(max_size=5),
    version=st.none() | st.text(max_size=5),
    usage=st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=3),
)
def test_4_15_any_report_conforms_to_its_schema_and_survives_storing(
    report: dict[str, Any], finish: str | None, version: str | None, usage: Any
) -> None:
    answer = Answer(text=None, finish_reason=finish, block_reason=None, model_version=version, usage=usage)
    built = build_report(parsed_step(), "hash", answer, report, NOW, NOW)
    stored = json.loads(encode_report(built))
    assert report_problems(stored) == ()
    assert stored["output"] == report
    facts = facts_of(encode_report(built), RUN_ID, REPORT_ID)
    assert facts is not None
    assert (facts.finish_reason, facts.model_version, facts.usage) == (finish, version, usage)


@given(content=st.binary() | json_values.map(lambda one: json.dumps(one).encode()))
def test_4_33_any_bytes_are_a_report_or_not(content: bytes) -> None:
    assert facts_of(content, RUN_ID, REPORT_ID) is None
