"""What is done to a picture of Pillow before a network of pictures: its colours, its size, the part in the middle.

    picture ──► colours ──► resize ──► crop ──► bytes          as torchvision's and timm's transforms do

Torch is not imported here: a process that only decodes (`nescio._common.decoding_process`) starts without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class PictureSteps:
    """Bring a picture to the colours and the size that a network takes.

    Args:
        resize: The shorter side, or (height, width); None leaves the size.
        crop: (height, width) around the middle, where what is missing is black; None leaves the picture whole.
        interpolation: How it is resized, as Pillow calls it.
        channels: 3, or 1 for grey.

    Examples:
        >>> steps = PictureSteps(256, (224, 224), "bilinear", 3)
        >>> steps.resized((500, 375)), steps.box((500, 375)), steps.shape((500, 375))
        ((341, 256), (58, 16, 282, 240), (3, 224, 224))
    """

    resize: int | tuple[int, int] | None
    crop: tuple[int, int] | None
    interpolation: str
    channels: int

    def coloured(self, picture: Any) -> Any:
        """Return the picture in grey or colour."""
        mode = "L" if self.channels == 1 else "RGB"
        return picture if picture.mode == mode else picture.convert(mode)

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return to which (width, height) a picture of that (width, height) is resized, as torchvision rounds."""
        if self.resize is None:
            return size
        if isinstance(self.resize, tuple):
            height, width = self.resize
            return width, height
        short, long = sorted(size)
        longer = int(self.resize * long / short)
        return (self.resize, longer) if size[0] <= size[1] else (longer, self.resize)

    def box(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom of the part that is left, in the resized picture."""
        there, up = self.resized(size)
        if self.crop is None:
            return 0, 0, there, up
        height, width = self.crop
        left, top = _margin(there, width), _margin(up, height)
        return left, top, left + width, top + height

    def inside(self, size: tuple[int, int]) -> bool:
        """Return whether nothing of that part lies outside of the resized picture."""
        (width, height), (left, top, right, bottom) = self.resized(size), self.box(size)
        return left >= 0 and top >= 0 and right <= width and bottom <= height

    def shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Return the channels, the height and the width of what is left of a picture of that (width, height)."""
        left, top, right, bottom = self.box(size)
        return self.channels, bottom - top, right - left

    def done(self, picture: Image) -> Image:
        """Return the coloured picture after all steps."""
        size = picture.size
        if (wanted := self.resized(size)) != size:
            from PIL import Image

            picture = picture.resize(wanted, Image.Resampling[self.interpolation.upper()])
        return picture if self.crop is None else picture.crop(self.box(size))


def _margin(there: int, wanted: int) -> int:
    """Where the middle part begins, as torchvision rounds; below 0 where it is larger than the picture."""
    return round((there - wanted) / 2) if there >= wanted else -((wanted - there) // 2)
