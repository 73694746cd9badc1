"""Where in an input an attribution lies: pixels of a picture, tokens of a text, features of a table.

Gradients at the input have a dimension of features (channels of a picture, entries of an embedding), which is averaged
or added up. The output of a layer inside the network is arranged as ``[K, N, features, places]``. Its places are then
mapped to those of the input: positions of a convolution by interpolation, and each patch of a vision transformer to the
pixels it was made from. Tokens in front of the patches, such as the class token, have no place in a picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from nescio.trace.runtime.precision import round_off

_CHANNELS_FIRST = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.MultiheadAttention)


@dataclass(frozen=True)
class Places:
    """The shape of a map, and which dimension of the attributed tensor ``[N, ...]`` holds its features, if any.

    absent: where there is nothing, as in padding, bool ``[N, *shape]``; None: nowhere.
    """

    shape: tuple[int, ...]
    features: int | None
    absent: Tensor | None = None

    def mean(self, g: Tensor) -> Tensor:
        """The mean over features of ``[K, N, ...]``: ``[K, N, *shape]``."""
        return g if self.features is None else g.mean(self.features + 1)

    def sum(self, g: Tensor) -> Tensor:
        """The sum over features of ``[K, N, ...]``: ``[K, N, *shape]``."""
        return g if self.features is None else g.sum(self.features + 1)

    @property
    def picture(self) -> bool:
        """Whether the places are pixels."""
        return len(self.shape) == 2

    def arranged(self, module: nn.Module, t: Tensor, axis: int | None, grid: tuple[int, ...] | None) -> Tensor | None:
        """What a module gave, ``[K, *output shape]``, as ``[K, N, features, places]``; None where it has no places.

        axis: the dimension of the output along which the inputs lie, 0 or 1; None: neither. grid: rows and columns of
        the patches, where the network has told them.
        """
        if t.ndim < 4 or axis is None:
            return None
        whole = isinstance(module, nn.LayerNorm) and len(module.normalized_shape) > 1
        maps = t.ndim == 5 and not isinstance(module, FEATURES_LAST)  # of a block, which may be of any kind
        if isinstance(module, _CHANNELS_FIRST) or whole or maps:
            return t if axis == 0 and t.ndim - 3 == len(self.shape) else None
        t = (t if axis == 0 else t.transpose(1, 2)).movedim(-1, 2)
        if t.ndim == 4 and self.picture:
            grid_shape = _grid(t.shape[3], self.shape, grid)
            return None if grid_shape is None else t[..., t.shape[3] - math.prod(grid_shape) :].unflatten(3, grid_shape)
        return t if t.ndim - 3 == len(self.shape) else None

    def brought(self, maps: Tensor, patches: bool) -> Tensor:
        """Maps ``[K, N, places]`` of a layer at the places of the input."""
        if maps.shape[2:] == self.shape:
            return maps
        mode = "nearest" if patches else {1: "linear", 2: "bilinear"}.get(len(self.shape), "trilinear")
        more = {} if patches else {"align_corners": False}
        return interpolate(maps, self.shape, mode=mode, **more)

    def shares(self, maps: Tensor, tau2: float) -> Tensor:
        """exp((m − 1)/τ₂) of maps ``[K, N, *shape]`` scaled to m in [0, 1], flat ``[K, N, P]``; 0 where nothing is.

        A map whose places differ by round-off alone is flat, and is not scaled. Divided by their sum, which is at least
        1, they are the softmax over places.
        """
        flat = maps.flatten(2)
        absent = None if self.absent is None else self.absent.flatten(1).to(flat.device)
        high = flat if absent is None else flat.masked_fill(absent, -torch.inf)
        low = flat if absent is None else flat.masked_fill(absent, torch.inf)
        bottom, top = low.amin(2, keepdim=True), high.amax(2, keepdim=True)
        reach = top - bottom
        apart = reach > round_off(flat) * torch.maximum(top, -bottom)
        scaled = torch.where(apart, (flat - top) / reach.clamp(min=torch.finfo(flat.dtype).tiny), 0.0)
        weights = (scaled / tau2).exp()
        return weights if absent is None else weights.masked_fill(absent, 0.0)


def _grid(tokens: int, shape: tuple[int, ...], known: tuple[int, ...] | None) -> tuple[int, int] | None:
    """Rows and columns of the patches among the tokens; the first tokens may be no patches."""
    if known is not None and len(known) == 2 and 0 <= tokens - math.prod(known) <= 16:
        return known[0], known[1]
    high, wide = shape
    for extra in range(3):  # no convolution tells: rows and columns in the proportions of the picture
        rows = math.isqrt(max(0, (tokens - extra) * high // wide))
        if rows and rows * high and (tokens - extra) * high == rows * rows * wide:
            return rows, (tokens - extra) // rows
    return None
