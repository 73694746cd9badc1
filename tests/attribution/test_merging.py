"""Many classes: the likeliest each by itself, the others as one; no doubt is lost on the way."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor, nn

from nescio import posteriors
from nescio.attribution import explain, merging
from nescio.attribution.paths import PATHS
from nescio.attribution.uncertainty import KINDS, by_class, by_logit, value
from nescio.scores.decomposition import decompose
from nescio.types import InputError


def network(seed: int, classes: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 6, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes),
    ).double().eval()  # fmt: skip


def ensemble(classes: int, members: int = 2) -> posteriors.DeepEnsemble:
    models = [network(seed, classes) for seed in range(members)]
    for model in models:  # type: Any
        nn.init.normal_(model[-1].weight, std=3.0)
    return posteriors.DeepEnsemble(models)


def pictures(count: int = 3) -> Tensor:
    return torch.randn(count, 2, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    seed=st.integers(0, 10**6), members=st.integers(1, 4), classes=st.integers(3, 30), k=st.integers(1, 30),
    scale=st.sampled_from([1e-6, 0.1, 1.0, 5.0, 60.0]),
)  # fmt: skip
def test_merging_never_adds_doubt(seed: int, members: int, classes: int, k: int, scale: float) -> None:
    torch.manual_seed(seed)
    z = scale * torch.randn(members, 3, classes, dtype=torch.float64)
    stay = merging.staying(z, k)
    few = merging.merged(z, stay)
    p, q = z.softmax(-1), few.softmax(-1)
    if k >= classes - 1:
        assert stay is None
        torch.testing.assert_close(few, z, rtol=0, atol=0)
        return
    assert stay is not None and stay.shape == (3, k)
    wanted = p.mean(0).sort(dim=-1, descending=True).values[:, :k]
    torch.testing.assert_close(q.mean(0)[:, :k], wanted, rtol=1e-10, atol=1e-300)  # the likeliest, falling
    torch.testing.assert_close(q[:, :, k], 1.0 - q[:, :, :k].sum(-1), rtol=0, atol=1e-12)
    for kind in KINDS:
        whole = getattr(decompose(p), kind)
        assert bool((getattr(decompose(q), kind) <= whole * (1 + 1e-9) + 1e-14).all())
        parts = by_class(z, kind)
        torch.testing.assert_close(merging.added(parts, stay).sum(-1), value(z, kind), rtol=1e-12, atol=0)
        # the chain rule: what a merged class has more is the doubt inside
        assert bool((merging.added(parts, stay)[:, k] >= by_class(few, kind)[:, k] * (1 - 1e-6) - 1e-12).all())


def test_cotangents_are_the_gradients_of_the_merged_logits() -> None:
    z = torch.randn(2, 9, dtype=torch.float64)
    stay = merging.staying(z.unsqueeze(0), 3)
    jacobian = torch.autograd.functional.jacobian(lambda u: merging.merged(u, stay), z)  # [N, K, N, C]
    wanted = torch.stack([jacobian[n, :, n] for n in range(2)], 1)
    torch.testing.assert_close(merging.cotangents(z, stay, slice(0, 4)), wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(merging.cotangents(z, stay, slice(2, 4)), wanted[2:], rtol=1e-12, atol=0)
    every = merging.cotangents(z, None, slice(1, 3))
    torch.testing.assert_close(every, torch.eye(9, dtype=torch.float64)[1:3, None].expand(-1, 2, -1), rtol=0, atol=0)


def test_classes_that_are_ruled_out_have_no_gradient() -> None:
    z = torch.tensor([[3.0, 2.0, -torch.inf, -torch.inf]])
    stay = merging.staying(z.unsqueeze(0), 2)
    found = merging.cotangents(z, stay, slice(0, 3))
    torch.testing.assert_close(found, torch.tensor([[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]], [[0, 0, 0, 0]]]))
    torch.testing.assert_close(merging.merged(z, stay), torch.tensor([[3.0, 2.0, -torch.inf]]))


@pytest.mark.parametrize("path", PATHS)
def test_maps_of_merged_classes_add_up_to_the_whole_uncertainty(path: str) -> None:
    posterior, x = ensemble(30), pictures()
    more = {"copies": 2} if path == "smoothgrad" else {}
    found = explain(posterior, x, of=KINDS, path=path, **more)
    wanted = decompose(posterior.predict(x))
    few = merging.merged(posterior.logits(x), merging.staying(posterior.logits(x), 9))
    for kind, one in found.items():
        assert bool((one.residual.abs() <= 1e-12 * one.uncertainty).all())
        assert bool((one.maps >= 0).all())
        torch.testing.assert_close(one.uncertainty, getattr(wanted, kind), rtol=1e-9, atol=0)
        assert one.merged == 21 and one.share is not None
        torch.testing.assert_close(one.share, value(few, kind) / getattr(wanted, kind), rtol=1e-9, atol=0)
        assert bool(((one.share > 0) & (one.share < 1)).all())
        assert one.about.endswith("the 21 classes behind the 9 likeliest are taken together as one")


def test_maps_are_those_of_a_network_that_merges_its_classes_itself() -> None:
    """Each input, member and class on its own, by plain autograd."""
    posterior, x = ensemble(8), pictures(2)
    found = explain(posterior, x, of="total", path="gradient", classes=3, tau1=0.2, tau2=0.3)
    models: list[Any] = [classifier.model for classifier in posterior.classifiers]
    for n in range(2):
        p = torch.stack([model(x[n : n + 1])[0].detach().softmax(0) for model in models])
        top = p.mean(0).argsort(descending=True)[:3].tolist()
        rest = [c for c in range(8) if c not in top]
        u = torch.special.entr(p.mean(0))
        parts = torch.stack([*(u[c] for c in top), u[rest].sum()])
        total = torch.zeros(6, 7, dtype=torch.float64)
        for model in models:
            one = x[n : n + 1].clone().requires_grad_()
            z = model(one)[0]
            logits = torch.stack([*(z[c] for c in top), z[rest].exp().sum().log()])
            shares = by_logit(logits.detach().view(1, 1, 4), parts.unsqueeze(0), 0.2)[0, 0]
            for share, logit in zip(shares, logits, strict=True):
                (slope,) = torch.autograd.grad(logit, one, retain_graph=True)
                m = slope.abs().mean(1)[0]
                m = (m - m.min()) / (m.max() - m.min())
                total += share * (m / 0.3).flatten().softmax(0).view(6, 7) / len(models)
        torch.testing.assert_close(found.maps[n], total, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("k", [4, 5, 100])
def test_with_as_many_as_there_are_nothing_is_merged(k: int) -> None:
    posterior, x = ensemble(5), pictures()
    plain, found = explain(posterior, x), explain(posterior, x, classes=k)
    torch.testing.assert_close(found.maps, plain.maps, rtol=0, atol=0)
    assert (found.merged, found.share, found.about) == (0, None, plain.about)


def test_few_classes_are_exact_and_many_are_merged() -> None:
    x = pictures(2)
    assert explain(ensemble(20), x).merged == 0
    many = ensemble(21)
    assert explain(many, x).merged == 12
    exact = explain(many, x, classes="exact")
    assert (exact.merged, exact.share) == (0, None)
    near = explain(many, x, classes=19)
    assert near.merged == 2
    torch.testing.assert_close(near.uncertainty, exact.uncertainty, rtol=0, atol=0)
    # two unlikely classes hardly change the map
    off = (near.maps - exact.maps).abs().flatten(1).sum(1) / exact.uncertainty
    assert bool((off < 0.1).all()) and bool((off > 0).all())


def test_inputs_do_not_mix_and_parts_add_up() -> None:
    posterior, x = ensemble(12, members=3), pictures(5)
    whole = explain(posterior, x, classes=3, parts=True)
    chunked = explain(posterior, x, classes=3, parts=True, chunk=2)
    torch.testing.assert_close(chunked.maps, whole.maps, rtol=1e-10, atol=1e-15)
    turned = explain(posterior, x.flip(0), classes=3)
    torch.testing.assert_close(turned.maps.flip(0), whole.maps, rtol=1e-10, atol=1e-15)
    assert whole.parts is not None and whole.share is not None and turned.share is not None
    torch.testing.assert_close(whole.parts.sum(0), whole.maps, rtol=1e-12, atol=0)
    torch.testing.assert_close(turned.share.flip(0), whole.share, rtol=1e-10, atol=0)


def test_many_passes_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 300 classes a member's pass has ten rows."""
    rows: list[int] = []
    plain = merging.cotangents

    def counted(*given: Any) -> Tensor:
        rows.append(len(found := plain(*given)))
        return found

    monkeypatch.setattr(merging, "cotangents", counted)
    explain(ensemble(300), pictures(1))
    assert rows == [10, 10]


@pytest.mark.parametrize("classes", [0, -1, 2.5, True, "some", None])
def test_what_classes_cannot_be(classes: Any) -> None:
    with pytest.raises(InputError, match="expected classes"):
        explain(ensemble(5), pictures(1), classes=classes)
    with pytest.raises(InputError, match="expected settings of 'gradient', got 'classes'"):
        explain(ensemble(5), pictures(1), "gradient", classes=3)
