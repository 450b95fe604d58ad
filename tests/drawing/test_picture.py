"""The picture as a whole: it is always drawn, always the same, and it tells what it left out."""

from functools import cache
from io import BytesIO

import pytest
from PIL import Image

from fixtures.draw import CHARTS, PICTURES, TEMPLATES, main, picture_name
from fixtures.drawing import draw_chart
from fixtures.drawing.candles import make_candles
from fixtures.drawing.picture import plots_of
from fixtures.drawing.plots import drawable_studies
from fixtures.drawing.request import read_request
from fixtures.drawing.theme import DARK, LIGHT
from fixtures.drawing.view import View

BODY = {
    "symbol": "BINANCE:BTCUSDT",
    "interval": "4h",
    "width": 400,
    "height": 320,
    "studies": [{"name": "MACD"}],
}
LARGEST_FILE = 256 * 1024


def opened(picture: bytes) -> Image.Image:
    return Image.open(BytesIO(picture))


@cache
def without_studies(width: int, height: int, theme: str) -> bytes:
    return draw_chart({**BODY, "width": width, "height": height, "theme": theme, "studies": []})


def legend_of(body: dict[str, object]) -> list[str]:
    view = View(make_candles("BINANCE:BTCUSDT", "4h"), 90, DARK, 2)
    return [item.text for plot in plots_of(read_request(body), view) for item in plot.legend]


def test_the_same_body_gives_the_same_bytes() -> None:
    assert draw_chart(BODY) == draw_chart(dict(reversed(BODY.items())))


def test_symbol_interval_theme_and_studies_all_change_the_picture() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"symbol": "BINANCE:ETHUSDT"},
        {"interval": "1d"},
        {"theme": "light"},
        {"studies": []},
    ]
    assert len({draw_chart({**BODY, **change}) for change in changes}) == len(changes)


@pytest.mark.parametrize("name", drawable_studies())
@pytest.mark.parametrize(("width", "height", "theme"), [(320, 320, "dark"), (480, 360, "light")])
def test_every_study_is_drawn_at_any_size_in_both_themes(name: str, width: int, height: int, theme: str) -> None:
    body = {**BODY, "width": width, "height": height, "theme": theme}
    drawn = draw_chart({**body, "studies": [{"name": name}]})
    assert opened(drawn).size == (width, height)
    assert drawn != without_studies(width, height, theme)


def test_all_studies_fit_one_large_picture_of_a_bounded_size() -> None:
    drawn = draw_chart(
        {**BODY, "width": 2048, "height": 2048, "studies": [{"name": n} for n in drawable_studies()]}
    )
    assert opened(drawn).size == (2048, 2048)
    assert len(drawn) < LARGEST_FILE


@pytest.mark.parametrize(("theme", "background"), [("dark", DARK.background), ("light", LIGHT.background)])
def test_the_theme_decides_the_background(theme: str, background: tuple[int, int, int]) -> None:
    assert opened(draw_chart({**BODY, "theme": theme})).convert("RGB").getpixel((1, 1)) == background


def test_unknown_studies_and_drawings_are_named_in_the_legend_as_not_drawn() -> None:
    body = {**BODY, "studies": [{"name": "Moon Phase"}], "drawings": [{"name": "Long Position"}]}
    assert legend_of(body) == ["Moon Phase: not drawn", "Long Position: not drawn"]
    assert draw_chart(body) != draw_chart({**BODY, "studies": []})


def test_studies_without_room_for_a_pane_are_named_in_the_legend_as_not_drawn() -> None:
    body = {**BODY, "studies": [{"name": "Volume"}] * 5}
    assert legend_of(body).count("Volume: not drawn") == 2


def test_study_inputs_are_read_by_either_of_their_names() -> None:
    by_length = {"name": "Moving Average", "input": {"length": 26}}
    by_number = {"name": "Moving Average", "input": {"in_0": 26}}
    assert legend_of({"studies": [by_length, by_number]}) == ["MA 26", "MA 26"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"symbol": 7, "interval": "soon", "width": "wide", "height": None, "studies": "all", "drawings": [3]},
        {"width": 1, "height": 10**9, "studies": [{"name": "MACD", "input": {"in_0": -1, "in_1": "x"}}]},
        {"studies": [{"name": "Stochastic RSI", "input": dict.fromkeys(("in_0", "in_1", "in_2"), 10**5)}]},
        {
            "symbol": "NOWHERE:" + "LONG" * 20,
            "interval": "999999999M",
            "width": float("nan"),
            "style": "line",
        },
    ],
)
def test_any_body_is_drawn_within_the_allowed_sizes(body: dict[str, object]) -> None:
    width, height = opened(draw_chart(body)).size
    assert 320 <= width <= 2048
    assert 320 <= height <= 2048


def test_pictures_hold_nothing_but_pixels() -> None:
    assert opened(draw_chart(BODY)).info == {}


def test_a_picture_of_every_template_market_and_timeframe_is_kept_and_small() -> None:
    ids = [path.stem for path in TEMPLATES.glob("*.json")]
    names = {
        picture_name(symbol, interval, i) for i in ids for symbol, all_ in CHARTS.items() for interval in all_
    }
    kept = {path.name: path.stat().st_size for path in PICTURES.glob("*.png")}
    assert kept.keys() == names
    assert all(size < LARGEST_FILE for size in kept.values())


def test_checking_names_the_pictures_that_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = PICTURES / picture_name("BINANCE:BTCUSDT", "4h", "ctpl_price_ma1226_vol_v1")
    monkeypatch.setattr("fixtures.draw.pictures", lambda: iter([(kept, b"other")]))
    assert main(["--check"]) == 1
    assert kept.name in capsys.readouterr().err
