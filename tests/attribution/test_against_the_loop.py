"""UA-Backprop over FullGrad against the obvious loop, and the operations that make it fast against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio import posteriors
from nescio.attribution import explain
from nescio.attribution.logit_maps import weighted
from nescio.trace.backward.pull import quiet
from nescio.trace.backward.substitutes.cpu import OnCPU
from nescio_papers import zoo
from nescio_papers.zoo.resnet import Block


def with_norms(model: nn.Module) -> nn.Module:
    """The model in float64, with statistics and biases that are not those of the first day."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
        for name, p in part.named_parameters(recurse=False):
            if "bias" in name:
                nn.init.normal_(p, std=0.3)
    return model.double().eval()


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1),
        nn.Conv2d(6, 8, 3, stride=2), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), Block(4, 4, 1),
        Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def vit() -> nn.Module:
    return zoo.small_vit(classes=4, size=16, patch=4, width=12, depth=2, heads=2)


def bias_maps(module: nn.Module, g: Tensor) -> Tensor | None:
    """|∂z/∂b ⊙ b| of one image, averaged over channels, at 16 × 16 pixels; None: no bias, or no place in a picture."""
    if isinstance(module, nn.BatchNorm2d):
        b = module.bias - module.weight * module.running_mean / (module.running_var + module.eps).sqrt()
    elif isinstance(module, nn.MultiheadAttention):
        b = module.out_proj.bias + module.out_proj.weight @ module.in_proj_bias[2 * module.embed_dim :]
    else:
        b = getattr(module, "bias", None)
    if b is None or g.ndim < 3:
        return None
    if g.ndim == 4:
        small = (g * b.view(1, -1, 1, 1)).abs().mean(1, keepdim=True)
        return F.interpolate(small, (16, 16), mode="bilinear", align_corners=False)[0, 0]
    patches = (g * b).abs().mean(2)[0, 1:].view(4, 4)  # without the class token
    return patches.repeat_interleave(4, 0).repeat_interleave(4, 1)


def slow(models: list[nn.Module], x: Tensor, tau1: float = 0.3, tau2: float = 0.1) -> Tensor:
    """Every image, member and logit by itself, with a forward and a backward pass each: [N, 16, 16]."""
    found = torch.zeros(len(x), 16, 16, dtype=torch.float64)
    for n in range(len(x)):
        g = torch.stack([m(x[n : n + 1])[0].softmax(0).detach() for m in models])
        u = -g.mean(0) * g.mean(0).log() + (g * g.log()).mean(0)
        for s, model in enumerate(models):
            c = ((torch.eye(4, dtype=torch.float64) - g[s]) / tau1).softmax(1)
            for i in range(4):
                kept: list[tuple[nn.Module, Tensor]] = []

                def note(module: nn.Module, _: Any, gave: Any, kept: Any = kept) -> Any:
                    y = gave[0] if isinstance(gave, tuple) else gave
                    kept.append((module, y))
                    return (y.clone(), *gave[1:]) if isinstance(gave, tuple) else y.clone()

                leaves = [m for m in model.modules() if not list(m.children()) or isinstance(m, nn.MultiheadAttention)]
                hooks = [m.register_forward_hook(note) for m in leaves]
                one = x[n : n + 1].clone().requires_grad_()
                z = model(one)[0, i]
                for hook in hooks:
                    hook.remove()
                slope, *slopes = torch.autograd.grad(z, [one, *(y for _, y in kept)])
                m = (slope * one).abs().mean(1)[0]
                for (module, _), slope in zip(kept, slopes, strict=True):
                    term = bias_maps(module, slope)
                    m = m if term is None else m + term
                m = ((m - m.min()) / (m.max() - m.min()) / tau2).flatten().softmax(0).view(16, 16)
                found[n] += (u @ c[:, i]) * m.detach() / len(models)
    return found


@pytest.mark.parametrize("make", [cnn, resnet, vit])
def test_maps_are_those_of_the_obvious_loop(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    models = [with_norms(make()) for _ in range(2)]
    found = explain(posteriors.DeepEnsemble(models), x, tau1=0.3, tau2=0.1)
    wanted = slow(models, x).detach()
    assert float((found.maps - wanted).abs().max() / wanted.max()) <= 1e-10
    torch.testing.assert_close(found.maps, wanted, rtol=1e-10, atol=1e-16)
    assert bool((found.residual.abs() <= 1e-12 * found.uncertainty).all())
    single = [model.float() for model in models]
    near = explain(posteriors.DeepEnsemble(single), x.float(), tau1=0.3, tau2=0.1).maps
    assert float((near - wanted).abs().max() / wanted.max()) <= 1e-4


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "pool": lambda x: F.max_pool2d(x, 2),
    "overlapping pool": lambda x: F.max_pool2d(x, (3, 2), stride=(2, 1), padding=1, dilation=1, ceil_mode=True),
    "gelu": lambda x: F.gelu(x),
    "tanh gelu": lambda x: F.gelu(input=x, approximate="tanh"),
    "elu": lambda x: F.elu(x, 0.7),
    "silu in place": lambda x: F.silu(x.clone(), inplace=True),
    "few channels": lambda x: F.conv2d(x, W, stride=2, padding=1, dilation=2),
    "oblong": lambda x: F.conv2d(x, W[:, :, :2], B, stride=(1, 2), padding=(1, 0)),
    "many channels": lambda x: F.conv2d(x.repeat(1, 4, 1, 1), W.repeat(1, 4, 1, 1), stride=2, padding=1),
    "groups": lambda x: F.conv2d(x, W[:9, :1], groups=3, padding=1),
}
W = torch.randn(20, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
B = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_pytorchs_own(name: str, last: bool) -> None:
    """For one cotangent and for many at once."""
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    wanted = CALLS[name](x)
    with OnCPU():
        y = CALLS[name](x)
    assert type(y.grad_fn).__name__ != type(wanted.grad_fn).__name__ or "in place" in name
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    vectors = torch.randn(4, *y.shape, dtype=torch.float64)
    slopes = torch.stack([torch.autograd.grad(wanted, x, v, retain_graph=True)[0] for v in vectors])
    (one,) = torch.autograd.grad(y, x, vectors[0], retain_graph=True)
    many = torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(vectors)
    torch.testing.assert_close(one, slopes[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(many, slopes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", ["plain", "no bias", "mask", "weights", "cross"])
def test_attention_is_pytorchs_own(kind: str, first: bool) -> None:
    """A plain self-attention in a form of ours, every other one as it is."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(6, 2, bias=kind != "no bias", batch_first=first, dropout=0.5).double().eval()
    x = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    other = x.flip(0) if kind == "cross" else x
    length = 5 if first else 3
    mask = torch.ones(length, length).triu(1).bool() if kind == "mask" else None

    def run() -> Tensor:
        return layer(x, other, other, need_weights=kind == "weights", attn_mask=mask)[0]

    wanted = run()
    with OnCPU():
        y = run()
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    vectors = torch.randn(4, *y.shape, dtype=torch.float64)
    slopes = torch.stack([torch.autograd.grad(wanted, x, v, retain_graph=True)[0] for v in vectors])
    with quiet():
        many = torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(vectors)
    torch.testing.assert_close(many, slopes, rtol=1e-12, atol=1e-12)
    selects = {type(node).__name__ for node in nodes(y.grad_fn)} & {"SelectBackward0"}
    assert bool(selects) == (kind not in ("plain", "no bias"))


def nodes(root: Any) -> set[Any]:
    """All nodes of a graph."""
    found, waiting = {root}, [root]
    while waiting:
        new = {node for node, _ in waiting.pop().next_functions if node is not None} - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 1, 3, 4, 2)])
def test_weighted_magnitudes(order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nescio.attribution.logit_maps._BLOCK", 200)  # several blocks
    t = torch.randn(3, 4, 5, 6, 7).permute(order).contiguous()
    t = t.permute([order.index(dim) for dim in range(5)])
    weights = torch.rand(5)
    torch.testing.assert_close(weighted(t, weights), (t.abs() * weights.view(5, 1, 1)).sum(2))
