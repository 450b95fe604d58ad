from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.charts.naming import (
    error_fixture_name,
    error_fixture_status,
    fixture_key,
    fixture_key_of,
    manifest_name,
    object_uri,
    png_fixture_name,
    png_name,
    png_second,
    step_folder,
)
from core.charts.step import ChartStep
from effects.moments import floor_second
from tests.builders import NOW
from tests.strategies import moments, step_ids, template_ids

symbols = st.from_regex(r"[A-Z0-9][A-Z0-9._!-]{0,12}", fullmatch=True)
chart_steps = st.builds(
    ChartStep,
    run_id=st.just("20251215-102530_BTCUSDT_k3f7a"),
    step_id=step_ids.filter(lambda one: "/" not in one and ".." not in one and one != "."),
    symbol=symbols,
    timeframe=st.sampled_from(["1M", "1w", "4h"]),
    min_images=st.just(1),
    chart_template_ids=st.just(("x",)),
)


STEP = ChartStep(
    run_id="20251215-102530_BTCUSDT_k3f7a",
    step_id="charts:4h:all",
    symbol="BTCUSDT",
    timeframe="4h",
    min_images=1,
    chart_template_ids=("x",),
)


@given(step=chart_steps, template_id=template_ids, moment=moments)
def test_a_png_s_name_has_the_contract_s_form(step: ChartStep, template_id: str, moment: datetime) -> None:
    folder, _, file = png_name(step, template_id, moment).rpartition("/")
    assert folder == f"charts/{step.run_id}/{step.step_id}"
    second, slug, rest = file.split("_", 2)
    assert second == moment.strftime("%Y%m%d-%H%M%S")
    assert re.fullmatch(r"[A-Za-z0-9-]+", slug)
    assert len(slug) == len(step.symbol)
    assert rest == f"{step.timeframe}_{template_id}.png"


@given(step=chart_steps, ids=st.lists(template_ids, min_size=2, max_size=2, unique=True), moment=moments)
def test_two_templates_never_share_a_name(step: ChartStep, ids: list[str], moment: datetime) -> None:
    assert png_name(step, ids[0], moment) != png_name(step, ids[1], moment)


@given(step=chart_steps, template_id=template_ids, moment=moments)
def test_the_second_of_a_picture_is_in_its_name(step: ChartStep, template_id: str, moment: datetime) -> None:
    name = png_name(step, template_id, moment)
    assert png_second(step, template_id, name) == floor_second(moment)


@given(
    step=chart_steps,
    other=chart_steps,
    ids=st.tuples(template_ids, template_ids),
    moment=moments,
)
def test_a_picture_of_another_request_has_no_second(
    step: ChartStep, other: ChartStep, ids: tuple[str, str], moment: datetime
) -> None:
    second = png_second(step, ids[0], png_name(other, ids[1], moment))
    is_same = png_name(step, ids[0], moment) == png_name(other, ids[1], moment)
    assert second == (floor_second(moment) if is_same else None)


@given(template_id=template_ids, more=st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), moment=moments)
def test_an_id_that_begins_or_ends_like_another_is_another(template_id: str, more: str, moment: datetime) -> None:
    for longer in (more + template_id, template_id + more, f"4h_{template_id}", f"BTCUSDT_4h_{template_id}"):
        assert png_second(STEP, template_id, png_name(STEP, longer, moment)) is None
        assert png_second(STEP, longer, png_name(STEP, template_id, moment)) is None


@given(text=st.text(max_size=60), moment=moments, place=st.integers(0, 120))
def test_any_other_text_has_no_second(text: str, moment: datetime, place: int) -> None:
    name = png_name(STEP, "x", moment)
    changed = name[:place] + text + name[place:]
    for one in (text, step_folder(STEP) + text, step_folder(STEP) + text + "_BTCUSDT_4h_x.png", changed):
        second = png_second(STEP, "x", one)
        assert second is None or png_name(STEP, "x", second) == one


@pytest.mark.parametrize(
    "second",
    [
        "20251315-102530", "20250229-102530", "20251215-246060", "20251215-102560", "20251215-102561",
        "00000101-000000", "2025121-5102530", "20251215-10253", "20251215-1025300", " 0251215-102530",
        "٢٠٢٥١٢١٥-102530", "+0251215-102530", "20251215-102530\n", "0999-1215-102530", "09991215-102530",
    ],
)  # fmt: skip
def test_a_second_of_no_calendar_is_none(second: str) -> None:
    assert png_second(STEP, "x", f"{step_folder(STEP)}{second}_BTCUSDT_4h_x.png") is None


def test_the_second_is_of_utc_whatever_the_zone_of_the_moment() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert png_second(STEP, "x", png_name(STEP, "x", there)) == NOW


@given(step=chart_steps)
def test_the_manifest_has_no_second(step: ChartStep) -> None:
    assert png_second(step, "x", manifest_name(step)) is None


@given(step=chart_steps)
def test_the_manifest_s_name_is_of_run_and_step_alone(step: ChartStep) -> None:
    assert manifest_name(step) == f"charts/{step.run_id}/{step.step_id}/manifest.json"
    assert object_uri("b", manifest_name(step)) == f"gs://b/charts/{step.run_id}/{step.step_id}/manifest.json"


def test_the_example_of_the_contract() -> None:
    key = fixture_key("BINANCE:BTCUSDT", "1h", "price_psar_adi_v1")
    assert png_fixture_name(key) == "BINANCE_BTCUSDT__1h__price_psar_adi_v1.png"
    assert (
        error_fixture_name(key, 429, "Limit Exceeded")
        == "BINANCE_BTCUSDT__1h__price_psar_adi_v1__429_LIMIT_EXCEEDED.json"
    )
    assert NOW.second == 30


@example(symbol="X" * 400, timeframe="1h", template_id="t", message="m" * 400)
@example(symbol="../../etc/passwd", timeframe="1h", template_id="t", message="")
@given(
    symbol=st.text(max_size=400),
    timeframe=st.text(max_size=10),
    template_id=template_ids,
    message=st.text(max_size=500),
)
def test_a_fixture_s_file_name_is_bounded_and_stays_in_its_folder(
    symbol: str, timeframe: str, template_id: str, message: str
) -> None:
    key = fixture_key(symbol, timeframe, template_id)
    for name in (png_fixture_name(key), error_fixture_name(key, 500, message)):
        assert len(name) <= 255
        assert re.fullmatch(r"[A-Za-z0-9_!-][A-Za-z0-9._!-]*", name)
        assert fixture_key_of(name) == key


@given(
    symbol=st.text(max_size=40),
    template_id=template_ids,
    status=st.integers(100, 599),
    message=st.text(max_size=60),
)
def test_an_error_fixture_is_found_again_by_its_key(
    symbol: str, template_id: str, status: int, message: str
) -> None:
    key = fixture_key(symbol, "1h", template_id)
    assert error_fixture_status(error_fixture_name(key, status, message), key) == status
    assert error_fixture_status(png_fixture_name(key), key) is None


def test_other_files_are_no_fixtures() -> None:
    assert fixture_key_of("README.md") is None


def test_a_template_named_like_an_error_is_not_taken_for_another_s_error() -> None:
    name = "S__1h__t__400_X__500_ERR.json"
    assert fixture_key_of(name) == "S__1h__t__400_X"
    assert error_fixture_status(name, "S__1h__t") is None
