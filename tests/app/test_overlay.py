"""Maps as tiles: their colours, over the picture where it fits."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from nescio.app.overlay import reach, tiles
from nescio.plots.map_figures import ABOVE, BELOW, PALE

image = pytest.importorskip("PIL.Image")


def pixels(address):
    return np.asarray(image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))), dtype=np.float64)


def rgb(colour):
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def test_the_ends_of_the_scale_have_its_last_colours_and_zero_shows_the_picture():
    one = np.array([[0.0, 2.0], [-2.0, 0.0]])
    picture = np.array([[[0.0, 0.5], [0.5, 1.0]]], dtype=np.float32)
    found = pixels(tiles({"one": one, "half": one / 2}, picture)["one"])
    assert found[0, 1].tolist() == rgb(ABOVE[-1]) and found[1, 0].tolist() == rgb(BELOW[-1])
    assert found[0, 0].tolist() == [round(255 * (1 - PALE))] * 3 and found[1, 1].tolist() == [255] * 3
    low, high, gradient = reach({"one": one})
    assert (low, high) == (-2.0, 2.0) and gradient.startswith(f"linear-gradient(to right, {BELOW[-1]}")


def test_all_maps_share_one_scale_and_a_picture_of_another_shape_is_left_out():
    one = np.array([[0.0, 1.0]])
    found = tiles({"large": one, "small": one / 4}, np.zeros((1, 5, 5), dtype=np.float32))
    assert pixels(found["large"])[0, 0].tolist() == [255] * 3
    assert pixels(found["small"])[0, 1].sum() > pixels(found["large"])[0, 1].sum()  # paler
    assert reach({"large": one})[:2] == (0.0, 1.0)
