"""Changes of training pictures, for a whole batch at once and on its device.

    random_crop(padding)   each picture moved by up to `padding` pixels up or down and left or right
    horizontal_flip()      each picture mirrored with probability ½
    random_rotation(15)    each picture turned by up to so many degrees

They draw from torch's global generator of the CPU, which `train` seeds. Several are joined by `compose`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nescio.inputs import describe
from nescio.types import InputError


@dataclass(frozen=True)
class random_crop:  # it is used as a function of its settings
    """Cut a window of the picture's own size out of the padded picture, at a random place for each picture.

    Args:
        padding: How many pixels are added at each side.
        fill: The value of padded pixels; None mirrors the picture at its border.

    Examples:
        >>> nescio.training.augment.random_crop(padding=1)(torch.rand(2, 3, 8, 8)).shape
        torch.Size([2, 3, 8, 8])
    """

    padding: int = 4
    fill: float | None = None

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise InputError(f"padding: expected at least 0, but got {self.padding}")

    def __call__(self, x: Tensor) -> Tensor:
        """Change pictures ``[N, C, H, W]``; the shape stays."""
        _check_pictures(x)
        count, _, height, width = x.shape
        if self.fill is None:
            if self.padding >= min(height, width):
                raise InputError(f"padding: expected less than the pictures' size {height} × {width}, or fill=0.0")
            padded = nn.functional.pad(x, [self.padding] * 4, mode="reflect")
        else:
            padded = nn.functional.pad(x, [self.padding] * 4, value=self.fill)
        rows, columns = torch.randint(0, 2 * self.padding + 1, (2, count, 1, 1)).to(x.device, non_blocking=True)
        rows = rows + torch.arange(height, device=x.device).view(1, -1, 1)
        columns = columns + torch.arange(width, device=x.device).view(1, 1, -1)
        picture = torch.arange(count, device=x.device).view(-1, 1, 1)
        # the indexed dimensions come first, [N, H, W, C]: seen as [N, C, H, W] that is what channels_last is
        return padded.permute(0, 2, 3, 1)[picture, rows, columns].permute(0, 3, 1, 2)


@dataclass(frozen=True)
class horizontal_flip:
    """Exchange left and right of some pictures.

    Args:
        probability: The probability of this, for each picture.

    Examples:
        >>> nescio.training.augment.horizontal_flip(probability=1.0)(torch.tensor([[[[1.0, 2.0]]]]))
        tensor([[[[2., 1.]]]])
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InputError(f"probability: expected a number from 0 to 1, but got {self.probability}")

    def __call__(self, x: Tensor) -> Tensor:
        """Change pictures ``[N, C, H, W]``; the shape stays."""
        _check_pictures(x)
        chosen = (torch.rand(len(x)) < self.probability).to(x.device, non_blocking=True)
        return torch.where(chosen.view(-1, 1, 1, 1), x.flip(3), x)


@dataclass(frozen=True)
class random_rotation:
    """Turn each picture about its middle by a random angle; pixels that come in from outside are 0.

    Args:
        degrees: The largest angle, to either side.

    Examples:
        >>> nescio.training.augment.random_rotation(15)(torch.rand(2, 3, 8, 8)).shape
        torch.Size([2, 3, 8, 8])
    """

    degrees: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise InputError(f"degrees: expected a number from 0 to 180, but got {self.degrees}")

    def __call__(self, x: Tensor) -> Tensor:
        """Change pictures ``[N, C, H, W]``; the shape stays."""
        _check_pictures(x)
        height, width = x.shape[2:]
        angles = (2 * torch.rand(len(x)) - 1) * math.radians(self.degrees)
        cos, sin, none = angles.cos(), angles.sin(), torch.zeros(len(x))
        # in the grid's units the picture is 2 high and 2 wide, whatever its shape
        turns = torch.stack([cos, -sin * height / width, none, sin * width / height, cos, none], 1).view(-1, 2, 3)
        grid = nn.functional.affine_grid(turns.to(x), list(x.shape), align_corners=False)
        return nn.functional.grid_sample(x, grid, align_corners=False)


@dataclass(frozen=True)
class compose:
    """Apply one change after another.

    Args:
        *changes: Functions of pictures ``[N, C, H, W]``, in their order.

    Examples:
        >>> flip = nescio.training.augment.horizontal_flip(probability=1.0)
        >>> nescio.training.augment.compose(flip, flip)(torch.tensor([[[[1.0, 2.0]]]]))
        tensor([[[[1., 2.]]]])
    """

    changes: tuple[Callable[[Tensor], Tensor], ...]

    def __init__(self, *changes: Callable[[Tensor], Tensor]) -> None:
        object.__setattr__(self, "changes", changes)

    def __call__(self, x: Tensor) -> Tensor:
        for change in self.changes:
            x = change(x)
        return x


def _check_pictures(x: object) -> None:
    if not isinstance(x, Tensor) or x.ndim != 4:
        raise InputError(f"expected pictures [N, C, H, W] to augment, got {describe(x)}")
