"""The head in closed form: the oracle's norms, for every class, also where the model is all but certain."""

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from nescio.models import Classifier
from nescio.trace.backward.cotangents import Smoothing
from nescio.trace.estimate.cut import plan_cut
from nescio.trace.probe import linear_head, passes
from nescio.trace.probe.layers import find_layers
from nescio.trace.runtime import noise
from nescio.types import ClassGradients


class Plain(nn.Module):
    """A product with the transposed weight, without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.weight = nn.Parameter(torch.randn(7, 5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.body(x)) @ self.weight.T


class Scaled(Plain):
    """Logits that are not what the product gave."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


class Tied(Plain):
    """A weight that is used twice."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(self.body(x)) @ self.weight.T @ self.weight) @ self.weight.T


def sequence(sharp: float = 1.0) -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 7))
    with torch.no_grad():
        model[-1].weight *= sharp
    return model


def head_of(
    model: nn.Module, x: Tensor, layers: str, copies: int = 1, smoothing: Smoothing = "log"
) -> tuple[int, Tensor, Tensor, Tensor]:
    classifier = Classifier.of(model)
    with torch.enable_grad():
        run = passes.forward(classifier, x)
    table = find_layers(run.graph, classifier.parameters(), layers, None)
    count = linear_head.head_layers(run.graph, run.logits, table, run.plan.fast)
    if not count:
        return 0, torch.empty(0), torch.empty(0), torch.empty(0)
    head = linear_head.Head(run.graph, run.logits, run.z, copies, smoothing)
    return count, head.norms(table.part(len(table.names) - count)), *head.below()


@pytest.mark.parametrize("layers, count", [("module", 1), ("tensor", 2)])
@pytest.mark.parametrize("sharp", [1.0, 40.0])
def test_the_heads_norms_are_the_oracles_for_every_class(layers: str, count: int, sharp: float) -> None:
    torch.manual_seed(0)
    model, x = sequence(sharp).double().eval(), torch.randn(4, 6).double()
    found, norms, at_features, lying = head_of(model, x, layers)
    exact = trace.reference.class_gradients(model, x, layers=layers)
    assert found == count
    torch.testing.assert_close(norms.transpose(0, 1), exact.norms[:, :, -count:], rtol=1e-9, atol=0.0)
    for i, one in enumerate(x):
        features = model[:-1](one.unsqueeze(0)).detach().requires_grad_()
        log_p = model[-1](features).log_softmax(1)[0]
        for c in range(7):
            (g,) = torch.autograd.grad(log_p[c], features, retain_graph=True)
            tiny = 1e-12 if sharp == 1.0 else 1e-9  # autograd's own round-off, for a class that is all but certain
            assert at_features[c, i].sqrt().item() == pytest.approx(g.norm().item(), rel=1e-6, abs=tiny)
            large = (g.square() * features.abs()).sum() / g.square().sum()
            along = (g * features).sum().square() / g.square().sum()
            if g.norm() > 1e3 * tiny:
                assert lying[:, c, i].tolist() == pytest.approx([large.item(), along.item()], rel=1e-6)


@pytest.mark.parametrize("layers", ["module", "tensor"])
@pytest.mark.parametrize("smoothing", ["log", "mean"])
@pytest.mark.parametrize("sharp, sigma", [(1.0, 0.3), (40.0, 0.1), (200.0, 0.01), (40.0, 3.0)])
def test_of_noisy_copies_too(layers: str, smoothing: Smoothing, sharp: float, sigma: float) -> None:
    torch.manual_seed(0)
    model, x = sequence(sharp).double().eval(), torch.randn(4, 6).double()
    noisy = noise.copies(x, sigma, 5, 0)
    _, norms, at_features, lying = head_of(model, noisy, layers, 6, smoothing)
    exact = trace.reference.class_gradients(model, x, layers=layers, sigma=sigma, samples=5, smoothing=smoothing)
    count = norms.shape[2]  # the loop has no more digits than 1e-16 of a class that is all but certain, the engine has
    torch.testing.assert_close(norms.transpose(0, 1), exact.norms[:, :, -count:], rtol=1e-9, atol=1e-14)
    exact = trace.class_gradients(model, x, layers=layers, sigma=sigma, samples=5, smoothing=smoothing)
    torch.testing.assert_close(norms.transpose(0, 1), exact.norms[:, :, -count:], rtol=1e-9, atol=0.0)
    for i in range(4):
        features = model[:-1](noisy[6 * i : 6 * i + 6]).detach().requires_grad_()
        log_p = model[-1](features).log_softmax(1)
        smooth = log_p.mean(0) if smoothing == "log" else log_p.logsumexp(0)
        for c in range(7):
            (each,) = torch.autograd.grad(smooth[c], features, retain_graph=True)
            g, h = each.sum(0), features.detach()
            assert at_features[c, i].sqrt().item() == pytest.approx(g.norm().item(), rel=1e-6, abs=1e-9)
            large = (g.square() * h.abs().mean(0)).sum() / g.square().sum()
            along = (g * h.mean(0)).sum().square() / g.square().sum()
            if g.norm() > 1e-6:
                assert lying[:, c, i].tolist() == pytest.approx([large.item(), along.item()], rel=1e-6)


@pytest.mark.parametrize("model, count", [(Plain, 1), (Scaled, 0), (Tied, 0)])
def test_only_a_product_that_gives_the_logits_is_a_head(model: type[nn.Module], count: int) -> None:
    torch.manual_seed(0)
    assert head_of(model().double().eval(), torch.randn(3, 6).double(), "tensor")[0] == count


def test_estimates_agree_with_and_without_a_head_in_closed_form() -> None:
    torch.manual_seed(0)
    body = [part for _ in range(6) for part in (nn.Linear(16, 16), nn.Tanh())]
    plain = nn.Sequential(*body, nn.Linear(16, 60)).double().eval()
    x = torch.randn(8, 16).double()
    exact = trace.class_gradients(plain, x)
    estimated = trace.class_gradients(plain, x, classes=20)
    assert estimated.spread is not None and not estimated.spread[:, :, -1].any()
    torch.testing.assert_close(estimated.norms[:, :, -1], exact.norms[:, :, -1], rtol=1e-9, atol=0.0)

    def total(g: ClassGradients) -> Tensor:
        return (g.probabilities.sqrt().unsqueeze(2) * g.norms.square()).sum((1, 2))

    assert (total(estimated) / total(exact) - 1).abs().max() < 0.05


def test_rows_end_where_the_layers_weights_do() -> None:
    whole = plan_cut(1000, [1.0] * 99, "auto", 0.0, 0.02, head=1)
    short = plan_cut(1000, [1.0] * 99, "auto", 0.3, 0.02, head=1)
    assert whole is not None and short is not None and whole.closed and short.closed
    assert whole.top == short.top == 98 and whole.floor == 0 and short.floor > 40
    assert plan_cut(1000, [1.0] * 99, "exact", 0.3, 0.0, head=1) is None


class Unused(Plain):
    """A layer that the logits do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)


class ScaledUnused(Unused, Scaled):
    """The same without a head in closed form."""


@pytest.mark.parametrize("kind", [Unused, ScaledUnused])
@pytest.mark.parametrize("select", [["unused", "(root)"], ["(root)"], ["body"], ["body", "(root)"], None])
def test_any_choice_of_layers_is_estimated_whatever_lies_below_the_head(
    select: list[str] | None, kind: type[nn.Module]
) -> None:
    torch.manual_seed(0)
    model, x = kind().double().eval(), torch.randn(4, 6).double()
    estimated = trace.class_gradients(model, x, classes=4, select=select)
    exact = trace.class_gradients(model, x, select=select)
    assert estimated.layers == exact.layers
    for name in ("unused", "(root)"):
        if name in exact.layers:
            at = exact.layers.index(name)
            torch.testing.assert_close(estimated.norms[:, :, at], exact.norms[:, :, at], rtol=1e-9, atol=1e-12)
    assert ((estimated.norms > 0) == (exact.norms > 0)).all()  # nothing is completed from the zeros of an unused layer
