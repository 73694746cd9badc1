"""Numbers for people: never rounded to certainty, in the unit that suits them, with the noun in the right form."""

import pytest

from nescio._common.formatting import chance, count, duration, number, percent, percentage, rough_duration


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0.0, "0 %"), (0.05, "5 %"), (0.12345, "12.35 %"), (0.5, "50 %"), (1.0, "100 %")),
        *((0.99999, "99.999 %"), (0.9999999, "99.99999 %"), (1 - 2**-53, "99.99999999999999 %")),
    ],
)
def test_a_share_below_1_is_never_100_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_share_may_have_fewer_digits_and_a_bound_on_them() -> None:
    assert percent(0.12345, digits=2) == "12 %"
    assert percent(0.9996, digits=2, most_digits=5) == "99.96 %"
    assert percent(0.999999, digits=2, most_digits=5) == "100 %"


def test_a_percentage_for_a_table_has_one_digit_after_the_point() -> None:
    assert [percentage(share) for share in (0.97349, 1.0, 0.0)] == ["97.3", "100.0", "0.0"]


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        *((1.0, "100.0 %"), (0.99999, "over 99.9 %"), (0.5, "50.0 %")),
        *((0.001, "0.1 %"), (0.0001, "under 0.1 %"), (0.0, "0.0 %")),
    ],
)
def test_a_chance_never_says_more_than_is_so(probability: float, text: str) -> None:
    assert chance(probability) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (0.12345, "0.123"), (-0.01234, "−0.0123"), (-5.98, "−5.98"), (999.4, "999"), (999.6, "1,000")),
        *((1234.7, "1,235"), (-1234.7, "−1,235"), (0.0001, "0.0001"), (1e-5, "10⁻⁵"), (-1e-5, "−10⁻⁵")),
        *((2.5e-7, "2.5·10⁻⁷"), (1234567.0, "1.23·10⁶"), (3e9, "3·10⁹"), (999_999.9, "10⁶"), (float("inf"), "inf")),
    ],
)
def test_a_number_has_three_digits_or_a_power_of_ten(value: float, text: str) -> None:
    assert number(value) == text


def test_a_count_has_its_noun_in_the_right_form() -> None:
    assert [count(many, "input") for many in (0, 1, 2, 1234)] == ["0 inputs", "1 input", "2 inputs", "1,234 inputs"]
    assert [count(many, "batch") for many in (1, 2)] == ["1 batch", "2 batches"]
    assert count(2, "child", "children") == "2 children"


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 µs"), (1.0, "1 s"), (0.9994, "999 ms")]
)
def test_a_duration_is_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_duration_never_has_a_power_of_ten() -> None:
    for digits in (1, 2, 3):
        for power in range(-15, 10):
            for first in (1.0, 1.26, 5.0, 9.96, 9.9996):
                text = duration(first * 10.0**power, digits=digits)
                assert "e" not in text.replace("under", ""), text
    assert [duration(s, digits=2) for s in (0.126, 0.999, 2.6e6)] == ["130 ms", "1 s", "2,600,000 s"]
    assert duration(0.0) == "0 µs"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((40, "40 s"), (61, "1 minute"), (90, "1.5 minutes"), (1000, "17 minutes")),
        *((7200, "2 hours"), (86_400 * 3, "3 days")),
    ],
)
def test_an_estimate_is_no_more_precise_than_it_is(seconds: float, words: str) -> None:
    assert rough_duration(seconds) == words
