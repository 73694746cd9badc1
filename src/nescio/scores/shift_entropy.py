"""`shift_entropy`: the entropy of the mean prediction over shifted copies of a picture.

    H((1/9) Σ_s p(x_s)),   x_s the picture moved by 0 and ±`pixels` along both sides, reflected at its border

A picture that a network knows keeps its class when it moves a little. It is for pictures [N, channels, height, width],
and for networks that do not mind a shift. A network that has only seen centred pictures, such as the bundled digits of
8 × 8 pixels, also doubts known pictures once they are moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from nescio.quantities import ShiftedLogits
from nescio.scores.base import Score
from nescio.scores.information import entropy, log_probabilities
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class ShiftEntropy(Score):
    """Compute the entropy of the mean prediction over nine shifted copies, H((1/9) Σ_s p(x_s)).

    After Ayhan & Berens 2018. It fails for networks that do not bear a shift, because they then doubt known pictures
    too.

    Args:
        pixels: The shift along both sides; "auto" is a sixteenth of the shorter side (2 pixels of 32), but at least 1
            and at most 4.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        >>> nescio.score(model, torch.rand(5, 1, 8, 8), ShiftEntropy()).shape
        torch.Size([5])
    """

    pixels: int | Literal["auto"] = "auto"

    name = "shift_entropy"
    summary = "Entropy of the mean prediction over shifted copies of a picture; for networks that bear a shift."
    requires = "draws"
    cost = "9"
    paper = "Ayhan & Berens 2018"

    def __post_init__(self) -> None:
        if self.pixels != "auto":
            self._integer("pixels", at_least=1)

    @property
    def needs(self) -> tuple[ShiftedLogits]:
        return (ShiftedLogits(self.pixels),)

    def __call__(self, draws: Tensor) -> Tensor:
        return entropy(log_probabilities(draws).logsumexp(0))
