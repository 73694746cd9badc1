"""Predictive distributions: S predictions for each input, from which kinds of doubt can be told apart.

    posterior = nescio.posteriors.MCDropout(model, samples=50)
    p = posterior.predict(x)                            # float64 [S, N, C]
    posterior.save("folder")                            # safetensors and JSON
    posterior = nescio.posteriors.load("folder", model)

All have `predict`, `logits`, `save` and `load` (`PosteriorBase`); `Temperature` wraps any of them.
"""

from nescio.posteriors.anchored import AnchoredEnsemble
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.deterministic import Deterministic
from nescio.posteriors.dropout import MCDropout
from nescio.posteriors.ensemble import DeepEnsemble
from nescio.posteriors.evidential import Evidential
from nescio.posteriors.inserted import InsertedDropout
from nescio.posteriors.laplace import Laplace
from nescio.posteriors.saving import load
from nescio.posteriors.swag import SWAG
from nescio.posteriors.temperature import Temperature
from nescio.posteriors.variational import Variational

__all__ = [
    "load",
    "PosteriorBase",
    "Deterministic",
    "DeepEnsemble",
    "AnchoredEnsemble",
    "MCDropout",
    "InsertedDropout",
    "Laplace",
    "SWAG",
    "Variational",
    "Evidential",
    "Temperature",
]
