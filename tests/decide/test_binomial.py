import math

import numpy as np
import pytest
from scipy import stats

from nescio.decide import binomial_cdf, upper_bound
from nescio.decide.binomial import enough


@pytest.mark.parametrize("n", [1, 2, 7, 100, 3000])
@pytest.mark.parametrize("p", [1e-4, 0.01, 0.05, 0.5, 0.93])
def test_the_tail_equals_scipy(n, p):
    k = np.arange(-1, n + 1)
    expected = stats.binom.cdf(k, n, p)
    np.testing.assert_allclose(binomial_cdf(k, n, p), expected, atol=1e-11, rtol=0)
    large = expected > 1e-200
    np.testing.assert_allclose(binomial_cdf(k, n, p)[large], expected[large], rtol=1e-9)


def test_the_tail_by_hand():
    assert binomial_cdf(1, 3, 0.25) == pytest.approx(0.75**3 + 3 * 0.25 * 0.75**2, abs=1e-15)
    assert binomial_cdf(3, 3, 0.25) == 1.0
    assert binomial_cdf(-1, 3, 0.25) == 0.0


@pytest.mark.parametrize("n", [1, 5, 100, 3000])
@pytest.mark.parametrize("error", [0.1, 0.005, 1e-6])
def test_the_upper_bound_equals_clopper_pearson(n, error):
    for k in {0, n // 3, n - 1}:
        assert upper_bound(k, n, error) == pytest.approx(stats.beta.ppf(1 - error, k + 1, n - k), abs=1e-10)
    assert upper_bound(n, n, error) == 1.0


@pytest.mark.parametrize(
    ("risk", "error", "expected"), [(0.05, 0.1, 45), (0.1, 0.1, 22), (0.5, 0.25, 2), (0.9, 0.9, 1)]
)
def test_how_many_without_a_fault_are_enough(risk, error, expected):
    assert enough(risk, error) == expected == math.ceil(math.log(error) / math.log(1 - risk) - 1e-12)
    assert (1 - risk) ** expected <= error * (1 + 1e-12)
