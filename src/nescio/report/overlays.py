"""A picture and the maps of its doubt as images inside the page, in the colours of `nescio.plots.maps`.

All maps of one input share a scale. Over the picture in pale grey a colour is clear at 0 and opaque from half of the
scale on. Small pictures are kept to the pixel (PNG). Larger ones, which are photographs, are packed (JPEG), and their
maps are added up over squares, since the single pixels of a map are too small to be seen. Their scale leaves out one
square in a hundred, since a few may stand out so far that nothing else would be seen.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio._common.formatting import number
from nescio._common.images import as_bytes, data_uri, png
from nescio._common.lazy_imports import need
from nescio.plots.map_figures import ABOVE, BELOW, PALE

SMALL = 64
"""Pixels a side up to which every one is kept."""
SQUARES = 28
"""Squares a side, at most, over which the map of a larger picture is added up."""
Floats = NDArray[np.float64]
_ROWS, _COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")


def image(picture: Floats) -> str:
    """Return a picture as a data URI.

    Args:
        picture: Numbers ``[H, W]`` or ``[H, W, 3]`` in [0, 1].

    Returns:
        The URI of a PNG where the picture is small, of a JPEG otherwise.
    """
    if max(picture.shape[:2]) <= SMALL:
        return data_uri(png(picture))
    jpeg = io.BytesIO()
    need("PIL.Image", "demo").fromarray(as_bytes(picture)).save(jpeg, format="JPEG", quality=82)
    return data_uri(jpeg.getvalue(), "jpeg")


def overlays(maps: Mapping[str, Floats], picture: Floats) -> tuple[dict[str, str], str]:
    """Return maps over a picture, in colours that share a scale.

    Args:
        maps: Maps ``[H, W]`` by name.
        picture: The picture ``[H, W]`` or ``[H, W, 3]`` in [0, 1].

    Returns:
        Each map over the picture as a data URI, and in words what the darkest colour stands for.
    """
    step = 1 if max(picture.shape[:2]) <= SMALL else -(-max(picture.shape[:2]) // SQUARES)
    drawn = {name: _added(one, step) for name, one in maps.items()}
    largest = max(float(np.abs(one).max()) for one in drawn.values()) or 1.0
    top = largest if step == 1 else max(float(np.quantile(np.abs(one), 0.99)) for one in drawn.values()) or largest
    grey = picture if picture.ndim == 2 else picture.mean(2)
    place = "a pixel" if step == 1 else f"a square of {step} × {step} pixels"
    shown = {name: image(over(_enlarged(one / top, step, grey.shape), grey)) for name, one in drawn.items()}
    return shown, f"{number(top)} nats{' or more' if largest > top else ''} in {place}"


def on_scale(one: Floats, picture: Floats, low: float, high: float) -> str:
    """Return a map of one number for each position over its picture, in colours from `low` (clear) to `high`.

    Args:
        one: The map ``[h, w]``; a coarser one than the picture is enlarged, square by square.
        picture: The picture ``[H, W]`` or ``[H, W, 3]`` in [0, 1].
        low: Where the colours begin.
        high: Where they end.

    Returns:
        A data URI.
    """
    grey = picture if picture.ndim == 2 else picture.mean(2)
    rows, columns = (
        ((np.arange(size) + 0.5) * own / size).astype(np.int64) for size, own in zip(grey.shape, one.shape, strict=True)
    )
    level = (one[rows][:, columns] - low) / ((high - low) or 1.0)
    return image(over(level.clip(0.0, 1.0), grey))


def colour_bar() -> str:
    """Return the colours of `on_scale` from left to right as a data URI: a picture, so that it is printed too."""
    return data_uri(png(over(np.linspace(0.0, 1.0, 128)[None].repeat(8, 0), np.zeros((8, 128)))))


def scales(maps: Iterable[Mapping[str, Floats]]) -> dict[str, tuple[float, float]]:
    """Return the ends of the colours of each kind of map; one number in 200 is beyond each of them.

    Args:
        maps: The maps of several inputs by kind, which are to be compared.

    Examples:
        >>> scales([{"entropy": np.array([[0.0, 1.0]])}, {"entropy": np.array([[0.5, 2.0]])}])
        {'entropy': (0.0075, 1.98...)}
    """
    every: dict[str, list[Floats]] = {}
    for own in maps:
        for kind, one in own.items():
            every.setdefault(kind, []).append(one.ravel())
    joined = {kind: np.concatenate(parts) for kind, parts in every.items()}
    return {kind: (float(np.quantile(one, 0.005)), float(np.quantile(one, 0.995))) for kind, one in joined.items()}


def where(one: Floats) -> str:
    """Return in words which ninth of a picture has the largest share of a map.

    Args:
        one: The map ``[H, W]``.

    Returns:
        A part of a sentence.

    Examples:
        >>> where(np.diag([0.0, 0.0, 1.0]))
        'the lower right has 100 % of it'
    """
    shares = [[part.sum() for part in np.array_split(rows, 3, axis=1)] for rows in np.array_split(one, 3, axis=0)]
    row, column = divmod(int(np.argmax(shares)), 3)
    total = float(one.sum()) or 1.0
    place = "centre" if (row, column) == (1, 1) else f"{_ROWS[row]} {_COLUMNS[column]}"
    return f"the {place} has {100 * float(shares[row][column]) / total:.0f} % of it"


def _added(one: Floats, step: int) -> Floats:
    """Sums over squares of so many pixels a side; those at the lower and right edges may be smaller."""
    if step == 1:
        return one
    padded = np.pad(one, [(0, -size % step) for size in one.shape])
    high, wide = (size // step for size in padded.shape)
    result: Floats = padded.reshape(high, step, wide, step).sum((1, 3))
    return result


def _enlarged(one: Floats, step: int, shape: tuple[int, ...]) -> Floats:
    """Squares as pixels again, smoothly, cut to the picture."""
    if step == 1:
        return one
    pillow: Any = need("PIL.Image", "demo")
    size = (one.shape[1] * step, one.shape[0] * step)
    large = pillow.fromarray(one.astype(np.float32)).resize(size, pillow.Resampling.BILINEAR)
    return np.asarray(large, dtype=np.float64)[: shape[0], : shape[1]]


def over(level: Floats, grey: Floats) -> Floats:
    """Return the colours of a map over a grey picture that is made pale.

    Args:
        level: The map ``[H, W]``, in [−1, 1].
        grey: The picture ``[H, W]``, in [0, 1].

    Returns:
        Colours ``[H, W, 3]``, in [0, 1].

    Examples:
        >>> over(np.zeros((1, 1)), np.ones((1, 1)))
        array([[[1., 1., 1.]]])
    """
    colours = np.repeat((1 - PALE * (1 - grey))[..., None], 3, 2)
    for side, stops in ((level, ABOVE), (-level, BELOW)):
        rgba = np.array([[int(stop[at : at + 2] or "ff", 16) / 255 for at in (1, 3, 5, 7)] for stop in stops])
        at = np.linspace(0, 1, len(rgba))
        colour = np.stack([np.interp(side.clip(0), at, rgba[:, channel]) for channel in range(4)], -1)
        colours = colours * (1 - colour[..., 3:]) + colour[..., :3] * colour[..., 3:]
    return colours
