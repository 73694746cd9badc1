"""Features, and what a posterior answers in the place of a model."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.models.features import Heard
from nescio.posteriors.laplace import Laplace
from nescio.quantities import Features, GradientNorms, LaplacePredictions, LastLayer, Logits, Predictions, compute
from nescio.quantities.forward_pass import ForwardPass
from nescio.types import ModelError


def test_features_and_logits_come_from_one_pass_in_any_chunks(net: nn.Sequential, x: Tensor) -> None:
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    requests = [Features(), Logits(), Features("0"), Features()]
    found: Any = compute(Classifier(net), x, requests)
    assert len(calls) == 1 and set(found) == set(requests)
    torch.testing.assert_close(found[Features()], net[:2](x).detach())
    torch.testing.assert_close(found[Features("0")], net[0](x).detach())
    torch.testing.assert_close(found[Logits()], net(x).detach())
    parts: Any = compute(Classifier(net), x, requests, chunk=2)
    for request in requests:
        torch.testing.assert_close(parts[request], found[request], rtol=1e-12, atol=1e-14)


def test_features_that_are_not_finite_are_told_with_their_layer() -> None:
    heard = Heard("m", nn.Identity(), torch.full((3, 2), torch.inf))
    with pytest.raises(ModelError, match="expected finite features from 'm', got NaN or infinite ones"):
        ForwardPass(torch.zeros(3, 2), {None: heard}, {}).features(None)


def test_the_last_layer_comes_from_the_same_pass(net: nn.Sequential, x: Tensor) -> None:
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    requests = [LastLayer(), Features("0"), Logits(), Features()]
    found: Any = compute(Classifier(net), x, requests)
    assert len(calls) == 1 and set(found) == set(requests)
    layer = found[LastLayer()]
    assert layer.dtype == torch.float64 and layer.shape == (3, 7) and not layer.requires_grad
    torch.testing.assert_close(found[Features()] @ layer[:, :-1].T + layer[:, -1], found[Logits()])
    torch.testing.assert_close(found[Features("0")], net[0](x).detach())
    assert torch.equal(compute(Classifier(net), x, [LastLayer()], chunk=2)[LastLayer()], layer)  # type: ignore[arg-type]


def test_a_layer_that_is_called_for_each_token_is_the_last_one_where_logits_are_the_mean(x: Tensor) -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.view(-1, 2, 2)).mean(1)

    found: Any = compute(Classifier(Tokens()), x, [LastLayer(), Features(), Logits()])
    layer = found[LastLayer()]
    torch.testing.assert_close(found[Features()] @ layer[:, :-1].T + layer[:, -1], found[Logits()])


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


def test_a_fitted_posterior_answers_for_its_own_model_alone(net: nn.Sequential, x: Tensor) -> None:
    posterior = Laplace(net, samples=3).fit((x, torch.arange(9) % 3))
    request = LaplacePredictions(posterior=posterior)
    assert torch.equal(compute(Classifier(net), x, [request])[request], posterior.predict(x))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="expected the model that 'laplace' was fitted with, got another one, Linear"):
        compute(Classifier(nn.Linear(4, 3).double()), x, [request])
    with pytest.raises(ModelError, match="expected a fitted 'laplace' to answer"):
        compute(Classifier(net), x, [LaplacePredictions()])
    with pytest.raises(ModelError, match="expected a posterior in the place of the model to answer"):
        compute(Classifier(net), x, [Predictions()])
