import io

import numpy as np
import pytest
import torch

from nescio.types import InputError
from nescio_papers.know_your_limits import drawing as draw

LIMITS = {"entropy": (0.0, 1.0), "variance": (0.0, 0.25)}
RAMP = torch.arange(12.0).view(3, 4) / 11


def test_panels_share_the_colours_of_their_column():
    rows = {"one": {"entropy": RAMP, "variance": "none"}, "two": {"entropy": RAMP / 2, "variance": None}}
    figure = draw.surfaces(rows, (0, 4), (0, 3), LIMITS, points=[[1.0, 1.0], [2.0, 2.0]], classes=[0, 1])
    (ax,) = figure.axes
    one, two, *strips = ax.images
    assert [image.get_clim() for image in (one, two)] == [(0.0, 1.0), (0.0, 1.0)]
    assert np.array_equal(one.get_array(), RAMP.numpy()) and one.origin == "lower"
    left, right, bottom, top = one.get_extent()
    assert (right - left) / (top - bottom) == pytest.approx(4 / 3) and two.get_extent()[3] < bottom
    written = [text.get_text() for text in ax.texts]
    assert written == ["one", "none", "two", "entropy", "0", "1", "variance", "0", "0.25"] and len(strips) == 2
    # a point lies where it belongs in both panels that have values
    first = ax.collections[0].get_offsets().data
    assert first[0] == pytest.approx([left + (right - left) / 4, bottom + (top - bottom) / 3]) and len(first) == 2


def test_logarithms_are_clipped_at_the_ends():
    values = np.array([[0.0, 1e-9], [1e-3, 7.0]])
    figure = draw.surfaces({"a": {"slope": values}}, (0, 1), (0, 1), {"slope": (1e-6, 1.0)}, log=True)
    image = figure.axes[0].images[0]
    assert image.norm(values).data == pytest.approx(np.array([[0.0, 0.0], [0.5, 1.0]]))
    figure.savefig(io.BytesIO())


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match="limits: expected two numbers for each column, but depth has none"):
        draw.surfaces({"a": {"depth": RAMP}}, (0, 1), (0, 1), LIMITS)
    with pytest.raises(InputError, match="rows: expected at least one row"):
        draw.surfaces({}, (0, 1), (0, 1), LIMITS)
    with pytest.raises(InputError, match="expected finite numbers in two dimensions"):
        draw.surfaces({"a": {"entropy": [float("nan")]}}, (0, 1), (0, 1), LIMITS)
    with pytest.raises(InputError, match="expected rows of 2 panels"):
        draw.regions([[]], [((0, 1), (0, 1))] * 2)
    with pytest.raises(InputError, match=r"values: expected shape \[1, 2\]"):
        draw.numbers([[1.0]], ["a"], ["b", "c"], [1.0, 1.0])


def test_hues_turn_with_the_slope_and_pale_with_its_size():
    angles = np.array([0.0, 2.0, 4.0])
    slopes = np.stack([np.cos(angles), np.sin(angles)], 1)
    colours = draw.hues(slopes)
    assert len({tuple(np.round(row, 6)) for row in colours}) == 3 and (colours >= 0).all() and (colours <= 1).all()
    pale = draw.hues(np.array([[1.0, 0.0], [0.01, 0.0], [5.0, 0.0]]))
    spread = pale.max(1) - pale.min(1)
    assert spread[1] < spread[0] < spread[2]
    assert draw.hues(np.zeros((2, 2))) == pytest.approx(np.ones((2, 3)))


def test_regions_have_polygons_rays_and_boundaries():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    shown = draw.Regions(
        [square, square + 1],
        np.eye(2),
        [np.array([[0.0, 0.0], [1.0, 1.0]])],
        [np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]])],
        np.array([[0.2, 0.2]]),
        [1],
        "two",
    )
    figure = draw.regions([[shown]], [((0, 2), (0, 2))])
    (ax,) = figure.axes
    polygons, *_, lines = ax.collections
    assert len(polygons.get_paths()) == 2 and len(lines.get_segments()) == 1
    marks = [c for c in ax.collections if len(c.get_offsets()) == 1 and c.get_offsets()[0].tolist() == [0.5, 0.5]]
    assert len(marks) == 1 and ax.get_title() == "two"


def test_numbers_are_written_on_their_colours():
    figure = draw.numbers([[0.1, np.nan], [0.9, 2.0]], ["a", "b"], ["x", "y"], [1.0, 2.0])
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == ["0.10", "0.90", "2.00"]
    assert [text.get_color() for text in ax.texts] == ["black", "white", "white"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
