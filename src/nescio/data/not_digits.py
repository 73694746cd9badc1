"""Things that are not digits, brought to the form of the digits: float32 ``[N, 1, 8, 8]`` in [0, 1].

`photo_patches`: 32×32 windows of two photographs that scikit-learn carries (a temple and a flower), in grey, each
4×4 block averaged: far from anything a digit classifier has seen. Flat windows (sky, blur: standard deviation
of the 64 pixels below 0.05) show nothing and are left out.
`drawn_letters`: ten capitals made of straight strokes (A E F H K M N V W X), drawn with random size, slant, pen
and wobble on a 32×32 bitmap whose 4×4 blocks are counted, just as the digits were made: ink on paper, yet no digit.
Capitals that pass for a digit (B, D, G, I, O, Q, S, Z …) are left out, since nobody could call them foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio._common.lazy_imports import need
from nescio.types import InputError

WINDOW, BLOCK, FLAT = 32, 4, 0.05

# Ends of strokes (x₀, y₀, x₁, y₁) in the unit square, y downwards.
LETTERS: Mapping[str, tuple[tuple[float, float, float, float], ...]] = {
    "A": ((0, 1, 0.5, 0), (0.5, 0, 1, 1), (0.2, 0.6, 0.8, 0.6)),
    "E": ((0, 0, 0, 1), (0, 0, 1, 0), (0, 0.5, 0.8, 0.5), (0, 1, 1, 1)),
    "F": ((0, 0, 0, 1), (0, 0, 1, 0), (0, 0.5, 0.8, 0.5)),
    "H": ((0, 0, 0, 1), (1, 0, 1, 1), (0, 0.5, 1, 0.5)),
    "K": ((0, 0, 0, 1), (0, 0.55, 1, 0), (0.3, 0.4, 1, 1)),
    "M": ((0, 1, 0, 0), (0, 0, 0.5, 0.6), (0.5, 0.6, 1, 0), (1, 0, 1, 1)),
    "N": ((0, 1, 0, 0), (0, 0, 1, 1), (1, 1, 1, 0)),
    "V": ((0, 0, 0.5, 1), (0.5, 1, 1, 0)),
    "W": ((0, 0, 0.25, 1), (0.25, 1, 0.5, 0.4), (0.5, 0.4, 0.75, 1), (0.75, 1, 1, 0)),
    "X": ((0, 0, 1, 1), (1, 0, 0, 1)),
}


def photo_patches(count: int, seed: int = 0) -> Tensor:
    """Return windows of two photographs, which are no digits.

    Args:
        count: How many different windows; two of them may overlap by half.
        seed: The seed of the draw.

    Returns:
        Pictures ``[count, 1, 8, 8]`` in [0, 1].

    Examples:
        >>> nescio.data.photo_patches(3).shape
        torch.Size([3, 1, 8, 8])
    """
    photos = need("sklearn.datasets", "demo").load_sample_images().images
    cells = []
    for photo in photos:
        grey = torch.tensor(photo).float().mean(dim=2) / 255  # a copy: the photograph may be read-only memory
        small = torch.nn.functional.avg_pool2d(grey[None, None], BLOCK)
        side = WINDOW // BLOCK
        tiles = small[0, 0].unfold(0, side, side // 2).unfold(1, side, side // 2)
        cells.append(tiles.reshape(-1, 1, side, side))
    stock = torch.cat(cells)
    stock = stock[stock.flatten(1).std(dim=1) >= FLAT]
    if not 1 <= count <= len(stock):
        raise InputError(f"count: expected 1 to {len(stock)} patches (all that the two photographs hold), got {count}")
    chosen = torch.randperm(len(stock), generator=torch.Generator().manual_seed(seed))[:count]
    return stock[chosen].contiguous()


def drawn_letters(count: int, seed: int = 0) -> Tensor:
    """Return drawn capitals, which are no digits.

    Args:
        count: How many; each of the ten letters comes about equally often, in random order.
        seed: The seed of the drawing.

    Returns:
        Pictures ``[count, 1, 8, 8]`` in [0, 1].

    Examples:
        >>> nescio.data.drawn_letters(3).shape
        torch.Size([3, 1, 8, 8])
    """
    if count < 1:
        raise InputError(f"count: expected at least one letter, but got {count}")
    random = torch.Generator().manual_seed(seed)
    shapes = list(LETTERS.values())
    order = torch.randperm(count, generator=random)
    return torch.stack([_draw(shapes[int(place) % len(shapes)], random) for place in order])


def _draw(strokes: tuple[tuple[float, float, float, float], ...], random: torch.Generator) -> Tensor:
    """One letter [1, 8, 8]: a pixel of the bitmap is ink where it lies within half a pen's width of a stroke."""

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=random))

    ends = torch.tensor(strokes).reshape(-1, 2, 2)
    ends = ends + 0.03 * torch.randn(ends.shape, generator=random)
    width, height, slant = uniform(14, 22), uniform(25, 29), uniform(-0.2, 0.25)
    centred = (ends - 0.5) * torch.tensor([width, height])
    ends = torch.stack([centred[..., 0] - slant * centred[..., 1], centred[..., 1]], dim=-1) + WINDOW / 2

    axis = torch.arange(WINDOW) + 0.5
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1).reshape(-1, 1, 2)
    start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    where = (((pixels - start) * along).sum(-1) / along.square().sum(-1)).clamp(0, 1)
    distance = (pixels - start - where[..., None] * along).norm(dim=-1).amin(dim=1)
    bitmap = (distance <= uniform(1.5, 2.6)).float().reshape(1, 1, WINDOW, WINDOW)
    return torch.nn.functional.avg_pool2d(bitmap, BLOCK)[0]


@dataclass(frozen=True)
class Kind:
    """A set of things that are not digits: what it is, in words, and how `count` of them are made."""

    about: str
    make: Callable[[int, int], Tensor]


NOT_DIGITS: Mapping[str, Kind] = {
    "photo patches": Kind(
        "32×32 windows of the two photographs that scikit-learn carries (a temple, a flower), in grey, "
        "averaged over 4×4 blocks to 8×8 pixels; flat windows (standard deviation below 0.05) are left out",
        photo_patches,
    ),
    "drawn letters": Kind(
        "the capitals A E F H K M N V W X, drawn by program with random size, slant, pen and wobble on a 32×32 "
        "bitmap whose 4×4 blocks are counted, the way the digits were made",
        drawn_letters,
    ),
}
