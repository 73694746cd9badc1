"""The blurring test: how fast an uncertainty falls when the pixels that a map blames for it are blurred away.

Let x_i be the image x in which the i pixels with the highest attribution are replaced by those of the blurred image,
in all channels, and T the number of pixels that may be replaced, the given share of H·W rounded to the nearest:

    reduction(x, t) = max_{1 ≤ i ≤ t} 1 − U(x_i)/U(x)
    URR(t)   = median over the images of reduction(x, t)         rises with t; below 0 where U only grew
    MURR     = max_t URR(t)                                      higher is better
    AUC-URR  = mean_t (1 − URR(t)),  t from 1 to T               lower is better

Pixels of equal attribution are taken in the order of their position, row by row from the top left. So the result does
not depend on the order of the images nor on the batch, but a map with many equal values is judged by an accident.

The blur is Gaussian, rows and columns times normalised weights:  B x Bᵀ,  B_ij ∝ exp(−(i − j)²/2σ²),  Σ_j B_ij = 1 also
at the edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio._common.arrays import Values
from nescio.evaluate.map_checks import pixel_maps
from nescio.evaluate.metric_inputs import Floats, Integers, listed, scores
from nescio.types import InputError


@dataclass(frozen=True)
class Blurring:
    """Hold the curve URR(t) of a blurring test and its two figures.

    Attributes:
        counts: The numbers t of blurred pixels at which URR was measured.
        curve: URR at each of these numbers.
        murr: The highest URR; higher is better.
        auc: The mean of 1 − URR; lower is better.
        pixels: T, the largest number of pixels that were blurred.
        of: How many pixels an image has.
        reductions: reduction(x, t) of each image at each of these numbers, ``[N, counts]``; for intervals and tests.

    Examples:
        >>> x = torch.zeros(1, 1, 4, 4)
        >>> x[0, 0, 1, 1] = 1.0
        >>> result = nescio.evaluate.blurring(lambda x: x.amax((1, 2, 3)), x, x[:, 0], share=0.2)
        >>> result.pixels, result.at(0.1).pixels, result.of
        (3, 2, 16)
    """

    counts: Integers
    curve: Floats
    murr: float
    auc: float
    pixels: int
    of: int
    reductions: Floats

    def at(self, share: float) -> Blurring:
        """Return the same test for a smaller share of the pixels, without another pass: the beginning of the curve.

        Args:
            share: The share of the pixels.

        Returns:
            The test.
        """
        pixels = _pixels(share, self.of)
        if pixels not in self.counts:
            raise InputError(
                f"share: expected one whose number of pixels is among those measured (up to {self.pixels}) but {share} "
                f"of {self.of} is {pixels}; run the test for the largest share, with steps=None"
            )
        kept = self.counts <= pixels
        return _result(self.counts[kept], self.reductions[:, kept], self.of)


def blurring(
    uncertainty: Callable[[Tensor], Values],
    x: Tensor,
    maps: Values,
    *,
    share: float = 0.05,
    sigma: float = 1.5,
    steps: int | None = None,
    batch: int = 512,
) -> Blurring:
    """Measure how fast an uncertainty falls when the pixels that a map blames for it are blurred away.

    Args:
        uncertainty: From images ``[M, C, H, W]``, M at most `batch`, of the type and on the device of x, to one number
            for each, above 0 for the images as they are. It is called for N·(T + 1) images in all.
        x: Images ``[N, C, H, W]``.
        maps: Maps ``[N, H, W]``; pixels are blurred in the order of falling values.
        share: The share of the pixels that are blurred at most.
        sigma: The width of the Gaussian blur, in pixels.
        steps: Measure at no more than so many numbers of pixels, evenly spread and with T the last; the maximum and the
            mean go over those alone. None measures at every number.
        batch: How many images `uncertainty` is given at a time.

    Returns:
        The curve URR(t), its highest value MURR and the area AUC-URR.

    Examples:
        >>> x = torch.zeros(1, 1, 4, 4)
        >>> x[0, 0, 1, 1] = 1.0  # one bright pixel, which makes all of the doubt
        >>> result = nescio.evaluate.blurring(lambda x: x.amax((1, 2, 3)), x, x[:, 0], share=0.1)
        >>> result.pixels, round(result.murr, 2)
        (2, 0.89)
    """
    attribution = _checked_maps(x, maps)
    if not isinstance(sigma, int | float) or not 0 < sigma < math.inf:
        raise InputError(f"sigma: expected the width of the blur in pixels, above 0, but got {sigma!r}")
    size, at_once = attribution[0].size, integer("batch", batch, at_least=1)
    counts = _counts(_pixels(share, size), steps)
    x = x.detach()
    start = _start(uncertainty, x, at_once)
    soft = _blurred(x, float(sigma)).flatten(2)
    falling = np.argsort(-attribution.reshape(len(x), size), axis=1, kind="stable")[:, : counts[-1]]
    order, limits = (torch.from_numpy(values.copy()).to(x.device) for values in (falling, counts))

    def partly(pairs: Tensor) -> Tensor:
        """The images of some places in the table images × counts."""
        image, column = pairs // len(limits), pairs % len(limits)
        first, last = int(image[0]), int(image[-1]) + 1
        ranks = torch.full((last - first, size), size, device=x.device)
        ranks.scatter_(1, order[first:last], torch.arange(order.shape[1], device=x.device).expand(last - first, -1))
        chosen = ranks[image - first] < limits[column, None]
        result: Tensor = torch.where(chosen[:, None], soft[image], x.flatten(2)[image]).unflatten(2, x.shape[2:])
        return result

    every = torch.arange(len(x) * len(counts), device=x.device)
    values = np.concatenate([_values(uncertainty, partly(pairs)) for pairs in every.split(at_once)])
    reductions = 1 - values.reshape(len(x), len(counts)) / start[:, None]
    return _result(counts, np.maximum.accumulate(reductions, axis=1), size)


def _result(counts: Integers, reductions: Floats, size: int) -> Blurring:
    curve = np.median(reductions, axis=0)
    return Blurring(counts, curve, float(curve.max()), float((1 - curve).mean()), int(counts[-1]), size, reductions)


def _checked_maps(x: Tensor, maps: Values) -> Floats:
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point() or x.numel() == 0:
        came = f"{x.dtype} of shape {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x: expected images, a floating-point tensor of shape [N, C, H, W], but got {came}")
    if not x.isfinite().all():
        raise InputError("x: expected finite numbers but it holds NaN or infinity; leave those images out")
    attribution = pixel_maps(maps, "maps")
    if attribution.shape != (len(x), *x.shape[2:]):
        raise InputError(
            f"maps: expected one number for each pixel, shape {[len(x), *x.shape[2:]]}, but got shape "
            f"{list(attribution.shape)}; add up the channels, and resize the maps to the images"
        )
    return attribution


def _pixels(share: float, size: int) -> int:
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(f"share: expected a share of the pixels, above 0 and at most 1, but got {share!r}")
    pixels = math.floor(share * size + 0.5)
    if pixels == 0:
        raise InputError(
            f"share: expected at least one pixel but {share} of {size} pixels is less than one; take a larger share"
        )
    return pixels


def _counts(pixels: int, steps: int | None) -> Integers:
    points = pixels if steps is None else min(integer("steps", steps, at_least=1), pixels)
    return -(-np.arange(1, points + 1, dtype=np.int64) * pixels // points)  # rounded up, so that none is 0


def _blurred(x: Tensor, sigma: float) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows, columns = (_weights(size, sigma).to(wide) for size in x.shape[2:])
    return (rows @ wide @ columns.T).to(x.dtype)


def _weights(size: int, sigma: float) -> Tensor:
    at = torch.arange(size, dtype=torch.float64)
    return (-(at[:, None] - at).square() / (2.0 * sigma**2)).softmax(1)


def _start(uncertainty: Callable[[Tensor], Values], x: Tensor, batch: int) -> Floats:
    """U(x) of the images as they are: before anything else, so that a bad one is refused at once."""
    start = np.concatenate([_values(uncertainty, part) for part in x.split(batch)])
    bad = start == 0
    if bad.any():
        raise InputError(
            f"uncertainty: expected values above 0 for the images as they are but {bad.sum()} of {len(x)} are 0 "
            f"(image {listed(bad)}); nothing can be reduced there: leave those images out"
        )
    return start


def _values(uncertainty: Callable[[Tensor], Values], x: Tensor) -> Floats:
    values = scores(uncertainty(x), "uncertainty")
    if values.size != len(x):
        raise InputError(f"uncertainty: expected one number for each of {len(x)} images but got {values.size}")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(
            f"uncertainty: expected finite numbers that are at least 0 but got values from {values.min():.6g} to "
            f"{values.max():.6g}; a rate of reduction needs a true zero: set what is below 0 by rounding to 0"
        )
    return values
