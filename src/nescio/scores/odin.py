"""`odin`: one minus the largest probability at a high temperature, after a small step towards the predicted class.

    1 − max_c softmax(z(x′)/T)_c,   x′ = x + ε·sign(∂ log softmax(z(x)/T)_ŷ/∂x),   ŷ the predicted class

Such a step raises the largest probability of known inputs by more than that of foreign ones. ε is in the units of the
tensor that is handed over: the paper's 0.0014 is for pixels from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.quantities import NudgedLogits
from nescio.scores.base import HIGHER, Score
from nescio.scores.information import complements
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class ODIN(Score):
    """Compute 1 − max_c softmax(z(x′)/T)_c after a step x′ = x + ε·sign(∂ log p_ŷ/∂x) (Liang et al. 2018).

    It fails where ε does not fit the scale of the inputs, and for tokens, which cannot be moved.

    Args:
        temperature: T.
        epsilon: ε, in the units of the input that the model is given; 0 leaves the temperature alone.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), ODIN()).shape
        torch.Size([5])
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014

    name = "odin"
    summary = "One minus the largest probability at a high temperature, after a step towards the predicted class."
    requires = "draws"
    cost = "4"  # the direction is one forward and one backward pass
    paper = "Liang et al. 2018"
    sign = f"{HIGHER} (one minus it)"

    def __post_init__(self) -> None:
        self._number("temperature", above=0.0)
        self._number("epsilon", at_least=0.0)

    @property
    def needs(self) -> tuple[NudgedLogits]:
        return (NudgedLogits(self.epsilon, self.temperature),)

    def __call__(self, logits: Tensor) -> Tensor:
        return complements(logits / self.temperature).amin(-1)
