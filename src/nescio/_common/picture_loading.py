"""A picture file as an upright picture of Pillow in grey ("L") or colour ("RGB"), eight bits to a channel.

Grey of sixteen bits is divided by 257; a palette, CMYK and the like become RGB. What is transparent is laid on white,
as people see it; to drop it, as the loaders of torchvision do, would bring out colours that nobody sees, often black on
black. The rotation that a camera noted (EXIF) is carried out. The content says of which kind a file is, and not its
name; only the usual kinds are opened: for some others Pillow starts programs.

Torch is not imported here: a process that only decodes (`nescio._common.decoding_process`) starts without it.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")
"""The kinds of pictures that are opened, by Pillow's names for them."""
ORIENTATION = 0x0112
"""The tag of EXIF that tells how the camera was held."""


class Unclear(ValueError):
    """Say why nobody knows what the pixels of a picture mean.

    Examples:
        >>> raise Unclear("its range is not known")
        Traceback (most recent call last):
        nescio._common.picture_loading.Unclear: its range is not known
    """


def load_picture(source: str | bytes | Path | IO[bytes], image: ModuleType) -> Image:
    """Load the picture in a file; of an animation the first.

    Args:
        source: The path or the opened file.
        image: The module `PIL.Image`.

    Returns:
        The picture, not bound to the file. What Pillow raises is raised.

    Examples:
        >>> import io, PIL.Image
        >>> PIL.Image.new("RGBA", (4, 3)).save(file := io.BytesIO(), "PNG")
        >>> load_picture(file, PIL.Image).getpixel((0, 0))
        (255, 255, 255)
    """
    with image.open(source, formats=FORMATS) as opened:
        opened.load()
        return _plain(_upright(opened, image), image)


def _upright(picture: Image, image: ModuleType) -> Image:
    """As the camera noted it; `PIL.ImageOps.exif_transpose` also writes the notes anew, which may take minutes."""
    turn = image.Transpose
    turns = [turn.FLIP_LEFT_RIGHT, turn.ROTATE_180, turn.FLIP_TOP_BOTTOM, turn.TRANSPOSE]
    turns += [turn.ROTATE_270, turn.TRANSVERSE, turn.ROTATE_90]
    noted: Any = picture.getexif().get(ORIENTATION)
    return picture.transpose(turns[noted - 2]) if noted in range(2, 9) else picture


def _plain(picture: Image, image: ModuleType) -> Image:
    if picture.has_transparency_data:
        return _on_white(picture, image).convert("L" if picture.mode in ("L", "LA", "La") else "RGB")
    if picture.mode in ("L", "RGB"):
        return picture.copy()  # not bound to the file
    if picture.mode == "1":
        return picture.convert("L")
    if picture.mode.startswith("I"):
        return _halved(picture, image)
    if picture.mode == "F":
        raise Unclear("it has floating-point pixels, whose range is not known; save it with 8 or 16 bits")
    return picture.convert("RGB")


def _halved(picture: Image, image: ModuleType) -> Image:
    """Grey of sixteen bits with eight."""
    import numpy as np  # here alone: it takes as long to load as Pillow

    values = np.asarray(picture)
    if values.size and (int(values.min()) < 0 or int(values.max()) > 65535):
        raise Unclear("it has 32 bits to a pixel, whose range is not known; save it with 8 or 16")
    grey: Image = image.fromarray(np.round(values / 257).astype(np.uint8))
    return grey


def _on_white(picture: Image, image: ModuleType) -> Image:
    """The picture on a white ground, without transparency."""
    clear = picture.convert("RGBA")
    laid: Image = image.alpha_composite(image.new("RGBA", clear.size, "white"), clear)
    return laid.convert("RGB")
