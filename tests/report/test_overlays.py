import base64
import io

import numpy as np
from PIL import Image

from nescio.plots.map_figures import PALE
from nescio.report.overlays import image, overlays, where


def test_overlays_have_the_colours_of_the_plots():
    def pixels(uri):
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB"))

    grey = np.full((4, 4), 0.5)
    level = np.zeros((4, 4))
    level[0, 3], level[1, 1] = 2.0, -1.0
    drawn, top = overlays({"total": level, "none": np.zeros((4, 4))}, grey)
    pale = round(255 * (1 - PALE * 0.5))
    assert top == "2 nats in a pixel" and (pixels(drawn["none"]) == pale).all()
    assert pixels(drawn["total"])[0, 3].tolist() == [int("6b1d00"[at : at + 2], 16) for at in (0, 2, 4)]
    assert pixels(drawn["total"])[1, 1, 2] > pixels(drawn["total"])[1, 1, 0]  # blue below zero
    assert where(np.abs(level)) == "the upper right has 67 % of it"
    large = np.zeros((100, 90))
    large[99, 89] = large[98, 88] = 1.0
    drawn, top = overlays({"total": large}, np.ones((100, 90)))
    shown = pixels(drawn["total"])
    assert top == "2 nats in a square of 4 × 4 pixels" and shown.shape == (100, 90, 3)
    assert shown[99, 89, 2] < 60 and (shown[:80] > 250).all()  # dark in the corner, white elsewhere
    many = np.arange(9000.0).reshape(100, 90)
    many[50, 50] = 1e9  # one square that stands out does not hide the others
    drawn, top = overlays({"total": many}, np.ones((100, 90)))
    assert "nats or more in a square of 4 × 4 pixels" in top and pixels(drawn["total"])[90, 10, 2] < 100
    colour = np.random.default_rng(0).random((8, 8, 3))
    assert np.abs(pixels(image(colour)) / 255 - colour).max() < 0.003
    assert image(np.zeros((100, 100, 3))).startswith("data:image/jpeg")
