import io

import numpy as np
import pytest
import torch

from nescio import plots
from nescio.types import Decomposition, InputError


def decomposition(aleatoric, epistemic):
    a, e = torch.tensor(aleatoric, dtype=torch.float64), torch.tensor(epistemic, dtype=torch.float64)
    return Decomposition(a + e, a, e, e, e, e)


PARTS = decomposition([0.0, 0.1, 0.9, 1.0], [0.0, 0.0, 0.1, 1.0])


def shares(ax):
    """Share by bin of each group; each is drawn filled and as a line."""
    return [patch.get_data().values for patch in ax.patches[::2]]


def test_three_histograms_of_the_share_of_each_group():
    groups = {"correct": [1, 1, 1, 0], "OOD": np.array([False, False, False, True])}
    figure = plots.kinds(PARTS, groups, bins=2)
    labels = [ax.get_xlabel().partition(":")[0] for ax in figure.axes]
    assert labels == ["total (nats)", "aleatoric", "epistemic"]
    total, aleatoric, epistemic = (shares(ax) for ax in figure.axes)
    assert np.allclose(total, [[2 / 3, 1 / 3], [0, 1]])  # edges 0, 1, 2, and 0.9 + 0.1 is 1
    assert np.allclose(aleatoric, [[2 / 3, 1 / 3], [0, 1]])
    assert np.allclose(epistemic, [[1, 0], [0, 1]])
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["correct (3)", "OOD (1)"]
    assert figure.axes[2].get_ylim() == (0, pytest.approx(1.04))


def test_without_groups_all_inputs_are_one():
    figure = plots.kinds(PARTS)
    assert figure.axes[0].get_legend() is None
    assert [values.sum() for ax in figure.axes for values in shares(ax)] == pytest.approx([1, 1, 1])


def test_inputs_in_no_group_do_not_set_the_axis():
    figure = plots.kinds(PARTS, {"first": [1, 1, 0, 0]})
    assert figure.axes[1].patches[0].get_data().edges[-1] == 0.1


def test_an_empty_group_is_named_and_constant_parts_are_drawn():
    constant = decomposition([0.5] * 3, [0.0] * 3)  # a single network has no epistemic part
    for log in (False, True):
        figure = plots.kinds(constant, {"correct": [1, 1, 1], "wrong": [0, 0, 0]}, log=log)
        figure.savefig(io.BytesIO(), format="png", dpi=20)
        assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["correct (3)", "wrong (0)"]
        for ax in figure.axes:
            correct, wrong = shares(ax)
            assert correct.max() == 1.0
            assert wrong.max() == 0.0


def test_logarithmic_axes_put_zero_into_the_first_bin():
    figure = plots.kinds(PARTS, log=True, bins=6)
    epistemic = figure.axes[2]
    assert epistemic.get_xscale() == "log"
    assert epistemic.patches[0].get_data().edges[0] == pytest.approx(1e-6)
    assert shares(epistemic)[0].tolist() == [0.5, 0, 0, 0, 0, 0.5]


def test_it_refuses_what_it_cannot_show():
    with pytest.raises(InputError, match=r"expected what nescio.decompose gives, but got Tensor"):
        plots.kinds(torch.zeros(3))
    with pytest.raises(InputError, match=r"groups\['a'\]: expected one for each of the 4 inputs but got 3"):
        plots.kinds(PARTS, {"a": [1, 0, 1]})
    with pytest.raises(InputError, match=r"groups\['a'\]: expected booleans"):
        plots.kinds(PARTS, {"a": [0, 1, 2, 3]})
    with pytest.raises(InputError, match="all are empty"):
        plots.kinds(PARTS, {"a": [0, 0, 0, 0]})
    with pytest.raises(InputError, match="total: expected numbers but 1 of 2 scores are NaN"):
        plots.kinds(decomposition([0.1, np.nan], [0.0, 0.0]))
    with pytest.raises(InputError, match="finite parts"):
        plots.kinds(decomposition([0.1, np.inf], [0.0, 0.0]))
