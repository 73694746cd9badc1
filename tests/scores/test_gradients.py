"""The gradient scores against a plain autograd oracle, against hand-worked cases, and in their limits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import nescio
from nescio import scores
from nescio.quantities import GradientNorms
from nescio.trace import reference
from nescio.types import NormTable

CLASSES = ["ungrad", "exgrad", "regrad"]


def combine(layers: list[Tensor], decay: float, norm: int, variant: str) -> Tensor:
    """‖g‖ of one class, word for word from the definition."""
    last = len(layers)
    weights = [math.exp(decay * (number - last)) for number in range(1, last + 1)]
    if norm == 1:
        return sum(a * g.abs().sum() for a, g in zip(weights, layers, strict=True))
    if variant == "literal":
        return sum(a * g.square().sum().sqrt() for a, g in zip(weights, layers, strict=True))
    return sum(a * g.square().sum() for a, g in zip(weights, layers, strict=True)).sqrt()


def expected(
    name: str, p: Tensor, by_class: list[list[Tensor]], decay: float, norm: int, variant: str, power: int
) -> Tensor:
    def strength(layers: list[Tensor]) -> Tensor:
        return combine(layers, decay, norm, variant)

    count = len(by_class)
    mean = [sum(parts) / count for parts in zip(*by_class, strict=True)]
    return {
        "ungrad": lambda: sum(strength(g) for g in by_class) / count,
        "gradnorm": lambda: -strength(mean),
        "exgrad": lambda: sum(p[c] * strength(g) for c, g in enumerate(by_class)),
        "regrad": lambda: sum(p[c].sqrt() * strength(g) ** power for c, g in enumerate(by_class)),
    }[name]()


@pytest.mark.parametrize("name", [*CLASSES, "gradnorm"])
@pytest.mark.parametrize(
    ("decay", "norm", "variant"),
    [
        (None, 2, "squares"),
        (0.3, 2, "squares"),
        (0.3, 2, "literal"),
        (None, 2, "literal"),
        (0.4, 1, "squares"),
    ],
)
@pytest.mark.parametrize("smoothed", [False, True])
def test_each_score_is_its_formula(
    name: str, decay: float | None, norm: int, variant: str, smoothed: bool, model: Any, x: Tensor, oracle: Any
) -> None:
    x, noise = x[:4], None
    settings: dict[str, Any] = {"layer_decay": decay, "norm": norm, "variant": variant, "samples": 0}
    if smoothed:
        generator = torch.Generator("cpu").manual_seed(9)
        noise = 0.2 * torch.randn(3, *x.shape[1:], generator=generator).double()
        settings |= {"sigma": 0.2, "samples": 3, "seed": 9}
    for power in [1, 2] if name == "regrad" else [2]:
        own = {"power": power} if name == "regrad" else {}
        found = nescio.score(model, x, name, **settings, **own)
        truth = [expected(name, p, g, decay or 0.0, norm, variant, power) for p, g in oracle(model, x, noise)]
        torch.testing.assert_close(found, torch.stack(truth), rtol=1e-9, atol=1e-15)


def test_smoothing_by_the_mean_probability(model: Any, x: Tensor) -> None:
    """With smoothing="mean" the gradient is that of the logarithm of the mean probability over the copies."""
    generator = torch.Generator("cpu").manual_seed(0)
    noise = 0.5 * torch.randn(3, *x.shape[1:], generator=generator).double()
    model.eval()
    p = model(torch.cat([x[:1], x[:1] + noise])).softmax(1)
    truth = 0.0
    for c in range(3):
        grads = torch.autograd.grad(p[:, c].mean().log(), list(model.parameters()), retain_graph=True)
        truth += p[0, c].item() * math.sqrt(sum(g.square().sum().item() for g in grads))
    settings: dict[str, Any] = {"sigma": 0.5, "samples": 3}
    assert nescio.score(model, x[:1], "exgrad", smoothing="mean", **settings).item() == pytest.approx(truth, rel=1e-9)
    assert nescio.score(model, x[:1], "exgrad", smoothing="log", **settings).item() != pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("layers", ["module", "tensor"])
@pytest.mark.parametrize("select", [None, ["conv*", "head*"]])
def test_the_shipped_reference_agrees(model: Any, x: Tensor, layers: str, select: list[str] | None) -> None:
    settings: dict[str, Any] = {"layers": layers, "select": select, "sigma": 0.1, "samples": 2, "seed": 4}
    truth = reference.class_gradients(model, x, **settings)
    table = NormTable(truth.norms, truth.probabilities, truth.layers)
    assert len(truth.layers) == (4 if select is None else 2) * (2 if layers == "tensor" else 1)
    for name in CLASSES:
        method = scores.get(name, layer_decay=0.2, **settings)
        torch.testing.assert_close(nescio.score(model, x, method), method(table), rtol=1e-9, atol=0.0)


def linear(weight: list[list[float]]) -> nn.Linear:
    model = nn.Linear(len(weight[0]), len(weight), bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight, dtype=torch.float64))
    return model


def test_a_case_worked_by_hand() -> None:
    """z = W x with p = (1/4, 3/4) and ‖x‖₂ = 5: g_c = (e_c − p) xᵀ, ‖e_1 − p‖ = ¾√2, ‖e_2 − p‖ = ¼√2."""
    model = linear([[0.0, 0.0], [math.log(3.0) / 3.0, 0.0]])
    x = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    first, second = 0.75 * math.sqrt(2) * 5, 0.25 * math.sqrt(2) * 5
    plain = {"layer_decay": None, "samples": 0}
    assert nescio.score(model, x, "ungrad").item() == pytest.approx((first + second) / 2, rel=1e-12)
    assert nescio.score(model, x, "exgrad").item() == pytest.approx(first / 4 + 3 * second / 4, rel=1e-12)
    assert nescio.score(model, x, "regrad", power=1, **plain).item() == pytest.approx(
        math.sqrt(0.25) * first + math.sqrt(0.75) * second, rel=1e-12
    )
    assert nescio.score(model, x, "regrad", power=2, **plain).item() == pytest.approx(
        math.sqrt(0.25) * first**2 + math.sqrt(0.75) * second**2, rel=1e-12
    )
    # (1/2, 1/2) − p = (1/4, −1/4): L2 norm 5√2/4, L1 norm 7/2
    assert nescio.score(model, x, "gradnorm").item() == pytest.approx(-5 * math.sqrt(2) / 4, rel=1e-12)
    assert nescio.score(model, x, "gradnorm", norm=1).item() == pytest.approx(-3.5, rel=1e-12)
    assert nescio.score(model, x, "gradnorm", as_published=True).item() == pytest.approx(
        5 * math.sqrt(2) / 4, rel=1e-12
    )


def test_exgrad_of_the_last_layer_in_closed_form(model: Any, x: Tensor) -> None:
    """Last weight, L1: 2‖h‖₁ Σ_c p_c(1 − p_c)."""
    found = nescio.score(model, x, "exgrad", norm=1, layers="tensor", select="head.weight")
    model.eval()
    with torch.no_grad():
        h = torch.tanh(model.hidden(model.act(model.norm(model.conv(x))).flatten(1)))
        p = model.head(h).softmax(1)
    torch.testing.assert_close(found, 2 * h.abs().sum(1) * (p * (1 - p)).sum(1), rtol=1e-10, atol=0.0)


def test_negrad_is_nothing_but_round_off(make: Callable[..., nn.Module], x: Tensor) -> None:
    scale = nescio.score(make(), x, "exgrad")
    assert (nescio.score(make(), x, "negrad") < 1e-13 * scale).all()
    single = nescio.score(make(torch.float32), x, "negrad")
    assert (single < 1e-5 * scale).all()
    assert (nescio.score(make(), x, "negrad", sigma=0.5, samples=3) > 1e-3 * scale).any()


def test_gradnorm_falls_with_confidence() -> None:
    x = torch.tensor([[1.0]], dtype=torch.float64)
    sure, between, unsure = (nescio.score(linear([[0.0], [gap]]), x, "gradnorm") for gap in (9.0, 2.0, 0.1))
    assert sure < between < unsure < 0


tables = st.integers(1, 4).flatmap(
    lambda layers: st.lists(st.lists(st.floats(1e-3, 1e3), min_size=layers, max_size=layers), min_size=2, max_size=5)
)


def table(norms: list[list[float]], factor: float = 1.0) -> NormTable:
    values = torch.tensor([norms], dtype=torch.float64) * factor
    p = torch.linspace(1.0, 2.0, len(norms), dtype=torch.float64).softmax(0)[None]
    return NormTable(values, p, tuple(f"layer{i}" for i in range(len(norms[0]))))


@given(tables)
def test_without_decay_squares_is_the_norm_of_the_whole_gradient(norms: list[list[float]]) -> None:
    whole = torch.tensor([norms], dtype=torch.float64).square().sum(-1).sqrt()
    one = NormTable(whole[..., None], table(norms).probabilities, ("all",))
    for name in CLASSES:
        method = scores.get(name, layer_decay=0.0)
        torch.testing.assert_close(method(table(norms)), method(one), rtol=1e-12, atol=0.0)
        torch.testing.assert_close(
            scores.get(name, layer_decay=1e-9)(table(norms)), method(table(norms)), rtol=1e-7, atol=0.0
        )


@given(tables, st.floats(0.0, 2.0))
def test_with_norm_1_the_variants_are_one(norms: list[list[float]], decay: float) -> None:
    for name in CLASSES:
        pair = [scores.get(name, norm=1, layer_decay=decay, variant=v)(table(norms)) for v in ("squares", "literal")]
        assert torch.equal(*pair)


@given(tables, st.floats(0.01, 100.0), st.sampled_from(["squares", "literal"]), st.sampled_from([1, 2]))
def test_scaled_gradients_scale_the_scores(norms: list[list[float]], factor: float, variant: str, power: int) -> None:
    for name, degree in [("ungrad", 1), ("exgrad", 1), ("regrad", power)]:
        method = scores.get(name, layer_decay=0.3, variant=variant, **({"power": power} if name == "regrad" else {}))
        torch.testing.assert_close(
            method(table(norms, factor)), method(table(norms)) * factor**degree, rtol=1e-11, atol=0.0
        )


@given(tables, st.floats(0.0, 3.0))
def test_a_layer_more_never_lowers_and_decay_never_raises_the_score(norms: list[list[float]], decay: float) -> None:
    method, plain = scores.ExGrad(layer_decay=decay), scores.ExGrad()
    assert method(table(norms)) <= plain(table(norms)) * (1 + 1e-12)
    last = table([row[-1:] for row in norms])
    assert method(table(norms)) >= method(last) * (1 - 1e-12)


def test_only_the_last_layer_counts_under_strong_decay_and_nothing_overflows() -> None:
    norms = torch.rand(2, 3, 500, dtype=torch.float64)
    p = torch.full((2, 3), 1 / 3, dtype=torch.float64)
    many, last = NormTable(norms, p, ("l",) * 500), NormTable(norms[..., -1:], p, ("l",))
    strong = scores.REGrad(layer_decay=60.0)
    torch.testing.assert_close(strong(many), strong(last), rtol=1e-12, atol=0.0)
    assert scores.REGrad(layer_decay=0.4, variant="literal")(many).isfinite().all()


def test_tiny_norms_keep_their_order() -> None:
    norms = torch.tensor([[[1e-200, 3e-200]], [[2e-200, 3e-200]]], dtype=torch.float64)
    u = scores.UNGrad()(NormTable(norms, torch.ones(2, 1, dtype=torch.float64), ("a", "b")))
    torch.testing.assert_close(u, torch.tensor([math.sqrt(10), math.sqrt(13)]).double() * 1e-200, rtol=1e-7, atol=0.0)


def test_no_noise_unless_both_sigma_and_samples_are_given() -> None:
    plain = (GradientNorms("classes", classes="auto"),)
    assert scores.ExGrad(sigma=0.1, seed=3).needs == plain
    assert scores.ExGrad(samples=9, smoothing="mean").needs == plain
    assert scores.ExGrad(sigma=0.1, samples=9, seed=3).needs == (
        GradientNorms("classes", sigma=0.1, samples=9, seed=3, classes="auto"),
    )
    assert scores.REGrad(samples=0).needs == scores.UNGrad().needs == plain


def test_the_defaults_are_the_papers_but_for_the_copies_and_their_noise() -> None:
    best = scores.REGrad()
    assert (best.layer_decay, best.sigma, best.samples, best.power, best.norm) == (0.3, 0.0, "auto", 2, 2)
    for name in ("negrad", "ungrad", "gradnorm", "exgrad"):
        method = scores.get(name)
        assert (method.layer_decay, method.sigma, method.samples, method.norm) == (None, 0.0, 0, 2)
        assert (method.variant, method.layers, method.select, method.seed) == ("squares", "module", None, 0)
