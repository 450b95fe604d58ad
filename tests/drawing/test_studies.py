"""Each indicator against an example small enough to work out by hand."""

import pytest

from fixtures.drawing import studies
from fixtures.drawing.studies import ProfileRow

BARS = [(1.0, 3.0, 1.0, 3.0, 10.0), (3.0, 3.0, 2.0, 2.0, 4.0)]


def test_sma_is_the_mean_of_the_last_values_and_unknown_before() -> None:
    assert studies.sma([1, 2, 3, 4], 2) == [None, 1.5, 2.5, 3.5]


def test_ema_starts_with_a_simple_average() -> None:
    assert studies.ema([1, 2, 4, 8], 3) == [None, None, pytest.approx(7 / 3), pytest.approx(31 / 6)]


def test_averages_of_too_few_values_are_unknown() -> None:
    assert studies.sma([1, 2], 5) == studies.ema([1, 2], 5) == [None, None]


def test_bollinger_bands_stand_so_many_deviations_from_the_mean() -> None:
    assert studies.bollinger([2, 4], 2, 2) == ([None, 3], [None, 5], [None, 1])


def test_macd_is_the_gap_between_two_averages_and_its_own_average() -> None:
    line, signal, histogram = studies.macd([1, 2, 4, 8], 1, 2, 2)
    assert line == [None, 0.5, pytest.approx(5 / 6), pytest.approx(29 / 18)]
    assert signal == [None, None, pytest.approx(2 / 3), pytest.approx(35 / 27)]
    assert histogram == [None, None, pytest.approx(1 / 6), pytest.approx(17 / 54)]


def test_rsi_is_the_share_of_gains_in_all_movement() -> None:
    assert studies.rsi([1, 2, 1, 3], 2) == [None, None, 50, pytest.approx(250 / 3)]


def test_rsi_of_only_gains_is_a_hundred_and_without_movement_fifty() -> None:
    assert studies.rsi([1, 2, 3], 2)[-1] == 100
    assert studies.rsi([2, 2, 2], 2)[-1] == 50


def test_stochastic_rsi_places_the_rsi_in_its_recent_range() -> None:
    assert studies.stochastic_rsi([1, 2, 1, 2], 1, 2, 1, 2) == ([None, None, 0, 100], [None, None, None, 50])


def test_adx_of_a_steady_rise_is_a_hundred() -> None:
    index, plus, minus = studies.adx([2, 3, 4, 5], [1, 2, 3, 4], [1.5, 2.5, 3.5, 4.5], 2, 2)
    assert index == [None, None, None, 100]
    assert plus == [None, None, pytest.approx(200 / 3), pytest.approx(200 / 3)]
    assert minus == [None, None, 0, 0]


def test_adx_counts_only_the_larger_of_two_opposite_moves() -> None:
    _, plus, minus = studies.adx([10, 12], [9, 8], [9, 9], 1, 1)
    assert (plus, minus) == ([None, 50], [None, 0])


def test_parabolic_sar_trails_below_the_price_and_flips_to_the_extreme_when_crossed() -> None:
    assert studies.parabolic_sar([10, 11, 12, 8], [9, 10, 11, 7], 0.1, 0.1, 0.2) == [None, 9, 9, 12]


def test_on_balance_volume_adds_on_rises_and_takes_off_on_falls() -> None:
    assert studies.on_balance_volume([1, 2, 2, 1], [5, 6, 7, 8]) == [0, 6, 6, -2]


def test_volume_profile_spreads_each_bar_over_its_range() -> None:
    assert studies.volume_profile(BARS, 2) == [ProfileRow(1, 2, 5, 0), ProfileRow(2, 3, 5, 4)]


def test_value_area_grows_from_the_point_of_control_until_it_holds_enough() -> None:
    rows = studies.volume_profile(BARS, 2)
    assert studies.point_of_control(rows) == 1
    assert studies.value_area(rows, 0.5) == range(1, 2)
    assert studies.value_area(rows, 0.7) == range(2)
