"""Pictures before a model: resized, cropped in the middle, as numbers in [0, 1]; then, in the model, normalised.

    x = crop(resize(picture)) / 255   here, row by row        z = network((x − mean) / std)   in the Classifier

`Pictures` does as torchvision's and timm's transforms for evaluation do, to the last bit. `Transformed` is any other
function from a picture to a tensor, such as an image processor of transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio._common.lazy_imports import need
from nescio._common.picture_steps import PictureSteps
from nescio.inputs import describe
from nescio.models.sources.base import Channels, Preprocess, Size
from nescio.types import InputError


class Normalise(nn.Module):
    """Compute (x − mean) / std for each channel of a batch ``[N, C, H, W]``.

    Args:
        mean: Of each channel, or one number for all.
        std: The same.

    Examples:
        >>> Normalise([0.5], [0.25])(torch.ones(1, 3, 1, 1)).flatten()
        tensor([2., 2., 2.])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Channels, std: Channels) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """In the type of x, on its device."""
        return (x - self.mean.to(x.device, x.dtype)) / self.std.to(x.device, x.dtype)


@dataclass(frozen=True)
class _Normalised(Preprocess):
    """Pictures whose normalisation is the model's first step; empty mean and std: there is none."""

    kind = "pictures"
    mean: tuple[float, ...] = field(default=(), kw_only=True)
    std: tuple[float, ...] = field(default=(), kw_only=True)

    @property
    def normalise(self) -> nn.Module | None:
        """The model's first step."""
        return Normalise(self.mean or (0.0,), self.std or (1.0,)) if self.mean or self.std else None

    @property
    def _ending(self) -> str:
        if not (self.mean or self.std):
            return "values in [0, 1], not normalised"
        return f"mean {_numbers(self.mean or (0.0,))}, std {_numbers(self.std or (1.0,))}"

    def _normalisation(
        self, channels: int, mean: Channels | None, std: Channels | None
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std as they were, or as a person gave them, checked."""
        pair = [tuple(map(float, old if new is None else new)) for new, old in ((mean, self.mean), (std, self.std))]
        for word, value in zip(("mean", "std"), pair, strict=True):
            if len(value) not in (0, 1, channels):
                raise InputError(f"--{word}: expected one number or {channels}, one for each channel, got {len(value)}")
        if any(not number > 0 for number in pair[1]):
            raise InputError(f"--std: expected numbers above 0, got {_numbers(pair[1])}")
        return pair[0], pair[1]

    def _opened(self, row: object, channels: int) -> Any:
        """An array of floats as a tensor, which is taken as it is; anything else as a picture of so many channels."""
        if isinstance(row, np.ndarray | Tensor):
            x = torch.as_tensor(row)
            if x.is_floating_point():
                return self._taken_as_it_is(x)
            row = as_picture(x)
        return _coloured(row, channels)

    def _taken_as_it_is(self, x: Tensor) -> Tensor:
        """An array of floats, which is taken as it is; not where it was normalised already."""
        if x.ndim != 3:
            raise InputError(f"expected a picture [C, H, W], got {describe(x)}")
        if self.normalise is not None and x.numel() and not (float(x.min()) >= -0.01 and float(x.max()) <= 1.01):
            raise InputError(
                f"expected values in [0, 1], since the model normalises them itself, got {float(x.min()):.3g} to "
                f"{float(x.max()):.3g}; give pictures in [0, 1] or of bytes, or say --mean none --std none"
            )
        return x.float()


@dataclass(frozen=True)
class Pictures(_Normalised):
    """Resize and crop a picture, and make floats ``[channels, H, W]`` in [0, 1] of it.

    Arrays of bytes, ``[H, W]``, ``[H, W, C]`` or ``[C, H, W]``, are pictures too; arrays of floats are taken as they
    are.

    Args:
        resize: The shorter side, or (height, width); None leaves the size.
        crop: (height, width) around the middle, where what is missing is black; None leaves the picture whole.
        interpolation: How it is resized, as Pillow calls it.
        channels: 3, or 1 for grey.
        mean: What the model's own first step subtracts from each channel; empty: nothing.
        std: What that step divides by; empty: nothing.

    Examples:
        >>> Pictures(resize=4, crop=(2, 2))(np.full((8, 8, 3), 255, np.uint8)).shape
        torch.Size([3, 2, 2])
    """

    resize: Size | None = None
    crop: tuple[int, int] | None = None
    interpolation: str = "bilinear"
    channels: int = 3

    def __call__(self, row: Any) -> Tensor:
        row = self._opened(row, self.channels)
        if isinstance(row, Tensor):
            return row
        row = self._geometry.done(row)
        x = torch.from_numpy(np.array(row, dtype=np.uint8))  # a copy: torch wants memory that can be written
        return x.view(row.height, row.width, self.channels).permute(2, 0, 1).contiguous().float().div(255)

    def __str__(self) -> str:
        words = []
        if self.resize is not None:
            shape = _side(self.resize)
            words.append(f"resize {shape}" + ("" if self.interpolation == "bilinear" else f" {self.interpolation}"))
        if self.crop is not None:
            words.append(f"centre crop {_side(self.crop)}")
        if self.channels == 1:
            words.append("grey")
        return ", ".join([*words, self._ending])

    def changed(self, size: Size | None, crop: Size | None, mean: Channels | None, std: Channels | None) -> Pictures:
        """One side alone as size is also the crop, unless another crop is given: the model gets that size."""
        new = self
        if size is not None:
            side = _checked_side(size, "size")
            new = replace(new, resize=side or None, crop=_pair(side) if side and isinstance(side, int) else None)
        if crop is not None:
            side = _checked_side(crop, "crop")
            new = replace(new, crop=_pair(side) if side else None)
        mean, std = self._normalisation(self.channels, mean, std)
        return replace(new, mean=mean, std=std)

    @property
    def steps(self) -> PictureSteps | None:
        """What is done to a picture before its bytes become floats; None for a class of its own, which may do more."""
        return self._geometry if type(self) is Pictures else None

    @property
    def _geometry(self) -> PictureSteps:
        return PictureSteps(self.resize, self.crop, self.interpolation, self.channels)


@dataclass(frozen=True)
class Transformed(_Normalised):
    """Make a tensor ``[C, H, W]`` of a picture by any function.

    Args:
        function: From a picture to the tensor.
        words: What it does, for people.
        channels: How many channels the picture has when it is given to the function.
        mean: What the model's own first step subtracts from each channel; empty: nothing.
        std: What that step divides by; empty: nothing.

    Examples:
        >>> grey = Transformed(lambda picture: torch.ones(3, 2, 2), "always white")
        >>> str(grey), grey(np.zeros((2, 2, 3), np.uint8)).shape
        ('always white', torch.Size([3, 2, 2]))
    """

    function: Callable[[Any], Any]
    words: str
    channels: int = 3

    def __call__(self, row: object) -> Tensor:
        row = self._opened(row, self.channels)
        if isinstance(row, Tensor):
            return row
        picture = self.function(row)
        if not isinstance(picture, Tensor):
            raise InputError(f"expected the model's transform to give a tensor, got {describe(picture)}")
        return picture.float()

    def __str__(self) -> str:
        return self.words if not (self.mean or self.std) else f"{self.words}, {self._ending}"

    def changed(self, size: Size | None, crop: Size | None, mean: Channels | None, std: Channels | None) -> Preprocess:
        """With another size the function is no longer used, but the normalisation is."""
        mean, std = self._normalisation(self.channels, mean, std)
        if size is None and crop is None:
            return replace(self, mean=mean, std=std)
        return Pictures(channels=self.channels, mean=mean, std=std).changed(size, crop, None, None)


def as_picture(x: Tensor) -> Any:
    """An array of bytes as a picture."""
    value = x
    if x.ndim == 3 and x.shape[0] in (1, 3) and x.shape[2] not in (1, 3):
        value = x.permute(1, 2, 0)
    if value.dtype != torch.uint8 or value.ndim not in (2, 3) or (value.ndim == 3 and value.shape[2] not in (1, 3)):
        raise InputError(f"expected a picture: bytes [H, W, C] or [C, H, W] with 1 or 3 channels, got {describe(x)}")
    array = np.ascontiguousarray(value.numpy())
    return need("PIL.Image", "data").fromarray(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _coloured(picture: Any, channels: int) -> Any:
    mode = "L" if channels == 1 else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)


def _checked_side(size: Size, word: str) -> Size:
    sides = _pair(size)
    if any(side < 0 for side in sides) or (isinstance(size, tuple) and 0 in sides):
        raise InputError(f"--{word}: expected a number of pixels, height and width, or 0 for none, got {size}")
    return size


def _pair(size: Size) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def _side(size: Size) -> str:
    if isinstance(size, int):
        return str(size)
    return str(size[0]) if size[0] == size[1] else f"{size[0]}x{size[1]}"


def _numbers(values: Channels) -> str:
    return " ".join(f"{value:g}" for value in values)
