from __future__ import annotations

import json
from typing import Any

import pytest

from core.reports.registry import Prompt
from core.reports.user_input import (
    MAX_IMAGE_BYTES,
    MAX_JSON_BYTES,
    AttachedChart,
    charts_of,
    image_problems,
    json_problems,
    repair_text,
    user_text,
)
from tests.builders import a_png
from tests.report_world import (
    CANDLES,
    CHART_IDS,
    OLD_ID,
    OLD_NAME,
    a_manifest,
    a_report_flow_run,
    changed_step,
    parsed_step,
    report_inputs,
    uri_of,
)

PROMPT = Prompt("system", "Write about the month.")
CHARTS = (AttachedChart("t1", "price", "gs://b/1.png"), AttachedChart("t2", "volume", "gs://b/2.png"))
HEADLINE = "## UserInput"


def text_of(prompt: str = "Write about the month.", **changes: Any) -> str:
    given = {"candles": CANDLES, "charts": CHARTS, "previous": (), "step": parsed_step(), **changes}
    return user_text(Prompt("system", prompt), **given)


def test_4_12_everything_generated_stands_under_userinput_scope_first() -> None:
    before, after = text_of().split(HEADLINE)
    assert before == "Write about the month.\n\n"
    headings = [line for line in after.splitlines() if line.startswith("#")]
    assert headings == [
        "### Scope",
        "### Candles (1M)",
        "### Charts, attached as images in this order",
        "### Task",
    ]


def test_4_12_the_scope_has_the_run_s_scope_and_the_timeframe() -> None:
    step = parsed_step(a_report_flow_run(scope={"symbol": "BTCUSDT", "market": "spöt"}))
    scope = text_of(step=step).split("```json\n")[1].split("\n```")[0]
    assert json.loads(scope) == {"symbol": "BTCUSDT", "market": "spöt", "timeframe": "1M"}


def test_4_12_candles_stand_there_as_they_are_with_their_source() -> None:
    assert f"Source: {uri_of('candles.json')}\n\n```json\n{CANDLES.decode()}\n```" in text_of()


def test_4_12_pictures_are_listed_in_the_order_they_are_attached() -> None:
    assert "\n\n1. price (t1)\n2. volume (t2)\n\n" in text_of()
    assert "### Charts, attached as images in this order\n\nnone\n" in text_of(charts=())


def test_4_12_a_previous_report_has_a_block_with_label_and_uri() -> None:
    step = parsed_step(changed_step(inputs=report_inputs(previousReportStepIds=[OLD_ID])))
    text = text_of(step=step, previous=(b'{"old": 1}',))
    expected = (
        f'### Previous report: {OLD_ID}\n\nSource: {uri_of(OLD_NAME)}\n\n```json\n{{"old": 1}}\n```\n\n### Task'
    )
    assert expected in text


@pytest.mark.parametrize(
    "prompt", ["{symbol} {0} {{x}}", "%s %(symbol)s %%", "${symbol} $1", "<< {{ symbol }} >>", ""]
)
def test_4_8_there_is_no_templating(prompt: str) -> None:
    assert text_of(prompt).split(f"\n\n{HEADLINE}")[0] == prompt


def test_a_prompt_with_the_headline_of_its_own_changes_nothing() -> None:
    prompt = f"before\n{HEADLINE}\nafter"
    assert text_of(prompt).startswith(f"{prompt}\n\n{HEADLINE}\n\n### Scope")


def of_size(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


@pytest.mark.parametrize(
    ("size", "count"), [(MAX_JSON_BYTES - 1, 0), (MAX_JSON_BYTES, 0), (MAX_JSON_BYTES + 1, 1)]
)
def test_4_12_json_has_at_most_64_kib(size: int, count: int) -> None:
    assert MAX_JSON_BYTES == 64 * 1024
    assert len(json_problems(of_size(size), "here")) == count


@pytest.mark.parametrize(("size", "count"), [(MAX_IMAGE_BYTES, 0), (MAX_IMAGE_BYTES + 1, 1)])
def test_4_12_a_picture_has_at_most_256_kib(size: int, count: int) -> None:
    assert MAX_IMAGE_BYTES == 256 * 1024
    picture = a_png(padding=b"x" * (size - len(a_png())))
    assert (len(picture), len(image_problems(picture, "here"))) == (size, count)


def test_what_is_no_picture_is_refused() -> None:
    assert [str(one) for one in image_problems(b"text", "here")] == ["here: is not a PNG"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 5_000, b"\xef\xbb\xbf{}", '"ä"'.encode("utf-16")])
def test_what_is_no_json_in_utf_8_is_refused_without_a_quotation(content: bytes) -> None:
    assert [str(one) for one in json_problems(content, "here")] == ["here: is not JSON in UTF-8"]
    assert charts_of(content, "here")[0] == ()
    assert len(charts_of(content, "here")[1]) == 1


def test_the_pictures_of_a_manifest_are_described_by_label_or_kind() -> None:
    manifest = json.loads(a_manifest())
    manifest["items"][0]["label"] = "a label"
    charts, problems = charts_of(json.dumps(manifest).encode(), "here")
    assert problems == ()
    assert [(one.chart_template_id, one.description) for one in charts] == [
        (CHART_IDS[0], "a label"),
        (CHART_IDS[1], f"about {CHART_IDS[1]}"),
    ]


def test_a_manifest_that_is_none_is_refused_with_everything_that_is_wrong() -> None:
    charts, problems = charts_of(b'{"items": 7}', "here")
    assert charts == ()
    assert len(problems) > 3
    assert all(one.where.startswith("here: ") for one in problems)


def test_a_repair_has_the_question_the_answer_and_what_is_wrong() -> None:
    text = repair_text("asked", "  answered ", "the text is not JSON")
    assert text.startswith("asked\n\n### Repair\n\nYour previous answer cannot be used: the text is not JSON.")
    assert "Your answer was:\n\n  answered \n" in text
    assert "Your answer was" not in repair_text("asked", None, "there is no text")
