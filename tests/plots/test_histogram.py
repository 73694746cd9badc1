import numpy as np
import pytest

from nescio import plots
from nescio.types import InputError


def test_histogram_counts_every_score_in_common_bins():
    groups = {"digits": np.array([1.0, 1.1, 2.0]), "others": np.array([9.0, 10.0])}
    figure = plots.histogram(groups, "doubt", bins=9)
    ax = figure.axes[0]
    assert ax.get_xscale() == "linear"
    assert ax.get_xlabel() == "doubt"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["digits (3)", "others (2)"]
    heights = [patch.get_xy()[:, 1].max() for patch in ax.patches[::2]]
    assert heights == [2, 2]  # 1.0 and 1.1 share a bin; the last bin holds 9 and 10
    assert ax.dataLim.x0 == 1.0
    assert ax.dataLim.x1 == 10.0


@pytest.mark.parametrize(
    ("scores", "scale"), [([1.0, 100.0], "log"), ([1.0, 2.0], "linear"), ([-1.0, 100.0], "linear"), ([0, 1], "linear")]
)
def test_a_wide_positive_score_gets_a_logarithmic_axis(scores, scale):
    assert plots.histogram({"a": scores}).axes[0].get_xscale() == scale


@pytest.mark.parametrize("value", [-2.0, 0.0, 3.0])
def test_a_histogram_of_one_value(value):
    assert plots.histogram({"a": [value, value]}).axes[0].patches[0].get_xy()[:, 1].max() == 2


def test_histogram_refuses_what_it_cannot_show():
    with pytest.raises(InputError, match="at least one group"):
        plots.histogram({})
    with pytest.raises(InputError, match="at least one score in each"):
        plots.histogram({"a": []})
    with pytest.raises(InputError, match="expected finite scores"):
        plots.histogram({"a": [np.inf]})
    with pytest.raises(InputError, match="the smallest is -1"):
        plots.histogram({"a": [-1.0, 1.0]}, log=True)
