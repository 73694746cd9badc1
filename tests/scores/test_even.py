"""EvenGrad: its formula, its limits, and what it does with the size of the gradients."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import nescio
from nescio.scores import EvenGrad, ExGrad, UNGrad
from nescio.types import InputError, NormTable


def table(seed: int, scale: float = 1.0) -> NormTable:
    random = torch.Generator().manual_seed(seed)
    norms = torch.rand(5, 4, 3, generator=random, dtype=torch.float64) + 0.01
    p = torch.randn(5, 4, generator=random, dtype=torch.float64).mul(5).softmax(1)
    return NormTable(scale * norms, p, ("a", "b", "c"))


def test_a_case_by_hand() -> None:
    # two classes, one layer: norms 1 and 4, p = (0.81, 0.19); α = ½, β = ½: (0.9·1 + √0.19·4)/√2.5
    one = NormTable(
        torch.tensor([[[1.0], [4.0]]], dtype=torch.float64), torch.tensor([[0.81, 0.19]], dtype=torch.float64), ("l",)
    )
    found = EvenGrad(alpha=0.5, beta=0.5)(one)
    assert found.item() == pytest.approx((0.9 + 0.19**0.5 * 4) / 2.5**0.5, rel=1e-14)


def test_it_is_the_formula_of_the_classes_gradients(make: Callable[..., nn.Module], x: Tensor) -> None:
    model = make(torch.float64)
    g = nescio.trace.class_gradients(model, x)
    strength = g.norms.square().sum(2).sqrt()
    expected = (g.probabilities**0.3 * strength).sum(1) / strength.mean(1) ** 0.75
    found = nescio.score(model, x, EvenGrad(layer_decay=None, samples=0, alpha=0.3, beta=0.25))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@given(st.integers(0, 99), st.floats(1e-3, 1e3), st.floats(0, 2))
def test_gradients_that_are_t_times_as_long_give_t_to_the_beta(seed: int, scale: float, beta: float) -> None:
    score = EvenGrad(beta=beta)
    torch.testing.assert_close(score(table(seed, scale)), score(table(seed)) * scale**beta, rtol=1e-9, atol=0)


def test_known_scores_are_its_limits() -> None:
    t = table(0)
    plain = {"layer_decay": 0.3, "samples": 0, "sigma": 0.0}
    torch.testing.assert_close(EvenGrad(alpha=1.0, beta=1.0, **plain)(t), ExGrad(layer_decay=0.3)(t))
    torch.testing.assert_close(
        EvenGrad(alpha=1e-12, beta=1.0, **plain)(t), 4 * UNGrad(layer_decay=0.3)(t), rtol=1e-9, atol=0
    )


def test_no_gradient_at_all_is_no_doubt() -> None:
    nothing = NormTable(torch.zeros(2, 3, 1).double(), torch.full((2, 3), 1 / 3).double(), ("l",))
    assert EvenGrad()(nothing).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("setting", [{"alpha": 0.0}, {"alpha": float("nan")}, {"beta": -0.1}])
def test_settings_that_make_no_sense(setting: dict[str, float]) -> None:
    with pytest.raises(InputError, match="evengrad: expected"):
        EvenGrad(**setting)
