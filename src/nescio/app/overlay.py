"""Maps as small pictures: a map's colours over a pale copy of its picture, one pixel for each number, as PNG.

The colours are those of `nescio.plots.maps`, and all maps of an input share one scale, so that they can be compared.
The browser enlarges them without smoothing: a pixel that is seen is a pixel that the model sees.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nescio._common.images import data_uri, png
from nescio.plots.map_figures import ABOVE, BELOW, ends, visible
from nescio.report.overlays import over


def tiles(maps: Mapping[str, NDArray[np.float64]], picture: NDArray[np.float32] | None) -> dict[str, str]:
    """Each map as a data URI."""
    _, top = ends(maps.values())
    uris = {}
    for name, one in maps.items():
        grey = np.ones(one.shape)
        if picture is not None and picture.shape[-2:] == one.shape:
            grey = for_display(picture)
            grey = grey if grey.ndim == 2 else grey.mean(2)
        uris[name] = uri(over(one / top, grey))
    return uris


def resized(picture: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A picture ``[channels, H, W]`` with as many pixels as a map of this shape, the nearest of each."""
    rows, columns = (
        ((np.arange(size) + 0.5) * own / size).astype(np.int64)
        for size, own in zip(shape, picture.shape[1:], strict=True)
    )
    return picture[:, rows][:, :, columns]


def reach(maps: Mapping[str, NDArray[np.float64]]) -> tuple[float, float, str]:
    """The ends of the colour scale, and its colours as a CSS gradient."""
    low, high = ends(maps.values())
    stops = (*BELOW[::-1], *ABOVE) if low < 0 else ABOVE
    return low, high, f"linear-gradient(to right, {', '.join(stops)})"


def seen(picture: NDArray[np.float32]) -> str:
    """The picture as the model sees it, as a data URI."""
    return uri(for_display(picture))


def for_display(picture: NDArray[np.float32]) -> NDArray[np.float64]:
    """A picture ``[channels, H, W]`` for people: ``[H, W]`` or ``[H, W, 3]`` in [0, 1]."""
    return visible(picture, (picture.shape[-2], picture.shape[-1]))


def uri(values: NDArray[np.float64]) -> str:
    """A picture ``[H, W]`` or ``[H, W, 3]`` in [0, 1] as a data URI."""
    return data_uri(png(values))
