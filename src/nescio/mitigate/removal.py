"""`without`: what becomes of a prediction and its uncertainty when the doubtful pixels of a picture are filled in.

The mask holds the share of pixels with the highest attribution (of equal ones those that come first, row by row), or
all whose attribution is at least `threshold` of the highest, counted from the lowest. They are replaced, in all
channels, by

    blur      those of the picture blurred by a Gaussian of width σ
    inpaint   a smooth surface through what surrounds them (`inpaint`)
    mean      the mean of the other pixels, channel by channel
    a number  that number

and both pictures are given to the same distribution. Nothing is trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nescio import evaluate
from nescio._common.argument_checks import number
from nescio._common.arrays import Values
from nescio.attribution.blur import blurred
from nescio.attribution.sampled_members import distribution
from nescio.attribution.uncertainty import KINDS, Of
from nescio.evaluate.metric_inputs import classes
from nescio.inputs import Data, describe
from nescio.mitigate.inpainting import check_mask, check_numbers, inpaint, put
from nescio.mitigate.map_attention import Maps, as_maps, check_pictures
from nescio.models import ModelOrPosterior
from nescio.scores.decomposition import decompose
from nescio.types import Decomposition, InputError

By = Literal["inpaint", "blur", "mean"] | float


@dataclass(frozen=True)
class Prediction:
    """Hold the probabilities of S samples and the kinds of uncertainty in them.

    Attributes:
        probabilities: float64 ``[S, N, C]``.
        uncertainty: What `nescio.decompose` makes of them.

    Examples:
        >>> p = torch.tensor([[[0.2, 0.8]]])
        >>> Prediction(p, nescio.decompose(p)).classes
        tensor([1])
    """

    probabilities: Tensor
    uncertainty: Decomposition

    @property
    def mean(self) -> Tensor:
        """The mean over the samples, [N, C]."""
        return self.probabilities.mean(0)

    @property
    def classes(self) -> Tensor:
        """The predicted class of each input, [N]."""
        return self.mean.argmax(1)


@dataclass(frozen=True)
class Improvement:
    """Sum up before and after over N inputs; `print` says it in words. What needs labels is None without them.

    Attributes:
        of: The kind of uncertainty.
        inputs: N.
        less: The share of inputs whose uncertainty fell.
        reduction: The median of 1 − after/before.
        before: The mean uncertainty before.
        after: The mean uncertainty after.
        flipped: How many predictions changed.
        repaired: How many of these became right.
        broken: How many of these became wrong.
        accuracy_before: The accuracy before.
        accuracy_after: The accuracy after.
        nll_before: The negative log-likelihood before.
        nll_after: The negative log-likelihood after.

    Examples:
        >>> print(Improvement("total", 4, less=0.5, reduction=0.1, before=0.4, after=0.3, flipped=1))
        total uncertainty fell for 50% of 4 inputs, from 0.4 to 0.3 on average (by 10% in the median); ...
    """

    of: str
    inputs: int
    less: float
    reduction: float
    before: float
    after: float
    flipped: int
    repaired: int | None = None
    broken: int | None = None
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    nll_before: float | None = None
    nll_after: float | None = None

    def __str__(self) -> str:
        words = (
            f"{self.of} uncertainty fell for {self.less:.0%} of {self.inputs} inputs, from {self.before:.4g} to "
            f"{self.after:.4g} on average (by {self.reduction:.0%} in the median); {self.flipped} predictions changed"
        )
        if self.accuracy_before is None:
            return words
        return (
            f"{words}, {self.repaired} to the right class and {self.broken} away from it; "
            f"accuracy {self.accuracy_before:.4f} to {self.accuracy_after:.4f}, "
            f"NLL {self.nll_before:.4f} to {self.nll_after:.4f}"
        )


@dataclass(frozen=True)
class Without:
    """Hold the predictions before and after doubtful pixels were filled in.

    Attributes:
        before: The prediction for the pictures as they were.
        after: The prediction for the changed pictures.
        x: The changed pictures ``[N, C, H, W]``.
        mask: Which pixels were filled in, booleans ``[N, H, W]``.
        about: What was done, in words.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 3))
        >>> result = nescio.mitigate.without(model, torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8))
        >>> result.reduction().shape, result.flipped.shape
        (torch.Size([2]), torch.Size([2]))
    """

    before: Prediction
    after: Prediction
    x: Tensor
    mask: Tensor
    about: str

    @property
    def flipped(self) -> Tensor:
        """Whether the predicted class changed, booleans [N]."""
        return self.before.classes != self.after.classes

    def reduction(self, of: Of = "epistemic") -> Tensor:
        """Compute 1 − U(after)/U(before).

        Args:
            of: The kind of uncertainty.

        Returns:
            The reductions, float64 ``[N]``: below 0 where it grew; 0 where there was none and is none.
        """
        before, after = self._uncertainties(of)
        return torch.where(before == after, 0.0, 1.0 - after / before)

    def improved(self, labels: Values | None = None, of: Of = "epistemic") -> Improvement:
        """Sum up what the removal did.

        Args:
            labels: The true classes ``[N]``; with them also what became of accuracy and NLL.
            of: The kind of uncertainty.

        Returns:
            The summary.
        """
        before, after = self._uncertainties(of)
        summary: dict[str, Any] = {
            "of": of,
            "inputs": len(before),
            "less": float((after < before).double().mean()),
            "reduction": float(np.median(self.reduction(of).numpy())),
            "before": float(before.mean()),
            "after": float(after.mean()),
            "flipped": int(self.flipped.sum()),
        }
        if labels is None:
            return Improvement(**summary)
        y = torch.from_numpy(classes(labels, *self.before.mean.shape))
        right = [side.classes == y for side in (self.before, self.after)]
        for name, side, correct in zip(("before", "after"), (self.before, self.after), right, strict=True):
            summary[f"accuracy_{name}"] = float(correct.double().mean())
            summary[f"nll_{name}"] = evaluate.nll(side.mean, y)
        summary |= {"repaired": int((right[1] & ~right[0]).sum()), "broken": int((right[0] & ~right[1]).sum())}
        return Improvement(**summary)

    def _uncertainties(self, of: str) -> tuple[Tensor, Tensor]:
        if of not in KINDS:
            raise InputError(f"expected of= to be one of {', '.join(map(repr, KINDS))}, got {of!r}")
        return getattr(self.before.uncertainty, of), getattr(self.after.uncertainty, of)


def without(
    posterior: ModelOrPosterior,
    x: Tensor,
    maps: Maps,
    *,
    share: float | None = None,
    threshold: float | None = None,
    by: By = "inpaint",
    sigma: float = 1.5,
    data: Data | None = None,
    output: str | None = None,
    progress: bool | None = None,
) -> Without:
    """Predict before and after the doubtful pixels are filled in.

    Args:
        posterior: A distribution, or a single network, which gets a distribution as in `nescio.explain`.
        x: Pictures ``[N, C, H, W]``.
        maps: An `Attribution` or numbers [N, H, W], higher where the doubt comes from; booleans are the mask itself.
        share: The share of the pixels that are masked, those with the highest attribution. Without share and
            threshold: 0.05.
        threshold: Instead of a share, the least attribution of a masked pixel: 1 is the highest of the picture, 0 the
            lowest.
        by: "inpaint", "blur", "mean", or a number to put there.
        sigma: The width of the blur in pixels.
        data: Labelled training data for a single network.
        output: What a single network returns, as in `nescio.Classifier`.
        progress: True shows a bar, False none, None one where it takes long.

    Returns:
        Both predictions, the changed pictures and the mask.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 3))
        >>> result = nescio.mitigate.without(model, torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8), share=0.1)
        >>> result.mask.sum((1, 2))
        tensor([6, 6])
    """
    check_numbers(check_pictures(x))
    if x.is_floating_point() and not bool(x.isfinite().all()):
        raise InputError("expected finite pictures, got NaN or infinite values; leave those out")
    mask, chosen = _mask(maps, x, share, threshold)
    changed, how = _filled(x, mask, by, sigma)
    model, words = distribution(posterior, data, output)
    before, after = (_prediction(model.predict(given, progress=progress)) for given in (x, changed))
    return Without(before, after, changed, mask, f"{words}; {chosen} {how}")


def _prediction(probabilities: Tensor) -> Prediction:
    return Prediction(probabilities, decompose(probabilities))


def _mask(maps: Maps, x: Tensor, share: float | None, threshold: float | None) -> tuple[Tensor, str]:
    """Which pixels are doubtful, booleans [N, H, W] on the CPU, and that in words."""
    if isinstance(maps, Tensor | np.ndarray) and str(maps.dtype) in ("torch.bool", "bool"):
        if share is not None or threshold is not None:
            raise InputError("expected share= or threshold= with maps of numbers, got one with a mask of booleans")
        mask = torch.as_tensor(maps).cpu().clone()
        check_mask(mask, x)
        return mask, "a given mask"
    if share is not None and threshold is not None:
        raise InputError(f"expected share= or threshold=, got both ({share!r} and {threshold!r})")
    numbers = as_maps(maps, x)
    if threshold is not None:
        number("threshold", threshold, above=0, at_most=1)
        low, high = numbers.amin((1, 2), keepdim=True), numbers.amax((1, 2), keepdim=True)
        reach = (high - low).clamp(min=torch.finfo(numbers.dtype).tiny)  # a flat map has no pixel that stands out
        return (numbers - low) / reach >= threshold, f"pixels from {threshold:g} of the highest attribution"
    share = 0.05 if share is None else number("share", share)
    size = x.shape[2:].numel()
    pixels = math.floor(share * size + 0.5)
    if not 0 < share <= 1 or pixels == 0:
        raise InputError(
            f"expected share= above 0 and at most 1, and at least one of {size} pixels, got {share!r}, which is "
            f"{pixels}; take another share"
        )
    order = numbers.flatten(1).argsort(dim=1, descending=True, stable=True)[:, :pixels]
    mask = torch.zeros(len(x), size, dtype=torch.bool).scatter_(1, order, True)
    return mask.view_as(numbers), f"the {pixels} of {size} pixels with the highest attribution"


def _filled(x: Tensor, mask: Tensor, by: By, sigma: float) -> tuple[Tensor, str]:
    """The pictures with the masked pixels replaced, and how in words."""
    x, inside = x.detach(), mask.to(x.device)
    if isinstance(by, str) and by == "inpaint":
        return inpaint(x, mask), "inpainted"
    if isinstance(by, str) and by == "blur":
        return put(x, blurred(x.double(), number("sigma", sigma, above=0.0)), inside), f"blurred (σ = {sigma:g})"
    if isinstance(by, str) and by == "mean":
        rest = (~inside).unsqueeze(1)
        if not bool(rest.flatten(1).any(1).all()):
            raise InputError("expected pixels outside of each mask to take the mean of, got a mask of a whole picture")
        mean = torch.where(rest, x.double(), 0.0).sum((2, 3), keepdim=True) / rest.sum((2, 3), keepdim=True)
        return put(x, mean.expand(x.shape), inside), "set to the mean of the others"
    if isinstance(by, int | float | np.integer | np.floating) and not isinstance(by, bool) and math.isfinite(by):
        return put(x, torch.full((), float(by), dtype=torch.float64, device=x.device), inside), f"set to {by:g}"
    raise InputError(f"expected by= to be 'inpaint', 'blur', 'mean' or a number, got {_shown(by)}")


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float) else describe(value)
