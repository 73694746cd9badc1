"""A Gaussian prior over weights: θ_j ~ N(m_j, σ_j²).

    weights W [out, in, …]       m = 0,  σ² = 2/fan_in   (He: the scale at which such networks are initialised)
    biases beside such a W       m = 0,  σ² = 2/fan_in of W
    all others (scale and shift of a norm, tokens …)   m = the value at the beginning,  σ = 1

or one σ for all, where it is given.
"""

from __future__ import annotations

from torch import Tensor

from nescio._common.argument_checks import number
from nescio.models import Classifier, parameter_places
from nescio.types import ModelError


def prior(classifier: Classifier, std: float | None = None) -> dict[str, tuple[Tensor, float]]:
    """Mean and standard deviation for each of the model's floating-point parameters that are trained, by name."""
    if classifier.module is None:
        raise ModelError(f"expected a torch.nn.Module, whose weights have a prior, got {classifier.name}")
    if std is not None:
        number("prior_std", std, above=0)
    places = parameter_places(classifier.module)
    priors: dict[str, tuple[Tensor, float]] = {}
    for name, parameter in classifier.parameters().items():
        if not parameter.requires_grad:
            continue
        owner, _ = places[name][0]
        beside = owner._parameters.get("weight")
        matrix = parameter if parameter.ndim >= 2 else beside
        if matrix is None or matrix.ndim < 2:
            priors[name] = (parameter.detach().clone(), 1.0 if std is None else std)
        else:
            fan_in = matrix.numel() // matrix.shape[0]
            priors[name] = (parameter.detach().new_zeros(parameter.shape), (2 / fan_in) ** 0.5 if std is None else std)
    if not priors:
        raise ModelError("expected weights to train, but all are frozen; call model.requires_grad_(True) first")
    return priors
