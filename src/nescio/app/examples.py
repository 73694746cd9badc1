"""Inputs to click on: rows as the model takes them, with a name and what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio._common.images import as_bytes
from nescio._common.lazy_imports import need
from nescio.app.overlay import for_display
from nescio.data import NOT_DIGITS, byte_digits
from nescio.data.sources import Rows
from nescio.data.sources.rows import Problem
from nescio.inputs import Inputs
from nescio.serve import bundled

SIDE = 96
"""Pixels of the longer side of what is shown."""


MOST = 12
"""Examples of own data."""


@dataclass(frozen=True)
class Example:
    """A row, what it is called, and its picture ``[H, W]`` or ``[H, W, 3]`` of bytes, or its text."""

    name: str
    row: Inputs
    picture: NDArray[np.uint8] | None = None
    text: str = ""


def of_picture(name: str, row: Tensor) -> Example:
    """Return a picture ``[channels, H, W]`` as an example."""
    return Example(name, row, _thumbnail(row))


def of_data(rows: Rows, most: int = MOST, seed: int = 0) -> list[Example]:
    """Return some of the rows, drawn by the seed, in their order; those that cannot be used are left out."""
    examples = []
    for place in random_places(len(rows), most, seed):
        row = rows.attempt(place)
        if isinstance(row, Problem):
            continue
        name = rows.names[place]
        if rows.preprocess.kind == "texts":
            examples.append(Example(name, row, text=str(rows.store.raw(place))))
        elif isinstance(row, Tensor) and row.ndim == 3:
            examples.append(of_picture(name, row))
        else:
            examples.append(Example(name, row, text=written(row)))
    return examples


def random_places(count: int, most: int, seed: int = 0) -> list[int]:
    """Return at most so many places, drawn without putting back; in their order."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most]
    return sorted(order.tolist())


def digits_and_others() -> list[Example]:
    """Return one held-out digit of each kind, and things that are no digits."""
    known = byte_digits().held_out
    digits = [
        of_picture(f"digit {label}", known.x[place]) for label, place in enumerate(bundled.example_places(known.y))
    ]
    names = {"drawn letters": "a letter", "photo patches": "a photo"}
    for kind, name in names.items():
        digits += [of_picture(name, one) for one in NOT_DIGITS[kind].make(4, 1)]
    noise = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    return [*digits, of_picture("noise", noise), of_picture("nothing", torch.zeros(1, 8, 8))]


def written(row: Inputs) -> str:
    """Return a row of numbers as text."""
    values = row if isinstance(row, Tensor) else next(iter(row.values()))
    return ", ".join(f"{value:.6g}" for value in values.flatten().tolist())


def read(text: str) -> Tensor | None:
    """Return a row of numbers from text; None where it is none."""
    try:
        numbers: Sequence[float] = [float(part) for part in text.replace(";", ",").split(",") if part.strip()]
    except ValueError:
        return None
    return torch.tensor(numbers) if numbers and all(np.isfinite(numbers)) else None


def _thumbnail(row: Tensor) -> NDArray[np.uint8]:
    """Small pictures are enlarged without smoothing, large ones made smaller."""
    image = need("PIL.Image", "app")
    picture = image.fromarray(as_bytes(for_display(row.float().cpu().numpy())))
    factor = SIDE / max(picture.size)
    size = tuple(max(1, round(side * factor)) for side in picture.size)
    return np.asarray(picture.resize(size, image.Resampling.NEAREST if factor > 1 else image.Resampling.BOX))
