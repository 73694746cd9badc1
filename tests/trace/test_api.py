"""The engine against the papers' loop, on every kind of model."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.models import Classifier
from nescio.trace.probe import passes
from nescio.types import InputError, NormSettings
from tests.trace.subjects import SUBJECTS, make

GENERAL = {"raw", "routed", "custom", "tied_embedding"}
"""Subjects with a part that has no rule."""


def close(ours: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Relative error of every number; a gradient that is nothing but round-off is held against the input's largest."""
    error = (ours - wanted).abs() / (wanted + 1e-6 * wanted.flatten(1).amax(1).view(-1, 1, 1))
    assert ours.dtype == torch.float64
    assert ours.shape == wanted.shape
    assert error.max().item() <= tolerance


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("settings", [{}, {"norm": 1, "layers": "tensor"}], ids=["l2", "l1"])
def test_exact_in_float64_and_on_the_right_path(name: str, settings: dict[str, object]) -> None:
    model, x = make(name)
    ours = trace.class_gradients(model, x, **settings)
    wanted = trace.reference.class_gradients(model, x, **settings)
    assert ours.layers == wanted.layers
    torch.testing.assert_close(ours.probabilities, wanted.probabilities, rtol=1e-12, atol=1e-14)
    close(ours.norms, wanted.norms, 1e-9)
    assert wanted.norms.amax() > 1e-3
    used = {n for n in Classifier.of(model).parameters() if not n.startswith("unused")}
    assert bool(used - set(list(passes._PLANS[model].values())[-1].fast)) == (name in GENERAL)


@pytest.mark.parametrize("name", [n for n in SUBJECTS if n not in ("gru", "encoder", "tied_embedding")])
@pytest.mark.parametrize("smoothing", ["log", "mean"])
def test_smoothed_is_the_mean_gradient(name: str, smoothing: str) -> None:
    model, x = make(name)
    settings = {"sigma": 0.2, "samples": 3, "seed": 5, "smoothing": smoothing}
    ours = trace.class_gradients(model, x, **settings)
    wanted = trace.reference.class_gradients(model, x, **settings)
    close(ours.norms, wanted.norms, 1e-9)
    plain = trace.class_gradients(model, x)
    assert (ours.norms - plain.norms).abs().max() > 1e-12
    torch.testing.assert_close(ours.probabilities, plain.probabilities)  # taken at the input itself


@pytest.mark.parametrize("name", SUBJECTS)
def test_float32_against_float64(name: str) -> None:
    model, x = make(name, gap=12.0)
    wanted = trace.reference.class_gradients(model, x)
    ours = trace.class_gradients(model.float(), x.float() if x.is_floating_point() else x)
    total = (wanted.norms**2).sum(2).sqrt()
    assert (((ours.norms**2).sum(2).sqrt() - total).abs() / total).max().item() <= 1e-4


@pytest.mark.parametrize("name", ["cnn", "vit", "encoder", "routed", "lstm"])
def test_nothing_depends_on_batch_or_order(name: str) -> None:
    model, x = make(name)
    whole = trace.class_gradients(model, x).norms
    close(torch.cat([trace.class_gradients(model, x[i : i + 1]).norms for i in range(len(x))]), whole, 1e-9)
    close(trace.class_gradients(model, x.flip(0)).norms.flip(0), whole, 1e-9)
    close(trace.class_gradients(model, x, chunk=2).norms, whole, 1e-9)
    close(trace.class_gradients(model, x[:1].repeat_interleave(3, 0)).norms[2:], whole[:1], 1e-9)


def test_rows_uniform_and_expected() -> None:
    model, x = make("cnn")
    classifier = Classifier.of(model)
    for settings in ({}, {"sigma": 0.1, "samples": 2}, {"sigma": 0.1, "samples": 2, "smoothing": "mean"}):
        rows = ("classes", "uniform", "expected")
        found = trace.gradient_norms(classifier, x, NormSettings("classes", **settings), rows=rows)
        ours, names = {row: table.norms for row, table in found.items()}, found["classes"].layers
        wanted, _, same = trace.reference.gradient_norms(classifier, x, rows=rows, **settings)
        assert names == same
        close(ours["uniform"], wanted["uniform"], 1e-9)
        close(ours["classes"], wanted["classes"], 1e-9)
        if settings:
            close(ours["expected"], wanted["expected"], 1e-9)
        else:
            assert ours["expected"].max() < 1e-13  # zero in exact arithmetic: what is left is round-off


def test_selection_keeps_layers_in_order_and_values() -> None:
    model, x = make("resnet18")
    whole = trace.class_gradients(model, x)
    part = trace.class_gradients(model, x, select=("layer4.*", "fc"))
    where = [i for i, n in enumerate(whole.layers) if n.startswith("layer4.") or n == "fc"]
    assert part.layers == tuple(whole.layers[i] for i in where)
    close(part.norms, whole.norms[:, :, where], 1e-12)


def test_layers_stand_in_forward_order() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)
            self.gain = nn.Parameter(torch.ones(4))
            self.spare = nn.Linear(1, 1)
            self.first = nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(self.first(x)) * self.gain)

    found = trace.class_gradients(Backwards(), torch.randn(2, 5))
    assert found.layers == ("first", "(root)", "last", "spare")
    assert found.norms[:, :, 3].eq(0).all()
    tensors = trace.class_gradients(Backwards(), torch.randn(2, 5), layers="tensor").layers
    assert [name.split(".")[0] for name in tensors] == ["first", "first", "gain", "last", "last", "spare", "spare"]


def test_frozen_parameters_count() -> None:
    model, x = make("mlp")
    before = trace.class_gradients(model, x).norms
    for p in list(model.parameters())[:3]:
        p.requires_grad_(False)
    close(trace.class_gradients(model, x).norms, before, 1e-12)
    assert [p.requires_grad for p in model.parameters()] == [False, False, False, True, True]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mlp", "cnn", "vit", "convnext"])
def test_half_precision_keeps_ranks(name: str, dtype: torch.dtype) -> None:
    from scipy.stats import spearmanr

    model, x = make(name, gap=6.0)
    x = torch.cat([x + 0.3 * i * torch.randn_like(x) for i in range(16)])
    wanted = (trace.class_gradients(model.float(), x.float()).norms ** 2).sum((1, 2))
    ours = (trace.class_gradients(model.to(dtype), x.to(dtype)).norms ** 2).sum((1, 2))
    assert ours.isfinite().all()
    assert spearmanr(ours, wanted).statistic >= 0.99


def test_certain_inputs_do_not_tie() -> None:
    """In float32 the loop of the papers gives exact zeros here."""
    model = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]]))
    x = torch.tensor([[40.0, 0.0], [60.0, 0.0], [90.0, 0.0]])
    ours = trace.class_gradients(model, x).norms[:, 0, 0]
    assert (trace.reference.class_gradients(model, x).norms[:, 0, 0] == 0).any()
    wanted = [size * math.exp(-size) * math.sqrt(6) for size in (40.0, 60.0, 90.0)]  # ‖x‖ ‖e_0 − p‖
    assert ours.tolist() == pytest.approx(wanted, rel=1e-6)


def test_layers_that_are_excluded() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    every = trace.class_gradients(model, x)
    for exclude in ("2", ["2"], ("[2]",)):
        found = trace.class_gradients(model, x, exclude=exclude)
        assert found.layers == ("0", "4")
        torch.testing.assert_close(found.norms, every.norms[:, :, [0, 2]], rtol=1e-12, atol=0)
    found = trace.class_gradients(model, x, layers="tensor", select="*.weight", exclude="0.*")
    assert found.layers == ("2.weight", "4.weight")
    wanted = trace.reference.class_gradients(model, x, layers="tensor", select="*.weight", exclude="0.*")
    torch.testing.assert_close(found.norms, wanted.norms, rtol=1e-9, atol=0)
    score = nescio.score(model, x, "exgrad", exclude="0")
    torch.testing.assert_close(score, nescio.score(model, x, "exgrad", select=("2", "4")), rtol=1e-12, atol=0)
    with pytest.raises(InputError, match="exclude='3' matches no layer; the layers are: 0, 2, 4"):
        trace.class_gradients(model, x, exclude="3")
    with pytest.raises(InputError, match="at least one layer that is not in exclude; got none"):
        trace.class_gradients(model, x, exclude="*")
