"""Notes in picture files that name far more than the files hold."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from nescio.data.sources.decode import decode
from nescio.serve import tags
from nescio.serve.tags import honest
from tests.serve.test_reading import problem, reader

PAD, MANY = 60_000, 40


def directory(order="<", wide=False, inner=False, pad=PAD, many=MANY):
    """A directory of many tags that all name the same bytes; inner: in another directory within it."""
    number, entry = ("Q", "HHQQ") if wide else ("L", "HHLL")
    counted = order + ("Q" if wide else "H")
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if wide else 42)
    head += struct.pack(order + "HHQ", 8, 0, 16) if wide else struct.pack(order + "L", 8)
    begin = len(head)
    if inner:
        begin += struct.calcsize(counted) + struct.calcsize(order + entry) + struct.calcsize(order + number)
        head += (
            struct.pack(counted, 1) + struct.pack(order + entry, 34665, 4, 1, begin) + struct.pack(order + number, 0)
        )
    place = begin + struct.calcsize(counted) + many * struct.calcsize(order + entry)
    listed = b"".join(struct.pack(order + entry, 40000 + at, 7, pad, place) for at in range(many))
    return head + struct.pack(counted, many) + listed + b"\0" * pad


def png(exif):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 72))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"eXIf", exif) + pixels + chunk(b"IEND", b"")


def jpeg(exif, cut=20_000):
    """With its notes in several segments, and bytes of nothing between them."""
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, "JPEG")
    parts = [b"Exif\0\0" + exif[at : at + cut] for at in range(0, len(exif), cut)]
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 2) + part + b"\0\xff" for part in parts)
    return file.getvalue()[:2] + segments + file.getvalue()[2:]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_tags_that_name_the_same_bytes_are_no_honest_ones(order, wide, inner):
    block = directory(order, wide, inner)
    assert not honest(block)  # a TIFF begins so
    assert not honest(png(block))
    assert not honest(jpeg(block))
    assert honest(directory(order, wide, inner, many=2))


def test_such_files_are_refused_before_pillow_reads_them(monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *given, **more: pytest.fail("it was opened"))
    found = problem(reader().files, [png(directory())])
    assert (found.status, "file 0: expected notes (EXIF, tags) that fit into the file" in found.message) == (422, True)


def test_the_look_itself_has_an_end(monkeypatch):
    monkeypatch.setattr(tags, "MOST", 1000)
    assert not honest(b"II*\0" * 1001)
    assert not honest(directory(many=1001, pad=1))
    assert honest(directory(many=900, pad=1))
    assert honest(b"\xff\xd8" + b"\xff\xe1\0\2" * 1001)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("noted", range(1, 10))
def test_pictures_of_a_camera_are_read_upright(kind, noted):
    picture = Image.fromarray(np.arange(8 * 12, dtype=np.uint8).reshape(8, 12))
    exif = Image.Exif()
    exif[0x0112] = noted
    exif[0x010E] = "a note of some length " * 50
    file = io.BytesIO()
    picture.save(file, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    assert honest(file.getvalue())
    with Image.open(io.BytesIO(file.getvalue())) as opened:
        wanted = ImageOps.exif_transpose(opened).convert("RGB")
    assert np.array_equal(np.asarray(decode(file.getvalue()).convert("RGB")), np.asarray(wanted))
    assert wanted.size == ((8, 12) if 5 <= noted <= 8 else (12, 8))
