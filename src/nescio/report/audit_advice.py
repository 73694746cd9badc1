"""The nearest directions of an audit, and what to do about them, for its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio._common.images import data_uri, png
from nescio.report.content import Picture


@dataclass(frozen=True)
class NearDirection:
    """One of the nearest directions: what it changes, of what the model is certain, and from where on.

    Attributes:
        name: The name of the direction.
        changes: The features that change most, in words.
        sure_of: The class of which the model is certain.
        sure_from: From how many spreads on, in words.
        refused_from: From how many spreads on a check of ranges refuses the input, in words.
        first: The feature that leaves its range first.
        picture: The direction as a picture; None where inputs are none.
    """

    name: str
    changes: str
    sure_of: str
    sure_from: str
    refused_from: str
    first: str
    picture: Picture | None = None


@dataclass(frozen=True)
class Advice:
    """What to do about the nearest directions: sentences, the check of ranges as code, and commands of the guard."""

    nearest: Sequence[NearDirection]
    lines: Sequence[str]
    code: str
    commands: Sequence[str]

    @property
    def pictures(self) -> bool:
        """Whether the directions are shown as pictures."""
        return any(one.picture is not None for one in self.nearest)


def direction_picture(name: str, direction: NDArray[Any]) -> Picture:
    """Return a direction among pictures as a picture of its own.

    Args:
        name: The name of the direction.
        direction: Numbers ``[channels, H, W]``; with three channels they are red, green and blue, else their mean is
            shown.

    Returns:
        The picture: grey stays as it is, what is brighter rises, what is darker falls.

    Examples:
        >>> direction_picture("away", np.zeros((1, 4, 4))).alt
        'the direction away as a picture'
    """
    top = float(np.abs(direction).max()) or 1.0
    shown = 0.5 + 0.5 * direction / top
    shown = shown.transpose(1, 2, 0) if len(shown) == 3 else shown.mean(0)
    small = max(direction.shape[-2:]) <= 64
    return Picture(data_uri(png(shown)), f"the direction {name} as a picture", pixels=small)
