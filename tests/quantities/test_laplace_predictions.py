"""A Laplace approximation as a quantity: fitted for one model, and refused for another."""

import pytest
import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.posteriors.laplace import Laplace
from nescio.quantities import LaplacePredictions, Predictions, compute
from nescio.types import ModelError


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
