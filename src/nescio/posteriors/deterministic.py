"""A single network as a distribution with one sample: p^1 = softmax(z(x; θ))."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor

from nescio.inputs import Inputs
from nescio.models import Classifier, ModelLike
from nescio.posteriors.base import PosteriorBase, ScaledNetwork
from nescio.posteriors.saving import about, check_tensors, same, saved


@saved("deterministic")
class Deterministic(PosteriorBase):
    """Take the prediction of one network as a distribution: S = 1, so its epistemic part is zero.

    Args:
        model: A PyTorch classifier, any callable that gives logits, or a `Classifier`; it is not changed.
        output: What the model returns, as in `nescio.score`.

    Examples:
        >>> Deterministic(torch.nn.Linear(4, 3)).predict(torch.rand(5, 4)).shape
        torch.Size([1, 5, 3])
    """

    def __init__(self, model: Classifier | Callable[..., Any], *, output: str | None = None) -> None:
        self.classifiers = (Classifier.of(model, output, dense=True),)

    def networks(self) -> list[ScaledNetwork]:
        """Return the network.

        Returns:
            A list of one.
        """
        return [ScaledNetwork(self.classifiers[0])]

    def _logits(self, x: Inputs) -> Tensor:
        return self.classifiers[0].logits(x)[None]

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return about(self.classifiers[0]), {}

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        check_tensors(tensors, {})
        return cls(same(model, settings))
