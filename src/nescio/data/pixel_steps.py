"""Resizing and cropping of decoded pictures where a model is, to the very pixels that Pillow would give.

    columns      u = clip(⌊Σ_t w_t · x[first + t] + ½⌋)   in whole numbers, 22 bits behind the point, as Pillow counts
    rows         the same of u, which is rounded to bytes between the two, as Pillow does
    floats       byte / 255 from a table that the CPU makes: a GPU would divide differently in the last digit

The weights are asked of Pillow itself: a picture of 32 bits with 2²² at some places and 0 at others, resized, holds
them. So they are right for every filter and every version. Whole numbers know no rounding and no order, so a GPU gets
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil

import numpy as np
import torch
from torch import Tensor

from nescio._common.decoding_process import WHOLE
from nescio._common.lazy_imports import need
from nescio._common.picture_steps import PictureSteps
from nescio.data.decoders import Slot

BITS = 22
"""Behind the point of a weight: Pillow's PRECISION_BITS for bytes."""
WIDEST = 3
"""Pixels on each side that Pillow's widest filter (Lanczos) looks at, where a picture keeps its size."""
AT_ONCE = 1 << 25
"""Numbers that are held at a time between columns and rows."""

Taps = tuple[np.ndarray, np.ndarray]
"""Of each pixel: the first that it is made of, int64 ``[out]``, and the weights from there on, int32 ``[T, out]``."""


def unfinished(pixels: Tensor, slots: Sequence[Slot], steps: PictureSteps, shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Pictures, bytes ``[N, H, W, C]`` as large as the largest, and what is left to do with them.

    slots: what each is. shape: (C, H, W) that the model takes.
    """
    _, height, width = shape
    if all(one.what != WHOLE for one in slots):
        return {"pixels": pixels}
    kinds = sorted(set(slots))
    taps = [_both(one, steps, height, width) for one in kinds]
    number = {one: place for place, one in enumerate(kinds)}
    which = torch.tensor([number[one] for one in slots] if len(kinds) > 1 else [0])
    named = {"pixels": pixels}
    for axis, word in enumerate(("columns", "rows")):
        first, weights = _stacked([one[axis] for one in taps])
        named |= {f"{word} from": first[which], f"{word} by": weights[which]}
    return named


def finished(x: Mapping[str, Tensor], table: Tensor) -> Tensor:
    """What the model takes, floats ``[N, C, H, W]``, of what `unfinished` gave; table: `floats` on the same device."""
    pixels = x["pixels"]
    if "rows from" in x:
        width = x["columns from"].shape[1]
        step = max(1, AT_ONCE // (pixels.shape[1] * width * pixels.shape[3]))
        parts = []
        for start in range(0, len(pixels), step):
            part = pixels[start : start + step]
            for word, axis in (("columns", 2), ("rows", 1)):
                first, weights = (x[f"{word} {what}"] for what in ("from", "by"))
                if len(first) > 1:
                    first, weights = first[start : start + step], weights[start : start + step]
                part = _resampled(part, axis, first, weights)
            parts.append(part)
        pixels = torch.cat(parts)
    return table[pixels.permute(0, 3, 1, 2).contiguous().int()]


def floats() -> Tensor:
    """The float of each byte."""
    return torch.arange(256).float().div(255)


def _resampled(x: Tensor, axis: int, first: Tensor, weights: Tensor) -> Tensor:
    """One axis of bytes ``[N, H, W, C]``; first: ``[N or 1, out]``, weights: ``[N or 1, T, out]``."""
    shape = [*x.shape]
    shape[axis] = first.shape[1]
    lying = [-1, 1, 1, 1]
    lying[axis] = first.shape[1]
    total = torch.full(shape, 1 << (BITS - 1), dtype=torch.int32, device=x.device)
    for tap in range(weights.shape[1]):
        places = (first + tap).clamp_(max=x.shape[axis] - 1)  # those behind the end weigh nothing
        total.addcmul_(x.gather(axis, places.view(lying).expand(shape)), weights[:, tap].view(lying))
    return (total >> BITS).clamp_(0, 255).byte()


def _both(slot: Slot, steps: PictureSteps, height: int, width: int) -> tuple[Taps, Taps]:
    """The weights of columns and rows."""
    if slot.what != WHOLE:
        return _same(width), _same(height)
    size = (slot.width, slot.height)
    (across, down), (left, top, right, bottom) = steps.resized(size), steps.box(size)
    columns = _weights(slot.width, across, steps.interpolation)
    rows = _weights(slot.height, down, steps.interpolation)
    return (columns[0][left:right], columns[1][:, left:right]), (rows[0][top:bottom], rows[1][:, top:bottom])


def _same(length: int) -> Taps:
    return np.arange(length), np.full((1, length), 1 << BITS, np.int32)


@lru_cache(maxsize=2048)
def _weights(length: int, out: int, interpolation: str) -> Taps:
    """What Pillow makes each of `out` pixels of, from `length`.

    A picture whose row r has ones at the places r, r + apart, r + 2 · apart … tells them: no two such are looked at for
    the same pixel.
    """
    if length == out:
        return _same(length)
    image = need("PIL.Image", "data")
    scale = length / out
    apart = 2 * ceil(WIDEST * max(1.0, scale)) + 5
    ones = np.zeros((apart, length), np.int32)
    places = np.arange(length)
    ones[places % apart, places] = 1 << BITS
    told = image.fromarray(ones).resize((out, apart), image.Resampling[interpolation.upper()])
    values, rows = np.asarray(told), np.arange(apart)[:, None]
    where = rows + apart * np.round(((np.arange(out) + 0.5) * scale - 0.5 - rows) / apart).astype(np.int64)
    first = np.where(values != 0, where, length).min(0)
    count = int((np.where(values != 0, where, -1).max(0) - first).max()) + 1
    weights = np.zeros((count, out), np.int32)
    tap, column = where - first, np.broadcast_to(np.arange(out), where.shape)
    there = values != 0
    weights[tap[there], column[there]] = values[there]
    return first, weights


def _stacked(taps: Sequence[Taps]) -> tuple[Tensor, Tensor]:
    count = max(len(weights) for _, weights in taps)
    filled = [np.pad(weights, ((0, count - len(weights)), (0, 0))) for _, weights in taps]
    return torch.from_numpy(np.stack([first for first, _ in taps])), torch.from_numpy(np.stack(filled))
