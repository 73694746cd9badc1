"""The p-value's promise, exactly: with n ranks its distribution is uniform on {1, …, n + 1}/(n + 1)."""

from fractions import Fraction
from itertools import permutations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.stats import false_discovery_control

from nescio.guard.promise import at_least, benjamini_hochberg, check_level, positions, reference_size, usual_level
from nescio.types import InputError


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_over_all_orders_of_exchangeable_scores_every_rank_is_equally_likely(n):
    seen = []
    for order in permutations(range(n + 1)):
        *reference, new = (float(one) for one in order)
        sample = torch.tensor(sorted(reference), dtype=torch.float64)
        seen.append(1 + int(at_least(sample, torch.tensor([new], dtype=torch.float64))))
    counts = np.bincount(seen, minlength=n + 2)[1:]
    assert counts.tolist() == [len(seen) // (n + 1)] * (n + 1)


@pytest.mark.parametrize("n", [3, 4])
def test_with_ties_it_is_never_below_its_level(n):
    """Every way to give n + 1 scores the values 0, 1, 2, and all of them as the new one: P(p ≤ k/(n+1)) ≤ k/(n+1)."""
    for values in np.ndindex(*[3] * (n + 1)):
        ranks = []
        for new in range(n + 1):
            reference = torch.tensor(sorted(values[:new] + values[new + 1 :]), dtype=torch.float64)
            ranks.append(1 + int(at_least(reference, torch.tensor([values[new]], dtype=torch.float64))))
        for k in range(1, n + 2):
            assert Fraction(sum(rank <= k for rank in ranks), n + 1) <= Fraction(k, n + 1)


scores = st.lists(st.floats(-1e9, 1e9).map(lambda v: float(np.float32(v))), min_size=1, max_size=20)


@given(scores, scores)
def test_it_counts_what_is_at_least_as_large(reference, new):
    found = at_least(torch.tensor(sorted(reference), dtype=torch.float64), torch.tensor(new, dtype=torch.float64))
    assert found.tolist() == [sum(r >= v - 1e-9 * (1 + abs(v)) for r in reference) for v in new]


def test_round_off_is_a_tie():
    reference = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert at_least(reference, torch.tensor([2.0 * (1 + 1e-15), 2.0, 2.001], dtype=torch.float64)).tolist() == [2, 2, 1]


@given(st.lists(st.integers(1, 200).map(lambda k: k / 200), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_benjamini_and_hochberg_as_scipy_has_it(p, fdr):
    adjusted = false_discovery_control(p)
    near = np.abs(adjusted - fdr) < 1e-9  # there the order of two operations decides
    found = benjamini_hochberg(torch.tensor(p, dtype=torch.float64), fdr).numpy()
    assert (found == (adjusted <= fdr))[~near].all()


def test_benjamini_and_hochberg_by_hand():
    p = torch.tensor([0.60, 0.01, 0.02, 0.035, 0.20], dtype=torch.float64)
    assert benjamini_hochberg(p, 0.05).tolist() == [False, True, True, False, False]  # 0.035 > 3/5 · 0.05
    assert benjamini_hochberg(p, 0.06).tolist() == [False, True, True, True, False]
    assert benjamini_hochberg(p[:1], 0.05).tolist() == [False]
    assert benjamini_hochberg(p[:0], 0.05).tolist() == []


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, True, "0.1", None, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(InputError, match="above 0 and below 1"):
        benjamini_hochberg(torch.ones(3, dtype=torch.float64), share)
    with pytest.raises(InputError, match="above 0 and below 1"):
        check_level(share, 1000)


def test_a_level_that_so_few_ranks_cannot_hold_says_how_many_it_takes():
    check_level(0.05, 100)
    with pytest.raises(InputError, match=r"at least 100 ranks for a level of 0.05, got 99.*reference of 100 inputs"):
        check_level(0.05, 99)
    with pytest.raises(
        InputError, match=r"at least 500 ranks for a level of 0.01, got 99.*1000 inputs.*at least 0.051"
    ):
        check_level(0.01, 99)
    assert (reference_size(100), reference_size(399), reference_size(400)) == (100, 399, 800)


def test_a_level_of_almost_nothing_is_refused_in_words():
    with pytest.raises(InputError, match=r"expected at least 1000000000000 ranks for a level of 4.*e-324, got 100"):
        check_level(5e-324, 100)


def test_the_usual_level_is_one_that_so_many_ranks_can_hold():
    assert [usual_level(ranks) for ranks in (20, 60, 99, 100, 5000)] == [0.25, 0.09, 0.06, 0.05, 0.05]
    for ranks in range(20, 500):
        check_level(usual_level(ranks), ranks)


@pytest.mark.parametrize("count", [0, 1, 200, 201, 450, 20_000])
def test_places_in_the_order_are_those_of_pytorch_which_is_given_few_values_at_a_time(count, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    ordered = torch.randn(50, generator=draw, dtype=torch.float64).sort().values
    values = torch.randn(count, generator=draw, dtype=torch.float64)
    values[: min(count, 60)] = torch.cat([ordered, torch.tensor([torch.nan, torch.inf, -torch.inf] * 4)[:10]])[:count]
    wanted, sizes = torch.searchsorted(ordered, values), []
    look_up = torch.searchsorted
    monkeypatch.setattr(torch, "searchsorted", lambda a, b: (sizes.append(len(b)), look_up(a, b))[1])
    assert torch.equal(positions(ordered, values), wanted)
    assert max(sizes) <= 200 or count == 20_000
