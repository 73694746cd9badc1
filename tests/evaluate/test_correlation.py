"""Rank correlation against scipy, and what it refuses."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nescio.evaluate import rank_correlation
from nescio.types import InputError


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=30))
def test_it_is_that_of_scipy_also_with_ties(pairs: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    one, other = np.array(pairs, dtype=float).T
    found = rank_correlation(one, torch.tensor(other))
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)
        assert found == rank_correlation(np.exp(one), 3 * other)  # only the order counts


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="got 2 and 3 numbers"):
        rank_correlation([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="at least 2"):
        rank_correlation([1.0], [1.0])
