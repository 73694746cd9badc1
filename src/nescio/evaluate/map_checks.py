"""Whether a map over the pixels is right: does it find a patch that is known to be corrupted, does it depend on the
weights at all, and on nothing but the function that they make.

Anomaly test. In each image the pixels of a mask were corrupted, so the map should be highest there:

    auroc = P(M_in > M_out) + ½ P(M_in = M_out)     over pixels inside and outside of the mask; ½ is chance
    iou   = I / (2k − I)                            I of the mask's k pixels are among the k highest of the map

Equal pixels have no order: where the k-th highest shares its value with others, I is its mean over all orders of them.
Both are worked out for each image and then averaged over the images.

Randomised weights. A map that explains a model must change when the model's weights are replaced by random ones. The
rank correlation of the maps before and after is 1 when nothing changed, and near 0 is good.

Rewritten networks. A map that explains a function must stay when the network is written down differently and computes
the same: a ReLU layer times c and the next by 1/c, a batch norm folded into its convolution. For maps M and M′

    difference = Σ |M − M′| / (Σ |M| + Σ |M′|)      0 for equal maps, 1 where no pixel is in both

For positive maps with the same sum U, as UA-Backprop's are, it is the share of U that went to other pixels. The
paths `gradient` and `smoothgrad` depend on the function alone and pass. `fullgrad` adds absolute values of bias terms
and `gradcam` looks at one layer: both pass a rescaled pair. Both fail where a rewriting moves biases between layers,
such as a batch norm that is folded into a convolution with a bias. (Grad-CAM: into the last convolution, with or
without a bias.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nescio._common.arrays import Values, real_numbers
from nescio.evaluate.correlation import rank_correlation, ranks
from nescio.evaluate.metric_inputs import Booleans, Floats, listed
from nescio.types import InputError


@dataclass(frozen=True)
class AnomalyResult:
    """Hold how well maps find corrupted pixels: means over the images, and the figures of each image.

    Attributes:
        auroc: The mean AUROC; 1 is perfect and 0.5 is chance.
        iou: The mean IoU; 1 is perfect.
        image_auroc: The AUROC of each image, ``[N]``.
        image_iou: The IoU of each image, ``[N]``.

    Examples:
        >>> nescio.evaluate.anomaly([[[0.9, 0.1], [0.2, 0.3]]], [[[True, False], [False, False]]]).image_auroc
        array([1.])
    """

    auroc: float
    iou: float
    image_auroc: Floats
    image_iou: Floats


def anomaly(maps: Values, mask: Values) -> AnomalyResult:
    """Measure how well maps find pixels that were corrupted.

    Args:
        maps: Maps ``[N, H, W]``, higher where the doubt comes from.
        mask: Which pixels were corrupted, booleans ``[N, H, W]``; in each image some and not all.

    Returns:
        AUROC and IoU, their means and those of each image.

    Examples:
        >>> result = nescio.evaluate.anomaly([[[0.9, 0.1], [0.2, 0.3]]], [[[True, False], [False, False]]])
        >>> result.auroc, result.iou
        (1.0, 1.0)
    """
    attribution = pixel_maps(maps, "maps")
    corrupted = _masks(mask, attribution.shape)
    pairs = [(one.ravel(), inside.ravel()) for one, inside in zip(attribution, corrupted, strict=True)]
    auroc = np.array([_auroc(one, inside) for one, inside in pairs])
    iou = np.array([_iou(one, inside) for one, inside in pairs])
    return AnomalyResult(_mean(auroc), _mean(iou), auroc, iou)


def randomised(maps_before: Values, maps_after: Values) -> float:
    """Return the rank correlation of maps before and after the weights were randomised.

    Args:
        maps_before: Maps ``[N, H, W]`` of the trained network.
        maps_after: Maps ``[N, H, W]`` of the network with random weights, for the same images.

    Returns:
        The mean over the images. Near 0 is good: the maps depend on what was learned. 1 means that they do not.

    Examples:
        >>> nescio.evaluate.randomised([[[1.0, 2.0], [3.0, 4.0]]], [[[1.0, 2.0], [3.0, 4.0]]])
        1.0
    """
    before, after = _pair(maps_before, maps_after, ("maps_before", "maps_after"), "before and after")
    for name, maps in (("maps_before", before), ("maps_after", after)):
        constant = np.ptp(maps, axis=(1, 2)) == 0
        if constant.any():
            raise InputError(
                f"{name}: expected maps that differ between pixels but {constant.sum()} of {len(maps)} are constant "
                f"(image {listed(constant)}); they have no order to compare: leave those images out"
            )
    correlations = (rank_correlation(one.ravel(), other.ravel()) for one, other in zip(before, after, strict=True))
    return _mean(np.array([value for value in correlations if value is not None]))  # none is None: no map is constant


@dataclass(frozen=True)
class RewrittenResult:
    """Hold how much maps changed with the way the network is written; 0 is right.

    Attributes:
        difference: The mean over the images.
        worst: The largest difference of an image.
        image_difference: The difference of each image, ``[N]``.

    Examples:
        >>> nescio.evaluate.rewritten([[[1.0, 3.0]]], [[[1.0, 3.0]]]).worst
        0.0
    """

    difference: float
    worst: float
    image_difference: Floats


def rewritten(maps: Values, maps_rewritten: Values) -> RewrittenResult:
    """Measure how much maps change when the network is written differently and computes the same function.

    Args:
        maps: Maps ``[N, H, W]`` of a network.
        maps_rewritten: Maps ``[N, H, W]`` of another network that computes the same function, for the same images. That
            the two compute the same is for the caller to check.

    Returns:
        The differences, 0 for equal maps; round-off alone gives less than 1e-6 in float32.

    Examples:
        >>> nescio.evaluate.rewritten([[[1.0, 3.0]]], [[[1.0, 3.0]]]).difference
        0.0
    """
    one, other = _pair(maps, maps_rewritten, ("maps", "maps_rewritten"), "of both networks")
    apart = np.abs(one - other).sum((1, 2))
    size = np.abs(one).sum((1, 2)) + np.abs(other).sum((1, 2))
    difference = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
    return RewrittenResult(_mean(difference), float(difference.max()), difference)


def pixel_maps(values: Values, name: str) -> Floats:
    """One finite number for each pixel of each image, [N, H, W], where N, H and W are at least 1."""
    array = real_numbers(values, name, "maps, one number for each pixel").astype(np.float64, copy=False)
    if array.ndim != 3 or array.size == 0:
        raise InputError(
            f"{name}: expected maps of shape [N, H, W], one number for each pixel of at least one image, but got shape "
            f"{list(array.shape)}; add up the channels first, and write a single map as map[None]"
        )
    bad = _any(~np.isfinite(array))
    if bad.any():
        raise InputError(
            f"{name}: expected finite numbers but {bad.sum()} of {len(array)} maps hold NaN or infinity "
            f"(image {listed(bad)}); find out why, or leave those images out"
        )
    return array


def _pair(one: Values, other: Values, names: tuple[str, str], which: str) -> tuple[Floats, Floats]:
    first, second = pixel_maps(one, names[0]), pixel_maps(other, names[1])
    if first.shape != second.shape:
        raise InputError(
            f"expected maps of the same images {which} but got shapes {list(first.shape)} and {list(second.shape)}"
        )
    return first, second


def _masks(mask: Values, shape: tuple[int, ...]) -> Booleans:
    array = real_numbers(mask, "mask", "booleans, one for each pixel")
    if array.shape != shape:
        raise InputError(
            f"mask: expected one boolean for each pixel of the maps, shape {list(shape)}, but got shape "
            f"{list(array.shape)}"
        )
    if ((array != 0) & (array != 1)).any():  # NaN is neither
        raise InputError("mask: expected booleans, or 0 and 1, but it holds other numbers; compare first: mask > 0")
    inside = array.astype(bool)
    bad = ~(_any(inside) & _any(~inside))
    if bad.any():
        raise InputError(
            f"mask: expected pixels inside and outside of the patch but {bad.sum()} of {len(inside)} masks are empty "
            f"or cover the whole image (image {listed(bad)}); leave those images out"
        )
    return inside


def _any(pixels: Booleans) -> Booleans:
    """Which images have such a pixel."""
    images: Booleans = np.any(pixels, axis=(1, 2))
    return images


def _auroc(values: Floats, inside: Booleans) -> float:
    count = int(inside.sum())
    wins = ranks(values)[inside].sum() - count * (count + 1) / 2
    return float(wins / (count * (inside.size - count)))


def _iou(values: Floats, inside: Booleans) -> float:
    count = int(inside.sum())
    lowest = np.partition(values, -count)[-count]  # of the `count` highest
    above, level = values > lowest, values == lowest
    shared = inside[above].sum() + inside[level].mean() * (count - above.sum())
    return float(shared / (2 * count - shared))


def _mean(values: Floats) -> float:
    return math.fsum(values) / values.size  # exact, so that the order of the images never matters
