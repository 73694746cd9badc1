import io

import numpy as np
import pytest

from nescio import plots
from nescio.evaluate import reliability
from nescio.types import InputError

P = np.array([[0.91, 0.09], [0.8, 0.2], [0.7, 0.3], [0.45, 0.55]])
Y = np.array([0, 1, 0, 1])


def png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=20)
    return buffer.getvalue()


def test_bars_reach_the_accuracy_and_the_gap_reaches_the_confidence():
    result = reliability(P, Y, bins=4)  # bins (½, ¾]: 0.55 and 0.7, both right; (¾, 1]: 0.8 and 0.91, one right
    diagram, counts = plots.reliability(result).axes
    bars = diagram.patches[:2]
    assert [bar.get_x() for bar in bars] == [0.5, 0.75]
    assert [bar.get_height() for bar in bars] == [1.0, 0.5]
    tops = [gap.get_y() + gap.get_height() for gap in diagram.patches[2:]]
    assert tops == pytest.approx([0.625, 0.855])
    assert [bar.get_height() for bar in counts.patches] == [2, 2]
    words = [text.get_text() for text in diagram.get_legend().get_texts()]
    assert any("ECE 36.5 %" in word for word in words)  # (0.375 + 0.355)/2


def test_two_results_are_laid_over_each_other():
    results = {"before": reliability(P, Y, bins=4), "after": reliability(P, Y, bins=1)}
    diagram, counts = plots.reliability(results).axes
    points = {c.get_label().partition(",")[0]: c for c in diagram.collections}
    assert list(points) == ["before", "after"]
    assert points["before"].get_offsets().tolist() == pytest.approx(np.array([[0.625, 1.0], [0.855, 0.5]]))
    assert points["after"].get_offsets().tolist() == pytest.approx(np.array([[0.74, 0.75]]))
    assert [patch.get_data().values.tolist() for patch in counts.patches[::2]] == [[0, 0, 2, 2], [4]]
    assert "after, ECE 1.0 %" in [text.get_text() for text in diagram.get_legend().get_texts()]


def test_a_bin_of_few_inputs_is_drawn_small():
    p = np.array([[0.6, 0.4]] + [[0.9, 0.1]] * 99)
    few, many = plots.reliability({"a": reliability(p, np.zeros(100, int))}).axes[0].collections[0].get_sizes()
    assert few < many / 3


@pytest.mark.parametrize("mode", ["width", "mass"])
@pytest.mark.parametrize("size", [1, 400])
def test_few_and_many_inputs_can_be_drawn(mode, size):
    p = np.random.default_rng(0).dirichlet(np.ones(3), size)
    result = reliability(p, np.zeros(size, int), mode=mode)
    assert png(plots.reliability(result)).startswith(b"\x89PNG")
    assert png(plots.reliability({"a": result, "b": result})).startswith(b"\x89PNG")


def test_it_refuses_what_is_no_result():
    with pytest.raises(InputError, match=r"expected what nescio\.evaluate\.reliability gives, .* but got none"):
        plots.reliability({})
    with pytest.raises(InputError, match="but got ndarray"):
        plots.reliability({"a": P})
