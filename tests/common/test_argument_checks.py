"""Arguments: bounds that include or exclude their ends, plain types, and one wording for every refusal."""

import argparse
import math
from typing import Any

import numpy as np
import pytest
import torch

from nescio._common.argument_checks import argument_type, choice, integer, number, probability, shape
from nescio.types import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3)])
def test_a_whole_number_comes_back_as_an_int(value: Any) -> None:
    assert type(integer("k", value, at_least=3, at_most=3)) is int


@pytest.mark.parametrize("value", [True, np.True_, torch.tensor(True), 3.0, "3", None, [3], torch.tensor([3, 4])])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"^expected k to be a whole number, got "):
        integer("k", value)


@pytest.mark.parametrize(
    ("bounds", "value", "words"),
    [
        ({"at_least": 1}, 0, "a whole number of at least 1, got 0"),
        ({"at_most": 2_000_000}, 2_000_001, "a whole number of at most 2000000, got 2000001"),
        ({"at_least": 1, "at_most": 5}, 6, "a whole number from 1 to 5, got 6"),
        ({"at_least": 1, "hint": "leave it out"}, -1, "a whole number of at least 1, got -1; leave it out"),
    ],
)
def test_a_whole_number_outside_of_its_bounds_is_refused(bounds: dict[str, Any], value: int, words: str) -> None:
    with pytest.raises(InputError, match=f"^expected k to be {words}$"):
        integer("k", value, **bounds)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.float64(0.5), torch.tensor(0.5)])
def test_a_number_comes_back_as_a_float(value: Any) -> None:
    found = number("lr", value, above=0, below=1)
    assert type(found) is float
    assert found == 0.5


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, True, np.False_, "1", b"1", None, [1.0], 1j, 10**400, torch.zeros(2)]
)
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"^expected lr to be a finite number, got "):
        number("lr", value)


@pytest.mark.parametrize(
    ("bounds", "value", "words"),
    [
        ({"above": 0}, 0.0, "a finite number above 0, got 0.0"),
        ({"at_least": 0}, -5e-324, "a finite number of at least 0, got -5e-324"),
        ({"above": 0, "at_most": 1}, 1.5, "a finite number above 0 and at most 1, got 1.5"),
        ({"at_least": 0, "below": 0.5}, 0.5, "a finite number of at least 0 and below 0.5, got 0.5"),
        ({"at_least": 0.25, "at_most": 0.5}, 1, "a finite number from 0.25 to 0.5, got 1"),
    ],
)
def test_a_number_outside_of_its_bounds_is_refused(bounds: dict[str, float], value: float, words: str) -> None:
    with pytest.raises(InputError, match=f"^expected lr to be {words}$"):
        number("lr", value, **bounds)


def test_inclusive_bounds_include_their_ends() -> None:
    assert number("momentum", 0, at_least=0, at_most=0) == 0.0


def test_a_probability_is_strictly_between_0_and_1() -> None:
    assert probability("risk", np.float32(0.5)) == 0.5
    for value in (0, 1, -0.1, 5, math.nan, "0.5", True):
        with pytest.raises(InputError, match=r"expected risk to be a share above 0 and below 1, got .*; give"):
            probability("risk", value)


def test_a_choice_is_one_of_its_options_and_no_look_alike() -> None:
    assert choice("norm", np.int64(2), (1, 2)) == 2
    assert choice("channels_last", False, (True, False, "auto")) is False
    assert choice("precision", None, (None, "bfloat16")) is None
    with pytest.raises(InputError, match=r"^expected norm to be 1 or 2, got True$"):
        choice("norm", True, (1, 2))
    with pytest.raises(InputError, match=r"^expected kind to be 'a', 'b' or 'c', got 'd'; use 'a'$"):
        choice("kind", "d", "abc", hint="use 'a'")
    with pytest.raises(InputError, match=r"^expected only to be 1, got tensor"):
        choice("only", torch.ones(2), [1])


def test_a_shape_has_its_sizes_and_no_empty_dimension() -> None:
    assert shape("x", np.zeros((2, 3)), ("N", 3)) == (2, 3)
    for wrong in (torch.zeros(0, 3), torch.zeros(2, 4), torch.zeros(3), torch.zeros(1, 2, 3)):
        with pytest.raises(InputError, match=r"^expected x to be of shape \[N, 3\], got shape \[.*\]; add a row$"):
            shape("x", wrong, ("N", 3), hint="add a row")


def test_the_command_line_uses_the_same_checks() -> None:
    assert argument_type(integer, at_least=1)("12") == 12
    assert argument_type(probability)("0.05") == 0.05
    for text, words in (("0", "at least 1, got 0$"), ("1.5", "at least 1, got '1.5'$"), ("many", "got 'many'$")):
        with pytest.raises(argparse.ArgumentTypeError, match=rf"^expected a whole number of .*{words}"):
            argument_type(integer, at_least=1)(text)
    with pytest.raises(argparse.ArgumentTypeError, match=r"^expected a share above 0 and below 1, got 5.0; give"):
        argument_type(probability)("5")


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(InputError) as caught:
        integer("k", "x" * 10_000)
    assert len(str(caught.value)) < 300
