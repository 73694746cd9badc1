"""Maps add up to the uncertainty, for every kind, path and type of number, on random networks."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import nn

from nescio import posteriors
from nescio.attribution import Attribution, explain
from nescio.attribution.logit_maps import PATHS
from nescio.attribution.uncertainty import KINDS, by_class, by_logit, slopes, value
from nescio.scores.decomposition import decompose
from nescio.types import InputError
from nescio_papers import zoo

BOUND = {torch.float32: 1e-6, torch.float64: 1e-12}


def network(seed: int, channels: int, classes: int, sharp: float, norm: bool) -> nn.Module:
    torch.manual_seed(seed)
    middle = [nn.BatchNorm2d(4)] if norm else []
    model = nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1), *middle, nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 5, 2),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, classes),
    )  # fmt: skip
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
    with torch.no_grad():
        model[-1].weight *= sharp
    return model.eval()


class Autocast(nn.Module):
    """A network that computes in half precision by itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


def complete(found: Attribution, bound: float) -> None:
    """The maps add up to the uncertainty, within a bound relative to it."""
    off = (found.maps.flatten(1).sum(1) - found.uncertainty).abs()
    assert bool((off <= bound * found.uncertainty).all()), (off / found.uncertainty).max()
    torch.testing.assert_close(found.residual, found.maps.flatten(1).sum(1) - found.uncertainty, rtol=0, atol=0)
    assert bool((found.maps >= 0).all())


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    seed=st.integers(0, 10**6),
    members=st.integers(2, 3),
    channels=st.integers(1, 3),
    classes=st.integers(2, 5),
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    sharp=st.sampled_from([0.01, 1.0, 30.0, 1e3]),
    norm=st.booleans(),
    of=st.sampled_from(KINDS),
    path=st.sampled_from(PATHS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    taus=st.sampled_from([(0.3, 0.1), (0.01, 1e-3), (10.0, 10.0)]),
)
def test_maps_add_up_to_the_uncertainty(
    seed: int, members: int, channels: int, classes: int, size: tuple[int, int], sharp: float, norm: bool,
    of: Any, path: str, dtype: torch.dtype, taus: tuple[float, float],
) -> None:  # fmt: skip
    models = [network(seed + at, channels, classes, sharp, norm).to(dtype) for at in range(members)]
    x = torch.randn(2, channels, *size, dtype=dtype)
    more = {"copies": 2} if path == "smoothgrad" else {}
    ensemble = posteriors.DeepEnsemble(models)
    found = explain(ensemble, x, of=of, path=path, tau1=taus[0], tau2=taus[1], **more)
    assert found.maps.shape == (2, *size)
    assert found.maps.dtype == torch.float64
    complete(found, BOUND[dtype])
    wanted = getattr(decompose(ensemble.predict(x)), of)
    torch.testing.assert_close(found.uncertainty, wanted, rtol=1e-3 if dtype == torch.float32 else 1e-7, atol=1e-14)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_deep_networks(kind: str, path: str) -> None:
    make = {
        "resnet": lambda: zoo.resnet18_cifar(3),
        "vit": lambda: zoo.small_vit(classes=3, size=16, width=12, depth=2, heads=2),
    }[kind]
    ensemble = posteriors.DeepEnsemble([make().eval() for _ in range(2)])
    more = {"copies": 2} if path == "smoothgrad" else {}
    found = explain(ensemble, torch.rand(2, 3, 16, 16), path=path, **more)
    complete(found, 1e-6)
    assert bool((found.maps.flatten(1).std(1) > 0).all())


def test_parts_of_members_add_up_to_the_map() -> None:
    ensemble = posteriors.DeepEnsemble([network(at, 1, 3, 1.0, True).double() for at in range(3)])
    x = torch.randn(4, 1, 6, 7, dtype=torch.float64)
    found = explain(ensemble, x, parts=True, chunk=2)
    assert found.parts is not None and found.parts.shape == (3, 4, 6, 7)
    torch.testing.assert_close(found.parts.sum(0), found.maps, rtol=1e-12, atol=0)
    sums = found.parts.flatten(2).sum(2)  # every member hands on the same share of U
    torch.testing.assert_close(sums, (found.uncertainty / 3).expand(3, -1), rtol=1e-12, atol=0)
    assert explain(ensemble, x).parts is None


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 0.1, 1.0, 5.0, 60.0]), of=st.sampled_from(KINDS)
)
def test_class_parts_and_logit_shares_as_the_paper_writes_them(seed: int, scale: float, of: str) -> None:
    torch.manual_seed(seed)
    z = scale * torch.randn(4, 3, 5, dtype=torch.float64)
    g, mean = z.softmax(-1), z.softmax(-1).mean(0)
    total, aleatoric = torch.special.entr(mean), torch.special.entr(g).mean(0)
    wanted = {"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}[of]
    parts = by_class(z, of)
    torch.testing.assert_close(parts, wanted, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(parts.sum(1), value(z, of), rtol=1e-12, atol=0)
    torch.testing.assert_close(value(z, of), getattr(decompose(g), of), rtol=1e-8, atol=1e-14)
    tau = 0.3
    identity = torch.eye(5, dtype=torch.float64)
    c = ((identity - g.unsqueeze(2)) / tau).softmax(-1)  # [s, n, j, i]
    torch.testing.assert_close(by_logit(z, parts, tau), torch.einsum("snji,nj->sni", c, parts), rtol=1e-10, atol=1e-300)


def test_the_coefficients_are_the_normalised_softmax_gradients() -> None:
    """Eq. 8 from autograd's own ∂g_j/∂z_i, against the closed form."""
    z = torch.randn(1, 1, 4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda u: u.softmax(0), z[0, 0])  # [j, i]
    g, tau = z[0, 0].softmax(0), 0.3
    c = (jacobian / (g.unsqueeze(1) * tau)).softmax(1)
    parts = torch.rand(1, 4, dtype=torch.float64)
    torch.testing.assert_close(by_logit(z, parts, tau)[0, 0], parts[0] @ c, rtol=1e-12, atol=0)


@pytest.mark.parametrize("of", KINDS)
def test_slopes_are_the_gradient_of_the_uncertainty(of: str) -> None:
    z = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    g = z.softmax(-1)
    total, aleatoric = -(g.mean(0) * g.mean(0).log()).sum(), -(g * g.log()).mean(0).sum()
    u = {"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}[of]
    (wanted,) = torch.autograd.grad(u, z)
    torch.testing.assert_close(slopes(z.detach(), of), wanted, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(value(z.detach(), of).sum(), u.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", ["ua_backprop", "gradient"])
def test_several_kinds_at_once_are_those_one_by_one(method):
    posterior = posteriors.DeepEnsemble([network(seed, 2, 4, 3.0, True).double() for seed in range(3)])
    x = torch.randn(5, 2, 7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    more = {"parts": True} if method == "ua_backprop" else {}
    found = explain(posterior, x, method, of=KINDS, chunk=2, **more)
    assert tuple(found) == KINDS
    for kind, one in found.items():
        alone = explain(posterior, x, method, of=kind, **more)
        assert (one.of, one.about) == (kind, alone.about)
        torch.testing.assert_close(one.maps, alone.maps, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(one.uncertainty, alone.uncertainty, rtol=1e-12, atol=0)
        assert (one.parts is None) == (alone.parts is None)
        if one.parts is not None:
            torch.testing.assert_close(one.parts, alone.parts, rtol=1e-12, atol=1e-15)
    with pytest.raises(InputError, match="at least one kind of uncertainty, got none"):
        explain(posterior, x, method, of=())
    with pytest.raises(InputError, match="expected of= to be one of 'epistemic'"):
        explain(posterior, x, method, of=("total", "both"))


@pytest.mark.parametrize("path", PATHS)
def test_under_autocast(path: Any) -> None:
    """Around the call, and inside of the networks."""
    networks = [network(seed, 2, 3, 2.0, True) for seed in range(2)]
    x = torch.rand(3, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        complete(explain(posteriors.DeepEnsemble(networks), x, path=path, of="total"), 1e-6)
    inside = posteriors.DeepEnsemble([Autocast(one) for one in networks])
    complete(explain(inside, x, path=path, of="total"), 1e-6)
