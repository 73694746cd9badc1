import pytest

from nescio.types import InputError
from nescio_papers.runner.drawing import curves


def test_curves_share_a_legend():
    lines = {"p": {"one": [(10, 1.0), (1, 2.0)], "two": [(1, 0.0), (10, 1.0)]}, "q": {"two": [(1, 3.0), (10, 4.0)]}}
    figure = curves(lines, "radius", {"q": (0, 9)})
    p, q = figure.axes
    assert p.lines[0].get_xydata().tolist() == [[1.0, 2.0], [10.0, 1.0]]
    assert p.lines[1].get_color() == q.lines[0].get_color() != p.lines[0].get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    assert p.get_xscale() == "log" and q.get_ylim() == (0, 9)


def test_nothing_to_draw_is_refused():
    with pytest.raises(InputError, match="panels: expected at least one panel"):
        curves({}, "x")
