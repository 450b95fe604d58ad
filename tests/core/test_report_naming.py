from __future__ import annotations

from dataclasses import replace

import pytest

from core.reports.naming import (
    answer_fixture_name,
    fixture_key,
    fixture_key_of,
    refusal_fixture_name,
    refusal_status,
)
from tests.report_world import PROMPT_ID, SCHEMA_ID, parsed_step

KEY = f"BTCUSDT__1M__{PROMPT_ID}__gemini-2.5-pro__{SCHEMA_ID}"


def test_a_recording_is_named_after_what_was_asked() -> None:
    assert fixture_key(parsed_step(), "primary") == KEY
    assert fixture_key(parsed_step(), "repair") == f"{KEY}__repair"


def test_the_name_does_not_depend_on_the_run() -> None:
    other = replace(parsed_step(), run_id="another", step_id="another")
    assert fixture_key(other, "primary") == KEY


@pytest.mark.parametrize("prompt_id", ["../../etc/passwd", "a b:c", "x" * 200])
@pytest.mark.parametrize("symbol", ["BTCUSDT", ".hidden", "..", "A/B"])
def test_a_name_is_bounded_and_safe(prompt_id: str, symbol: str) -> None:
    key = fixture_key(replace(parsed_step(), prompt_id=prompt_id, symbol=symbol), "primary")
    assert len(key) <= 180
    assert not key.startswith(".")
    assert not set(key) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def test_long_names_that_differ_only_at_their_end_stay_different() -> None:
    one, other = (replace(parsed_step(), prompt_id="x" * 190 + end) for end in "ab")
    assert fixture_key(one, "primary") != fixture_key(other, "primary")
    assert fixture_key(one, "primary") != fixture_key(one, "repair")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
        (None, "ERROR"),
        ("", "ERROR"),
        ("not found!", "NOT_FOUND"),
        ("ä", "ERROR"),
    ],
)
def test_a_refusal_is_recorded_under_its_status(status: str | None, words: str) -> None:
    name = refusal_fixture_name(KEY, 429, status)
    assert name == f"{KEY}__429_{words}.json"
    assert (fixture_key_of(name), refusal_status(name, KEY)) == (KEY, 429)


def test_a_recording_is_found_again_by_its_name() -> None:
    name = answer_fixture_name(KEY)
    assert (name, fixture_key_of(name), refusal_status(name, KEY)) == (f"{KEY}.json", KEY, None)


@pytest.mark.parametrize("name", ["README.md", "x.png", ""])
def test_another_file_is_no_recording(name: str) -> None:
    assert fixture_key_of(name) is None
