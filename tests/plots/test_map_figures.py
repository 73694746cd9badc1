"""Maps side by side and bars of features: what is drawn are the very numbers, in one scale."""

import io

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from nescio import plots
from nescio.types import InputError

HALF = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 0.5]])
PARTS = {"epistemic": HALF, "aleatoric": 2 * HALF, "total": torch.from_numpy(3 * HALF)}
COLOURED = np.linspace(0, 1, 18).reshape(3, 2, 3)


def drawn(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)  # constrained layout warns when something does not fit
    return figure


def lightness(colour):
    red, green, blue, alpha = to_rgba(colour)
    return alpha * (0.2126 * red + 0.7152 * green + 0.0722 * blue) + 1 - alpha


def test_maps_are_drawn_as_they_are_and_share_one_scale():
    figure = drawn(plots.maps(PARTS, COLOURED, values={"epistemic": 1.25}, title="x.png: class 3\nDoubt: 1 nat"))
    first, *rest = figure.axes[:4]
    assert [ax.get_title() for ax in figure.axes[:4]] == [
        *("input", "epistemic: of the model\n1.25 nats", "aleatoric: of the data", "total")
    ]
    assert np.array_equal(first.images[0].get_array(), np.moveaxis(COLOURED, 0, 2))
    for ax, one in zip(rest, PARTS.values(), strict=True):
        under, above = ax.images
        assert np.array_equal(above.get_array(), one)
        assert above.get_clim() == (0, 12)  # the top of the largest of the three
        grey = COLOURED.mean(0)
        assert np.allclose(np.argsort(under.get_array().ravel()), np.argsort(grey.ravel()))
        assert under.get_array().min() >= 0.6 - 1e-12  # pale
    assert len(first.child_axes) == 0
    assert [len(ax.child_axes) for ax in rest] == [0, 0, 1]  # a colour bar for all
    bar = rest[-1].child_axes[0]
    assert bar.get_ylabel() == "nats per pixel"
    assert bar.get_ylim() == (0, 12)
    assert figure.get_suptitle() == "x.png: class 3\nDoubt: 1 nat"


def test_colours_are_clear_at_zero_and_darken_all_the_way():
    colours = plots.maps({"total": HALF}).axes[0].images[-1].get_cmap()
    assert colours(0.0)[3] == 0
    assert colours(0.5)[3] == 1
    steps = [lightness(colours(share)) for share in np.linspace(0, 1, 41)]
    assert np.all(np.diff(steps) < 0)


def test_negative_values_get_a_scale_with_zero_in_the_middle():
    figure = drawn(plots.maps({"total": HALF - 5, "aleatoric": HALF}, COLOURED[0]))
    for ax in figure.axes[1:3]:
        assert ax.images[-1].get_clim() == (-5, 5)
    colours = figure.axes[1].images[-1].get_cmap()
    assert colours(0.5)[3] == pytest.approx(0, abs=0.02)
    assert lightness(colours(0.0)) == pytest.approx(lightness(colours(1.0)), abs=0.05)
    assert colours(0.0)[:3] != pytest.approx(colours(1.0)[:3], abs=0.2)


def test_the_scale_of_a_large_picture_leaves_single_pixels_out():
    large = np.linspace(0, 1, 100 * 90).reshape(100, 90)
    lone = large.copy()
    lone[3, 4] = 500.0
    figure = drawn(plots.maps({"aleatoric": large, "total": lone}))
    for ax in figure.axes[:2]:
        assert ax.images[-1].get_clim() == (0, pytest.approx(0.995, abs=1e-3))
    assert figure.axes[1].child_axes[0].get_ylim()[1] == pytest.approx(0.995, abs=1e-3)
    nothing = np.zeros((100, 90))
    nothing[3, 4] = 2.0  # all that there is
    assert drawn(plots.maps({"total": nothing})).axes[0].images[-1].get_clim() == (0, 2)
    assert drawn(plots.maps({"total": large - 0.5})).axes[0].images[-1].get_clim()[0] == pytest.approx(
        -0.4975, abs=1e-3
    )


def test_a_map_without_a_picture_and_one_without_any_doubt():
    figure = drawn(plots.maps({"gradient": 0 * HALF}, unit="of its own"))
    (image,) = figure.axes[0].images
    assert image.get_clim() == (0, 1)
    assert figure.axes[0].get_title() == "gradient"
    assert figure.axes[0].child_axes[0].get_ylabel() == "of its own"


def test_pictures_of_any_range_and_number_of_channels():
    wide = np.arange(12.0).reshape(2, 2, 3) - 4  # two channels, from −4 to 7
    shown = plots.maps({"total": HALF}, wide).axes[0].images[0].get_array()
    assert np.allclose(shown, ((wide + 4) / 11).mean(0))
    bytes_ = torch.tensor([[[0, 255, 51], [0, 0, 102]]], dtype=torch.uint8)
    shown = plots.maps({"total": HALF}, bytes_).axes[0].images[0].get_array()
    assert np.allclose(shown, bytes_[0] / 255)
    assert np.allclose(plots.maps({"total": HALF}, np.full((2, 3), 7.0)).axes[0].images[0].get_array(), 0)  # constant


def test_a_long_title_is_broken_and_dollars_are_no_formula():
    broken = r"costs $5{ and 6$ "  # no formula that matplotlib could set
    figure = drawn(plots.maps({broken: HALF}, title=broken * 20))
    lines = figure.get_suptitle().splitlines()
    assert len(lines) > 3
    assert " ".join(lines).endswith(broken.strip())
    drawn(plots.feature_bars({"total": [1.0]}, [broken], title=broken))


@pytest.mark.parametrize(
    ("parts", "picture", "message"),
    [
        ({}, None, "at least one map"),
        (HALF, None, "at least one map by name"),
        ({"a": HALF[0]}, None, r"a: expected a map \[H, W\] of a single input, but got shape \[3\]"),
        ({"a": HALF, "b": HALF.T}, None, "maps of one shape"),
        ({"a": HALF * np.nan}, None, "a: expected finite numbers, but 6 are not"),
        ({"a": HALF}, HALF.T, r"the 2 × 3 pixels of the maps, but got shape \[3, 2\]"),
        ({"a": HALF}, COLOURED * np.nan, "picture: expected finite"),
    ],
)
def test_maps_refuse(parts, picture, message):
    with pytest.raises(InputError, match=message):
        plots.maps(parts, picture)


def test_bars_of_the_largest_and_of_all_others_together():
    total = np.array([0.1, 0.5, 0.05, 0.3, 0.02, 0.03])
    parts = {"epistemic": total / 4, "total": torch.from_numpy(total)}
    figure = drawn(plots.feature_bars(parts, list("abcdef"), most=2, values={"total": 1.0}, title="row 3"))
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "d", "4 others together"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the largest on top
    for bars, one in zip(ax.containers, (total / 4, total), strict=True):
        widths = [bar.get_width() for bar in bars]
        assert widths == pytest.approx([one[1], one[3], one[[0, 2, 4, 5]].sum()])
        assert sum(widths) == pytest.approx(one.sum())  # nothing is left out
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["epistemic: of the model", "total, 1 nats"]
    assert ax.get_xlabel() == "part of the uncertainty (nats)"


def test_few_features_are_all_shown_by_size_whatever_their_sign():
    (ax,) = drawn(plots.feature_bars({"total": [0.1, -2.0, 1.0]}, ["$a", "b" * 50, "c"], most=2)).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b" * 39 + "…", "c", "$a"]


def test_bars_refuse():
    with pytest.raises(InputError, match="got 2 names and 3 of total"):
        plots.feature_bars({"total": [1.0, 2.0, 3.0]}, ["a", "b"])
    with pytest.raises(InputError, match="expected most to be a whole number of at least 1, got 0"):
        plots.feature_bars({"total": [1.0]}, ["a"], most=0)
    with pytest.raises(InputError, match=r"got shape \[2, 3\]"):
        plots.feature_bars({"total": HALF}, ["a", "b"])
