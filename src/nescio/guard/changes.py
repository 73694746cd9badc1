"""Changes to an input that do not matter: a re-saved, resized or slightly brighter picture is not foreign.

`Changes` makes one changed copy of each input of the reference. Each of these changes is made to a picture with
probability ½: shrunk to 60 … 100 % and enlarged again, brightness ± 20 %, noise of a standard deviation up to 0.03, a
turn of up to 5°, JPEG of quality 40 … 95. The random draws depend on the content of the picture alone. The guard keeps
the copies that get the same answer as the unchanged input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from nescio import inputs
from nescio.inputs import Inputs, describe
from nescio.types import InputError

Change = Callable[[Tensor, Generator], Tensor]
Nuisances = Literal["auto"] | Iterable[str | Callable[[Any], Any]] | None


def resize(x: Tensor, generator: Generator) -> Tensor:
    """Shrink a picture ``[C, H, W]`` to 60 … 100 % and enlarge it again."""
    height, width = x.shape[1:]
    share = 0.6 + 0.4 * _uniform(generator)
    small = (max(2, round(share * height)), max(2, round(share * width)))
    less = F.interpolate(x[None], small, mode="bilinear", antialias=True)
    return F.interpolate(less, (height, width), mode="bilinear", antialias=True)[0]


def brightness(x: Tensor, generator: Generator) -> Tensor:
    """Make a picture up to 20 % brighter or darker."""
    return x * (0.8 + 0.4 * _uniform(generator))


def noise(x: Tensor, generator: Generator) -> Tensor:
    """Add noise of a standard deviation up to 0.03."""
    return x + 0.03 * _uniform(generator) * torch.randn(x.shape, generator=generator, dtype=x.dtype)


def rotation(x: Tensor, generator: Generator) -> Tensor:
    """Turn a picture by up to 5° around its middle; the missing border is filled by mirroring."""
    angle = math.radians(10.0 * _uniform(generator) - 5.0)
    height, width = x.shape[1:]
    cos, sin = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]], dtype=x.dtype)
    grid = F.affine_grid(turn[None], [1, *x.shape], align_corners=False)
    return F.grid_sample(x[None], grid, padding_mode="reflection", align_corners=False)[0]


def jpeg(x: Tensor, generator: Generator) -> Tensor:
    """Compress a picture as JPEG does, with quality 40 … 95: colours at half the resolution, rounded cosine waves."""
    return compressed(x, 40.0 + 55.0 * _uniform(generator))


CHANGES: Mapping[str, Change] = {
    "resize": resize,
    "brightness": brightness,
    "noise": noise,
    "rotation": rotation,
    "jpeg": jpeg,
}
"""The changes by name, in the order in which they are made."""


@dataclass(frozen=True)
class Changes:
    """The changes that do not matter: those of pictures by their names, and functions of a whole batch."""

    pictures: tuple[str, ...] = ()
    functions: tuple[Callable[[Any], Any], ...] = ()

    @classmethod
    def of(cls, nuisances: Nuisances) -> Changes:
        """Return what a user chose: "auto" for all changes of pictures, names, functions of a batch, or None."""
        if nuisances is None:
            return cls()
        if nuisances == "auto":
            return cls(tuple(CHANGES))
        known = f"'auto', None, or a list of {', '.join(CHANGES)} and functions of a batch"
        if isinstance(nuisances, str) or not isinstance(nuisances, Iterable):
            raise InputError(f"expected nuisances to be {known}, got {nuisances!r}")
        names: list[str] = []
        functions: list[Callable[[Any], Any]] = []
        for one in nuisances:
            if isinstance(one, str) and one in CHANGES:
                names.append(one)
            elif callable(one):
                functions.append(one)
            else:
                raise InputError(f"expected nuisances to be {known}, got {one!r} among them")
        return cls(tuple(name for name in CHANGES if name in names), tuple(functions))

    def __call__(self, x: Inputs, seeds: list[int]) -> Inputs | None:
        """Return a changed copy of each input, drawn from its seed; None where no change applies to such inputs."""
        changed = x
        if self.pictures and (name := _pictures(x)) is not None:
            change = self._pictures_changed
            changed = change(x, seeds) if isinstance(x, Tensor) else {**x, name: change(x[name], seeds)}
        for function in self.functions:
            changed = inputs.as_inputs(function(changed), "what a nuisance gives")
            if inputs.size(changed) != inputs.size(x):
                raise InputError(
                    f"expected a nuisance to give one changed input for each of {inputs.size(x)}, got "
                    f"{describe(changed)}"
                )
        return None if changed is x else changed

    def _pictures_changed(self, x: Tensor, seeds: list[int]) -> Tensor:
        """A changed copy of each picture."""
        copies = [self._changed(one, seed) for one, seed in zip(x.detach().cpu(), seeds, strict=True)]
        return torch.stack(copies).to(x.device)

    def _changed(self, picture: Tensor, seed: int) -> Tensor:
        """One picture [C, H, W], changed in the units of [0, 1] and brought back to its own."""
        generator = Generator("cpu").manual_seed(seed)
        low, high = _range(picture)
        x = (picture.float() - low) / (high - low)
        chosen = [name for name in self.pictures if _uniform(generator) < 0.5]
        for name in chosen or self.pictures[int(_uniform(generator) * len(self.pictures)) :][:1]:
            x = CHANGES[name](x, generator).clamp(0.0, 1.0)
        back = low + x * (high - low)
        return back.round().to(picture.dtype) if not picture.is_floating_point() else back.to(picture.dtype)


def _pictures(x: Inputs) -> str | None:
    """The entry that holds pictures, "" for a batch that is one tensor; None where there are none."""
    entries = [
        name
        for name, value in ({"": x} if isinstance(x, Tensor) else x).items()
        if value.ndim == 4
        and value.shape[1] in (1, 3)
        and min(value.shape[2:]) >= 8
        and (value.is_floating_point() or value.dtype == torch.uint8)
    ]
    return entries[0] if len(entries) == 1 else None


def _range(picture: Tensor) -> tuple[Tensor, Tensor]:
    """The values of black and white: 0 and 1, 0 and 255, or for normalised pictures the extremes of each channel."""
    low, high = float(picture.min()), float(picture.max())
    if picture.dtype == torch.uint8 or (low >= 0.0 and 2.0 < high <= 255.0):
        return torch.zeros(1, 1, 1), torch.full((1, 1, 1), 255.0)
    if low >= 0.0 and high <= 1.0:
        return torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    least = picture.float().amin((1, 2), keepdim=True)
    return least, torch.maximum(picture.float().amax((1, 2), keepdim=True), least + 1e-6)


def compressed(x: Tensor, quality: float) -> Tensor:
    """Return a picture ``[C, H, W]`` in [0, 1] after JPEG of this quality (1 … 100), by the tables of the standard."""
    height, width = x.shape[1:]
    padded = F.pad(x[None], (0, -width % 16, 0, -height % 16), mode="replicate")[0] * 255.0
    scale = 5000.0 / quality if quality < 50.0 else 200.0 - 2.0 * quality
    bright, colour = ((table * scale / 100.0 + 0.5).floor().clamp(1.0, 255.0) for table in _tables())
    if len(x) == 1:
        result = _rounded(padded - 128.0, bright) + 128.0
    else:
        red, green, blue = padded
        y = 0.299 * red + 0.587 * green + 0.114 * blue
        cb, cr = 0.564 * (blue - y), 0.713 * (red - y)
        y = _rounded(y[None] - 128.0, bright)[0] + 128.0
        halved = F.avg_pool2d(torch.stack([cb, cr])[None], 2)[0]
        cb, cr = F.interpolate(_rounded(halved, colour)[None], scale_factor=2.0, mode="bilinear")[0]
        result = torch.stack([y + 1.403 * cr, y - 0.344 * cb - 0.714 * cr, y + 1.773 * cb])
    return result[:, :height, :width].clamp(0.0, 255.0) / 255.0


def _rounded(channels: Tensor, table: Tensor) -> Tensor:
    """Channels [C, H, W] in blocks of 8 × 8 as cosine waves, each rounded to a multiple of the table's entry."""
    count, height, width = channels.shape
    waves = _cosines().to(channels.dtype)
    blocks = channels.view(count, height // 8, 8, width // 8, 8).transpose(2, 3)
    table = table.to(channels.dtype)
    whole = ((waves @ blocks @ waves.T) / table).round() * table
    return (waves.T @ whole @ waves).transpose(2, 3).reshape(count, height, width)


@cache
def _cosines() -> Tensor:
    """The orthonormal cosine transform of 8 numbers."""
    k, n = torch.arange(8.0, dtype=torch.float64)[:, None], torch.arange(8.0, dtype=torch.float64)
    waves = torch.cos(math.pi * (n + 0.5) * k / 8.0) / 2.0
    waves[0] /= math.sqrt(2.0)
    return waves


@cache
def _tables() -> tuple[Tensor, Tensor]:
    """The tables of ITU-T T.81, annex K, for brightness and for colour."""
    bright = [
        [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55], [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62], [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99],
    ]  # fmt: skip
    colour = torch.full((8, 8), 99.0, dtype=torch.float64)
    corner = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
    colour[:4, :4] = torch.tensor(corner, dtype=torch.float64)
    return torch.tensor(bright, dtype=torch.float64), colour


def _uniform(generator: Generator) -> float:
    """A number between 0 and 1."""
    return float(torch.rand((), generator=generator, dtype=torch.float64))
