"""The logits of a batch, float64 [N, C]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.quantities.forward_pass import ForwardPass, ForwardRequest


@dataclass(frozen=True)
class Logits(ForwardRequest):
    """Request the logits, float64 ``[N, C]``.

    A posterior in the place of a model answers with the logarithm of its mean probabilities.

    Examples:
        >>> classifier = nescio.Classifier(torch.nn.Identity())
        >>> nescio.quantities.compute(classifier, torch.tensor([[1.0, 2.0]]), [Logits()])[Logits()]
        tensor([[1., 2.]], dtype=torch.float64)
    """

    of_posterior = True

    def read(self, forward: ForwardPass) -> Tensor:
        """Return the logits of one forward pass."""
        return forward.answer(forward.logits)

    def answer_from_predictions(self, p: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities; the smallest number stands for a probability of 0."""
        return p.mean(0).clamp(min=torch.finfo(torch.float64).tiny).log()
