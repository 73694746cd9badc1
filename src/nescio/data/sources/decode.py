"""A picture of a file or of bytes (`nescio._common.picture_loading`), and in words why one cannot be used."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from nescio._common.lazy_imports import need
from nescio._common.picture_loading import FORMATS, Unclear, load_picture
from nescio.types import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ENDINGS", "FORMATS", "decode"]

ENDINGS = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
)


def decode(source: str | Path | bytes) -> Image:
    """The picture in the file, or in these bytes; of an animation the first."""
    image = need("PIL.Image", "data")
    if not isinstance(source, bytes) and (path := Path(source)).exists() and not (path.is_file() or path.is_dir()):
        raise InputError("it is a pipe or a device, not a file")  # which may never end
    try:
        return load_picture(io.BytesIO(source) if isinstance(source, bytes) else source, image)
    except image.UnidentifiedImageError as error:
        raise InputError("it is not a picture, or one of an unknown kind") from error
    except (image.DecompressionBombError, image.DecompressionBombWarning) as error:
        raise InputError(f"it has too many pixels ({error})") from error
    except Unclear as error:
        raise InputError(str(error)) from error
