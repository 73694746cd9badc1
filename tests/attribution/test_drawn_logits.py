"""Many classes: some logits are drawn by what they have of the doubt; the map says how far it may be from all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import posteriors
from nescio.attribution import drawn_logits, explain, ua_backprop
from nescio.attribution.defaults import DRAWN
from nescio.attribution.logit_maps import PATHS
from nescio.attribution.uncertainty import KINDS
from nescio.scores.decomposition import decompose
from nescio.types import InputError


def network(seed: int, classes: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 6, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes),
    )  # fmt: skip
    nn.init.normal_(model[-1].weight, std=3.0)  # type: ignore[arg-type]
    return model.double().eval()


def ensemble(classes: int, members: int = 2) -> posteriors.DeepEnsemble:
    return posteriors.DeepEnsemble([network(seed, classes) for seed in range(members)])


def pictures(count: int = 3) -> Tensor:
    return torch.randn(count, 2, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


POSTERIORS = {
    "ensemble": lambda: ensemble(60),
    "inserted dropout": lambda: posteriors.InsertedDropout(network(0, 60), samples=20),  # two fans
    "network": lambda: posteriors.Deterministic(network(0, 60)),
}


def off(found: Any, exact: Any) -> Tensor:
    """The share of the doubt that lies elsewhere."""
    return 0.5 * (found.maps - exact.maps).abs().flatten(1).sum(1) / exact.uncertainty


@pytest.mark.parametrize("name", POSTERIORS)
def test_the_error_of_a_draw_is_the_distance_to_the_exact_map(name: str) -> None:
    """Over many seeds, for every kind of doubt: no bias, and the error that is told is the error that is made."""
    posterior, x = POSTERIORS[name](), pictures(2)
    kinds: Any = KINDS if name != "network" else ("total",)
    exact = explain(posterior, x, of=kinds, classes="exact")
    found = [explain(posterior, x, of=kinds, seed=seed) for seed in range(60)]
    for kind in kinds:
        made = torch.stack([off(one[kind], exact[kind]) for one in found])
        told = torch.stack([one[kind].error for one in found])
        assert bool((made.mean(0) < 0.15).all()) and bool((made.mean(0) > 1e-4).all())
        assert bool(((told.mean(0) / made.mean(0) - 1).abs() < 0.3).all())
        mean = torch.stack([one[kind].maps for one in found]).mean(0)
        bias = 0.5 * (mean - exact[kind].maps).abs().flatten(1).sum(1) / exact[kind].uncertainty
        assert bool((bias < 0.35 * made.mean(0)).all())  # 1/√60 = 0.13 of it is left of an error without bias


@pytest.mark.parametrize("path", PATHS)
def test_maps_of_a_draw_add_up_to_the_whole_uncertainty(path: str) -> None:
    posterior, x = ensemble(30), pictures()
    more = {"copies": 2} if path == "smoothgrad" else {}
    found = explain(posterior, x, of=KINDS, path=path, **more)
    wanted = decompose(posterior.predict(x))
    for kind, one in found.items():
        assert bool((one.residual.abs() <= 1e-12 * one.uncertainty).all())
        assert bool((one.maps >= 0).all())
        torch.testing.assert_close(one.uncertainty, getattr(wanted, kind), rtol=1e-9, atol=0)
        assert one.drawn == DRAWN and one.error is not None
        assert f"{DRAWN} of 60 maps of logits were drawn, so that about " in one.about


def test_a_kind_has_the_same_map_alone_and_among_others() -> None:
    posterior, x = ensemble(30), pictures()
    together = explain(posterior, x, of=KINDS)
    for kind in KINDS:
        alone = explain(posterior, x, of=kind)
        torch.testing.assert_close(alone.maps, together[kind].maps, rtol=1e-12, atol=0)
        torch.testing.assert_close(alone.error, together[kind].error, rtol=1e-9, atol=0)


def test_the_more_are_drawn_the_nearer_is_the_map_and_all_are_exact() -> None:
    posterior, x = ensemble(30), pictures(2)
    exact = explain(posterior, x, classes="exact")
    assert (exact.drawn, exact.error) == (0, None)
    few, many = (
        torch.stack([off(explain(posterior, x, classes=n, seed=seed), exact) for seed in range(10)]).mean()
        for n in (6, 48)
    )
    assert 0 < float(many) < 0.6 * float(few)
    every = explain(posterior, x, classes=60)
    assert every.drawn == 0
    torch.testing.assert_close(every.maps, exact.maps, rtol=0, atol=0)


def test_few_classes_are_exact_and_of_many_some_are_drawn() -> None:
    x = pictures(1)
    assert explain(ensemble(20), x).drawn == 0
    assert explain(ensemble(21), x).drawn == DRAWN
    assert explain(ensemble(21, members=30), x).drawn == 60  # each member has two


def test_rows_that_weigh_much_are_in_with_their_own_weight() -> None:
    q = torch.tensor([[0.4, 0.3, *[0.3 / 98] * 98]], dtype=torch.float64)
    for seed in range(20):
        draw = drawn_logits.drawn(torch.stack([q, 2 * q]), q, 12, seed)
        first = draw.at[0].tolist()
        assert {0, 1} <= set(first) and len(set(first)) == 12
        heavy = [first.index(0), first.index(1)]
        torch.testing.assert_close(draw.weights.sum(2)[:, 0], torch.tensor([1.0, 2.0]).double(), rtol=1e-12, atol=0)
        assert bool((draw.variances[0, 0, heavy] == 0).all())
        torch.testing.assert_close(draw.weights[1], 2 * draw.weights[0], rtol=1e-12, atol=0)


def test_the_sum_of_a_draw_is_right_on_average() -> None:
    torch.manual_seed(0)
    q = torch.rand(1, 80, dtype=torch.float64) ** 4
    value = torch.rand(80, dtype=torch.float64)
    draws = [drawn_logits.drawn(q.unsqueeze(0), q, 12, seed) for seed in range(400)]
    found = torch.stack([(d.weights[0, 0] * value[d.at[0]]).sum() for d in draws])
    wanted = float((q[0] * value).sum())
    assert abs(float(found.mean()) / wanted - 1) < 4 * float(found.std()) / wanted / 20
    middle = wanted / float(q.sum())
    told = torch.stack([(d.variances[0, 0] * (value[d.at[0]] - middle) ** 2).sum() for d in draws])
    assert 0.7 < float(told.mean().sqrt() / found.std()) < 1.4


def test_without_any_doubt_of_a_kind_nothing_is_divided_by_zero() -> None:
    same = network(0, 40)
    found = explain(posteriors.DeepEnsemble([same, same]), pictures(2), of=KINDS)
    assert bool((found["epistemic"].maps.abs() < 1e-12).all())
    assert bool((found["total"].residual.abs() <= 1e-12 * found["total"].uncertainty).all())


def test_inputs_do_not_mix_and_parts_add_up() -> None:
    posterior, x = ensemble(32, members=3), pictures(5)
    whole = explain(posterior, x, parts=True)
    chunked = explain(posterior, x, chunk=2)
    torch.testing.assert_close(chunked.maps, whole.maps, rtol=1e-10, atol=1e-15)
    turned = explain(posterior, x.flip(0))
    torch.testing.assert_close(turned.maps.flip(0), whole.maps, rtol=1e-10, atol=1e-15)
    assert whole.parts is not None and whole.error is not None and turned.error is not None
    torch.testing.assert_close(whole.parts.sum(0), whole.maps, rtol=1e-12, atol=0)
    torch.testing.assert_close(turned.error.flip(0), whole.error, rtol=1e-8, atol=0)


def test_with_a_thousand_classes_and_ten_members_there_are_sixteen_rows_and_one_traced_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[int] = []
    passes: list[int] = []
    cotangents, forward = ua_backprop._cotangents, ua_backprop.forward
    monkeypatch.setattr(ua_backprop, "_cotangents", lambda *a: rows.append(len(v := cotangents(*a))) or v)
    monkeypatch.setattr(ua_backprop, "forward", lambda *a: passes.append(1) or forward(*a))
    explain(network(0, 1000), pictures(1))
    assert (sum(rows), len(passes)) == (DRAWN, 1)


@pytest.mark.parametrize("classes", [0, -1, 1, 2.5, True, "some", None])
def test_what_classes_cannot_be(classes: Any) -> None:
    with pytest.raises(InputError, match="expected classes"):
        explain(ensemble(5), pictures(1), classes=classes)
    with pytest.raises(InputError, match="expected settings of 'gradient', got 'classes'"):
        explain(ensemble(5), pictures(1), "gradient", classes=3)
