"""`max_logit`: −max_c z_c. Unlike the largest probability it keeps the level of the logits, which a softmax forgets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.scores.base import HIGHER
from nescio.scores.probabilities import ForwardScore
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class MaxLogit(ForwardScore):
    """Compute the largest logit, negated: −max_c z_c (Hendrycks et al. 2022).

    Unlike the largest probability it keeps the level of the logits. It fails where a foreign input excites the network
    more than known ones do.

    Examples:
        >>> MaxLogit()(torch.tensor([[1.0, 3.0]]))
        tensor([-3.], dtype=torch.float64)
    """

    name = "max_logit"
    summary = "The largest logit, negated."
    paper = "Hendrycks et al. 2022"
    sign = f"{HIGHER} (negated)"
    needs_level = True

    def __call__(self, logits: Tensor) -> Tensor:
        return -logits.to(torch.float64).amax(-1)
