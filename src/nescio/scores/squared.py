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
    """Σ_c p_c ‖g_c‖²: how far, to leading order, the prediction moves under noise of the parameters."""

    name = "squared"
    summary = "Expected squared norm of the classes' gradients: how far noise of the parameters moves the prediction."
    paper = "nescio"

    def __call__(self, table: NormTable) -> Tensor:
        """The expected squared norm."""
        return (table.probabilities * self.strength(table.norms).square()).sum(-1)
