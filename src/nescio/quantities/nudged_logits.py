"""Logits of inputs that are moved a little towards their own predicted class: x + ε·sign(∂ log p_ŷ/∂x).

p is softmax(z/T). A part of the gradient that is smaller than the round-off of the largest part is taken as 0, and
there the input stays: no step hangs on the sign of round-off. ε is in the units of the tensor that is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.quantities.base import Budget, Request
from nescio.quantities.moved_inputs import loss_direction, need_floating, plus
from nescio.trace.runtime.noise import noisy_names
from nescio.trace.runtime.precision import round_off


@dataclass(frozen=True)
class NudgedLogits(Request):
    """Request the logits of inputs that are moved towards their own predicted class, float64 ``[N, C]``.

    They are those of x + size·sign(∂ log p_ŷ/∂x), ŷ the predicted class, p = softmax(z/temperature), sign(0) = 0.

    Args:
        size: The length of the step, in the units of the input.
        temperature: Of the softmax.

    Examples:
        >>> request = NudgedLogits(size=0.5)
        >>> classifier = nescio.Classifier(torch.nn.Identity())
        >>> nescio.quantities.compute(classifier, torch.tensor([[1.0, 2.0]]), [request])[request]
        tensor([[0.5000, 2.5000]], dtype=torch.float64)
    """

    size: float
    temperature: float = 1.0

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the logits of the moved inputs."""
        need_floating(x)

        def step(start: int, stop: int) -> Tensor:
            part = inputs.take(x, slice(start, stop))
            gradients = trace.input_gradients(classifier, part, lambda z: loss_direction(z / self.temperature))
            if not isinstance(part, Tensor):  # masks stay as they are
                gradients = {name: gradients[name] for name in noisy_names(part)}
            shift = inputs.apply(gradients, lambda g: -self.size * _signs(g[0]))
            with predicting(classifier):
                return classifier.logits(plus(part, shift)).to("cpu", torch.float64)

        return torch.cat(in_chunks(inputs.size(x), at_once(x, budget.chunk), step))


def _signs(gradient: Tensor) -> Tensor:
    size = gradient.abs()
    largest = size.flatten(1).amax(1).view(-1, *[1] * (gradient.ndim - 1))
    return gradient.sign() * (size > round_off(gradient) * largest)
