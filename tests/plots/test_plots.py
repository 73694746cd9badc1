import io
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex

from nescio import plots
from nescio.evaluate import roc
from nescio.plots.style import ACCENT, FAINT
from nescio.types import InputError


def curves():
    random = np.random.default_rng(0)
    return {name: roc(random.random(50), random.random(50) + shift) for name, shift in (("good", 0.6), ("poor", 0.1))}


def test_roc_draws_the_very_curve_with_only_its_corners():
    given = curves()
    figure = plots.roc(given)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    for name, curve in given.items():
        x, y = lines[name].get_data()
        assert len(x) < len(curve.false_positive_rate)
        # between corners the line passes through every point of the curve: the area is the same
        assert np.trapezoid(y, x) == pytest.approx(
            np.trapezoid(curve.true_positive_rate, curve.false_positive_rate), abs=1e-12
        )
        points = set(zip(curve.false_positive_rate, curve.true_positive_rate, strict=True))
        assert set(zip(x, y, strict=True)) <= points
        assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["good", "poor"]


def test_roc_puts_one_curve_in_front():
    figure = plots.roc(curves(), highlight="poor")
    strong = [line for line in figure.axes[0].lines if to_hex(line.get_color()) == ACCENT]
    faint = [line for line in figure.axes[0].lines if to_hex(line.get_color()) == FAINT]
    assert (len(strong), len(faint)) == (1, 2)  # the other curve and the diagonal stand back
    assert strong[0].get_zorder() > max(line.get_zorder() for line in faint)
    assert figure.axes[0].get_title() == "poor"


def test_roc_refuses_what_is_not_there():
    with pytest.raises(InputError, match="at least one ROC curve"):
        plots.roc({})
    with pytest.raises(InputError, match="expected one of good, poor, but got 'best'"):
        plots.roc(curves(), highlight="best")


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


def test_figures_need_no_screen_and_no_pyplot():
    code = (
        "import sys, io; from nescio import plots; f = plots.histogram({'a': [1.0, 2.0]}); "
        "f.savefig(io.BytesIO(), format='png'); assert 'matplotlib.pyplot' not in sys.modules"
    )
    without = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    subprocess.run([sys.executable, "-c", code], check=True, env=without | {"PATH": "", "MPLBACKEND": "TkAgg"})


def test_a_figure_can_be_changed_and_saved():
    figure = plots.roc(curves())
    figure.axes[0].set_title("mine")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
