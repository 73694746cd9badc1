import io

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


def test_a_figure_can_be_changed_and_saved():
    figure = plots.roc(curves())
    figure.axes[0].set_title("mine")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
