"""The synthetic market: repeatable, and believable enough to look at."""

import itertools
from datetime import UTC, datetime

import pytest

from fixtures.drawing.candles import make_candles
from fixtures.drawing.intervals import LAST_MOMENT

INTERVALS = ["1m", "45m", "1h", "4h", "1d", "1D", "1w", "1M", "1y", "7x", "999999h", "0d"]


@pytest.mark.parametrize("interval", INTERVALS)
def test_candles_are_in_order_and_end_before_the_fixed_moment(interval: str) -> None:
    times = [candle.time for candle in make_candles("BINANCE:BTCUSDT", interval)]
    assert all(before < after for before, after in itertools.pairwise(times))
    assert times[-1] <= LAST_MOMENT


def test_candles_open_on_the_marks_of_the_calendar() -> None:
    last = {interval: make_candles("X", interval)[-1].time for interval in ("4h", "1w", "1M")}
    assert last["4h"] == datetime(2025, 9, 15, 12, tzinfo=UTC)
    assert last["1w"].weekday() == 0
    assert last["1M"] == datetime(2025, 9, 1, tzinfo=UTC)


def test_the_same_symbol_and_interval_give_the_same_candles() -> None:
    assert make_candles("BINANCE:ETHUSDT", "4h") == make_candles("BINANCE:ETHUSDT", "4h")
    assert make_candles("BINANCE:ETHUSDT", "4h") != make_candles("BINANCE:ETHUSDT", "1h")


@pytest.mark.parametrize("symbol", ["BINANCE:BTCUSDT", "BINANCE:ETHUSDT", "BINANCE:DOGEUSDT", "BINANCE:ABCUSDT"])
def test_every_candle_holds_its_open_and_close_between_low_and_high(symbol: str) -> None:
    for candle in make_candles(symbol, "1h"):
        assert 0 < candle.low <= min(candle.open, candle.close)
        assert max(candle.open, candle.close) <= candle.high
        assert candle.volume > 0


def test_all_intervals_of_a_symbol_end_at_one_plausible_price() -> None:
    prices = {make_candles("BINANCE:BTCUSDT", interval)[-1].close for interval in ("1h", "4h", "1d", "1w", "1M")}
    assert len(prices) == 1
    assert 60_000 < prices.pop() < 100_000


def test_volume_follows_the_range_of_the_candle() -> None:
    candles = sorted(make_candles("BINANCE:BTCUSDT", "1h"), key=lambda candle: candle.high / candle.low)
    calm, wild = candles[:100], candles[-100:]
    assert sum(candle.volume for candle in wild) > 2 * sum(candle.volume for candle in calm)
