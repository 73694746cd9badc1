"""Digits on photographs, with the class of every pixel; and foreign objects pasted beside them.

    picture = (1 − a) photograph + a colour,      a = the ink of an object, 0 to 1
    class   = 1 + digit where a > 0.5, 0 (background) where a ≤ 0.2, none (255) between

A foreign object is pasted in the same way. Photographs are cut into strips (`STRIPS`), so that no crop for training
overlaps one for the guard's reference or for tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nescio._common.lazy_imports import need
from nescio.types import InputError
from nescio_papers.datasets.sets import folders

SIDE = 64
EDGE = 255  # the label of pixels that do not count
INK, PAPER = 0.5, 0.2  # more ink is the object, less is background
KNOWN = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "china.jpg")
NEW = ("flower.jpg", "grace_hopper.jpg")
BUNDLED = ("china.jpg", "flower.jpg")  # what scikit-learn has
TEXTURES = ("brick.png", "grass.png", "gravel.png")
STRIPS: Mapping[str, tuple[float, float]] = {
    "train": (0.0, 0.6),
    "reference": (0.6, 0.8),
    "test": (0.8, 1.0),
    "all": (0.0, 1.0),
}
LETTERS = "ACEFHJKLMNPRTUVWXY"  # those that nobody takes for a digit

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Scenes:
    """Pictures with the class of each pixel, and which pixels are of a foreign object.

    Args:
        x: uint8 ``[N, 3, 64, 64]``.
        y: Classes, int64 ``[N, 64, 64]``; 255 at edges and at foreign objects.
        foreign: bool ``[N, 64, 64]``.
        edge: Where pixels do not count, bool ``[N, 64, 64]``.
    """

    x: Tensor
    y: Tensor
    foreign: Tensor
    edge: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def floats(self) -> Tensor:
        """The pictures as a network takes them."""
        return self.x.float() / 255


@dataclass(frozen=True)
class Shapes:
    """Objects to be pasted: ink ``[N, h, w]`` from 0 to 1, labels, and, where they are no plain ink, a texture."""

    ink: Floats
    labels: NDArray[np.int64]
    texture: Floats | None = None


def photographs(names: Sequence[str]) -> dict[str, Floats]:
    """Return photographs ``[h, w, 3]`` in [0, 1]: those of scikit-learn, scikit-image and matplotlib.

    Where these packages are not, a folder `photographs` among the data sets takes their place.
    """
    images = need("PIL.Image", "demo")
    found = {}
    for name in names:
        file = next((folder / name for folder in _folders() if (folder / name).exists()), None)
        if file is None:
            raise InputError(f"expected the photograph {name} in scikit-learn, scikit-image or matplotlib, got none")
        found[name] = (np.asarray(images.open(file).convert("RGB")) / 255).astype(np.float32)
    return found


def _folders() -> Iterator[Path]:
    """Where photographs may be; a package is looked for when those before it have not what is sought."""
    yield from (folder / "photographs" for folder in folders())
    yield Path(str(need("sklearn.datasets", "demo").__file__)).parent / "images"
    yield Path(need("matplotlib", "demo").get_data_path()) / "sample_data"
    yield Path(str(need("skimage.data", "bench").__file__)).parent


def digits(x: Tensor, y: Tensor) -> Shapes:
    """Return bright pictures uint8 ``[N, 1, h, w]`` on black as shapes."""
    return Shapes(x[:, 0].float().div(255).numpy(), y.numpy())


def letters(count: int, draw: np.random.Generator) -> Shapes:
    """Return capitals in the fonts of matplotlib that no one takes for a digit."""
    images, pens, fonts = (need(f"PIL.{name}", "demo") for name in ("Image", "ImageDraw", "ImageFont"))
    folder = Path(need("matplotlib", "demo").get_data_path()) / "fonts" / "ttf"
    names = ["DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf"]
    ready = [fonts.truetype(str(folder / name), 26) for name in names]
    drawn = []
    for _ in range(count):
        page = images.new("L", (28, 28))
        letter, font = LETTERS[int(draw.integers(len(LETTERS)))], ready[int(draw.integers(3))]
        pens.Draw(page).text((14, 14), letter, fill=255, font=font, anchor="mm")
        drawn.append(np.asarray(page, np.float32) / 255)
    return Shapes(np.stack(drawn), np.zeros(count, np.int64))


def patches(count: int, draw: np.random.Generator, pictures: Sequence[Floats]) -> Shapes:
    """Return discs and squares cut out of textures."""
    axis = np.arange(28) - 13.5
    disc = (np.hypot(*np.meshgrid(axis, axis)) <= 13).astype(np.float32)
    ink, texture = [], []
    for _ in range(count):
        whole = pictures[int(draw.integers(len(pictures)))]
        top, left = (int(draw.integers(0, n - 28 + 1)) for n in whole.shape[:2])
        texture.append(whole[top : top + 28, left : left + 28])
        ink.append(disc if draw.random() < 0.5 else np.pad(np.ones((24, 24), np.float32), 2))
    return Shapes(np.stack(ink), np.zeros(count, np.int64), np.stack(texture))


def scenes(
    count: int, backgrounds: Sequence[Floats], strip: str, known: Shapes, seed: int, foreign: Shapes | None = None
) -> Scenes:
    """Return pictures of one to three digits, and of one foreign object where there are such.

    Args:
        count: How many.
        backgrounds: Photographs.
        strip: Which part of them, of `STRIPS`.
        known: The digits.
        seed: Of all draws.
        foreign: The foreign objects.
    """
    draw = np.random.default_rng([seed, count, *strip.encode()])
    x = np.empty((count, 3, SIDE, SIDE), np.uint8)
    y = np.zeros((count, SIDE, SIDE), np.int64)
    odd, edges = np.zeros((count, SIDE, SIDE), bool), np.zeros((count, SIDE, SIDE), bool)
    for i in range(count):
        picture = _crop(backgrounds[int(draw.integers(len(backgrounds)))], strip, draw)
        taken = np.zeros((SIDE, SIDE), bool)
        wanted = [known] * int(draw.integers(1, 4))
        for shapes in [*([] if foreign is None else [foreign]), *wanted]:  # what is foreign always finds a place
            which = int(draw.integers(len(shapes.ink)))
            size = int(draw.integers(18, 29))
            place = _place(taken, size, draw)
            if place is None:
                continue
            taken[place] = True
            ink = _resized(shapes.ink[which], size)
            colour = _colour(picture[place], draw)
            if shapes.texture is not None:
                grey = _resized(shapes.texture[which].mean(2), size)
                colour = np.clip(colour + (grey - grey.mean())[..., None], 0, 1)
            picture[place] = (1 - ink[..., None]) * picture[place] + ink[..., None] * colour
            body = ink > INK
            edges[i][place] |= (ink > PAPER) & ~body
            if shapes is foreign:
                odd[i][place] |= body
            else:
                y[i][place] = np.where(body, 1 + shapes.labels[which], y[i][place])
        x[i] = np.round(255 * picture.transpose(2, 0, 1)).astype(np.uint8)
    y[edges | odd] = EDGE
    return Scenes(*map(torch.from_numpy, (x, y, odd, edges)))


def _crop(photograph: Floats, strip: str, draw: np.random.Generator) -> Floats:
    low, high = (round(share * photograph.shape[1]) for share in STRIPS[strip])
    top = int(draw.integers(0, photograph.shape[0] - SIDE + 1))
    left = int(draw.integers(low, high - SIDE + 1))
    crop = photograph[top : top + SIDE, left : left + SIDE]
    return (crop[:, ::-1] if draw.random() < 0.5 else crop).copy()


def _place(taken: NDArray[Any], size: int, draw: np.random.Generator) -> tuple[slice, slice] | None:
    """Where a square of this size fits beside the others; None after twenty tries."""
    for _ in range(20):
        top, left = (int(n) for n in draw.integers(0, SIDE - size + 1, 2))
        place = slice(top, top + size), slice(left, left + size)
        if not taken[place].any():
            return place
    return None


def _colour(under: Floats, draw: np.random.Generator) -> Floats:
    """A colour that differs from what lies under it."""
    mean = under.mean((0, 1))
    colour = draw.random(3).astype(np.float32)
    while np.linalg.norm(colour - mean) < 0.5:
        colour = draw.random(3).astype(np.float32)
    return colour


def _resized(ink: Floats, size: int) -> Floats:
    large = F.interpolate(torch.from_numpy(ink)[None, None], (size, size), mode="bilinear", antialias=True)
    return large[0, 0].clamp(0, 1).numpy()
