"""Equal maps for equal functions: the figure by hand, and which paths pass for networks that are written anew."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from nescio.attribution import explain
from nescio.evaluate import rewritten
from nescio.posteriors import DeepEnsemble
from nescio.types import InputError


def test_the_difference_worked_by_hand():
    one = [[[1.0, 0.0], [3.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    other = [[[0.0, 0.0], [3.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    found = rewritten(one, torch.tensor(other))
    # image 0: |1| + |−1| of 4 + 4; a quarter of the uncertainty went to another pixel
    assert found.image_difference.tolist() == [0.25, 0.0, 0.0]
    assert found.difference == pytest.approx(0.25 / 3, abs=1e-15)
    assert found.worst == 0.25
    assert rewritten([[[1.0, 0.0]]], [[[0.0, 9.0]]]).difference == 1.0  # no pixel in both
    assert rewritten([[[1.0, -1.0]]], [[[-1.0, 1.0]]]).difference == 1.0


def test_it_is_the_share_that_moved_for_maps_with_one_sum():
    draw = np.random.default_rng(0)
    one, other = (m / m.sum((1, 2), keepdims=True) for m in draw.random((2, 5, 4, 3)))
    moved = np.maximum(one - other, 0).sum((1, 2))
    np.testing.assert_allclose(rewritten(one, other).image_difference, moved, atol=1e-15)
    assert rewritten(one, other).difference == rewritten(other, one).difference


def test_rewritten_refuses():
    maps = np.ones((2, 3, 4))
    with pytest.raises(InputError, match=r"same images of both networks but got shapes \[2, 3, 4\] and \[1, 3, 4\]"):
        rewritten(maps, maps[:1])
    with pytest.raises(InputError, match=r"maps_rewritten: .* NaN"):
        rewritten(maps, maps * np.nan)


def network(seed, bias):
    torch.manual_seed(seed)
    norms = nn.BatchNorm2d(5), nn.BatchNorm2d(4)
    for norm in norms:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1, bias=bias), norms[0], nn.ReLU(),
        nn.Conv2d(5, 4, 3, padding=1, bias=bias), norms[1], nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 9), nn.ReLU(), nn.Linear(9, 4),
    )  # fmt: skip
    nn.init.normal_(model[10].weight)
    return model.eval().double()


def rescaled(model):
    """Each channel of a ReLU layer times c, and what reads it by 1/c."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        c, d = torch.rand(5, dtype=torch.float64) * 4 + 0.25, torch.rand(9, dtype=torch.float64) * 4 + 0.25
        model[1].weight.mul_(c)
        model[1].bias.mul_(c)
        model[3].weight.div_(c.view(1, -1, 1, 1))
        model[8].weight.mul_(d.view(-1, 1))
        model[8].bias.mul_(d)
        model[10].weight.div_(d)
    return model


def folded(model, places=(0, 3)):
    """The batch norms inside of their convolutions."""
    model = copy.deepcopy(model)
    for at in places:
        model[at], model[at + 1] = fuse_conv_bn_eval(model[at], model[at + 1]), nn.Identity()
    return model


def first_folded(model):
    return folded(model, (0,))


def shifted(model):
    """A constant added by a convolution, and taken away by the batch norm behind it."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for at in (0, 3):
            constant = torch.randn_like(model[at].bias)
            model[at].bias.add_(constant)
            model[at + 1].running_mean.add_(constant)
    return model


@pytest.mark.parametrize(
    ("rewrite", "bias", "failing"),
    [
        (rescaled, True, ()),
        (first_folded, False, ()),
        (folded, False, ("gradcam",)),
        (folded, True, ("fullgrad", "gradcam")),
        (shifted, True, ("fullgrad", "gradcam")),
    ],
)
def test_which_paths_depend_on_the_function_alone(rewrite, bias, failing):
    """FullGrad adds the absolute values of bias terms, so it sees how a bias is divided among layers."""
    models = [network(seed, bias) for seed in range(2)]
    twins = [rewrite(model) for model in models]
    x = torch.rand(2, 3, 9, 8, dtype=torch.float64)
    assert all(torch.allclose(a(x), b(x), atol=1e-12) for a, b in zip(models, twins, strict=True))
    for path in ("gradient", "smoothgrad", "gradcam", "fullgrad"):
        pair = [explain(DeepEnsemble(one), x, path=path, copies=2, tau2=0.1).maps for one in (models, twins)]
        worst = rewritten(*pair).worst
        if path in failing:
            assert worst > 0.005, path
        else:
            assert worst < 1e-11, path
    pair = [explain(DeepEnsemble(one), x, "gradient").maps for one in (models, twins)]  # of the uncertainty itself
    assert rewritten(*pair).worst < 1e-11
