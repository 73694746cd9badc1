"""Changes of training pictures that take the attention with them.

A change that moves pixels (a crop, a mirror image, a turn) is applied to pictures and attention with the same random
numbers. What comes in from outside of the picture has no attention: 0. Other changes are refused, for nobody can tell
whether they move pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nescio.training import augment
from nescio.training.checkpoint import stable_name
from nescio.types import InputError

_KNOWN = (augment.random_crop, augment.horizontal_flip, augment.random_rotation)


@dataclass(frozen=True, repr=False)
class OnPictures:
    """A function of the pictures alone, in batches {"x": pictures, "attention": ...}."""

    change: Callable[[Any], Any]

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**batch, "x": self.change(batch["x"])}

    def __repr__(self) -> str:  # the same in the next run, which goes on from this one
        return f"OnPictures({stable_name(self.change)})"


@dataclass(frozen=True)
class Together:
    """Changes of batches {"x": pictures [N, C, H, W], "attention": [N, H, W]}, one after another.

    about: what else tells this run from others, for a recipe is part of what a run is known by.
    """

    changes: tuple[Any, ...]
    about: str = ""

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x, a = batch["x"], batch["attention"].unsqueeze(1)
        for change in self.changes:
            state = torch.get_rng_state()  # changes draw from this generator, as many numbers as there are pictures
            x = change(x)
            torch.set_rng_state(state)
            a = (replace(change, fill=0.0) if isinstance(change, augment.random_crop) and change.fill else change)(a)
        return {**batch, "x": x, "attention": a.squeeze(1)}


def together(change: object, about: str) -> Together:
    """The changes of a recipe as such that move the attention too; an InputError for one that cannot."""
    return Together(() if change is None else tuple(_flat(change)), about)


def _flat(change: object) -> list[Any]:
    if isinstance(change, augment.compose):
        return [one for part in change.changes for one in _flat(part)]
    if isinstance(change, _KNOWN):
        return [change]
    raise InputError(
        "expected an augmentation that can move the attention with the picture "
        f"({', '.join(kind.__name__ for kind in _KNOWN)} or compose of these), got {stable_name(change)}; leave it "
        "out, or train mitigate.Attended(network) by nescio.training.train, with a recipe whose transform and augment "
        "take batches {'x': pictures, 'attention': attention}"
    )
