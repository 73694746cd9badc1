"""Logits of noisy inputs, z(x + σε_s; θ) with ε_s ~ N(0, 1)^{shape of one input}, float64 [S, N, C].

The s-th draw is the same for every input and depends on nothing but the seed and the shapes: a prediction is the same
in any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.quantities.base import Budget, Request
from nescio.quantities.moved_inputs import moved_logits, need_floating
from nescio.trace.runtime.noise import draws, noisy_names


@dataclass(frozen=True)
class NoisyInputLogits(Request):
    """Request the logits of S noisy copies of each input, float64 ``[S, N, C]``.

    Args:
        sigma: The standard deviation of the noise, in the units of the input.
        samples: S, the number of draws; all inputs share each of them.
        seed: The seed of the draws.

    Examples:
        >>> request = NoisyInputLogits(sigma=0.1, samples=5)
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.ones(4, 2), [request])[request].shape
        torch.Size([5, 4, 3])
    """

    sigma: float
    samples: int = 100
    seed: int = 0

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the logits of every draw."""
        need_floating(x)
        noise: Inputs
        if isinstance(x, Tensor):
            noise = self.sigma * draws(x, self.samples, self.seed)
        else:
            names = noisy_names(x)
            noise = {n: self.sigma * draws(x[n], self.samples, self.seed + i) for i, n in enumerate(names)}
        return moved_logits(classifier, x, self.samples, budget, lambda draw, at: inputs.take(noise, draw))
