"""A method of nescio as a detector of pytorch-ood, for its benchmarks. Higher means more foreign in both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

from torch import Tensor

from nescio import scores, scoring
from nescio._common.lazy_imports import need
from nescio.guard import Guard
from nescio.models import ModelLike
from nescio.quantities import Features, Logits
from nescio.scores import FittedScore, Method
from nescio.scores.base import must_be_fitted
from nescio.types import InputError

Detector: Any = need("pytorch_ood.api", "ood").Detector


class ScoreDetector(Detector):
    """See a method of nescio as a `pytorch_ood.api.Detector`.

    Args:
        model: A PyTorch classifier, any callable that returns logits, or a `nescio.Classifier`. It runs in eval mode
            and is left as it was found. None where only logits or features are handed over.
        method: A name of `nescio.methods()`, such an object, "guard", or a `nescio.Guard` of the same model.
        output: What the model returns, as in `nescio.score`.
        **settings: Settings of the method.

    Examples:
        >>> model = torch.nn.Linear(4, 3)
        >>> ScoreDetector(model, "entropy").predict(torch.rand(5, 4)).shape
        torch.Size([5])
    """

    def __init__(
        self, model: ModelLike, method: str | Method = "regrad", *, output: Any = None, **settings: Any
    ) -> None:
        self.model, self.output = model, output
        self.method = Guard(model, output=output, **settings) if method == "guard" else scores.get(method, **settings)

    @property
    def requires_fit(self) -> bool:
        """Whether `fit` must be called first."""
        return self.method._fitted is None if isinstance(self.method, Guard) else must_be_fitted(self.method)

    def fit(self, data_loader: Any) -> Self:
        """Fit the method, if it needs that. Inputs whose label is below 0 are foreign, and are left out.

        Args:
            data_loader: Batches (inputs, labels) of the training data; for the guard, of data that the model was not
                trained on.

        Returns:
            The detector itself.
        """
        if isinstance(self.method, Guard):
            self.method.fit(_known_batches(data_loader))
        elif isinstance(self.method, FittedScore):
            fresh = replace(self.method)  # with the same settings, and not fitted
            self.method = scoring.fit(
                self.model, fresh, _known_batches(data_loader), output=self.output, progress=False
            )
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Return the score of each input, float64 ``[N]`` on the device of x, higher = more foreign."""
        return scoring.score(self.model, x, self.method, output=self.output, progress=False).to(x.device)

    def predict_logits(self, logits: Tensor) -> Tensor:
        """Compute the scores from logits, for a method that needs nothing else.

        Args:
            logits: Logits ``[N, C]``.

        Returns:
            The scores ``[N]``.
        """
        return self._from(logits, Logits)

    def predict_features(self, features: Tensor) -> Tensor:
        """Compute the scores from features, for a method that needs nothing else.

        Args:
            features: Features ``[N, D]``.

        Returns:
            The scores ``[N]``.
        """
        return self._from(features, Features)

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Fit the method to features, where it needs nothing else.

        Args:
            features: Features ``[N, D]``.
            labels: Class indices ``[N]``.

        Returns:
            The detector itself.
        """
        self._check_needs(Features)
        if not isinstance(self.method, FittedScore):
            return self
        known = labels >= 0
        self.method = self.method.fitted([features[known].detach().cpu().double()], labels[known].cpu())
        return self

    def __repr__(self) -> str:
        return f"ScoreDetector({getattr(self.method, 'label', self.method.name)})"

    def _from(self, value: Tensor, kind: type) -> Tensor:
        self._check_needs(kind)
        return self.method(value.detach().cpu().double()).to(value.device)

    def _check_needs(self, kind: type) -> None:
        if isinstance(self.method, Guard) or not all(isinstance(request, kind) for request in self.method.needs):
            raise InputError(
                f"expected a method that needs {kind.__name__.lower()} alone, got '{self.method.name}'; "
                "use fit(loader) and predict(x)"
            )


def _known_batches(loader: Any) -> Iterator[tuple[Any, Tensor]]:
    """The batches without foreign inputs, which have labels below 0."""
    for x, y in loader:
        known = y >= 0
        if known.any():
            yield x[known], y[known]
