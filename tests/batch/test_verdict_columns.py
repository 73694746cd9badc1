"""Verdicts as columns: which are flagged where a share of mistakes is to hold among all of them."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from nescio.batch.verdict_columns import largest_flagged
from nescio.guard.promise import benjamini_hochberg


@given(st.lists(st.integers(1, 40), max_size=60), st.sampled_from([0.01, 0.1, 0.3, 0.9]))
def test_how_often_each_p_value_is_there_is_enough_to_flag_as_with_all_of_them(ranks, fdr):
    p = torch.tensor([rank / 40 for rank in ranks], dtype=torch.float64)
    flagged = p <= largest_flagged(Counter(p.tolist()), fdr)
    assert flagged.tolist() == benjamini_hochberg(p, fdr).tolist()


def test_none_is_flagged_of_none():
    assert largest_flagged({}, 0.1) == -1.0
