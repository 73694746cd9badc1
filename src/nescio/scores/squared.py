"""`squared`: Σ_c p_c ‖g_c‖², the expected squared norm of the classes' gradients.

It is the trace of the Fisher information of one input, and so the leading term of `perturb_theta`: for small σ

    E KL(p(θ + σε) ‖ p(θ)) = (σ²/2) Σ_c p_c ‖g_c‖² + O(σ⁴),   ε ~ N(0, 1)

without any draw.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.scores.gradients import GradientScore
from nescio.scores.registry import register
from nescio.types import NormTable


@register
@dataclass(frozen=True, kw_only=True)
class Squared(GradientScore):
    """Compute the expected squared norm of the classes' gradients, Σ_c p_c ‖g_c‖².

    A score of nescio's own: how far, to leading order, the prediction moves under noise on the parameters. It fails
    where the network is sure of a wrong answer.

    Args:
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), Squared()).shape
        torch.Size([5])
    """

    name = "squared"
    summary = "Expected squared norm of the classes' gradients: how far noise of the parameters moves the prediction."
    paper = "nescio"

    def __call__(self, table: NormTable) -> Tensor:
        return (table.probabilities * self.strength(table.norms).square()).sum(-1)
