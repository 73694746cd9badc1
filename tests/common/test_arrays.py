"""Numbers of users: tensors, lists and arrays alike, and nothing that is no number."""

from typing import Any

import numpy as np
import pytest
import torch

from nescio._common.arrays import real_numbers
from nescio.types import InputError


@pytest.mark.parametrize("values", [[1, 2], (1, 2), np.array([1, 2]), torch.tensor([1, 2])])
def test_whole_numbers_stay_whole(values: Any) -> None:
    found = real_numbers(values, "x")
    assert found.dtype == np.int64
    assert found.tolist() == [1, 2]


@pytest.mark.parametrize("values", [[0.5], np.float16([0.5]), torch.tensor([0.5], requires_grad=True).bfloat16()])
def test_fractions_become_float64(values: Any) -> None:
    found = real_numbers(values, "x")
    assert found.dtype == np.float64
    assert found.tolist() == [0.5]


@pytest.mark.parametrize("values", [["a"], [1j], torch.tensor([1j]), [[1, 2], [3]], np.array(["2020"], "M8[D]")])
def test_what_is_no_real_number_is_refused(values: Any) -> None:
    with pytest.raises(InputError, match=r"^x: expected scores, one each, but got "):
        real_numbers(values, "x", "scores, one each")
