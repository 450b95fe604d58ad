"""Texts that must not be seen: planted everywhere, searched in every log line, word, document and result."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.journal.kinds import REPORTS
from effects import CallModel, FinalizeStep
from effects.encoding import encode_effect, encode_outcome
from tests.builders import RUN_PATH
from tests.journals import journal_of
from tests.report_world import (
    CANDLES_NAME,
    GEMINI_KEY,
    GOOD,
    OLD_ID,
    OLD_NAME,
    PROMPT_ID,
    REPORT_NAME,
    SCHEMA_ID,
    ReportWorld,
    a_json_schema,
    a_prompt,
    a_response,
    a_schema,
    changed_step,
    report_inputs,
    some_report_inputs,
    stored_objects,
)

SYSTEM, USER, CANDLES, PREVIOUS, ANSWER = (
    f"canary-{name}-7c1e94d2" for name in ("system-instruction", "user-prompt", "candles", "previous", "candidate")
)
CANARIES = (SYSTEM, USER, CANDLES, PREVIOUS, ANSWER, GEMINI_KEY)

answered = {
    "valid": a_response(json.dumps({"summary": {"markdown": ANSWER}, "details": {ANSWER: ANSWER}})),
    "not JSON": a_response(f"{ANSWER} {GOOD}"),
    "cut": a_response(f'{{"summary": "{ANSWER}', finish="MAX_TOKENS"),
    "wrong keys": a_response(
        json.dumps({ANSWER: {ANSWER: [ANSWER]}, "summary": ANSWER, "details": {"n": ANSWER}})
    ),
    "blocked": a_response(ANSWER, finish="SAFETY"),
    "with the key": a_response(json.dumps({"summary": {"markdown": GEMINI_KEY}, "details": {}})),
    "no text": a_response(finish="RECITATION"),
}
refusals = (
    f"400 INVALID_ARGUMENT cannot read {USER}",
    f"400 INVALID_ARGUMENT cannot read {CANDLES} of {SYSTEM}",
    f"403 PERMISSION_DENIED API key {GEMINI_KEY} is not valid",
    f"500 INTERNAL {PREVIOUS}",
    "timeout",
)
answers = st.sampled_from([*answered.values(), *refusals])
strict = a_json_schema(
    additionalProperties=False,
    properties={**a_json_schema()["properties"], "details": {"additionalProperties": {"maxLength": 3}}},
)
contexts = st.sampled_from([json.dumps({CANDLES: CANDLES}).encode(), f"{CANDLES} is no JSON".encode()])


def world_of(answers: list[Any], mode: str, schema: dict[str, Any], candles: bytes) -> ReportWorld:
    return ReportWorld(
        some_report_inputs(
            changed_step(inputs=report_inputs(previousReportStepIds=[OLD_ID])), variables={"LLM_API_MODE": mode}
        ),
        prompts={PROMPT_ID: a_prompt(systemInstruction=SYSTEM, userPrompt=USER)},
        schemas={SCHEMA_ID: a_schema(jsonSchema=schema)},
        answers=answers,
        given={**stored_objects(), CANDLES_NAME: candles, OLD_NAME: json.dumps(PREVIOUS).encode()},
    )


@settings(max_examples=150)
@given(
    answers=st.lists(answers, min_size=2, max_size=2),
    mode=st.sampled_from(["real", "record"]),
    schema=st.sampled_from([a_json_schema(), strict]),
    candles=contexts,
)
def test_4_5_4_14_4_30_no_prompt_no_candidate_text_and_no_key_is_ever_said(
    answers: list[Any], mode: str, schema: dict[str, Any], candles: bytes
) -> None:
    world = world_of(answers, mode, schema, candles)
    result = world.run()
    assert canaries_in(world.log()) == []
    words = [(encode_effect(effect), encode_outcome(outcome)) for _, effect, outcome in world.trace]
    assert canaries_in(words) == []
    assert canaries_in([(effect, outcome) for _, effect, outcome in world.trace]) == []
    assert canaries_in(world.effects(FinalizeStep)) == []
    assert canaries_in(journal_of(world, REPORTS)) == []
    assert GEMINI_KEY not in journal_of(world, REPORTS, texts=True)
    assert canaries_in(world.documents[RUN_PATH]) == []
    assert canaries_in(result) == []
    report = world.stored().get(REPORT_NAME, b"").decode()
    assert [one for one in CANARIES if one in report and one != ANSWER] == []


def canaries_in(value: object) -> list[str]:
    text = f"{value!r}{json.dumps(value, default=repr)}"
    return [one for one in CANARIES if one in text]


def test_the_canaries_do_reach_the_model_and_the_report() -> None:
    world = world_of([answered["valid"]], "real", a_json_schema(), json.dumps(CANDLES).encode())
    world.run()
    (asked,) = world.effects(CallModel)
    shown = f"{asked.system.data!r}{asked.user.data!r}"
    assert [one for one in (SYSTEM, USER, CANDLES, PREVIOUS) if one not in shown] == []
    assert ANSWER in world.stored()[REPORT_NAME].decode()
