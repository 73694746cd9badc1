import io

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from nescio import plots
from nescio.types import InputError

RANDOM = np.random.default_rng(0)


def drawn(figure):
    """Points and colours, sorted by colour: the order in which they are drawn is by chance."""
    scatter = figure.axes[0].collections[0]
    colours = np.asarray(scatter.get_array())
    return np.asarray(scatter.get_offsets())[np.argsort(colours)], np.sort(colours)


def test_points_are_drawn_as_they_are_and_coloured():
    points = RANDOM.random((6, 2))
    figure = plots.embedding(points, torch.arange(6.0), name="doubt")
    assert np.array_equal(drawn(figure)[0], points)
    assert drawn(figure)[1].tolist() == list(range(6))
    assert figure.axes[1].get_ylabel() == "doubt"


@pytest.mark.parametrize("shape", [(40, 5), (6, 30)])
def test_features_are_projected_as_scikit_learn_does(shape):
    features = RANDOM.normal(size=shape) * np.linspace(1, 3, shape[1])
    pca = PCA(2, svd_solver="full").fit(features)
    figure = plots.embedding(torch.from_numpy(features), np.arange(shape[0]))
    found, _ = drawn(figure)
    assert np.abs(found) == pytest.approx(np.abs(pca.transform(features)), abs=1e-9)
    share = pca.explained_variance_ratio_[0]
    assert figure.axes[0].get_xlabel() == f"first principal component ({100 * share:.0f} %)"
    assert np.allclose(drawn(plots.embedding(features.tolist(), np.arange(shape[0])))[0], found)


def test_labels_are_written_in_the_middle_and_marks_are_framed():
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 5.0], [9.0, 9.0]])
    figure = plots.embedding(points, np.arange(4), labels=["cat", "cat", "cat", "dog"], marks={"wrong": [0, 1, 0, 1]})
    written = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    assert written == {"cat": (1.0, 1.0), "dog": (9.0, 9.0)}
    marks = figure.axes[0].collections[1]
    assert marks.get_label() == "wrong (2)"
    assert marks.get_offsets().tolist() == points[[1, 3]].tolist()


def test_an_outlier_does_not_take_all_colours():
    values = np.append(np.linspace(0, 1, 199), 1000.0)
    figure = plots.embedding(RANDOM.random((200, 2)), values)
    assert figure.axes[0].collections[0].get_clim()[1] < 2
    few = plots.embedding(RANDOM.random((3, 2)), [0.0, 1.0, 1000.0])
    assert few.axes[0].collections[0].get_clim() == (0.0, 1000.0)


def test_round_off_does_not_mirror_the_picture():
    """The first axis is (a, −a): round-off decides which of its two numbers is the larger."""
    points = np.outer(np.linspace(-1, 2, 9), [1.0, -1.0, 0.0]) + np.outer(np.cos(np.arange(9)), [0, 0, 0.1])
    shown = []
    for change in (0.0, 1e-15, -1e-15):
        figure = plots.embedding(points * [1 + change, 1 - change, 1], np.arange(9.0))
        shown.append(np.asarray(figure.axes[0].collections[0].get_offsets()))
    np.testing.assert_allclose(shown[1:], [shown[0]] * 2, atol=1e-9)


def test_one_input_one_value_and_very_many():
    for points, values in (
        (np.ones((1, 2)), [3.0]),
        (np.ones((1, 9)), [3.0]),
        (np.ones((4, 3)), [3.0] * 4),
        (RANDOM.random((5000, 2)), np.append(np.zeros(4999), 1.0)),
    ):
        figure = plots.embedding(points, values)
        figure.savefig(io.BytesIO(), format="png", dpi=20)
        low, high = figure.axes[0].collections[0].get_clim()
        assert low < high
    svg = io.BytesIO()
    figure.savefig(svg, format="svg")
    assert svg.getbuffer().nbytes < 300_000  # very many points are one picture within


def test_it_refuses_what_it_cannot_show():
    points = np.zeros((3, 2))
    for bad, words in (
        (np.zeros((3, 1)), r"expected shape \[N, 2\].*but got \[3, 1\]"),
        (np.zeros(3), r"but got \[3\]"),
        (np.full((3, 2), np.nan), "points: expected finite"),
        (np.zeros((4, 2)), "one for each of the 3 uncertainties but got 4"),
        ([["a", "b"]] * 3, "points: expected numbers"),
    ):
        with pytest.raises(InputError, match=words):
            plots.embedding(bad, np.zeros(3))
    with pytest.raises(InputError, match="uncertainty: expected numbers but 1 of 3 scores are NaN"):
        plots.embedding(points, [0, np.nan, 1])
    with pytest.raises(InputError, match="some are infinite"):
        plots.embedding(points, [0, np.inf, 1])
    with pytest.raises(InputError, match=r"marks\['wrong'\]: expected one for each of the 3 inputs but got 2"):
        plots.embedding(points, np.zeros(3), marks={"wrong": [0, 1]})
    with pytest.raises(InputError, match=r"labels: expected one for each of the 3 inputs, but got shape \[2\]"):
        plots.embedding(points, np.zeros(3), labels=[1, 2])
    with pytest.raises(InputError, match="at most 60 different ones, but got 61"):
        plots.embedding(np.zeros((61, 2)), np.zeros(61), labels=np.arange(61))
