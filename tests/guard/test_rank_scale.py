import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given
from scipy.stats import norm, rankdata

from nescio.guard.rank_scale import Scale

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: float(np.float32(v)))
samples = st.lists(numbers, min_size=1, max_size=30).map(lambda v: torch.tensor(v, dtype=torch.float64))


def z_of(sample, values):
    return Scale.of(sample[:, None])(values[:, None])[:, 0]


@given(samples)
def test_a_value_of_the_sample_has_the_normal_quantile_of_its_mid_rank(sample):
    expected = norm.ppf((rankdata(sample.numpy()) - 0.5) / len(sample))
    torch.testing.assert_close(z_of(sample, sample), torch.tensor(expected), atol=1e-9, rtol=0)


@given(samples, st.lists(numbers, min_size=2, max_size=30))
def test_it_never_falls(sample, values):
    z = z_of(sample, torch.tensor(sorted(values), dtype=torch.float64))
    assert bool(z.isfinite().all())
    assert bool((z.diff() >= -1e-12).all())


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_the_sample_does_not_matter(sample, random):
    order = list(range(len(sample)))
    random.shuffle(order)
    one, two = Scale.of(sample[:, None]), Scale.of(sample[order, None])
    assert torch.equal(one.values, two.values)
    assert torch.equal(one.z, two.z)


def test_beyond_the_largest_it_goes_on_by_the_logarithm_of_how_far():
    sample = torch.tensor([0.0, 1.0, 2.0, 3.0, 6.0], dtype=torch.float64)
    top, bottom = Scale.of(sample[:, None]).z[0, [-1, 0]].tolist()
    z = z_of(sample, torch.tensor([6.0, 10.0, 2.0 + 4.0 * np.e, 0.0, -2.0], dtype=torch.float64))
    expected = [top, top + np.log(2.0), top + 1.0, bottom, bottom - np.log(2.0)]
    torch.testing.assert_close(z, torch.tensor(expected, dtype=torch.float64))


def test_of_one_value_everything_else_is_far_out():
    sample = torch.full((7,), 3.0, dtype=torch.float64)
    low, same, high = z_of(sample, torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64)).tolist()
    assert same == 0.0
    assert low < -10
    assert high > 10


@given(samples, samples, st.lists(numbers, min_size=1, max_size=9))
def test_each_quantity_has_a_scale_of_its_own_whatever_stands_beside_it(one, two, values):
    count = min(len(one), len(two))
    sample, v = torch.stack([one[:count], two[:count].round()], dim=1), torch.tensor(values, dtype=torch.float64)
    z = Scale.of(sample)(torch.stack([v, v], dim=1))
    torch.testing.assert_close(z[:, 0], z_of(sample[:, 0], v), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(z[:, 1], z_of(sample[:, 1], v), atol=1e-12, rtol=1e-12)
