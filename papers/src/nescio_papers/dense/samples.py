"""The pictures of the study of pixels: how many there are, and which are for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nescio_papers.dense import scenes
from nescio_papers.dense.scenes import Floats, Scenes, Shapes
from nescio_papers.runner.parts import Parts

OBJECTS = ("letters", "clothes", "characters", "textures")
FALSE = ("strips of the reference", "other strips", "new photographs")


@dataclass(frozen=True)
class Size:
    """How many pictures: for training, of the reference, of each test set; how a network is trained, and seeds.

    Args:
        training: Pictures that a network learns from.
        epochs: How often it sees each.
        width: Channels of the U-Net at full resolution; the FCN makes pictures as many times larger, up to four times.
        reference: Pictures of the guard's reference.
        tests: Pictures of each test set.
        seeds: Of networks and pictures.
        batch: Pictures of one step.
    """

    training: int
    epochs: int
    width: int
    reference: int
    tests: int
    seeds: tuple[int, ...]
    batch: int = 32


UNET = {
    "smoke": Size(64, 1, 4, 100, 12, (0,)),
    "small": Size(1500, 8, 8, 300, 50, (0,)),
    "quick": Size(20_000, 28, 16, 500, 300, (0, 1, 2), 64),
    "paper": Size(40_000, 60, 16, 1000, 1000, (0, 1, 2, 3, 4), 64),
}
FCN = {
    **UNET,
    "smoke": replace(UNET["smoke"], width=1),
    "quick": replace(UNET["quick"], epochs=10, seeds=(0,)),
}


@dataclass(frozen=True)
class Data:
    """The pictures of one seed that no network learns from."""

    reference: Scenes
    own: Mapping[str, Scenes]
    """Pictures without a foreign object, by the columns of false alarms."""
    foreign: Mapping[str, Scenes]


def training(parts: Parts, size: Size, seed: int) -> Scenes:
    """Draw the pictures that a network learns from: digits of the set `mnist` on the strips for training."""
    known = parts.known("mnist", "train")
    spare = len(known.x) // 5
    places = _places(parts.scale.bundled, "known")
    return scenes.scenes(size.training, places, "train", scenes.digits(known.x[spare:], known.y[spare:]), 100 * seed)


def held_out(parts: Parts, size: Size, seed: int) -> Data:
    """Draw the others: other digits on other strips, and foreign objects pasted beside them."""
    bundled = parts.scale.bundled
    train_set, test_set = parts.known("mnist", "train"), parts.known("mnist")
    spare = len(train_set.x) // 5
    other = scenes.digits(train_set.x[:spare], train_set.y[:spare])
    new = scenes.digits(test_set.x, test_set.y)
    places = {name: _places(bundled, name) for name in ("known", "new", "textures")}
    draw = np.random.default_rng([seed, 1])

    def shown(strip: str, shapes: Shapes, count: int, at: int, odd: Shapes | None = None, where: str = "known") -> Any:
        return scenes.scenes(count, places[where], strip, shapes, 100 * seed + at, odd)

    objects = {
        "letters": scenes.letters(200, draw),
        "textures": scenes.patches(200, draw, places["textures"]),
        "clothes": _shapes(parts.foreign("fashion", test_set)),
        "characters": _shapes(parts.foreign("omniglot", test_set)),
    }
    return Data(
        shown("reference", other, size.reference, 1),
        {
            FALSE[0]: shown("reference", new, size.tests, 2),
            FALSE[1]: shown("test", new, size.tests, 3),
            FALSE[2]: shown("all", new, size.tests, 4, where="new"),
        },
        {name: shown("test", new, size.tests, 5 + at, objects[name]) for at, name in enumerate(OBJECTS)},
    )


def _places(bundled: bool, kind: str) -> list[Floats]:
    names: dict[str, tuple[str, ...]] = {"known": scenes.KNOWN, "new": scenes.NEW, "textures": scenes.TEXTURES}
    if bundled:
        names = {"known": scenes.BUNDLED[:1], "new": scenes.BUNDLED[1:], "textures": scenes.BUNDLED[1:]}
    return list(scenes.photographs(names[kind]).values())


def _shapes(pictures: Any) -> Shapes:
    return scenes.digits(pictures.x, torch.zeros(len(pictures.x), dtype=torch.int64))
