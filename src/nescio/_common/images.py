"""Pictures as PNG files and as data URIs, without a library for pictures."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLOURS = {(): 0, (3,): 2, (4,): 6}
"""What PNG calls a picture with so many channels."""


def as_bytes(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert a picture in [0, 1] to bytes from 0 to 255.

    Args:
        picture: Numbers of any shape; those outside of [0, 1] are cut off.

    Returns:
        The picture as uint8, in the same shape.

    Examples:
        >>> as_bytes(np.array([-1.0, 0.0, 0.5, 2.0])).tolist()
        [0, 0, 128, 255]
    """
    return np.clip(np.round(np.asarray(picture, dtype=np.float64) * 255), 0, 255).astype(np.uint8)


def png(picture: NDArray[Any]) -> bytes:
    r"""Write a picture as a PNG file, one pixel for each number.

    Args:
        picture: Numbers in [0, 1] of shape ``[H, W]`` (grey), ``[H, W, 3]`` (red, green, blue) or ``[H, W, 4]``
            (and how opaque).

    Returns:
        The content of the file.

    Examples:
        >>> png(np.eye(2))[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    pixels = as_bytes(picture)
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter 0 (none) in front of each row
    header = struct.pack(">IIBBBBB", width, height, 8, COLOURS[pixels.shape[2:]], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def data_uri(content: bytes, kind: str = "png") -> str:
    """Write the content of a picture's file as a data URI, for a page that opens offline.

    Args:
        content: The content of the file.
        kind: The format: ``"png"`` or ``"jpeg"``.

    Returns:
        The URI.

    Examples:
        >>> data_uri(b"abc")
        'data:image/png;base64,YWJj'
    """
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
