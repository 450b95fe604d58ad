"""Selection, inputs and the assembled text for any documents."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from returns.result import Success

from core.flow.selection import NothingToDo
from core.reports.naming import answer_fixture_name, fixture_key, fixture_key_of
from core.reports.profile import parse_profile
from core.reports.references import parse_uri, report_name
from core.reports.registry import Prompt, parse_prompt, schema_sha256
from core.reports.selection import Recover, select_report
from core.reports.step import parse_report_step
from core.reports.user_input import (
    MAX_IMAGE_BYTES,
    MAX_JSON_BYTES,
    charts_of,
    image_problems,
    json_problems,
    user_text,
)
from tests.builders import RUN_ID, a_png
from tests.report_world import (
    CANDLES_ID,
    CHARTS_ID,
    OLD_ID,
    REPORT_ID,
    a_profile,
    a_report_flow_run,
    a_report_step,
    changed_step,
    parsed_step,
    report_inputs,
    report_steps,
)
from tests.strategies import STATUSES, documents, json_values, step_ids, step_maps

report_maps = st.dictionaries(
    step_ids,
    st.builds(
        lambda kind, status, depends_on: a_report_step(stepType=kind, status=status, dependsOn=depends_on),
        st.sampled_from(["LLM_REPORT", "LLM_REPORT", "CHART_EXPORT"]),
        st.sampled_from(STATUSES),
        st.lists(step_ids, max_size=2) | json_values,
    ),
    max_size=8,
)


@given(steps=report_maps | step_maps, data=st.data())
def test_4_7_what_is_chosen_can_be_executed_and_does_not_depend_on_the_order(
    steps: dict[str, Any], data: st.DataObject
) -> None:
    flow_run = a_report_flow_run(steps)
    chosen = select_report(flow_run)
    shuffled = dict(data.draw(st.permutations(list(steps.items()))))
    assert select_report(a_report_flow_run(shuffled)) == chosen
    if isinstance(chosen, str):
        step = steps[chosen]
        assert (step["stepType"], step["status"]) == ("LLM_REPORT", "READY")
        named = step["dependsOn"] if isinstance(step["dependsOn"], list) else []
        known = [steps[one] for one in named if isinstance(one, str) and one in steps]
        assert all(isinstance(one, dict) and one.get("status") == "SUCCEEDED" for one in known)
    elif isinstance(chosen, Recover):
        assert list(chosen.step_ids) == sorted(chosen.step_ids)
        assert {steps[one]["status"] for one in chosen.step_ids} == {"RUNNING"}
    else:
        assert chosen.reason in {"no_ready_step", "dependency_not_succeeded"}


@given(flow_run=documents | st.fixed_dictionaries({"status": json_values, "steps": step_maps | json_values}))
def test_4_7_any_document_gives_a_choice_or_a_reason(flow_run: dict[str, Any]) -> None:
    assert isinstance(select_report(flow_run, "x"), str | Recover | NothingToDo)


_names = st.sampled_from([CANDLES_ID, CHARTS_ID, OLD_ID, REPORT_ID, "nobody"])
_inputs = st.fixed_dictionaries(
    {},
    optional={
        "llm": json_values | st.fixed_dictionaries({"promptId": json_values, "llmProfile": json_values}),
        "ohlcvStepId": _names | json_values,
        "chartsManifestStepId": _names | json_values,
        "previousReportStepIds": st.lists(_names | json_values, max_size=3) | json_values,
        "previousReports": st.lists(st.fixed_dictionaries({"stepId": _names, "gcs_uri": json_values}), max_size=2),
    },
)


@given(inputs=json_values | _inputs, timeframe=json_values, scope=json_values, depends_on=json_values)
def test_4_4_any_inputs_give_a_step_or_one_error_with_all_problems(
    inputs: Any, timeframe: Any, scope: Any, depends_on: Any
) -> None:
    step = {**a_report_step(), "inputs": inputs, "timeframe": timeframe, "dependsOn": depends_on}
    flow_run = a_report_flow_run({**report_steps(), REPORT_ID: step}, scope=scope)
    result = parse_report_step(flow_run, RUN_ID, REPORT_ID, None)
    error = None if isinstance(result, Success) else result.failure()
    assert error is None or error.code in {"INVALID_STEP_INPUTS", "LLM_PROFILE_INVALID"}


@given(profile=json_values | st.builds(lambda more: {**a_profile(), **more}, documents))
def test_4_10_any_profile_is_parsed_or_refused_and_never_changed(profile: Any) -> None:
    before = json.dumps(profile)
    parsed = parse_profile(profile, "here", None).value_or(None)
    assert json.dumps(profile) == before
    if parsed is not None:
        assert all(profile[name] == value for name, value in parsed.generation.items())


@given(document=json_values)
def test_4_8_any_document_is_a_prompt_or_a_list_of_problems(document: Any) -> None:
    assert parse_prompt(document).value_or(None) is None


@given(text=st.text())
def test_4_16_a_uri_that_is_accepted_is_the_same_when_printed(text: str) -> None:
    for one in (text, f"gs://bucket/{text}"):
        uri = parse_uri(one, "here").value_or(None)
        assert uri is None or str(uri) == one


@given(one=st.tuples(step_ids, step_ids), prefix=st.sampled_from(["", "p", "a/b"]))
def test_4_17_two_steps_never_share_a_report_name(one: tuple[str, str], prefix: str) -> None:
    names = {report_name(prefix, RUN_ID, "1M", step_id) for step_id in one}
    assert len(names) == len(set(one))


# The text.

_texts = st.text(max_size=40) | st.sampled_from(["{symbol}", "%s", "{0}{{}}", "$x", "## UserInput", "\\1"])


@given(system=_texts, user=_texts, candles=json_values, scope=documents)
def test_4_8_the_prompt_s_text_stands_first_and_as_it_is(
    system: str, user: str, candles: Any, scope: dict[str, Any]
) -> None:
    step = parsed_step(a_report_flow_run(scope={**scope, "symbol": "BTCUSDT"}))
    content = json.dumps(candles, ensure_ascii=False).encode("utf-8", "replace")
    text = user_text(Prompt(system, user), step, content, (), ())
    generated = text.removeprefix(f"{user}\n\n## UserInput\n\n### Scope\n\n```json\n")
    assert len(generated) < len(text)
    shown, _ = json.JSONDecoder().raw_decode(generated)
    assert shown == {**scope, "symbol": "BTCUSDT", "timeframe": "1M"}
    assert content.decode() in generated


@given(size=st.integers(MAX_JSON_BYTES - 3, MAX_JSON_BYTES + 3), character=st.sampled_from(["x", "ä", "€"]))
def test_4_12_the_limit_of_json_is_in_bytes(size: int, character: str) -> None:
    body = character * ((size - 2) // len(character.encode()))
    content = f'"{body}"'.encode()
    content += b" " * (size - len(content))
    assert len(content) == size
    assert bool(json_problems(content, "here")) == (size > MAX_JSON_BYTES)


@given(size=st.integers(MAX_IMAGE_BYTES - 3, MAX_IMAGE_BYTES + 3))
def test_4_12_the_limit_of_a_picture_is_in_bytes(size: int) -> None:
    content = a_png(padding=b"x" * (size - len(a_png())))
    assert bool(image_problems(content, "here")) == (size > MAX_IMAGE_BYTES)


@given(content=st.binary(max_size=200) | json_values.map(lambda one: json.dumps(one).encode()))
def test_4_12_any_bytes_are_a_manifest_or_a_list_of_problems(content: bytes) -> None:
    charts, problems = charts_of(content, "here")
    assert charts == ()
    assert problems


@given(document=documents)
def test_4_9_the_hash_does_not_depend_on_the_order_of_keys(document: dict[str, Any]) -> None:
    assert schema_sha256(document) == schema_sha256(dict(reversed(document.items())))


@given(
    prompt_id=st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="/"), min_size=1, max_size=200
    )
)
def test_the_name_of_any_recording_is_found_again(prompt_id: str) -> None:
    inputs = report_inputs(llm={"promptId": prompt_id, "llmProfile": a_profile()})
    key = fixture_key(parsed_step(changed_step(inputs=inputs)), "primary")
    assert fixture_key_of(answer_fixture_name(key)) == key
