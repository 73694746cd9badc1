"""`evengrad`: how evenly, and how hard, the classes pull at the parameters.

With g_c = ∂ log p_c/∂θ and its layer-selective, smoothed norm (`nescio.scores.gradients`):

    u = Σ_c p_c^α ‖g_c‖ / G^(1 − β),   G = (1/C) Σ_c ‖g_c‖

**Where it comes from.** REGrad's sum Σ_c w(p_c) ‖g_c‖^k is two things at once: the overall size of the gradients, G^k,
and how the weight w spreads over the classes, Σ_c w(p_c) (‖g_c‖/G)^k. Which of them tells foreign inputs depends on the
network. G grows with the activations. Some networks have small activations on what they do not know (small CNNs on
plain backgrounds). There G says the opposite of doubt, and scores without it (energy, GEN) lead. Other networks are
excited by unknown textures more than by anything they were trained on. There G is the better half, and REGrad leads. So
the size enters with a share of its exponent: β = 0 leaves the spread alone, β = 1 is REGrad's kind of sum, β = ½ the
geometric mean of the two.

The weight p_c^α with a small α looks at the improbable classes, as GEN does: for a sure network p_top ≈ 1, and whatever
doubt is left is in how improbable the others are. √p_c (α = ½) hardly sees classes below 10⁻⁴, p_c^0.1 sees 10⁻²⁰.

**How α, β and the rest were chosen.** Validation pictures of MNIST, CIFAR-10 and SVHN (one network each) were compared
with the same pictures rotated, blurred, blended, shuffled in tiles, made of random pixels, and with noise. Tried were a
grid over α and β, and some λ and σ. The defaults are round values close to the best in mean AUROC. No foreign test set
took part in that choice; the form itself was found by someone who had seen on which pairs REGrad and GEN each fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nescio.scores.gradients import GradientScore
from nescio.scores.registry import register
from nescio.types import NormTable


@register
@dataclass(frozen=True, kw_only=True)
class EvenGrad(GradientScore):
    """Compute how evenly, and how hard, the classes' gradients pull: Σ_c p_c^α ‖g_c‖ / G^(1 − β), G the mean norm.

    A score of nescio's own; the text above says where it comes from and how α and β were chosen. It is a compromise: on
    each kind of network one of REGrad and GEN may be better.

    Args:
        alpha: α; the smaller, the more improbable classes weigh.
        beta: β, the share of the size of the gradients; 0 leaves it out.
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), EvenGrad()).shape
        torch.Size([5])
    """

    layer_decay: float | None = 0.3
    samples: int | Literal["auto"] = "auto"
    alpha: float = 0.1
    beta: float = 0.5

    name = "evengrad"
    summary = "How evenly, and how hard, the classes' gradients pull; layer-selective and smoothed."
    paper = "nescio"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("alpha", above=0.0)
        self._number("beta", at_least=0.0)

    def __call__(self, table: NormTable) -> Tensor:
        strength = self.strength(table.norms)
        size = strength.mean(-1)
        total = (table.probabilities**self.alpha * strength).sum(-1)
        # a network without any gradient pulls nowhere: 0 for 0 / 0
        return torch.where(size > 0, total / torch.where(size > 0, size, 1.0) ** (1.0 - self.beta), 0.0)
