"""Maps as small pictures: a map's colours over a pale copy of its picture, one pixel for each number, as PNG.

The colours are those of `nescio.plots.maps`, and all maps of an input share one scale, so that they can be compared.
The browser enlarges them without smoothing: a pixel that is seen is a pixel that the model sees.
"""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio.plots.maps import ABOVE, BELOW, PALE, _scale, _shown
from nescio.types import need

_one_at_a_time = threading.Lock()  # matplotlib's colours are made when they are first used


def tiles(maps: Mapping[str, NDArray[np.float64]], picture: NDArray[np.float32] | None) -> dict[str, str]:
    """Each map as a data URI."""
    found = {}
    with _one_at_a_time:
        scale = _scale(maps.values())
        colours, low, high = scale["cmap"], scale["vmin"], scale["vmax"]
        for name, one in maps.items():
            rgba: Any = colours((one - low) / (high - low))
            under = np.ones((*one.shape, 3))
            if picture is not None and picture.shape[-2:] == one.shape:
                shown = _shown(picture, (one.shape[0], one.shape[1]))
                grey = shown if shown.ndim == 2 else shown.mean(2)
                under = np.repeat((1 - PALE * (1 - grey))[..., None], 3, axis=2)
            alpha = rgba[..., 3:]
            found[name] = uri(rgba[..., :3] * alpha + under * (1 - alpha))
    return found


def reach(maps: Mapping[str, NDArray[np.float64]]) -> tuple[float, float, str]:
    """The ends of the colour scale, and its colours as a CSS gradient."""
    with _one_at_a_time:
        scale = _scale(maps.values())
    stops = (*BELOW[::-1], *ABOVE) if scale["vmin"] < 0 else ABOVE
    return scale["vmin"], scale["vmax"], f"linear-gradient(to right, {', '.join(stops)})"


def seen(picture: NDArray[np.float32]) -> str:
    """The picture as the model sees it, as a data URI."""
    return uri(shown(picture))


def shown(picture: NDArray[np.float32]) -> NDArray[np.float64]:
    """A picture ``[channels, H, W]`` for people: ``[H, W]`` or ``[H, W, 3]`` in [0, 1]."""
    return _shown(picture, (picture.shape[-2], picture.shape[-1]))


def uri(values: NDArray[np.float64]) -> str:
    """A picture ``[H, W]`` or ``[H, W, 3]`` in [0, 1] as a data URI."""
    image = need("PIL.Image", "app")
    bytes_ = np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
    file = io.BytesIO()
    image.fromarray(bytes_).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
