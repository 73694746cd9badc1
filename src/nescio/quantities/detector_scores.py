"""What a detector of another library says of inputs, with the model that it holds itself."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.quantities.base import Budget, Request
from nescio.types import InputError


@dataclass(frozen=True)
class DetectorScores(Request):
    """Request the scores that an object with a method ``predict(x)`` gives to inputs, float64 ``[N]``.

    The model that the object holds runs in eval mode and is left as it was found. The classifier is not asked.

    Args:
        detector: The object, such as a detector of pytorch-ood. Higher must mean more foreign.

    Examples:
        >>> class Largest:
        ...     def predict(self, x):
        ...         return x.amax(1)
        >>> request = DetectorScores(Largest())
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.tensor([[1.0, 3.0]]), [request])[request]
        tensor([3.], dtype=torch.float64)
    """

    detector: Any

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Return what the detector gives; `budget` has no say in how it works."""
        if not isinstance(x, Tensor):
            raise InputError(f"expected a tensor for {type(self.detector).__name__}, got {describe(x)}")
        with ExitStack() as stack:
            for module in owned_modules(self.detector):
                stack.enter_context(preserved(module, again=False))
                module.eval()
            scores: Tensor = self.detector.predict(x)
        return scores.detach().to("cpu", torch.float64)


def owned_modules(thing: object) -> list[nn.Module]:
    """The modules among the attributes of an object, and those whose methods are."""
    values = list(vars(thing).values())
    owners = [getattr(value, "__self__", None) for value in values]
    return [value for value in [*values, *owners] if isinstance(value, nn.Module)]
