"""What a posterior answers in the place of a model: its predictions, checked, and the logarithm of their mean."""

from typing import Any

import pytest
import torch

from nescio.quantities import GradientNorms, Logits, Predictions, compute
from nescio.types import ModelError


class Given:
    """A posterior that predicts what it was given."""

    def __init__(self, p: Any) -> None:
        self.p = p

    def predict(self, x: Any, *, progress: bool | None = None) -> Any:
        return self.p


def test_a_posterior_answers_with_its_predictions_and_the_logarithm_of_their_mean() -> None:
    p = torch.tensor([[[0.5, 0.5], [1.0, 0.0]], [[0.7, 0.3], [1.0, 0.0]]], dtype=torch.float64)
    found: Any = compute(Given(p), torch.rand(2, 4), [Logits(), Predictions()])
    assert torch.equal(found[Predictions()], p)
    torch.testing.assert_close(found[Logits()].exp(), torch.tensor([[0.6, 0.4], [1.0, 0.0]], dtype=torch.float64))
    assert found[Logits()].isfinite().all()
    with pytest.raises(ModelError, match=r"expected requests that a posterior can answer, .* got GradientNorms"):
        compute(Given(p), torch.rand(2, 4), [GradientNorms("classes")])


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (torch.full((2, 2, 2), 0.5), r"of float64 and shape \[S, 2, C\], got a tensor of float32"),
        (torch.full((2, 3, 2), 0.5, dtype=torch.float64), r"shape \[S, 2, C\], got .* \[2, 3, 2\]"),
        (torch.full((2, 2), 0.5, dtype=torch.float64), r"shape \[S, 2, C\], got .* \[2, 2\]"),
        (torch.full((2, 2, 2), 0.6, dtype=torch.float64), "which are >= 0 and sum to 1 over the classes, got others"),
        (torch.full((2, 2, 2), torch.nan, dtype=torch.float64), "which are >= 0 and sum to 1 over the classes"),
        (None, r"expected Given\.predict to give probabilities .* got None"),
    ],
)
def test_what_a_posterior_gives_is_checked(p: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        compute(Given(p), torch.rand(2, 4), [Predictions()])
