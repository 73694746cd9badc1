"""Pictures as PNG: what is read back is what was written."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from nescio._common.images import as_bytes, data_uri, png


def read(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


def test_numbers_in_0_1_become_bytes_and_others_are_cut_off() -> None:
    assert as_bytes(np.array([-1.0, 0.0, 0.499, 1.0, 2.0], np.float32)).tolist() == [0, 0, 127, 255, 255]


@pytest.mark.parametrize(("shape", "mode"), [((3, 5), "L"), ((4, 2, 3), "RGB")])
def test_a_png_gives_back_the_picture(shape: tuple[int, ...], mode: str) -> None:
    picture = np.linspace(0, 1, int(np.prod(shape))).reshape(shape)
    found = read(png(picture))
    assert found.mode == mode
    assert np.array_equal(np.asarray(found), as_bytes(picture))


def test_a_png_keeps_within_black_and_white() -> None:
    assert np.asarray(read(png(np.array([[-1.0, 2.0]])))).tolist() == [[0, 255]]


def test_a_data_uri_holds_the_file_and_says_of_what_kind_it_is() -> None:
    kind, content = data_uri(b"content", "jpeg").split(",")
    assert kind == "data:image/jpeg;base64"
    assert base64.b64decode(content) == b"content"
