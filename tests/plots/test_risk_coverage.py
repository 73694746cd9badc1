import io

import numpy as np
import pytest

from nescio import decide, plots
from nescio.evaluate import risk_coverage
from nescio.types import InputError


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def data(size=400):
    random = np.random.default_rng(0)
    scores = random.random(size)
    return scores, random.random(size) > scores**4 / 2


def test_the_very_curve_and_the_perfect_order_are_drawn():
    scores, correct = data()
    curve = risk_coverage(scores, correct)
    drawn = lines(plots.risk_coverage({"mine": curve}))
    mine = next(line for label, line in drawn.items() if label.startswith("mine, AURC "))
    assert np.array_equal(mine.get_xdata(), curve.coverage)
    assert np.array_equal(mine.get_ydata(), curve.risk)
    x, y = drawn["perfect order"].get_data()
    best = risk_coverage(~correct, correct)  # wrong answers last
    assert y[0] == y[1] == 0
    assert x[1] == pytest.approx(correct.mean())
    assert y[-1] == pytest.approx(curve.risk[-1])
    exact = risk_coverage(np.where(correct, 0, 1) + np.arange(400) / 1e3, correct)
    assert np.interp(exact.coverage, x, y) == pytest.approx(exact.risk, abs=1e-4)
    assert best.risk[0] == 0


def test_a_policy_shows_its_point_and_what_it_promised():
    scores, correct = data()
    policy = decide.threshold(scores, correct, risk=0.05)
    figure = plots.risk_coverage(risk_coverage(scores, correct), policy)
    drawn = lines(figure)
    assert drawn["promised: at most 5 % wrong"].get_ydata() == [0.05, 0.05]
    point = drawn[f"the policy: {policy.accepted} accepted, {policy.errors} wrong"]
    assert point.get_xdata() == [policy.coverage]
    assert point.get_ydata() == [policy.errors / policy.accepted]


def test_a_policy_that_promises_nothing_or_has_no_labels():
    scores, correct = data(20)
    curve = risk_coverage(scores, correct)
    nothing = decide.threshold(scores, correct, risk=0.01)
    assert nothing.threshold is None
    drawn = lines(plots.risk_coverage(curve, nothing))
    assert "cannot be promised: at most 1 % wrong" in drawn
    assert not any(label.startswith("the policy") for label in drawn)
    drawn = lines(plots.risk_coverage(curve, decide.quantile(scores, keep=0.9)))
    assert drawn["promised: at least 90 % accepted"].get_xdata() == [0.95, 0.95]


def test_the_first_answers_do_not_set_the_height():
    scores, correct = np.arange(1000.0), np.ones(1000)
    correct[[0, 500]] = 0
    ax = plots.risk_coverage(risk_coverage(scores, correct)).axes[0]
    assert 0.02 < ax.get_ylim()[1] < 0.03  # 1/50 at a coverage of 5 %, and not 1


@pytest.mark.parametrize("correct", [[True], [False], [True] * 5, [False, True, True]])
def test_one_value_all_right_and_all_wrong(correct):
    for scores in (np.ones(len(correct)), np.arange(len(correct))):
        figure = plots.risk_coverage({"a": risk_coverage(scores, correct)})
        figure.savefig(io.BytesIO(), format="png", dpi=20)
        low, high = figure.axes[0].get_ylim()
        assert low < 0 < 1 - np.mean(correct) + 0.01 < high + 1e-9


def test_it_refuses_what_is_no_curve_and_no_policy():
    curve = risk_coverage([1, 2], [1, 0])
    with pytest.raises(InputError, match=r"curves: expected .* but got none"):
        plots.risk_coverage({})
    with pytest.raises(InputError, match="but got list"):
        plots.risk_coverage({"a": [1, 2]})
    with pytest.raises(InputError, match=r"policy: expected one from decide.threshold .* but got float"):
        plots.risk_coverage(curve, 0.5)
