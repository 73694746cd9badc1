"""A labelled set of pictures in memory, as it lies in its files: uint8, never normalised.

`to_float` brings it to [0, 1] (x / 255), the units in which noise and perturbations are given; `subset` draws fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio.types import InputError


@dataclass(frozen=True)
class PictureSet:
    """Hold labelled pictures as they lie in their files.

    Args:
        x: Pictures uint8 ``[N, C, H, W]``.
        y: Labels int64 ``[N]``; each is a place in `classes`.
        name: What the set is called.
        split: Which part of the set this is, such as "train" or "test".
        classes: The names of the classes.
        about: Where the pictures are from, and in what they differ from the official set.

    Raises:
        InputError: If pictures and labels are not of these types, or do not fit together.

    Examples:
        >>> x, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4)
        >>> len(nescio.data.PictureSet(x, y, "zeros", "test", tuple("abcd"), "made up"))
        4
    """

    x: Tensor
    y: Tensor
    name: str
    split: str
    classes: tuple[str, ...]
    about: str

    def __post_init__(self) -> None:
        what = f"{self.name} {self.split}"
        if self.x.dtype != torch.uint8 or self.x.ndim != 4 or not self.x.numel():
            raise InputError(
                f"{what}: expected pictures as uint8 [N, C, H, W], at least one, but got {_form(self.x)}; "
                "the file may be of another kind"
            )
        if self.y.dtype != torch.int64 or self.y.shape != self.x.shape[:1]:
            raise InputError(
                f"{what}: expected one int64 label for each of the {len(self.x)} pictures, but got {_form(self.y)}; "
                "a part may be missing"
            )
        low, high = int(self.y.min()), int(self.y.max())
        if low < 0 or high >= len(self.classes):
            raise InputError(
                f"{what}: expected labels from 0 to {len(self.classes) - 1}, one for each class name, "
                f"but they run from {low} to {high}"
            )

    def __len__(self) -> int:
        return len(self.x)


def subset(pictures: PictureSet, n: int, seed: int = 0) -> PictureSet:
    """Draw some of the pictures without replacement, in their old order.

    Args:
        pictures: The set.
        n: How many; a larger n keeps what a smaller one drew.
        seed: The seed of the draw.

    Returns:
        The smaller set.

    Examples:
        >>> x, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4)
        >>> len(nescio.data.subset(nescio.data.PictureSet(x, y, "zeros", "test", tuple("abcd"), "made up"), 2))
        2
    """
    total = len(pictures)
    integer("n", n, at_least=1, at_most=total, hint=f"there are {total} pictures of {pictures.name} {pictures.split}")
    if n == total:
        return pictures
    chosen = torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:n].sort().values
    about = f"{pictures.about}; {n} of these {total} drawn at random (seed {seed})"
    return replace(pictures, x=pictures.x[chosen], y=pictures.y[chosen], about=about)


def to_float(x: Tensor) -> Tensor:
    """Convert pictures of bytes, 0 to 255, to float32 in [0, 1].

    Args:
        x: A uint8 tensor.

    Returns:
        The tensor divided by 255.

    Examples:
        >>> nescio.data.to_float(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([0., 1.])
    """
    if not isinstance(x, Tensor) or x.dtype != torch.uint8:
        kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x: expected a uint8 tensor, but got {kind}; floats need no such step")
    return x.float().div(255)


def _form(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
