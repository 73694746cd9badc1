"""Lines along directions: what is drawn, and what is refused."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from nescio.plots.limits import limits
from nescio.plots.style import ACCENT, COLOURS
from nescio.types import InputError


def test_one_panel_a_score_and_one_line_a_direction() -> None:
    scores = {f"score {at}": {"up": [1.0, at, 0.0], "down": [1.0, 2.0, 3.0]} for at in range(4)}
    figure = limits([0, 1, 8], scores, certain={"up"})
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title() for ax in shown] == list(scores) and len(figure.axes) == 6
    for at, ax in enumerate(shown):
        up, down = ax.get_lines()
        assert np.array_equal(up.get_xydata(), [[0, 1], [1, at], [8, 0]])
        assert (to_hex(up.get_color()), up.get_linestyle()) == (ACCENT, "-")
        assert (to_hex(down.get_color()), down.get_linestyle()) == (COLOURS[1], "--")
        assert ax.get_xscale() == "symlog" and ax.get_xlim() == (0.0, 8.0)
    assert [bool(ax.get_xlabel()) for ax in shown] == [False, True, True, True]


@pytest.mark.parametrize(
    ("distances", "scores", "words"),
    [
        ([0], {"a": {"up": [1]}}, "rising order"),
        ([0, 2, 1], {"a": {"up": [1, 1, 1]}}, "rising order"),
        ([-1, 2], {"a": {"up": [1, 1]}}, "at least 0"),
        ([0, 1], {}, "at least one score"),
        ([0, 1], {"a": {}}, "at least one direction"),
        ([0, 1], {"a": {"up": [1, 2, 3]}}, "2 finite values of 'a' along 'up'"),
        ([0, 1], {"a": {"up": [1, float("nan")]}}, "2 finite values"),
    ],
)
def test_errors(distances: object, scores: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        limits(distances, scores)
