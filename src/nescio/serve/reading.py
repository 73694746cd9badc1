"""From what was sent to rows for the model: pictures, numbers and texts, checked before any work is done on them.

A picture's size is read from its header and counted before a pixel of it is decoded; only the usual kinds of files are
opened, since some of Pillow's others start programs. Numbers are finite and of one shape.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from nescio._common.lazy_imports import need
from nescio.data.sources.data_opening import Plain
from nescio.data.sources.decode import FORMATS, decode
from nescio.inputs import Inputs
from nescio.models.sources import Preprocess, Source
from nescio.serve.errors import Problem, of_input
from nescio.serve.tags import honest
from nescio.types import InputError

if TYPE_CHECKING:
    from nescio.serve.schemas import Item

LONG = 200
"""So many times its shorter side a picture may be long: pre-processing that brings the shorter side to a size would
make far more of a thread-like one than was sent, and Pillow keeps a pointer for each of its lines."""
TILE = (322, 323)
"""The tags of a TIFF with the sides of its tiles, which are unpacked whole, also where the picture is smaller."""
MARKS, COMMAS = 100_000, 2_000_000
"""Beginnings of lists, objects and texts, and commas between values, that a request in JSON may have: each becomes an
object of Python, many times as large as it was written."""
_EITHER = {"pictures": "a picture, as {'image': BASE64} or a file", "texts": "a text, as {'text': '…'}"}


class Reader:
    """Reads the rows of one request after another for one model."""

    def __init__(self, source: Source, max_pixels: int, max_text: int) -> None:
        self.preprocess, self.kind = source.preprocess, source.kind
        self.max_pixels, self.max_text = max_pixels, max_text

    @property
    def expected(self) -> str:
        """What the model takes, in words."""
        return _EITHER.get(str(self.kind), "numbers, as {'numbers': […]}")

    def items(self, items: Sequence[Item], most: int) -> list[Inputs]:
        """The rows of a request in JSON, at most so many: items with one of image, numbers and text."""
        _count(len(items), most)
        pixels = _Pixels(self.max_pixels)
        rows = []
        for place, item in enumerate(items):
            what = f"input {place}: "
            if item.image is not None:
                rows.append(self._picture(_bytes(item.image, what), pixels, what))
            elif item.text is not None:
                rows.append(self._text(item.text, what))
            else:
                rows.append(self._numbers(item.numbers, item.dtype, what))
        return rows

    def files(self, files: Sequence[bytes], most: int) -> list[Inputs]:
        """The rows of pictures that were sent as files, at most so many."""
        _count(len(files), most)
        pixels = _Pixels(self.max_pixels)
        return [self._picture(data, pixels, f"file {place}: ") for place, data in enumerate(files)]

    def _picture(self, data: bytes, pixels: _Pixels, what: str) -> Inputs:
        if self.kind in ("texts", "numbers"):
            raise of_input(f"{what}expected {self.expected}, got a picture, which this model does not take")
        pixels.add(data, what)
        preprocess = self.preprocess or Plain("pictures")
        try:
            picture = decode(data)
        except InputError as error:
            raise of_input(f"{what}expected a picture, but {error}") from error
        except Exception as error:  # damaged files can raise anything
            raise of_input(
                f"{what}expected a picture that can be read, but the file is damaged ({type(error).__name__}); "
                "send it again, or save it anew"
            ) from error
        return self._ready(preprocess, picture, what)

    def _text(self, text: str, what: str) -> Inputs:
        if self.kind != "texts":
            raise of_input(f"{what}expected {self.expected}, got a text, which this model does not take")
        if len(text) > self.max_text:
            raise Problem(413, f"{what}expected at most {self.max_text} characters, got {len(text)}; shorten it")
        return self._ready(self.preprocess, text, what)

    def _numbers(self, value: object, dtype: str, what: str) -> Inputs:
        if self.kind == "texts":
            raise of_input(f"{what}expected {self.expected}, got numbers, which this model does not take")
        if isinstance(value, dict):
            if not value or self.kind == "pictures":
                raise of_input(f"{what}expected an array of numbers, got an object with {len(value)} names")
            return {name: _tensor(part, dtype, f"{what}{name!r}: ") for name, part in value.items()}
        row = _tensor(value, dtype, what)
        return row if self.preprocess is None else self._ready(self.preprocess, row, what)

    @staticmethod
    def _ready(preprocess: Preprocess | Plain | None, row: object, what: str) -> Inputs:
        assert preprocess is not None
        try:
            ready: Inputs = preprocess(row)
        except InputError as error:
            raise of_input(f"{what}{error}") from error
        return ready


class _Pixels:
    """The pixels of one request."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0

    def add(self, data: bytes, what: str) -> None:
        """Count the pixels that the file's header announces; nothing is decoded."""
        image = need("PIL.Image", "serve")
        if not honest(data):
            raise of_input(
                f"{what}expected notes (EXIF, tags) that fit into the file, got some that name far more than it holds; "
                "save it anew without them"
            )
        try:
            with image.open(io.BytesIO(data), formats=FORMATS) as opened:
                width, height = opened.size
                tile = math.prod(int(getattr(opened, "tag_v2", {}).get(tag, 0)) for tag in TILE)
        except (image.DecompressionBombError, image.DecompressionBombWarning):
            raise self._too_many(what, "far more") from None
        except image.UnidentifiedImageError as error:
            listed = ", ".join(FORMATS)
            raise of_input(f"{what}expected a picture ({listed}), got {len(data)} bytes of something else") from error
        except Exception as error:  # a damaged header can raise anything
            raise of_input(f"{what}expected a picture, got a damaged file ({type(error).__name__})") from error
        short, long = sorted((width, height))
        if long > LONG * short:
            raise Problem(
                413,
                f"{what}expected a side of at most {LONG} times the other, got {width} × {height}; cut it into parts",
            )
        self.seen += max(width * height, tile)
        if self.seen > self.most:
            raise self._too_many(what, f"{width} × {height} here, {self.seen} in all")

    def _too_many(self, what: str, came: str) -> Problem:
        return Problem(
            413,
            f"{what}expected at most {self.most} pixels in a request, got {came}; send a smaller picture, or several "
            "requests",
        )


def check_json(body: bytes) -> None:
    """A Problem where what is written would become too many objects; counted before it is parsed."""
    marks, commas = sum(body.count(mark) for mark in (b"[", b"{", b'"')), body.count(b",")
    if marks > MARKS or commas > COMMAS:
        raise Problem(
            413,
            f"expected at most {MARKS} lists, objects and texts and {COMMAS} numbers in JSON, got {marks} signs that "
            f"begin or end one and {commas} commas; send them in several requests, or pictures as files",
        )


def _count(count: int, most: int) -> None:
    if count == 0:
        raise of_input("expected at least one input, got none; send a picture, numbers or a text")
    if count > most:
        raise Problem(413, f"expected at most {most} inputs, got {count}; send them in several requests")


def _bytes(text: str, what: str) -> bytes:
    """The bytes of base64, with or without the beginning of a data URL."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise of_input(f"{what}expected the picture as base64, got other text; encode the bytes of the file") from error


def _tensor(value: object, dtype: str, what: str) -> torch.Tensor:
    wanted = f"{what}expected numbers in nested lists of one length each"
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise of_input(f"{wanted}, got lists of different lengths; fill them up or send them one by one") from error
    if array.dtype.kind not in "if" or array.size == 0:
        got = "none" if array.size == 0 else "something else among them"
        raise of_input(f"{wanted}, got {got}; send numbers alone")
    if dtype == "int64":
        if array.dtype.kind != "i":
            raise of_input(f"{what}expected whole numbers for dtype int64, got others; leave dtype out")
        return torch.from_numpy(array.astype(np.int64))
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32)
    if not math.isfinite(float(np.abs(floats).max())):
        raise of_input(f"{what}expected finite numbers within the range of float32, got others; mend or scale them")
    return torch.from_numpy(floats)
