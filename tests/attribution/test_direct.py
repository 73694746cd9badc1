"""The baselines: against Captum, plain autograd, and hand-worked cases."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from nescio import posteriors
from nescio.attribution import explain
from nescio.attribution.blur import blurred
from nescio.types import InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from captum.attr import IntegratedGradients, NoiseTunnel, Saliency


def conv_net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 2 * 3, 3)
    ).double()  # fmt: skip


MODELS = [conv_net(0), conv_net(1), conv_net(2)]
ENSEMBLE = posteriors.DeepEnsemble(MODELS)


def pictures(count: int = 3) -> Tensor:
    torch.manual_seed(5)
    return torch.randn(count, 2, 6, 8, dtype=torch.float64)


def epistemic(x: Tensor) -> Tensor:
    """The uncertainty as a plain function of the input, for Captum."""
    g = torch.stack([m(x).softmax(1) for m in MODELS])
    return -(g.mean(0) * g.mean(0).log()).sum(1) + (g * g.log()).sum(2).mean(0)


def slope(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(epistemic(x).sum(), x)[0]


def test_gradient() -> None:
    x = pictures()
    found = explain(ENSEMBLE, x, "gradient")
    torch.testing.assert_close(found.maps, slope(x).abs().mean(1), rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(found.uncertainty, epistemic(x).detach(), rtol=1e-9, atol=1e-14)


def test_smoothgrad_is_captums_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    from nescio.attribution.noisy_copies import noisy

    x = pictures(2)
    found = explain(ENSEMBLE, x, "smoothgrad", copies=4, noise=0.2, seed=3)
    drawn = torch.stack([noisy(0.2, 3, k)(x) - x for k in range(4)], 1).flatten(0, 1)
    monkeypatch.setattr(torch, "normal", lambda *a, **k: drawn)
    leaf = x.clone().requires_grad_()
    mean = NoiseTunnel(Saliency(epistemic)).attribute(leaf, nt_type="smoothgrad", nt_samples=4, abs=False)
    torch.testing.assert_close(found.maps, mean.detach().abs().mean(1), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("baseline", [0.0, 0.7, "tensor"])
def test_integrated_gradients_are_captums(baseline: float | str) -> None:
    x = pictures()
    start: Tensor | float = torch.randn(2, 6, 8, dtype=torch.float64) if isinstance(baseline, str) else baseline
    found = explain(ENSEMBLE, x, "integrated_gradients", baseline=start, steps=20)
    whole = start.expand_as(x) if isinstance(start, Tensor) else torch.full_like(x, start)
    wanted = IntegratedGradients(epistemic).attribute(x, whole, n_steps=20, method="gausslegendre").detach().sum(1)
    torch.testing.assert_close(found.maps, wanted, rtol=1e-8, atol=1e-13)
    torch.testing.assert_close(found.residual, -epistemic(whole).detach(), rtol=1e-4, atol=1e-10)


def test_blur_gradient_is_the_gradient_times_what_blurring_changes() -> None:
    x = pictures()
    found = explain(ENSEMBLE, x, "blur_gradient", sigma=2.0)
    torch.testing.assert_close(found.maps, (slope(x) * (x - blurred(x, 2.0))).sum(1), rtol=1e-9, atol=1e-14)


def test_blur_gradient_foretells_what_a_slight_blur_of_a_pixel_takes_away() -> None:
    x = pictures(1)
    maps = explain(ENSEMBLE, x, "blur_gradient", sigma=1.5).maps[0]
    softer = x.clone()
    softer[0, :, 2, 3] += 1e-6 * (blurred(x, 1.5) - x)[0, :, 2, 3]
    with torch.no_grad():
        taken = float(epistemic(x)[0] - epistemic(softer)[0]) / 1e-6
    assert taken == pytest.approx(float(maps[2, 3]), rel=1e-4)


def test_blur_ig_adds_up_to_the_difference_from_the_blurred_picture() -> None:
    x = pictures()
    found = explain(ENSEMBLE, x, "blur_ig", steps=60, sigma=3.0)
    torch.testing.assert_close(found.residual, -epistemic(blurred(x, 3.0)).detach(), rtol=1e-2, atol=1e-6)
    assert not torch.allclose(found.maps, explain(ENSEMBLE, x, "blur_ig", steps=60, sigma=1.0).maps)


def test_blur() -> None:
    x = torch.zeros(1, 1, 9, 11, dtype=torch.float64)
    x[0, 0, 4, 5] = 1.0
    y = blurred(x, 0.8)[0, 0]
    at = torch.arange(-2, 3, dtype=torch.float64)
    kernel = (-at.square() / (2 * 0.8**2)).exp()
    torch.testing.assert_close(
        y[4, 3:8] / y[4, 5], kernel, rtol=1e-5, atol=0
    )  # rows at the edge have a little more weight
    torch.testing.assert_close(y.sum(), torch.tensor(1.0, dtype=torch.float64), rtol=1e-3, atol=0)
    z = pictures(1)
    torch.testing.assert_close(blurred(z, 1e6), z.mean((2, 3), keepdim=True).expand_as(z), rtol=1e-6, atol=1e-6)
    assert blurred(z, 0.0) is z
    last = z.movedim(1, 3)
    torch.testing.assert_close(blurred(last, 1.3, channels=3), blurred(z, 1.3).movedim(1, 3))


def test_fullgrad_of_the_uncertainty() -> None:
    x = pictures(2)
    y = x.clone().requires_grad_()
    inner = [m[0](y) for m in MODELS]
    g = torch.stack([m[1:](h).softmax(1) for m, h in zip(MODELS, inner, strict=True)])
    u = -(g.mean(0) * g.mean(0).log()).sum() + (g * g.log()).sum(2).mean(0).sum()
    gx, *gh = torch.autograd.grad(u, [y, *inner])
    wanted = (gx * x).abs().mean(1)
    for m, h in zip(MODELS, gh, strict=True):
        term = (h * m[0].bias.detach().view(-1, 1, 1)).abs().mean(1, keepdim=True)
        wanted = wanted + nn.functional.interpolate(term, (6, 8), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(explain(ENSEMBLE, x, "fullgrad").maps, wanted, rtol=1e-9, atol=1e-14)


def test_errors() -> None:
    x = pictures()
    with pytest.raises(InputError, match="expected a baseline like one input, of shape"):
        explain(ENSEMBLE, x, "integrated_gradients", baseline=torch.zeros(5))
    with pytest.raises(InputError, match="expected a baseline of finite floats"):
        explain(ENSEMBLE, x, "integrated_gradients", baseline=torch.tensor(torch.nan))
    with pytest.raises(InputError, match="expected steps to be a whole number of at least 1"):
        explain(ENSEMBLE, x, "blur_ig", steps=0)
    tabular = posteriors.DeepEnsemble([nn.Linear(4, 3), nn.Linear(4, 3)])
    with pytest.raises(InputError, match=r"expected pictures \[N, channels, H, W\] to blur"):
        explain(tabular, torch.randn(2, 4), "blur_ig")
    with pytest.raises(InputError, match="to blur"):
        explain(tabular, torch.randn(2, 4), "blur_gradient")


@pytest.mark.parametrize("posterior", [ENSEMBLE, posteriors.InsertedDropout(MODELS[0], samples=3)], ids=["five", "one"])
def test_signed_ua_backprop_has_its_magnitudes_and_the_signs_of_the_blur_gradient(posterior) -> None:
    x = pictures()
    kinds = ("epistemic", "total")
    signed, plain = (explain(posterior, x, of=kinds, path="gradient", signed=on) for on in (True, False))
    for kind in kinds:
        signs = explain(posterior, x, "blur_gradient", of=kind).maps.sign()
        assert {-1.0, 1.0} <= set(signs.unique().tolist())
        torch.testing.assert_close(signed[kind].maps, plain[kind].maps * signs, rtol=1e-9, atol=1e-14)
    assert "signed" in signed["total"].about
