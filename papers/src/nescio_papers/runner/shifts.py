"""Shifts: known pictures, changed so that a model should doubt them; for foreign data, where none may be used.

    rotated     turned by 90°
    noise       x + 0.3 ε, cut to [0, 1]
    blurred     averaged down to a quarter of the resolution and brought back
    shuffled    4 × 4 tiles in a random order
    blended     the mean of two pictures of different classes
    static      pixels of many pictures at random: each keeps its place, none its picture

Pictures are uint8 [N, C, H, W] before and after; what is drawn depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Shift = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def _rotated(x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    return x.rot90(1, (2, 3))


def _noise(x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    return _bytes(x.float() + 0.3 * 255 * torch.randn(x.shape, generator=random))


def _blurred(x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    size = x.shape[2:]
    small = torch.nn.functional.adaptive_avg_pool2d(x.float(), (max(1, size[0] // 4), max(1, size[1] // 4)))
    return _bytes(torch.nn.functional.interpolate(small, size=list(size), mode="bilinear", align_corners=False))


def _shuffled(x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    count, channels, height, width = x.shape
    h, w = height // 4 * 4, width // 4 * 4  # a rim that does not fill a tile stays
    tiles = x[:, :, :h, :w].reshape(count, channels, 4, h // 4, 4, w // 4).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.rand(count, 16, generator=random).argsort(1)
    mixed = tiles[torch.arange(count)[:, None], order].unflatten(1, (4, 4)).permute(0, 3, 1, 4, 2, 5)
    changed = x.clone()
    changed[:, :, :h, :w] = mixed.reshape(count, channels, h, w)
    return changed


def _blended(x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    partner = torch.randperm(len(x), generator=random)
    for _ in range(100):  # draw anew for those whose partner is of their own class
        same = (y[partner] == y).nonzero().flatten()
        if not len(same):
            break
        partner[same] = torch.randint(len(x), (len(same),), generator=random)
    return _bytes((x.float() + x[partner].float()) / 2)


def _static(x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    flat = x.flatten(2)
    source = torch.randint(len(x), (len(x), flat.shape[2]), generator=random)
    return flat.permute(0, 2, 1)[source, torch.arange(flat.shape[2])].permute(0, 2, 1).reshape(x.shape)


def _bytes(x: Tensor) -> Tensor:
    return x.round().clamp(0, 255).to(torch.uint8)


SHIFTS: Mapping[str, Shift] = {
    "rotated": _rotated,
    "noise": _noise,
    "blurred": _blurred,
    "shuffled": _shuffled,
    "blended": _blended,
    "static": _static,
}


def shifted(x: Tensor, y: Tensor, kind: str, seed: int = 0) -> Tensor:
    """Return the pictures after the shift."""
    return SHIFTS[kind](x, y, torch.Generator().manual_seed(seed)).contiguous()
