"""A picture file as an upright picture of Pillow in grey ("L") or colour ("RGB"), eight bits to a channel.

Grey of sixteen bits is divided by 257; a palette, CMYK and the like become RGB. What is transparent is laid on white,
as people see it; to drop it, as the loaders of torchvision do, would bring out colours that nobody sees, often black on
black. The rotation that a camera noted (EXIF) is carried out. The content says of which kind a file is, and not its
name; only the usual kinds are opened: for some others Pillow starts programs.
"""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio._common.lazy_imports import need
from nescio.types import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
)
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")
"""The kinds of pictures that are opened, by Pillow's names for them."""
ORIENTATION = 0x0112
"""The tag of EXIF that tells how the camera was held."""


def decode(source: str | Path | bytes) -> Image:
    """The picture in the file, or in these bytes; of an animation the first."""
    image = need("PIL.Image", "data")
    if not isinstance(source, bytes) and (path := Path(source)).exists() and not (path.is_file() or path.is_dir()):
        raise InputError("it is a pipe or a device, not a file")  # which may never end
    try:
        with image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as opened:
            opened.load()
            return _plain(_upright(opened, image), image)
    except image.UnidentifiedImageError as error:
        raise InputError("it is not a picture, or one of an unknown kind") from error
    except (image.DecompressionBombError, image.DecompressionBombWarning) as error:
        raise InputError(f"it has too many pixels ({error})") from error


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
        values = np.asarray(picture)
        if values.size and (int(values.min()) < 0 or int(values.max()) > 65535):
            raise InputError("it has 32 bits to a pixel, whose range is not known; save it with 8 or 16")
        grey: Image = image.fromarray(np.round(values / 257).astype(np.uint8))
        return grey
    if picture.mode == "F":
        raise InputError("it has floating-point pixels, whose range is not known; save it with 8 or 16 bits")
    return picture.convert("RGB")


def _on_white(picture: Image, image: ModuleType) -> Image:
    """The picture on a white ground, without transparency."""
    clear = picture.convert("RGBA")
    laid: Image = image.alpha_composite(image.new("RGBA", clear.size, "white"), clear)
    return laid.convert("RGB")
