import base64
import io
import math
import struct
import zlib

import pytest
import torch
from PIL import Image

from nescio.serve import reading
from nescio.serve.errors import Problem
from nescio.serve.reading import Reader
from nescio.serve.schemas import Body, Item
from tests.serve import models


class Four(Reader):
    """Of at most four inputs."""

    def files(self, files, most=4):
        return super().files(files, most)

    def items(self, items, most=4):
        return super().items(items, most)


def reader(source=None, pixels=10_000):
    return Four(source or models.pictures(), pixels, 1000)


def problem(call, *given):
    with pytest.raises(Problem) as caught:
        call(*given)
    return caught.value


def bomb(width=100_000, height=100_000):
    """A PNG whose header announces far more pixels than it has bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_pictures_are_read_as_the_model_takes_them():
    file = models.png(1)
    (row,) = reader().files([file])
    assert torch.equal(row, models.pictures().preprocess(Image.open(io.BytesIO(file))))
    item = Item(image="data:image/png;base64," + base64.b64encode(file).decode())
    assert torch.equal(reader().items([item])[0], row)


@pytest.mark.parametrize("size", [(101, 100), (9_000, 9_000), (100_000, 100_000)])
def test_pixels_are_counted_before_anything_is_decoded(size, monkeypatch):
    monkeypatch.setattr(reading, "decode", lambda data: pytest.fail("it was decoded"))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was loaded"))
    found = problem(reader().files, [bomb(*size)])
    assert found.status == 413
    assert "expected at most 10000 pixels" in found.message


def test_tiles_count_where_they_are_larger_than_the_picture(monkeypatch):
    monkeypatch.setattr(reading, "decode", lambda data: pytest.fail("it was decoded"))
    packed = zlib.compress(b"\0")
    values = {256: 8, 257: 8, 258: 8, 259: 8, 262: 1, 277: 1, 322: 30_000, 323: 30_000, 324: 134, 325: len(packed)}
    listed = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in values.items())
    file = b"II*\0" + struct.pack("<LH", 8, len(values)) + listed + struct.pack("<L", 0) + packed
    assert Image.open(io.BytesIO(file)).size == (8, 8)
    found = problem(reader().files, [file])
    assert (found.status, "900000000 in all" in found.message) == (413, True)


def test_pixels_are_those_of_all_pictures_together():
    assert len(reader(pixels=200).files([models.png()] * 3)) == 3
    found = problem(reader(pixels=200).files, [models.png()] * 4)
    assert (found.status, "file 3: " in found.message, "256 in all" in found.message) == (413, True, True)


def test_no_program_is_started_for_a_file():
    found = problem(reader().files, [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"])
    assert (found.status, "bytes of something else" in found.message) == (422, True)


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a", models.png()[:60], models.png()[:20], b"\xff\xd8\xff\xe0" + b"0" * 99]
)
def test_damaged_pictures_are_refused(data):
    found = problem(reader().files, [data])
    assert found.status == 422
    assert found.message.startswith("file 0: expected a picture")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([[1, 2], [3]], "lists of different lengths"),
        ([], "got none"),
        ([[], []], "got none"),
        (["a", "b"], "something else among them"),
        ([True, False], "something else among them"),
        ([1, None], "something else among them"),
        ([10**400], "something else among them"),
        ([1e39, 0], "finite numbers within the range of float32"),
        ([math.nan], "finite numbers"),
        ({}, "an object with 0 names"),
    ],
)
def test_numbers_that_are_none_are_refused(numbers, words):
    found = problem(reader(models.numbers()).items, [Item(numbers=[0.0] * 5), Item(numbers=numbers)])
    assert (found.status, found.message.startswith("input 1: ")) == (422, True)
    assert words in found.message


def test_numbers_have_the_type_that_is_named():
    floats, ints = reader(models.numbers()).items([Item(numbers=[1, 2]), Item(numbers=[1, 2], dtype="int64")])
    assert (floats.dtype, ints.dtype) == (torch.float32, torch.int64)
    assert "whole numbers" in problem(reader(models.numbers()).items, [Item(numbers=[0.5], dtype="int64")]).message


def test_an_object_is_a_row_by_argument_names():
    source = models.numbers()
    (row,) = reader(source).items([Item(numbers={"x": [1.0], "mask": [0.0]})])
    assert row.keys() == {"x", "mask"}


@pytest.mark.parametrize(
    ("source", "item", "words"),
    [
        (models.pictures, Item(text="a"), "expected a picture, as {'image': BASE64} or a file, got a text"),
        (models.numbers, Item(text="a"), "expected numbers, as {'numbers': […]}, got a text"),
        (models.numbers, Item(image=base64.b64encode(models.png()).decode()), "got a picture"),
        (models.texts, Item(image=base64.b64encode(models.png()).decode()), "expected a text, as {'text': '…'}, got a"),
        (models.texts, Item(numbers=[1.0]), "got numbers"),
        (models.pictures, Item(image="no base64!"), "expected the picture as base64"),
        (models.pictures, Item(numbers=[1.0]), "expected a picture [C, H, W]"),
    ],
)
def test_what_the_model_does_not_take_is_refused(source, item, words):
    found = problem(reader(source()).items, [item])
    assert found.status == 422
    assert words in found.message


def test_counts():
    assert problem(reader().files, []).status == 422
    found = problem(reader().files, [models.png()] * 5)
    assert (found.status, found.message.startswith("expected at most 4 inputs, got 5")) == (413, True)


def test_an_item_is_one_thing():
    for wrong in ({}, {"image": "a", "text": "b"}, {"numbers": 1.0}, {"text": 1}, {"words": "a"}):
        with pytest.raises(ValueError):
            Body.model_validate({"inputs": [wrong]})
