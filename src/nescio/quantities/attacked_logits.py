"""Logits of attacked inputs, z(x + ε_s·sign(∂ℓ/∂x); θ) with ε_s ~ U[−a, a], ℓ = −log p_ŷ and ŷ the predicted class.

sign(0) = 1, and so is the sign of what round-off may have left of a 0, by the size of the input's largest gradient. Of
classes with equal logits ŷ is the first; where only round-off tells them apart, it chooses the attack. The s-th draw is
the same for every input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.quantities.base import Budget, Request
from nescio.quantities.moved_inputs import loss_direction, moved_logits, need_floating
from nescio.trace.runtime.precision import round_off


@dataclass(frozen=True)
class AttackedLogits(Request):
    """Request the logits of S attacked copies of each input, float64 ``[S, N, C]``.

    Args:
        size: a, the longest step along the sign of the gradient, in the units of the input.
        samples: S, the number of steps; all inputs share each of them.
        seed: Of the steps.

    Examples:
        >>> request = AttackedLogits(size=0.1, samples=5)
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.ones(4, 2), [request])[request].shape
        torch.Size([5, 4, 3])
    """

    size: float
    samples: int = 100
    seed: int = 0

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the logits of every step."""
        need_floating(x)
        generator = torch.Generator("cpu").manual_seed(self.seed)
        steps = self.size * (2.0 * torch.rand(self.samples, generator=generator, dtype=torch.float64) - 1.0)

        def direction(start: int, stop: int) -> Inputs:
            gradients = trace.input_gradients(classifier, inputs.take(x, slice(start, stop)), loss_direction)
            return inputs.apply(gradients, lambda g: _signs(g[0]))

        signs = inputs.concatenate(in_chunks(inputs.size(x), at_once(x, budget.chunk), direction))
        steps = steps.to(inputs.tensors(signs)[0])

        def shift(draw: Tensor, at: Tensor) -> Inputs:
            def scaled(sign: Tensor) -> Tensor:
                return sign * steps[draw].to(sign).view(-1, *[1] * (sign.ndim - 1))

            return inputs.apply(inputs.take(signs, at), scaled)

        return moved_logits(classifier, x, self.samples, budget, shift)


def _signs(gradient: Tensor) -> Tensor:
    """−1 or 1 for every number of the gradients ``[N, ...]``; 1 for what round-off may have left of a 0."""
    largest = gradient.abs().flatten(1).amax(1).view(-1, *[1] * (gradient.ndim - 1))
    return torch.where(gradient >= -round_off(gradient) * largest, 1.0, -1.0).to(gradient)
