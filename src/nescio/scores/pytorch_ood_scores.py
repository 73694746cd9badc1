"""Detectors of pytorch-ood as scores. Both libraries agree on the sign: higher means more foreign.

A detector that works on logits or on features gets those of the model that is scored, from the one forward pass that
it shares with other scores; it is fitted by `nescio.fit` where it has to be. Any other one gets the inputs, and works
with the model that it holds. The package itself is not imported here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nescio.quantities import DetectorScores, Features, Logits, Request
from nescio.quantities.detector_scores import owned_modules
from nescio.scores.base import FittedScore, Score
from nescio.types import InputError


@dataclass(frozen=True, kw_only=True)
class DetectorScore(Score):
    """Base of the scores that ask a detector."""

    detector: Any
    quantity: Request

    summary = "A detector of pytorch-ood."
    requires = "forward"
    cost = "1"
    paper = "–"
    name: ClassVar[str] = "pytorch_ood"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"pytorch_ood_{type(self.detector).__name__}")

    @property
    def needs(self) -> tuple[Request, ...]:
        """The logits, the features, or what the detector makes of the inputs."""
        return (self.quantity,)

    @property
    def label(self) -> str:
        """The name alone: a detector has no settings that are known here."""
        return self.name

    def __call__(self, value: Tensor) -> Tensor:
        return self._ask(self.detector, value)

    def _ask(self, detector: Any, value: Tensor) -> Tensor:
        if isinstance(self.quantity, DetectorScores):
            return value
        predict: Callable[[Tensor], Tensor] = (
            detector.predict_logits if isinstance(self.quantity, Logits) else detector.predict_features
        )
        return predict(value.float()).detach().to("cpu", torch.float64)  # they compute in float32


@dataclass(frozen=True, kw_only=True)
class FittedDetectorScore(DetectorScore, FittedScore):
    """A score that asks a copy of the detector, which is fitted to training data."""

    def _fit(self, values: Tensor, labels: Tensor) -> Any:
        own = _copied(self.detector)
        (own.fit_logits if isinstance(self.quantity, Logits) else own.fit_features)(values.float(), labels)
        return own

    def __call__(self, value: Tensor) -> Tensor:
        return self._ask(self._fitted_state(), value)


def from_pytorch_ood(detector: Any, *, layer: str | None = None, fitted: bool = False) -> Score:
    """Make a score of a detector of pytorch-ood, to give it to `nescio.score` in the place of a method's name.

    Args:
        detector: An object of `pytorch_ood.detector`. It is not changed. One that works on logits or on features may
            be made with None in the place of its model. Any other one works with its own model, and is fitted already
            where it has to be.
        layer: For a detector of features, the name of the module whose output they are; None for the input of the last
            linear layer.
        fitted: True for a detector of logits or features that has been fitted already. Otherwise it is fitted by
            `nescio.fit` or ``nescio.score(..., fit=(x, y))``, if it has to be.

    Returns:
        The score.

    Raises:
        InputError: The object is no detector, or `layer` does not go with it.

    Examples:
        >>> class Energy:  # in the place of pytorch_ood.detector.EnergyBased(None)
        ...     def predict(self, x): ...
        ...     def predict_logits(self, logits):
        ...         return -logits.logsumexp(1)
        >>> nescio.score(torch.nn.Identity(), torch.zeros(2, 3), nescio.scores.from_pytorch_ood(Energy()))
        tensor([-1.0986, -1.0986], dtype=torch.float64)
    """
    if isinstance(detector, type) or not callable(getattr(detector, "predict", None)):
        raise InputError(
            f"expected a detector, such as pytorch_ood.detector.EnergyBased(None), got {detector!r:.80}; make an "
            "object of its class"
        )
    quantity: Request = DetectorScores(detector)
    if callable(getattr(detector, "predict_logits", None)):
        quantity = Logits()
    elif callable(getattr(detector, "predict_features", None)):
        quantity = Features(layer)
    if layer is not None and not isinstance(quantity, Features):
        raise InputError(f"expected no layer for {type(detector).__name__}, which takes no features, got {layer!r}")
    waits = getattr(detector, "requires_fit", False) and not fitted and not isinstance(quantity, DetectorScores)
    return (FittedDetectorScore if waits else DetectorScore)(detector=detector, quantity=quantity)


def _copied(detector: Any) -> Any:
    """A copy that shares the models: only what is learnt is its own."""
    return copy.deepcopy(detector, {id(module): module for module in owned_modules(detector)})
