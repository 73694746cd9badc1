"""Common corruptions of small pictures in five severities, after Hendrycks & Dietterich (2019), in torch alone.

The kinds and most levels are those of CIFAR-10-C, but the code is new and the pictures are not the published ones:
numbers measured on them do not compare with CIFAR-10-C. Levels were changed where those were not monotone in the
severity (saturate only adds colour; defocus is one soft disc; elastic has no affine part; motion blur has one
parameter) or hardly showed (pixelate); rotation and translation were added. Frost, snow and the like need pictures
of their own and are left out.

Chance: each picture has a generator of its own, seeded by the kind, the seed and the picture itself (its pixels
rounded to 0 … 255). So what is drawn for a picture depends on nothing else: not on its place, the batch, the
severity or the device; the same picture is always corrupted in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio.types import InputError
from nescio_papers.datasets import distortions

SMALLEST = 8
CHUNK = 1024  # pictures at a time: bounds the memory, and changes nothing else


Levels = tuple[Any, Any, Any, Any, Any]
Distortion = Callable[[Tensor, Any, list[torch.Generator]], Tensor]


class Corruption(NamedTuple):
    """What it does, its parameter(s) at severities 1 to 5, and the function (x, level, generators) that does it."""

    about: str
    levels: Levels
    apply: Distortion


_ROWS: tuple[tuple[Distortion, Levels, str], ...] = (
    (distortions.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10),
     "normal noise on every value; level: its standard deviation"),
    (distortions.shot_noise, (500, 250, 100, 75, 50),
     "Poisson noise, as of few photons; level: photons that make white"),
    (distortions.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07), "values set to black or white; level: their share"),
    (distortions.gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0), "normal blur; level: its standard deviation in pixels"),
    (distortions.defocus_blur, (0.7, 0.9, 1.1, 1.5, 2.0),
     "blur by a disc with a soft edge; level: its radius in pixels"),
    (distortions.motion_blur, (1.0, 1.5, 2.0, 2.5, 3.0),
     "one-sided normal blur along a line, within 45° of the horizontal; level: its deviation in pixels"),
    (distortions.contrast, (0.75, 0.5, 0.4, 0.3, 0.15),
     "less contrast about the mean of each channel; level: what is left of it"),
    (distortions.brightness, (0.05, 0.1, 0.15, 0.2, 0.3),
     "lighter, hue and saturation kept; level: what is added to the value (HSV)"),
    (distortions.saturate, (1.3, 1.6, 2.0, 3.0, 5.0),
     "stronger colours, three channels only; level: factor of the saturation (HSV)"),
    (distortions.pixelate, (0.9, 0.75, 0.6, 0.5, 0.4),
     "averaged to a smaller size and blown up again; level: share of the side that is kept"),
    (distortions.jpeg, (80, 65, 58, 50, 40), "JPEG and back (needs Pillow); level: its quality"),
    (distortions.fog, ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
     "a plasma fractal of light; level: its strength, and how fast its detail fades"),
    (distortions.elastic, (0.01, 0.02, 0.03, 0.04, 0.05),
     "bent by a smooth random field; level: mean displacement (root of squares) as a share of the side"),
    (distortions.rotation, (6, 12, 18, 25, 35), "turned about the centre, to a random side; level: degrees"),
    (distortions.translation, (0.04, 0.08, 0.12, 0.16, 0.2),
     "shifted in a random direction; level: distance as a share of the side"),
)  # fmt: skip
TABLE: Mapping[str, Corruption] = {apply.__name__: Corruption(about, levels, apply) for apply, levels, about in _ROWS}
CORRUPTIONS: Mapping[str, str] = {kind: entry.about for kind, entry in TABLE.items()}


def corrupt(x: Tensor, kind: str, severity: int = 1, seed: int = 0) -> Tensor:
    """Corrupt pictures.

    Args:
        x: Pictures [N, 1 or 3, H, W], float32 or float64 in [0, 1], of at least 8 pixels a side.
        kind: One of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: Seed of what is drawn; each picture's draws also depend on the picture, and on nothing else.

    Returns:
        The corrupted pictures: same shape, type and device, in [0, 1].

    Raises:
        InputError: if an argument is out of range.

    >>> corrupt(torch.full((1, 1, 8, 8), 0.5), "contrast", severity=5).unique()
    tensor([0.5000])
    """
    if kind not in TABLE:
        raise InputError(f"kind: expected one of {', '.join(TABLE)}, but got {kind!r}")
    integer("severity", severity, at_least=1, at_most=5)
    integer("seed", seed)
    _check(x, kind)
    entry = TABLE[kind]
    level = entry.levels[severity - 1]
    with torch.no_grad():
        done = [entry.apply(part, level, _generators(part, kind, seed)).clamp(0, 1) for part in x.split(CHUNK)]
    return torch.cat(done)


def _generators(x: Tensor, kind: str, seed: int) -> list[torch.Generator]:
    pixels = x.mul(255).round().to(torch.uint8).cpu().numpy()
    salt = f"{kind} {seed} {list(x.shape[1:])} ".encode()
    seeds = [int.from_bytes(hashlib.blake2b(salt + one.tobytes(), digest_size=8).digest(), "big") for one in pixels]
    return [torch.Generator().manual_seed(number) for number in seeds]


def _check(x: Tensor, kind: str) -> None:
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
        came = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x: expected float32 or float64 in [0, 1], but got {came}; see nescio.data.to_float")
    if x.ndim != 4 or not len(x) or x.shape[1] not in (1, 3) or min(x.shape[2:]) < SMALLEST:
        raise InputError(
            f"x: expected pictures [N, 1 or 3, H, W], at least one, and {SMALLEST} pixels or more to a side, "
            f"but got {list(x.shape)}"
        )
    if kind == "saturate" and x.shape[1] == 1:
        raise InputError("saturate: expected three channels, but got one; a grey picture has no colours to strengthen")
    low, high = (float(bound) for bound in x.aminmax())
    if not (low >= 0 and high <= 1):  # false for NaN as well
        raise InputError(f"x: expected values in [0, 1] and no NaN, but they run from {low:g} to {high:g}")
