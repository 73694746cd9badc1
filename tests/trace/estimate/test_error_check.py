"""What is said of the errors of estimates, and that it is checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.trace.estimate import completion
from nescio.trace.estimate.cut import plan_cut
from nescio.trace.estimate.error_check import error_factor, inputs_to_check
from nescio.trace.estimate.table import TableBuilder
from nescio.types import NormSettings
from tests.trace.estimate.helpers import DECAY, deep, pictures, tables, total


@pytest.mark.parametrize("settings", [{}, {"sigma": 0.05, "samples": 3}, {"sigma": 0.05, "samples": 4, "pairs": True}])
def test_layers_of_little_weight_are_estimated_within_the_tolerance(settings: dict[str, Any]) -> None:
    model, x = deep(layers=50), pictures()
    exact = tables(model, x, **settings)
    found = tables(model, x, decay=DECAY, tolerance=0.02, **settings)
    cut = plan_cut(12, [1.0] * 50, "exact", DECAY, 0.02)
    assert cut is not None and 0 < cut.floor < cut.top
    torch.testing.assert_close(found.norms[:, :, cut.top :], exact.norms[:, :, cut.top :])
    assert not found.norms[:, :, : cut.floor].any() and found.norms[:, :, cut.floor : cut.top].all()
    wanted = total(exact, DECAY)
    assert ((total(found, DECAY) - wanted).abs() <= 0.02 * wanted).all()
    assert ((total(found, DECAY) - wanted).abs() > 1e-7 * wanted).any()  # it is an estimate
    assert found.check is not None and found.check.worst <= 0.02 and found.check.inputs == 1 and exact.check is None
    assert found.check.exact == 0
    assert found.spread is not None and (found.spread >= 0).all() and exact.spread is None


def tricky(seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A perceptron in which the first layers have most of some inputs' norms, though they have little weight."""
    torch.manual_seed(seed)
    body = [part for _ in range(14) for part in (nn.Linear(40, 40), nn.Tanh())]
    model = nn.Sequential(*body, nn.Linear(40, 10)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2.0)
    return model, 100 * torch.randn(8, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_handful_of_inputs_is_within_the_tolerance(seed: int) -> None:
    model, x = tricky(seed)
    exact = nescio.score(model, x, sigma=0.01, tolerance=0.0)
    found = nescio.score(model, x, sigma=0.01, report=True)
    assert found.check is not None and found.check.exact > 0 and found.check.inputs == 1
    assert ((found.scores / exact - 1).abs() <= 0.02).all()
    assert found.error is not None and (found.error <= 0.021).all()
    assert int((found.error == 0).sum()) == found.check.exact  # what was computed exactly has no error
    torch.testing.assert_close(found.scores[found.error == 0], exact[found.error == 0], rtol=1e-9, atol=0)
    if seed == 0:
        assert found.check.exact < len(x) and ((found.scores / exact - 1).abs()[found.error > 0] > 1e-7).any()


def test_one_input_alone_is_computed_exactly() -> None:
    model, x = tricky()
    found = nescio.score(model, x[:1], report=True)
    assert found.error is None and found.check is None
    torch.testing.assert_close(found.scores, nescio.score(model, x[:1], tolerance=0.0), rtol=1e-12, atol=0)


def test_layers_that_are_left_out_and_would_count_are_found() -> None:
    """Gradients that grow from layer to layer faster than weights fall: the first layers have it all."""

    class Waves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    torch.manual_seed(0)
    body = [part for _ in range(54) for part in (nn.Linear(12, 12), Waves())]
    model = nn.Sequential(*body, nn.Linear(12, 12)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0)
    x = pictures(6)
    cut = TableBuilder(
        Classifier.of(model), x, ("classes",), NormSettings("classes", decay=DECAY, tolerance=0.02)
    ).cut()
    assert cut is not None and cut.floor > 0
    exact = nescio.score(model, x, samples=0)
    found = nescio.score(model, x, samples=0, tolerance=0.02, report=True)
    assert found.check is not None and (found.check.inputs, found.check.exact) == (0, len(x))
    torch.testing.assert_close(found.scores, exact, rtol=1e-9, atol=0)


def test_what_the_check_finds_counts_for_every_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates that are off by more than they say: the check sees it, and all that may be wrong is computed."""
    model, x = deep(), pictures()
    exact = tables(model, x)
    honest = tables(model, x, decay=DECAY, tolerance=0.02)
    assert honest.check is not None and honest.check.exact == 0
    plain = completion.complete
    monkeypatch.setattr("nescio.trace.estimate.table.complete", lambda *a: (1.5 * (found := plain(*a))[0], found[1]))
    found = tables(model, x, decay=DECAY, tolerance=0.02)
    assert found.check is not None and found.check.worst == pytest.approx(1.25, abs=0.1)
    assert found.check.exact == len(x) and found.spread is not None and not found.spread.any()
    torch.testing.assert_close(found.norms, exact.norms)


def test_who_is_checked() -> None:
    error = torch.linspace(0.0, 0.03, 31, dtype=torch.float64)
    assert inputs_to_check(error, 0.02, 0).tolist() == [20]  # the largest that is within the tolerance
    assert not len(inputs_to_check(error + 1, 0.02, 0))
    many = torch.rand(6400, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.04
    chosen = inputs_to_check(many, 0.02, 0)
    assert len(chosen) == len(set(chosen.tolist())) == 100 and (many[chosen] <= 0.02).all()
    assert chosen[0] == torch.where(many <= 0.02, many, 0).argmax()
    assert torch.equal(chosen, inputs_to_check(many, 0.02, 0)) and not torch.equal(
        chosen, inputs_to_check(many, 0.02, 1)
    )


def test_how_many_times_larger_errors_are() -> None:
    made, error = torch.tensor([0.001, 0.004]), torch.tensor([0.01, 0.001])
    assert error_factor(made, error, 0.02) == pytest.approx(2.0)  # what is far within the tolerance does not matter
    assert error_factor(made, error, 0.002) == pytest.approx(4.0)
    assert error_factor(made[:1], error[:1], 0.02) == 1.0 and error_factor(made[:0], error[:0], 0.02) == 1.0


def test_a_report_has_the_error_and_the_check() -> None:
    model, x = deep(), pictures()
    plain = nescio.score(model, x, "regrad", sigma=0.05)
    report = nescio.score(model, x, "regrad", sigma=0.05, report=True)
    assert isinstance(report, nescio.Scored) and torch.equal(report.scores, plain)
    assert report.error is not None and report.error.shape == plain.shape and (report.error > 0).all()
    assert report.check is not None and report.check.inputs == 1 and report.check.exact == 0
    exact = nescio.score(model, x, "regrad", samples=0, report=True)
    assert exact.error is None and exact.check is None
    both = nescio.score(model, x, ["regrad", "entropy"], report=True)
    assert torch.equal(both["regrad"].scores, nescio.score(model, x)) and both["entropy"].error is None


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("classes, layers, width", [(200, 8, 64), (200, 24, 200)])
def test_the_reported_error_is_of_the_size_of_the_error_made(classes: int, layers: int, width: int, power: int) -> None:
    model, x = deep(classes, layers, width), pictures(24, width)
    plain = {"samples": 0, "layer_decay": 0.05, "power": power}
    exact = nescio.score(model, x, "regrad", classes="exact", **plain)
    found = nescio.score(model, x, "regrad", classes=40, report=True, **plain)
    cut = TableBuilder(Classifier.of(model), x[:2], ("classes",), NormSettings("classes", classes=40)).cut()
    assert cut is not None and cut.closed and len(cut.levels) == 2
    assert found.error is not None
    made = (found.scores / exact - 1).abs()
    assert made.mean() / 3 < found.error.mean() < made.mean() * 3
    assert ((found.scores / exact - 1).abs() < 3 * found.error).double().mean() > 0.9


@pytest.mark.parametrize("smoothing", ["log", "mean"])
@pytest.mark.parametrize("sigma", [0.02, 0.3])
def test_so_is_that_of_noisy_copies(sigma: float, smoothing: str) -> None:
    model, x = deep(100, 8, 64), pictures(12, 64)
    noisy = {"sigma": sigma, "samples": "auto", "smoothing": smoothing}
    exact = nescio.score(model, x, "regrad", classes="exact", tolerance=0.0, **noisy)
    found = nescio.score(model, x, "regrad", report=True, **noisy)
    settings = NormSettings("classes", classes="auto", sigma=sigma, samples=8, pairs=True)
    cut = TableBuilder(Classifier.of(model), x[:2], ("classes",), settings).cut()
    assert cut is not None and cut.closed and cut.groups == 4 and all(level.rows % 4 == 0 for level in cut.levels)
    assert found.error is not None
    made = (found.scores / exact - 1).abs()
    assert (made < 3 * found.error).double().mean() > 0.9 and made.mean() < 0.05
    assert found.error.mean() < 5 * made.mean()
