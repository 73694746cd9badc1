"""The propositions in numbers."""

import pytest
import torch

from nescio.zoo import Normalised, small_cnn
from nescio_papers.regrad import propositions


@pytest.fixture(scope="module")
def network():
    return Normalised(small_cnn(1, 8, 4, kernel=3, filters=3, units=5, seed=0), (0.3,), (0.4,)).double().eval()


@pytest.fixture(scope="module")
def x():
    return torch.rand(8, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_the_divergence_tends_to_its_leading_term_and_below_the_bound(network, x):
    far, near = propositions.leading_term(network, x, (0.3, 1e-4), 300, 0)
    assert near["ratio"] == pytest.approx(1, abs=0.15) and near["reverse"] == pytest.approx(near["ratio"], abs=1e-3)
    assert abs(far["ratio"] - near["ratio"]) > 0.2 or abs(far["reverse"] - near["reverse"]) > 0.2
    assert near["violated"] == 0 and near["looseness"] > 100


def test_what_a_change_of_the_input_leaves_falls_with_the_noise(network, x):
    wide = Normalised(small_cnn(1, 8, 4, kernel=3, filters=8, units=64, seed=0), (0.3,), (0.4,)).double().eval()
    coarse, fine = propositions.left_over(wide, x[:3], (1e-4, 1e-6), 0)
    assert fine < 0.05 * coarse < 0.01
    (narrow,) = propositions.left_over(network, x[:3], (1e-6,), 0)
    assert narrow > 0.1  # five units, some of them dead: the input moves the logits in fewer directions than there are


def test_the_gradient_of_the_predicted_class_is_the_shorter_one(network, x):
    found = propositions.lengths(network, x)
    assert 0 < found["predicted"] < found["others"]
