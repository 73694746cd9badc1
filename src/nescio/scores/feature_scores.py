"""Scores from features: how far an input lies from the training data, as the model sees them.

With h the features, μ_c and Σ_c the mean and covariance of class c in the training data, n_c its size:

    mahalanobis  tied   min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c),               Σ = Σ_c (n_c/n) Σ_c
                 class  min_c (h − μ_c)ᵀ Σ_c⁻¹ (h − μ_c) + log det Σ_c,  −2 log of the Gaussian density less a constant
    knn          the distance from h/‖h‖ to the k-th nearest h_i/‖h_i‖ of the training data, or the mean over k

Covariances are shrunk to a multiple of the identity, (1 − s)Σ + s (tr Σ/d) 1, so that they can be inverted with more
features than inputs too. With shrinkage="auto" s is that of Ledoit and Wolf (2004).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.quantities import Features, Request
from nescio.scores.base import FittedScore
from nescio.scores.registry import register
from nescio.types import InputError

ELEMENTS = 2**24  # of a table of distances at once: 128 MiB
_ROUND_OFF = 1e-6  # of features in float32: smaller differences are none


@dataclass(frozen=True, kw_only=True)
class FeatureScore(FittedScore):
    """Base of the scores that compare features with those of the training data."""

    layer: str | None = None

    requires = "forward"
    cost = "1"

    def __post_init__(self) -> None:
        self._instance("layer", str | None, "None or the name of a module")

    @property
    def needs(self) -> tuple[Request, ...]:
        """The features: the input of the last linear layer, or the output of the module named by `layer`."""
        return (Features(self.layer),)

    def _auto_or_share(self, setting: str) -> None:
        if isinstance(getattr(self, setting), str):
            self._choice(setting, "auto")
        else:
            self._number(setting, at_least=0.0)
            if getattr(self, setting) > 1.0:
                self._refuse(setting, "'auto' or a number from 0 to 1")

    def _enough(self, features: Tensor, k: int) -> None:
        if len(features) < k:
            warnings.warn(
                f"{self.name}: expected at least k = {k} training inputs, got {len(features)}; k is {len(features)} "
                "now. Give more of them, or a smaller k",
                UserWarning,
                stacklevel=2,
            )


@dataclass(frozen=True)
class _Gaussian:
    """Means ``[C, D]``; W with W Wᵀ = Σ⁻¹, one for all classes or one for each; log det Σ of each class."""

    means: Tensor
    whitening: Tensor
    log_det: Tensor


@register
@dataclass(frozen=True, kw_only=True)
class Mahalanobis(FeatureScore):
    """Compute the squared Mahalanobis distance to the nearest class of the training data (Lee et al. 2018).

    It fails where the features of a class are far from Gaussian, or where there are few training inputs for many
    features.

    Args:
        layer: The name of the module whose output the features are; None for the input of the last linear layer.
        covariance: "tied" is shared by the classes. With "class" each has its own, and the score is −2 log of the
            largest class density, which has the log determinant beside the distance. A class with one input, or whose
            inputs do not differ by more than round-off, then takes the tied one.
        shrinkage: "auto" (Ledoit & Wolf 2004), or a number from 0 to 1.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), Mahalanobis(), fit=training).shape
        torch.Size([5])
    """

    covariance: str = "tied"
    shrinkage: float | str = "auto"

    name = "mahalanobis"
    summary = "Distance of the features from the nearest class of the training data, in its covariance."
    paper = "Lee et al. 2018"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._choice("covariance", "tied", "class")
        self._auto_or_share("shrinkage")

    def _fit(self, features: Tensor, labels: Tensor) -> _Gaussian:
        classes, index = labels.unique(return_inverse=True)  # those that are there: a class may be absent
        means = torch.stack([features[index == c].mean(0) for c in range(len(classes))])
        centred = features - means[index]
        least = _ROUND_OFF * float(features.abs().max())
        if float(centred.abs().max()) <= least:
            raise InputError(
                f"{self.name}: expected features that differ within a class, got {len(features)} training inputs in "
                f"{len(classes)} classes without any difference; give more training data"
            )
        tied = self._whitened(centred)
        if self.covariance == "tied":
            return _Gaussian(means, tied[0], torch.zeros(len(classes), dtype=torch.float64))
        own = [centred[index == c] for c in range(len(classes))]
        by_class = [self._whitened(part) if float(part.abs().max()) > least else tied for part in own]
        return _Gaussian(means, torch.stack([w for w, _ in by_class]), torch.stack([d for _, d in by_class]))

    def _whitened(self, centred: Tensor) -> tuple[Tensor, Tensor]:
        """W and log det Σ of the shrunk covariance."""
        count, width = centred.shape
        covariance = centred.T @ centred / count
        shrinkage = ledoit_wolf(centred) if isinstance(self.shrinkage, str) else self.shrinkage
        shrunk = (1.0 - shrinkage) * covariance
        shrunk.diagonal().add_(shrinkage * covariance.trace() / width)
        values, vectors = torch.linalg.eigh(shrunk)
        if float(values[0]) <= width * torch.finfo(torch.float64).eps * float(values[-1]):
            raise InputError(
                f"{self.name}: expected a covariance that can be inverted, got one without variance in some of "
                f"{width} directions from {count} training inputs; use shrinkage='auto', or one above {shrinkage:g}"
            )
        return vectors * values.rsqrt(), values.log().sum()

    def __call__(self, features: Tensor) -> Tensor:
        gaussian: _Gaussian = self._fitted_state()
        self._same_width(gaussian.means.shape[1], features)
        if gaussian.whitening.ndim == 2:
            centre = gaussian.means.mean(0)
            white, means = (features - centre) @ gaussian.whitening, (gaussian.means - centre) @ gaussian.whitening
            exact = "donot_use_mm_for_euclid_dist"  # the other way loses digits
            return torch.cdist(white, means, compute_mode=exact).amin(1).square()
        classes = zip(gaussian.means, gaussian.whitening, gaussian.log_det, strict=True)
        distances = [((features - mean) @ w).square().sum(1) + log_det for mean, w, log_det in classes]
        return torch.stack(distances).amin(0)


@register
@dataclass(frozen=True, kw_only=True)
class KNN(FeatureScore):
    """Compute the distance to the k-th nearest training input in feature space (Sun et al. 2022).

    With fewer than k training inputs, k is their number, and a warning says so. It keeps all training features in
    memory. It fails where a foreign input has the features of a known one.

    Args:
        layer: The name of the module whose output the features are; None for the input of the last linear layer.
        k: Which neighbour.
        normalise: Whether features are brought to length 1 first.
        average: Whether to take the mean of the distances to the k nearest.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), KNN(), fit=training).shape
        torch.Size([5])
    """

    k: int = 50
    normalise: bool = True
    average: bool = False

    name = "knn"
    summary = "Distance of the features to the k-th nearest of the training data."
    paper = "Sun et al. 2022"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._integer("k", at_least=1)
        self._instance("normalise", bool, "True or False")
        self._instance("average", bool, "True or False")

    def _fit(self, features: Tensor, labels: Tensor) -> Tensor:
        self._enough(features, self.k)
        return self._scaled(features)

    def _scaled(self, features: Tensor) -> Tensor:
        return unit(features) if self.normalise else features

    def __call__(self, features: Tensor) -> Tensor:
        known: Tensor = self._fitted_state()
        self._same_width(known.shape[1], features)
        k, square = min(self.k, len(known)), known.square().sum(1)
        taken = slice(None) if self.average else slice(k - 1, k)
        parts = []
        for rows in self._scaled(features).split(max(1, ELEMENTS // max(len(known), k * known.shape[1]))):
            # ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩ finds the neighbour; the distance to it is taken without cancellation
            near = (square - 2.0 * rows @ known.T).topk(k, dim=1, largest=False).indices[:, taken]
            parts.append((rows[:, None] - known[near]).norm(dim=2).mean(1))
        return torch.cat(parts)


def unit(features: Tensor) -> Tensor:
    """The features at length 1; those of length 0 stay."""
    result: Tensor = features / features.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return result


def ledoit_wolf(centred: Tensor) -> float:
    """The shrinkage of Ledoit and Wolf for centred features ``[N, D]``.

    It is the share of the mean squared error of the covariance (over the inputs) in its distance from the identity.
    """
    count, width = centred.shape
    covariance = centred.T @ centred / count
    mean = covariance.trace() / width
    distance = covariance.square().sum() - width * mean.square()
    fourth = (centred.square().sum(1).square()).sum() / count
    error = (fourth - covariance.square().sum()) / count
    return float((error / distance).clamp(max=1.0)) if float(error) > 0 and float(distance) > 0 else 0.0
