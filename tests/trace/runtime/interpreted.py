"""The GPU path of the engine on a CPU, by Triton's interpreter: what `test_kernels` asserts on.

    TRITON_INTERPRET=1 python -m tests.trace.runtime.interpreted result.json

works out every case below in one process and writes down what it found: for a kernel its distance from a plain formula
in float64; for a model its distance from the oracle in float64, the parameters on the general path, how often each
kernel ran, and whether the model is as it was. A program of a kernel takes 10 ms, so everything is small.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio import trace
from nescio.trace.backward import substitutes
from nescio.trace.backward.substitutes import average_pool, score_products
from nescio.trace.backward.substitutes import convolution as data_convolution
from nescio.trace.probe import passes
from nescio.trace.runtime.gpu import kernels
from nescio_papers import zoo
from tests.trace import helpers

Subject = tuple[nn.Module, Tensor]
CHANNELS_LAST = torch.channels_last


# Kernels: name → distance from the formula, relative to its largest value.


def apart(ours: Tensor, wanted: Tensor) -> float:
    assert ours.shape == wanted.shape
    assert ours.isfinite().all()
    return float((ours.double() - wanted).abs().max() / wanted.abs().max())


def times(
    shape: tuple[int, ...],
    k: int,
    dtype: torch.dtype = torch.float32,
    order: Any = None,
    two: bool = False,
    rectified: bool = False,
) -> float:
    d, *g = torch.randn(shape).to(dtype), *(torch.randn(k, *shape).to(dtype) for _ in range(1 + two))
    d = d if order is None else order(d)
    d = d.relu() if rectified else d
    out = kernels(d).times(g[0], d, *g[1:], rectified=rectified)
    assert out.dtype == dtype
    return apart(out, sum(each.double() for each in g) * (d > 0 if rectified else d).double())


def affine(
    shape: tuple[int, ...],
    k: int,
    gated: bool,
    dtype: torch.dtype = torch.float32,
    order: Any = None,
    same: bool = True,
    weighted: bool = True,
    rectified: bool = False,
) -> float:
    """``order`` changes how x lies in memory; without ``same`` gradient and gate do not follow it."""
    order = order or (lambda t: t)
    x, gate, g = order(torch.randn(shape).to(dtype)), torch.rand(shape).to(dtype), torch.randn(k, *shape).to(dtype)
    gate = order(gate) if same else gate
    mean, weight = torch.randn(shape[1], 2)[:, 0], torch.randn(shape[1], 2)[:, 0] if weighted else None
    var = torch.rand(shape[1], 2)[:, 0] + 0.5
    gate = (gate - 0.5).relu() if rectified else gate
    out = kernels(x).affine(g, x, weight, mean, var, 0.125, gate if gated else None, rectified)
    gate = gate > 0 if rectified else gate
    assert out[0].dtype == dtype and out[1].dtype == out[2].dtype == torch.float32
    wide = (-1, *(1,) * (len(shape) - 2))
    rstd = (var.double() + 0.125).rsqrt()
    scale = rstd if weight is None else rstd * weight.double()
    normal = (x.double() - mean.double().view(wide)) * rstd.view(wide)
    h = g.double() * (gate.double() if gated else 1)
    wanted = h * scale.view(wide), *((t.unsqueeze(-1)).flatten(3).sum(3) for t in (h * normal, h))
    return max(apart(a, b) for a, b in zip(out, wanted, strict=True))


def channel_map(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, order: Any = None, weighted: bool = True
) -> float:
    """The map, and that its result lies in memory as x does."""
    x = torch.randn(shape).to(dtype)
    x = x if order is None else order(x)
    weight, bias = (torch.randn(shape[1]).to(dtype) if weighted else None for _ in range(2))
    mean, var = torch.randn(shape[1], 2).to(dtype)[:, 0], (torch.rand(shape[1], 2) + 0.5).to(dtype)[:, 0]
    out = kernels(x).channel_map(x, weight, bias, mean, var, 0.125)
    assert out.dtype == dtype and out.stride() == x.stride()
    statistics = mean.double(), var.double()
    named = {"weight": None if weight is None else weight.double(), "bias": None if bias is None else bias.double()}
    return apart(out, F.batch_norm(x.double(), *statistics, **named, eps=0.125))


def layer_norm(
    rows: tuple[int, ...], d: int, k: int, inputs: int, weighted: bool, dtype: torch.dtype = torch.float32
) -> float:
    x, g = (torch.randn(*rows, d) * 2 + 1).to(dtype), torch.randn(k, *rows, d).to(dtype)
    weight = torch.randn(d).to(dtype) if weighted else None
    _, mean, rstd = torch.native_layer_norm(x.float(), (d,), None, None, 1e-5)
    out, products, sums = kernels(x).layer_norm(g, x, mean, rstd, weight, inputs)
    assert out.dtype == dtype and products.dtype == sums.dtype == torch.float32
    root = x.double().requires_grad_()
    y = F.layer_norm(root, (d,), None if weight is None else weight.double(), None, 1e-5)
    wanted = torch.stack([torch.autograd.grad(y, root, row.double(), retain_graph=True)[0] for row in g])
    normal = F.layer_norm(x.double(), (d,), eps=1e-5)
    by_input = (g.double() * normal).reshape(k, inputs, -1, d).sum(2), g.double().reshape(k, inputs, -1, d).sum(2)
    return max(apart(out, wanted), apart(products, by_input[0]), apart(sums, by_input[1]))


def contracted(length: int, width: int, dtype: torch.dtype = torch.float32, groups: int = 2) -> float:
    """Of gradients that lie in a larger tensor."""
    d = torch.randn(2, 3, length, groups, width + 3).to(dtype)[..., 2:-1].transpose(2, 3)
    a = torch.randn(3 * groups, length, 4)
    gram = a @ a.mT
    out = kernels(d).contracted(d, gram)
    assert out.dtype == torch.float32
    grams = (d.double() @ d.double().mT).flatten(1, 2)
    return apart(out, (grams * gram.double()).sum((2, 3)).unflatten(1, (3, groups)).sum(2))


@contextmanager
def in_tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def contracted_tf32(length: int, groups: int = 1) -> float:
    """Of numbers that TF32 holds."""
    d, a = torch.randn(2, 3, groups, length, 37).bfloat16().float(), torch.randn(3 * groups, length, 4)
    with in_tf32():
        out = kernels(d).contracted(d, a @ a.mT)
    explicit = d.double().mT.flatten(1, 2) @ a.double()
    return apart(out, explicit.square().sum((2, 3)).unflatten(1, (3, groups)).sum(2))


def contracted_rounded(length: int) -> float:
    """What is rounded to the nearest has no bias, and a NaN with all of its bits, as a GPU makes it, stays one."""
    d, gram = torch.randn(1, 2, 1, length, 640), torch.eye(length).repeat(2, 1, 1)
    with in_tf32():
        out = kernels(d).contracted(d, gram)
        wanted = d.double().square().sum((2, 3, 4))
        d[0, 1, 0, length - 1, 3] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
        assert kernels(d).contracted(d, gram).isnan().tolist() == [[False, True]]
    return apart(out, wanted)


def turned_copy(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, cut: int = 1) -> float:
    """Every number once, of gradients that lie in a larger tensor."""
    whole = torch.randn(*shape[:-1], shape[-1] + 2 * cut).to(dtype)
    d = whole[..., cut : shape[-1] + cut].transpose(1, 2).transpose(2, 3)
    k, n, g, t, o = d.shape
    out = kernels(d).turned(d)
    assert out.dtype == dtype and out.is_contiguous()
    return apart(out, d.permute(1, 2, 3, 0, 4).reshape(n * g, t, k * o))


def attention(
    lengths: tuple[int, int],
    d: int,
    k: int,
    dtype: torch.dtype = torch.float32,
    packed: bool = False,
    scale: float = 0.3,
) -> float:
    """One input, three heads; ``packed``: heads side by side in memory, as projections give them.

    Not in bfloat16: the interpreter multiplies its bits as whole numbers.
    """

    def make(*lead: int, length: int) -> Tensor:
        if packed:
            return torch.randn(*lead, length, 3, d + 5).to(dtype)[..., 2 : d + 2].transpose(-2, -3)
        return torch.randn(*lead, 3, length, d).to(dtype)

    q, key, v = (make(1, length=n) for n in (lengths[0], lengths[1], lengths[1]))
    g = make(k, 1, length=lengths[0])
    out = tuple(torch.full((k, *t.shape), torch.nan, dtype=dtype) for t in (q, key, v))
    kernels(q).attention(g, q, key, v, scale, out)
    roots = [t.double().requires_grad_() for t in (q, key, v)]
    y = torch.softmax(roots[0] @ roots[1].mT * scale, -1) @ roots[2]
    pulled = [torch.autograd.grad(y, roots, row.double(), retain_graph=True) for row in g]
    return max(apart(a, torch.stack(b)) for a, b in zip(out, zip(*pulled, strict=True), strict=True))


def in_products(
    lengths: tuple[int, int], d: int, k: int, lead: tuple[int, ...] = (2, 3), beside: bool = False
) -> float:
    """Attention in products, ``beside``: heads side by side in memory; the largest of all distances."""

    def make(*first: int, length: int) -> Tensor:
        if beside:
            return torch.randn(*first, *lead[:-1], length, lead[-1], d + 5)[..., 2 : d + 2].transpose(-2, -3)
        return torch.randn(*first, *lead, length, d)

    q, key, v = (make(length=n) for n in (lengths[0], *[lengths[1]] * 2))
    g, weights = make(k, length=lengths[0]), torch.randn(*lead, *lengths).softmax(-1)
    by_scores, by_v = score_products.pulled_weighted(g, weights, v)
    ds = torch.randn(k, *lead, *lengths)
    by_q, by_key = score_products.pulled(ds, q, key)
    for like, own in ((q, by_q), (key, by_key), (v, by_v)):
        assert own.shape[1:] == like.shape and (own.stride(-3) < own.stride(-2)) == beside
    g, weights, v, ds, q, key = (t.double() for t in (g, weights, v, ds, q, key))
    inner = g @ v.mT
    wanted = weights * (inner - (weights * inner).sum(-1, keepdim=True)), weights.mT @ g, ds @ key, ds.mT @ q
    return max(apart(a, b) for a, b in zip((by_scores, by_v, by_q, by_key), wanted, strict=True))


def moments(shape: tuple[int, ...], level: float = 0.0, dtype: torch.dtype = torch.float32) -> float:
    """Of numbers about a level, in units of their deviation."""
    x = (torch.randn(shape) + level).to(dtype)
    out = kernels(x).moments(x)
    assert out.dtype == torch.float32
    variance, mean = torch.var_mean(x.double(), 2, correction=0)
    return max(apart(a, b) for a, b in zip(out.chunk(2, 1), (mean, variance.sqrt()), strict=True))


def scaled(shape: tuple[int, ...], k: int, dtype: torch.dtype = torch.float32) -> float:
    x, g = last(torch.randn(shape).to(dtype)), torch.randn(k, *shape).to(dtype)
    scale = torch.randn(shape[:2]).to(dtype)
    out, sums = kernels(x).scaled(g, x, scale)
    assert out.dtype == dtype and sums.dtype == torch.float32
    wanted = g.double() * scale.double()[..., None, None], (g.double() * x.double()).sum((3, 4))
    return max(apart(a, b) for a, b in zip((out, sums), wanted, strict=True))


def average(*geometry: Any) -> float:
    """Of pictures with channels last, for three cotangents; their gradients lie in memory as they do."""
    x = last(torch.randn(2, 5, 7, 6)).requires_grad_()
    y = average_pool.DataAverage.apply(x, *geometry)
    root = x.detach().double().requires_grad_()
    wanted, g = F.avg_pool2d(root, *geometry), torch.randn(3, *y.shape)
    (ours,) = torch.func.vmap(lambda row: torch.autograd.grad(y, x, row, retain_graph=True))(g)
    assert ours[0].is_contiguous(memory_format=CHANNELS_LAST)
    pulled = [torch.autograd.grad(wanted, root, row.double(), retain_graph=True)[0] for row in g]
    return max(apart(y, wanted), apart(ours, torch.stack(pulled)))


def convolution(order: Any = None, **geometry: Any) -> float:
    """The data gradient on a GPU takes all cotangents as one batch: the tensors are made to say that they are there."""
    x = torch.randn(3, 4, 9, 7).requires_grad_()
    weight = torch.randn(6, 4 // geometry.get("groups", 1), 3, 3)
    y = data_convolution.DataConvolution.apply(
        *data_convolution.arguments(x if order is None else order(x), weight, **geometry)  # type: ignore[misc]
    )
    g = torch.randn(4, *y.shape)

    def pull(v: Tensor) -> Tensor:
        return torch.autograd.grad(y, x, v, retain_graph=True)[0]

    with mock.patch.object(torch.Tensor, "is_cuda", True):
        ours = torch.func.vmap(pull)(g)
    root = x.detach().double().requires_grad_()
    z = F.conv2d(root, weight.double(), **geometry)
    return apart(ours, torch.stack([torch.autograd.grad(z, root, row.double(), retain_graph=True)[0] for row in g]))


def patches(channels: int, size: tuple[int, int], dtype: torch.dtype = torch.float32, **geometry: Any) -> float:
    """Against PyTorch's own, which has the channels before the places in the kernel."""
    x = torch.randn(2, channels, *size, dtype=dtype)
    given = {"kernel": (3, 3), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)} | geometry
    kernel, stride, padding, dilation = given.values()
    reach = zip(size, kernel, stride, padding, dilation, strict=True)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in reach]
    wanted = F.unfold(x.double(), kernel, dilation, padding, stride).view(2, channels, -1, out[0] * out[1])
    ours = kernels(x).patches(to_last(x), kernel, stride, padding, dilation, out)
    return apart(ours, wanted.permute(0, 3, 2, 1).flatten(2))


def depthwise(channels: int, size: tuple[int, int], dtype: torch.dtype = torch.float32, **geometry: Any) -> float:
    """The convolution and its data gradient."""
    side = geometry.pop("side", (3, 3))
    x, weight = torch.randn(2, channels, *size).to(dtype), torch.randn(channels, 1, *side).to(dtype)
    root = x.double().requires_grad_()
    y = F.conv2d(root, weight.double(), groups=channels, **geometry)
    g = torch.randn(y.shape).to(dtype)
    (wanted,) = torch.autograd.grad(y, root, g.double())
    each = [geometry.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    lists = [[v, v] if isinstance(v, int) else list(v) for v in each]
    ours = kernels(x).depthwise(to_last(x), weight, *lists, y.shape[2:], False)
    back = kernels(x).depthwise(to_last(g), weight, *lists, x.shape[2:], True)
    assert ours.dtype == back.dtype == dtype
    assert ours.is_contiguous(memory_format=CHANNELS_LAST) and back.is_contiguous(memory_format=CHANNELS_LAST)
    return max(apart(ours, y.detach()), apart(back, wanted))


def depthwise_weight(
    channels: int, size: tuple[int, int], dtype: torch.dtype = torch.float32, **geometry: Any
) -> float:
    """The gradient of each cotangent and input, from one input's own graph."""
    side, k = geometry.pop("side", (3, 3)), geometry.pop("k", 2)
    x, weight = torch.randn(2, channels, *size).to(dtype), torch.randn(channels, 1, *side).double().requires_grad_()
    ys = [F.conv2d(row.double().unsqueeze(0), weight, groups=channels, **geometry) for row in x]
    g = torch.randn(k, 2, *ys[0].shape[1:]).to(dtype)
    wanted = [
        [torch.autograd.grad(y, weight, d[i : i + 1].double(), retain_graph=True)[0] for i, y in enumerate(ys)]
        for d in g
    ]
    each = [geometry.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    lists = [[v, v] if isinstance(v, int) else list(v) for v in each]
    ours = kernels(x).depthwise_weight(to_last(g.flatten(0, 1)).unflatten(0, (k, 2)), to_last(x), side, *lists)
    assert ours.dtype == torch.float32
    return apart(ours.flatten(2), torch.stack([torch.stack(row) for row in wanted]).flatten(2))


def last(t: Tensor) -> Tensor:
    """Channels last in memory, whatever the number of dimensions."""
    return t.movedim(1, -1).contiguous().movedim(-1, 1)


def swapped(i: int, j: int) -> Callable[[Tensor], Tensor]:
    """Dimensions i and j exchanged in memory."""
    return lambda t: t.transpose(i, j).contiguous().transpose(i, j)


HALF = torch.bfloat16
ACTIVATIONS: dict[str, nn.Module] = {
    "ReLU": nn.ReLU(), "ReLU in place": nn.ReLU(inplace=True), "ReLU6": nn.ReLU6(), "LeakyReLU": nn.LeakyReLU(0.2),
    "LeakyReLU in place": nn.LeakyReLU(0.2, inplace=True), "SiLU": nn.SiLU(), "SiLU in place": nn.SiLU(inplace=True),
    "GELU": nn.GELU(), "GELU by tanh": nn.GELU("tanh"), "Hardswish": nn.Hardswish(),
    "Hardswish in place": nn.Hardswish(inplace=True), "Tanh": nn.Tanh(), "Sigmoid": nn.Sigmoid(), "ELU": nn.ELU(0.7),
    "SELU": nn.SELU(), "CELU": nn.CELU(0.8), "Mish": nn.Mish(), "Softplus": nn.Softplus(2.0),
    "Hardtanh": nn.Hardtanh(-1.5, 1.8),
}  # fmt: skip


def joined(act: nn.Module) -> float:
    """The data gradient of an activation right behind a batch norm, which are one operation."""
    norm, x = helpers.ready(nn.BatchNorm1d(5)), torch.randn(2, 5, 3).double().requires_grad_()
    g = torch.randn(2, 2, 5, 3)
    y = act(norm(x))
    wanted = torch.stack([torch.autograd.grad(y, x, row.double(), retain_graph=True)[0] for row in g])
    root = x.detach().float().requires_grad_()
    with substitutes.folding(), counted() as calls:
        z = act(norm.float()(root))
        ours = torch.func.vmap(lambda v: torch.autograd.grad(z, root, v, retain_graph=True)[0])(g)
    assert calls["affine"] == 1 and not calls["times"]
    assert apart(z.detach(), y.detach()) < 1e-6
    return apart(ours, wanted)


KERNELS: dict[str, Callable[[], float]] = {
    **{f"batch norm and {name}": (lambda act=act: joined(act)) for name, act in ACTIVATIONS.items()},
    "times": lambda: times((3, 5, 7, 11), 4),
    "times, one cotangent": lambda: times((3, 5, 7, 11), 1),
    "times, channels last": lambda: times((3, 5, 7, 11), 3, order=last),
    "times, a slice": lambda: times((3, 5, 7, 6), 3, order=lambda t: torch.cat([t, t], 3)[..., :6]),
    "times, expanded": lambda: times((3, 5), 2, order=lambda t: t[:, :1].expand(3, 5)),
    "times, one element": lambda: times((1, 1), 2),
    "times, two gradients": lambda: times((3, 5, 7, 11), 3, two=True),
    "times, two gradients, channels last": lambda: times((3, 5, 7, 11), 3, order=last, two=True),
    "times, of a rectifier": lambda: times((3, 5, 7, 11), 3, rectified=True),
    "times, of a rectifier, two gradients": lambda: times((3, 5, 7, 11), 3, two=True, rectified=True),
    "times, bfloat16": lambda: times((3, 5, 7, 11), 3, HALF),
    "times, float16": lambda: times((3, 5, 7, 11), 3, torch.float16),
    "channel map": lambda: channel_map((2, 21, 7, 5)),
    "channel map, channels last": lambda: channel_map((2, 71, 7, 5), order=last),
    "channel map, channels last, four at once": lambda: channel_map((2, 72, 9, 8), order=last),
    "channel map, few positions": lambda: channel_map((3, 100, 2, 2)),
    "channel map, vectors": lambda: channel_map((70, 19)),
    "channel map, many positions": lambda: channel_map((2, 3, 13, 12)),
    "channel map, no parameters": lambda: channel_map((2, 5, 3), weighted=False),
    "channel map, bfloat16": lambda: channel_map((2, 5, 4, 4), HALF),
    "affine": lambda: affine((2, 21, 7, 5), 2, False),
    "affine, channels last": lambda: affine((1, 71, 7, 5), 2, False, order=last),
    "affine, channels last, four at once": lambda: affine((2, 72, 7, 5), 2, False, order=last),
    "affine, gated, four positions at once": lambda: affine((2, 21, 4, 5), 2, True),
    "affine, vectors": lambda: affine((2, 19), 3, False),
    "affine, no weights": lambda: affine((2, 21, 7, 5), 2, False, weighted=False),
    "affine, bfloat16": lambda: affine((1, 5, 7, 3), 2, False, HALF),
    "affine, gated": lambda: affine((2, 21, 7, 5), 2, True),
    "affine, gated, one cotangent": lambda: affine((2, 5, 3, 3), 1, True),
    "affine, gated, many positions": lambda: affine((1, 3, 19, 23), 2, True),
    "affine, gated, in parts": lambda: affine((2, 3, 33, 64), 2, True),
    "affine, in parts, channels last": lambda: affine((2, 5, 33, 64), 2, False, order=last),
    "affine, of a rectifier": lambda: affine((2, 21, 7, 5), 2, True, rectified=True),
    "affine, of a rectifier, channels last": lambda: affine((1, 71, 7, 5), 2, True, order=last, rectified=True),
    "affine, gated, channels last": lambda: affine((1, 71, 7, 5), 2, True, order=last),
    "affine, more cotangents than a program takes": lambda: affine((2, 9, 3, 5), 6, True, order=last),
    "affine, gated, channels last, others not": lambda: affine((2, 9, 3, 5), 2, True, order=last, same=False),
    "affine, gated, vectors": lambda: affine((2, 19), 3, True),
    "affine, gated, sequences": lambda: affine((2, 6, 9), 2, True),
    "affine, gated, sequences, channels last": lambda: affine((2, 6, 9), 2, True, order=last),
    "affine, gated, volumes, channels last": lambda: affine((2, 6, 3, 2, 4), 2, True, order=last),
    "affine, gated, one channel": lambda: affine((2, 1, 4, 5), 2, True, order=last),
    "affine, gated, one position": lambda: affine((2, 5, 1, 1), 2, True, order=last),
    "affine, gated, one input": lambda: affine((1, 5, 4, 3), 2, True, order=last),
    "affine, gated, rows before channels": lambda: affine((2, 5, 4, 3), 2, True, order=swapped(1, 2)),
    "affine, gated, channels before inputs": lambda: affine((2, 5, 4, 3), 2, True, order=swapped(0, 1)),
    "affine, gated, positions before inputs": lambda: affine((2, 5, 4), 2, True, order=swapped(0, 2)),
    "affine, gated, width before height": lambda: affine((2, 5, 4, 3), 2, True, order=swapped(2, 3)),
    "affine, gated, bfloat16": lambda: affine((1, 5, 7, 3), 2, True, HALF, order=last),
    "patches": lambda: patches(5, (6, 5), padding=(1, 1)),
    "patches, bfloat16": lambda: patches(5, (6, 5), HALF, padding=(1, 1)),
    "patches, other sides": lambda: patches(3, (9, 8), kernel=(3, 2), stride=(2, 1), padding=(1, 0), dilation=(2, 1)),
    "patches, wide": lambda: patches(300, (3, 3), kernel=(2, 2), stride=(2, 2), padding=(1, 1)),
    "depthwise": lambda: depthwise(5, (6, 7), padding=1),
    "depthwise, more channels than a tile": lambda: depthwise(35, (3, 4), padding=1),
    "depthwise, strided": lambda: depthwise(3, (9, 8), stride=2, padding=1),
    "depthwise, strided, what is left over": lambda: depthwise(3, (8, 9), stride=(3, 2)),
    "depthwise, dilated, other sides": lambda: depthwise(
        3, (9, 8), side=(3, 2), stride=(2, 1), padding=(2, 0), dilation=(2, 3)
    ),
    "depthwise, wider than the picture": lambda: depthwise(4, (3, 2), side=(7, 7), padding=3),
    "depthwise, one position": lambda: depthwise(4, (1, 1), side=(1, 1)),
    "depthwise, bfloat16": lambda: depthwise(5, (6, 7), HALF, padding=1),
    "depthwise weight": lambda: depthwise_weight(5, (6, 7), padding=1),
    "depthwise weight, more channels than a tile": lambda: depthwise_weight(35, (3, 4), padding=1),
    "depthwise weight, strided": lambda: depthwise_weight(3, (8, 9), stride=(3, 2), padding=1),
    "depthwise weight, dilated, other sides": lambda: depthwise_weight(
        3, (9, 8), side=(3, 2), stride=(2, 1), padding=(2, 0), dilation=(2, 3)
    ),
    "depthwise weight, wider than the picture": lambda: depthwise_weight(4, (3, 2), side=(7, 7), padding=3, k=1),
    "depthwise weight, in parts": lambda: depthwise_weight(2, (14, 13), padding=1, k=1),
    "depthwise weight, one position": lambda: depthwise_weight(4, (1, 1), side=(1, 1)),
    "depthwise weight, bfloat16": lambda: depthwise_weight(5, (6, 7), HALF, padding=1),
    "layer norm": lambda: layer_norm((2, 11), 13, 2, 2, False),
    "layer norm, bfloat16": lambda: layer_norm((2, 5), 13, 2, 2, False, HALF),
    "layer norm, weighted": lambda: layer_norm((2, 11), 13, 2, 2, True),
    "layer norm, weighted, in parts": lambda: layer_norm((2, 300), 5, 2, 2, True),
    "layer norm, weighted, one cotangent": lambda: layer_norm((3, 5), 13, 1, 3, True),
    "layer norm, weighted, one sum": lambda: layer_norm((3, 3), 13, 2, 1, True),
    "layer norm, weighted, a row an input": lambda: layer_norm((4,), 13, 2, 4, True),
    "layer norm, weighted, images": lambda: layer_norm((2, 3, 5), 6, 2, 2, True),
    "layer norm, weighted, wide": lambda: layer_norm((1, 5), 1100, 2, 1, True),
    "layer norm, weighted, very wide": lambda: layer_norm((1, 2), 5000, 1, 1, True),
    "layer norm, weighted, bfloat16": lambda: layer_norm((2, 5), 13, 2, 2, True, HALF),
    "turned": lambda: turned_copy((3, 2, 2, 5, 7)),
    "turned, in tiles": lambda: turned_copy((2, 1, 3, 70, 33)),
    "turned, four numbers at once": lambda: turned_copy((2, 3, 1, 70, 36), cut=0),
    "turned, wide": lambda: turned_copy((2, 3, 1, 2, 150)),
    "turned, bfloat16": lambda: turned_copy((4, 2, 1, 9, 16), HALF),
    "contracted, one row": lambda: contracted(1, 5),
    "contracted, in parts of the features": lambda: contracted(20, 1030),
    "contracted, three tiles, float16": lambda: contracted(197, 70, torch.float16),
    **{f"contracted, {t} positions": lambda t=t: contracted(t, 37) for t in (16, 49, 65, 80, 81, 129, 144, 145, 257)},
    **{f"contracted, TF32, {t} positions": lambda t=t: contracted_tf32(t, 2) for t in (23, 64, 128, 145, 192, 209)},
    **{f"contracted, TF32, {t} positions": lambda t=t: contracted_tf32(t) for t in (193, 197, 200, 208, 256, 400)},
    **{f"contracted, rounded, {t} positions": lambda t=t: contracted_rounded(t) for t in (80, 208, 257)},
    "contracted, a slice, float16": lambda: contracted(70, 70, torch.float16),
    "attention": lambda: attention((13, 13), 10, 3),
    "attention, one cotangent": lambda: attention((13, 13), 10, 1),
    "attention, more cotangents than a program takes": lambda: attention((5, 5), 4, 6),
    "attention, few queries": lambda: attention((1, 21), 16, 2),
    "attention, few keys": lambda: attention((21, 3), 16, 2),
    "attention, side by side": lambda: attention((9, 17), 10, 2, packed=True),
    "attention, the largest": lambda: attention((128, 128), 64, 1),
    "scaled": lambda: scaled((2, 71, 3, 5), 2),
    "scaled, four at once": lambda: scaled((2, 8, 3, 5), 3),
    "scaled, in parts": lambda: scaled((2, 5, 33, 64), 1),
    "scaled, bfloat16": lambda: scaled((2, 8, 3, 5), 2, HALF),
    "average, in front of a stride": lambda: average([3, 3], [2, 2], [1, 1], False, True, None),
    "average, divided by another number": lambda: average([3, 2], [1, 3], [1, 0], False, False, 5),
    "average, as long as its stride": lambda: average([2, 2], [], [0, 0], False, False, None),
    "moments": lambda: moments((2, 5, 49)),
    "moments, many rows": lambda: moments((3, 37, 7)),
    "moments, in steps": lambda: moments((2, 3, 200)),
    "moments, long rows": lambda: moments((2, 3, 2500)),
    "moments, long rows, one step": lambda: moments((1, 3, 784)),
    "moments, far from zero": lambda: moments((2, 2, 3000), level=1000.0),
    "moments, two numbers": lambda: moments((2, 2, 2)),
    "moments, bfloat16": lambda: moments((2, 3, 300), dtype=HALF),
    "attention in products": lambda: in_products((13, 13), 10, 3),
    "attention in products, side by side": lambda: in_products((5, 9), 6, 5, beside=True),
    "attention in products, through windows": lambda: in_products((7, 7), 4, 2, (2, 3, 2), beside=True),
    "attention in products, the largest": lambda: in_products((64, 64), 64, 1, (1, 1)),
    "attention in products, one query": lambda: in_products((1, 21), 16, 2),
    "attention, in tiles": lambda: attention((70, 197), 16, 2, packed=True),
    "attention, in tiles, few keys": lambda: attention((130, 3), 64, 1),
    "attention, in tiles, few queries": lambda: attention((1, 130), 16, 3),
    "attention, in tiles, large logits": lambda: attention((20, 140), 10, 1, scale=4.0),
    "attention, in tiles, float16": lambda: attention((135, 20), 10, 1, torch.float16, packed=True),
    "attention, large logits": lambda: attention((9, 17), 10, 2, scale=20.0),
    "attention, float16": lambda: attention((13, 9), 10, 2, torch.float16, packed=True),
    "convolution": lambda: convolution(padding=1),
    "convolution, strided": lambda: convolution(stride=2, padding=(0, 1)),
    "convolution, grouped and dilated": lambda: convolution(groups=2, dilation=2),
    "convolution, channels last": lambda: convolution(order=last, stride=(2, 1), padding=1),
}  # fmt: skip


# Models.


class Model(nn.Module):
    """Parts and what is done with them."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def conv(i: int, o: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(i, o, 3, stride, 1, bias=False)


class Block(nn.Module):
    """Of a residual network: the addition is in place, as it is everywhere."""

    def __init__(self, i: int, o: int, stride: int = 1, inplace: bool = True) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(i, o, stride), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = conv(o, o), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace)
        self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if i != o else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.down is None else self.down(x)
        return self.relu(out)


def residual() -> Subject:
    """Four batch norms, two of them right before an activation, and a skip with a stride."""
    body = nn.Sequential(conv(2, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), Block(3, 5, 2))
    return Model(lambda m, x: m.head(m.body(x).mean((2, 3))), body=body, head=nn.Linear(5, 2)), torch.randn(3, 2, 5, 7)


def short(n: int = 3, inplace: bool = True) -> Subject:
    """Two batch norms and a skip."""
    parts = {"block": Block(3, 3, inplace=inplace), "head": nn.Linear(3, 2)}
    return Model(lambda m, x: m.head(m.block(x).mean((2, 3))), **parts), torch.randn(n, 3, 4, 3)


def blocks(inplace: bool = True) -> Subject:
    """Three blocks: the activations behind the first two are taken by a convolution and by a skip."""
    body = nn.Sequential(Block(3, 3, inplace=inplace), Block(3, 3, inplace=inplace), Block(3, 4, 2, inplace=inplace))
    model = Model(lambda m, x: m.head(m.body(x).mean((2, 3))), body=body, head=nn.Linear(4, 2))
    return model, torch.randn(3, 3, 4, 3)


def picture(run: Callable[[Any, Tensor], Tensor], n: int = 3) -> Subject:
    """A convolution, a batch norm, and what ``run`` does with them to a map of 5 channels."""
    model = Model(
        lambda m, x: m.head(run(m, x).mean((2, 3))), conv=conv(2, 5), norm=nn.BatchNorm2d(5), head=nn.Linear(5, 2)
    )
    return model, torch.randn(n, 2, 3, 5)


def normed(m: Any, x: Tensor) -> Tensor:
    return m.norm(m.conv(x))


def ignored(m: Any, x: Tensor) -> Tensor:
    y = normed(m, x)
    F.relu(y, inplace=True)
    return y


def ignored_late() -> Subject:
    """The activation does nothing to the first inputs, so a probe of them cannot see that it was lost."""
    model, x = picture(ignored, 6)
    helpers.ready(model)
    with torch.no_grad():
        for p in model.parameters():
            p.abs_()
        x[:3] = x[:3].abs() + 2  # type: ignore[operator]
    return model, x


def ignored_plain(m: Any, x: Tensor) -> Tensor:
    y = m.norm(m.conv(x)) + 1
    F.relu(y, inplace=True)
    return y


def kept(m: Any, x: Tensor) -> Tensor:
    y = normed(m, x)
    z = torch.sigmoid(y + 0.3)
    return F.relu(y, inplace=True) + z * y


def both(m: Any, x: Tensor) -> Tensor:
    y = normed(m, x)
    return F.relu(y) + 0.7 * y


def written(m: Any, x: Tensor) -> Tensor:
    y = F.gelu(normed(m, x))
    y += 0.5 * m.conv(x)
    z = F.silu(m.conv(x))
    z *= 2
    return F.leaky_relu(F.silu(y), inplace=True) * z


def unseen(m: Any, x: Tensor) -> Tensor:
    y = normed(m, x)
    with torch.no_grad():
        mask = torch.sigmoid(y)
    return torch.tanh(y) * mask


def again(m: Any, x: Tensor) -> Tensor:
    return F.relu(m.norm(torch.sigmoid(normed(m, x))))


def taken(m: Any, x: Tensor) -> Tensor:
    """An activation that additions, a product and, after it was written into, another one take."""
    y = F.leaky_relu(m.norm(m.conv(x)) + m.conv(x), 0.2)
    z = y + 0.5 * (0.3 + y) + torch.sigmoid(y + y)
    z += y
    y *= 2
    y = y + z
    return y + torch.sigmoid(y)


def watched(m: Any, x: Tensor) -> Tensor:
    """A model that changes the gradient at an activation, in its own way."""
    y = F.leaky_relu(m.norm(m.conv(x)) + 1, 0.2)
    y.register_hook(lambda g: g * g.new_tensor([[[0.5]], [[1]], [[2]], [[1]], [[3]]]))
    return torch.sigmoid(y + 0.3) + (y + 0.1) ** 2


def differentiated(m: Any, x: Tensor) -> Tensor:
    """A model that takes a gradient at an activation with a skip, as a number."""
    y = F.leaky_relu(m.norm(m.conv(x)) + 1, 0.2)
    energy = torch.sigmoid(y + 0.3) + (y + 0.1) ** 2
    (g,) = torch.autograd.grad(energy.sum(), y, retain_graph=True)
    return energy * g.detach()


def careful(m: Any, x: Tensor) -> Tensor:
    """The same, of a model that goes on where no gradient can be had."""
    try:
        return differentiated(m, x)
    except RuntimeError:
        return torch.tanh(m.norm(m.conv(x)))


def single(n: int = 3) -> Subject:
    """One batch norm with the activation behind it."""
    return picture(lambda m, x: torch.tanh(normed(m, x)), n)


def vectors(act: nn.Module) -> Subject:
    parts = {"first": nn.Linear(3, 6), "second": nn.Linear(6, 5), "head": nn.Linear(5, 2)}
    return Model(lambda m, x: m.head(m.act(m.second(m.act(m.first(x))))), act=act, **parts), torch.randn(4, 3)


def sequences(norm: nn.Module, first: bool = True, n: int = 3) -> Subject:
    """A norm over features, twice, of [N, T, D] or [T, N, D]."""

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.norm(m.linear(x if first else x.transpose(0, 1).contiguous()))
        return m.head(m.norm(torch.tanh(y)).square().mean(1 if first else 0))

    return Model(run, linear=nn.Linear(3, 6), norm=norm, head=nn.Linear(6, 2)), torch.randn(n, 5, 3)


def encoder(batch_first: bool, **settings: Any) -> Subject:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first, **settings)

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.stem(x)
        return m.head(m.layer(y).mean(1) if batch_first else m.layer(y.transpose(0, 1)).mean(0))

    return Model(run, stem=nn.Linear(3, 8), layer=layer, head=nn.Linear(8, 2)), torch.randn(3, 5, 3)


def multi_head(batch_first: bool = True, n: int = 3, **call: Any) -> Subject:
    def run(m: Any, x: Tensor) -> Tensor:
        y = m.stem(x)
        y = y if batch_first else y.transpose(0, 1)
        named = {k: v(x) if callable(v) else v for k, v in call.items()}
        return m.head(torch.tanh(m.mix(y, y, y, **named)[0]).mean(1 if batch_first else 0))

    mix = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    return Model(run, stem=nn.Linear(3, 8), mix=mix, head=nn.Linear(8, 2)), torch.randn(n, 5, 3)


def projected(**call: Any) -> Subject:
    """Attention as in timm: one projection, cut into queries, keys and values."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = m.qkv(x).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, **call).transpose(1, 2).reshape(b, t, 8)
        return m.head(torch.tanh(m.out(y)).mean(1))

    return Model(run, qkv=nn.Linear(6, 24), out=nn.Linear(8, 8), head=nn.Linear(8, 2)), torch.randn(3, 5, 6)


def picked() -> Subject:
    """Attention as in torchvision's window transformers: queries, keys and values picked one by one, and a bias."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        qkv = m.qkv(m.norm(F.pad(x, (0, 0, 0, 0)))).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = (q @ k.transpose(2, 3) + m.bias.weight[m.index].permute(2, 0, 1).unsqueeze(0)).softmax(-1)
        return m.head(torch.tanh(m.out((weights @ v).transpose(1, 2).reshape(b, t, 8))).mean(1))

    parts = {"norm": nn.LayerNorm(6), "qkv": nn.Linear(6, 24), "out": nn.Linear(8, 8), "head": nn.Linear(8, 2)}
    model = Model(run, bias=nn.Embedding(9, 2), **parts)
    steps = torch.arange(5)
    model.register_buffer("index", steps[:, None] - steps[None, :] + 4)
    return model, torch.randn(3, 5, 6)


def written_out(heads: int = 2, masked: bool = False, twice: bool = False) -> Subject:
    """Attention through windows, in products as torchvision's MaxViT writes them, with a bias for each place."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = m.qkv(x).chunk(3, dim=-1)
        if heads:
            q, k, v = (part.reshape(b, 2, t // 2, heads, 8 // heads).permute(0, 1, 3, 2, 4) for part in (q, k, v))
            scores = torch.einsum("B G H I D, B G H J D -> B G H I J", q, k * 0.5)
        else:
            scores = q.bmm(k.transpose(1, 2))
        scores = scores + m.bias[: scores.shape[-1], : scores.shape[-1]]
        if masked:
            scores = (scores.flatten(0, 1) + torch.eye(scores.shape[-1])).view(scores.shape)
        weights = F.dropout(F.softmax(scores, dim=-1), 0.5, training=False)
        if heads:
            out = torch.einsum("B G H I J, B G H J D -> B G H I D", weights, v)
            out = out.permute(0, 1, 3, 2, 4).reshape(b, t, 8)
        else:
            out = weights @ v
        more = (weights.square().sum((-1, -2)).flatten(1).sum(1, keepdim=True)) if twice else 0.0
        return m.head(torch.tanh(m.out(out)).mean(1) + more)

    model = Model(run, qkv=nn.Linear(6, 24), out=nn.Linear(8, 8), head=nn.Linear(8, 2))
    model.bias = nn.Parameter(torch.randn(6, 6))
    return model, torch.randn(3, 6, 6)


def crossed() -> Subject:
    """Two queries look at five keys, with heads before positions in memory."""

    def run(m: Any, x: Tensor) -> Tensor:
        q, k, v = (
            f(t).unflatten(2, (2, 4)).transpose(1, 2).contiguous() for f, t in ((m.q, x[:, :2]), (m.k, x), (m.v, x))
        )
        return m.head(F.scaled_dot_product_attention(q, k, v, scale=0.9).transpose(1, 2).flatten(1))

    return Model(run, **{n: nn.Linear(6, 8, bias=n != "k") for n in "qkv"}, head=nn.Linear(16, 2)), torch.randn(3, 5, 6)


def frozen() -> Subject:
    model, x = single()
    return model.requires_grad_(False), x


def turned(order: Callable[[Tensor], Tensor]) -> Subject:
    """The batch norm's input lies in memory in another order."""
    return picture(lambda m, x: torch.tanh(m.norm(order(m.conv(x)))))


def long() -> Subject:
    """More positions than a tile has."""
    model, _ = projected()
    return model, torch.randn(1, 129, 6)


def separable(bias: bool) -> Subject:
    """A convolution by channel, with a stride, between two of all channels, as in mobile networks."""
    wide, deep = nn.Conv2d(2, 6, 1, bias=False), nn.Conv2d(6, 6, 3, 2, 1, groups=6, bias=bias)
    body = nn.Sequential(wide, nn.BatchNorm2d(6), nn.SiLU(), deep, nn.BatchNorm2d(6), nn.SiLU(), nn.Conv2d(6, 3, 1))
    return Model(lambda m, x: m.head(m.body(x).mean((2, 3))), body=body, head=nn.Linear(3, 2)), torch.randn(3, 2, 5, 7)


def averaged() -> Subject:
    """Its last convolution gets one gradient a channel, the same at every position."""
    parts = {"conv": nn.Conv2d(2, 4, 3), "norm": nn.BatchNorm2d(4), "last": nn.Conv2d(4, 5, 2), "head": nn.Linear(5, 2)}
    return Model(lambda m, x: m.head(m.last(torch.relu(m.norm(m.conv(x)))).mean((2, 3))), **parts), torch.randn(
        3, 2, 7, 8
    )


WRITTEN = {"product", "weighted"}


def squeezed(multiply: Callable[[Tensor, Tensor], Tensor] = lambda x, s: torch.mul(s, x), n: int = 3) -> Subject:
    """Squeeze and excitation behind a batch norm, and a scale that is a parameter."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.norm(m.conv(x))
        x = multiply(x, torch.sigmoid(m.gate(F.adaptive_avg_pool2d(x, 1)))) * m.gain.view(1, 4, 1, 1)
        return m.head(torch.tanh(x).mean((2, 3)))

    parts = {"conv": nn.Conv2d(2, 4, 3, padding=1), "norm": nn.BatchNorm2d(4), "gate": nn.Conv2d(4, 4, 1)}
    model = Model(run, **parts, head=nn.Linear(4, 2))
    model.gain = nn.Parameter(torch.randn(4))
    return model, torch.randn(n, 2, 5, 3)


BN, LN, ATTENTION, GRAM = {"affine"}, {"layer_norm"}, {"attention"}, {"contracted"}
BY_CHANNEL = {"depthwise", "depthwise_weight"}


@dataclass(frozen=True)
class Case:
    """A model with its inputs, what is asked of the engine, and what must come of it."""

    make: Callable[[], Subject]
    uses: set[str]
    """The kernels that must run; no other may."""
    slow: set[str] = field(default_factory=set)
    """Parameters on the general path."""
    settings: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Any], Any] = lambda t: t
    """Done to the model and to the inputs."""
    repeat: bool = False
    """Once more with a plan that is known."""


def to_last(t: Any) -> Any:
    return t.to(memory_format=CHANNELS_LAST)


CASES: dict[str, Case] = {
    "residual, channels last": Case(residual, BN | {"times", "patches"}, prepare=to_last),
    "separable, channels last": Case(lambda: separable(False), BN | BY_CHANNEL, prepare=to_last, repeat=True),
    "squeezed, channels last": Case(squeezed, BN | {"times", "scaled"}, prepare=to_last, repeat=True),
    "squeezed, in the other order, channels last": Case(
        lambda: squeezed(lambda x, s: x * s), BN | {"times", "scaled"}, prepare=to_last
    ),
    "squeezed, one input, channels last": Case(lambda: squeezed(n=1), BN | {"times"}, prepare=to_last),
    "a mean right behind a convolution, channels last": Case(averaged, BN, prepare=to_last),
    "separable, with a bias, channels last": Case(lambda: separable(True), BN | BY_CHANNEL, prepare=to_last),
    "short": Case(short, BN | {"times"}, repeat=True),
    "short, not in place": Case(lambda: short(inplace=False), BN | {"times"}),
    "single, frozen": Case(frozen, BN),
    "short, one input": Case(lambda: short(1), BN | {"times"}),
    "single, in chunks": Case(lambda: single(4), BN, settings={"chunk": 3}),
    "single, smoothed": Case(lambda: single(1), BN, settings=helpers.SMOOTH),
    "single, L1": Case(single, BN, settings={"norm": 1}),
    "short, some layers": Case(
        short, BN | {"times"}, settings={"select": ["block.conv1.weight", "block.bn2.bias", "head.*"]}
    ),
    "blocks, channels last": Case(blocks, BN | {"times", "patches"}, prepare=to_last),
    "blocks, not in place": Case(lambda: blocks(False), BN | {"times"}),
    "an activation is taken again and again": Case(lambda: picture(taken), BN | {"times"}),
    "a model takes a gradient at an activation": Case(lambda: picture(differentiated), BN | {"times"}),
    "a model goes on where it gets no gradient": Case(lambda: picture(careful), BN | {"times"}),
    "a model has a hook at an activation": Case(lambda: picture(watched), BN | {"times"}),
    "what an in-place activation returns is ignored, and the probe cannot tell": Case(ignored_late, BN),
    "what an in-place activation returns is ignored, no norm before it": Case(
        lambda: picture(ignored_plain), BN | {"times"}
    ),
    "a batch norm is used before and after an in-place activation": Case(lambda: picture(kept), BN | {"times"}),
    "a batch norm is used twice": Case(lambda: picture(both), BN),
    "a batch norm is called twice": Case(lambda: picture(again), BN),
    "activations are written into": Case(lambda: picture(written), BN | {"times"}),
    "an activation without gradients": Case(lambda: picture(unseen), BN),
    "rows before channels": Case(lambda: turned(swapped(1, 2)), BN),
    "channels before inputs": Case(lambda: turned(swapped(0, 1)), BN),
    **{name: Case(lambda act=act: vectors(act), {"times"}) for name, act in ACTIVATIONS.items()},
    "layer norm": Case(lambda: sequences(nn.LayerNorm(6)), LN | {"times"}),
    "layer norm, no parameters": Case(lambda: sequences(nn.LayerNorm(6, elementwise_affine=False)), LN | {"times"}),
    "layer norm, sequence first": Case(lambda: sequences(nn.LayerNorm(6), first=False), LN | {"times"}),
    "layer norm, smoothed": Case(lambda: sequences(nn.LayerNorm(6), n=1), LN | {"times"}, settings=helpers.SMOOTH),
    "encoder": Case(lambda: encoder(True), LN | ATTENTION | {"times"}, repeat=True),
    "encoder, sequence first": Case(lambda: encoder(False), LN | ATTENTION | GRAM | {"times"}),
    "multi-head, smoothed": Case(
        lambda: multi_head(n=1, need_weights=False), ATTENTION | {"times"}, settings=helpers.SMOOTH
    ),
    "multi-head": Case(lambda: multi_head(need_weights=False), ATTENTION | {"times"}),
    "multi-head, sequence first": Case(lambda: multi_head(False, need_weights=False), ATTENTION | {"times"}),
    "multi-head, with weights": Case(multi_head, GRAM | {"times"}),
    "multi-head, padded": Case(
        lambda: multi_head(need_weights=False, key_padding_mask=lambda x: torch.arange(5).expand(len(x), 5) > 3),
        GRAM | {"times"},
    ),
    "multi-head, masked": Case(
        lambda: multi_head(need_weights=False, attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1)), GRAM | {"times"}
    ),
    "attention of one projection": Case(projected, ATTENTION | {"times"}),
    "attention of one projection, causal": Case(lambda: projected(is_causal=True), {"times"}),
    "attention of one projection, long": Case(long, ATTENTION | {"times"}),
    "attention of one projection, picked one by one, with a bias": Case(picked, LN | WRITTEN | {"times"}),
    "attention of one projection, written out": Case(written_out, WRITTEN | {"times"}, repeat=True),
    "attention of one projection, written out, without heads": Case(lambda: written_out(0), WRITTEN | {"times"}),
    "attention of one projection, written out, masked": Case(lambda: written_out(masked=True), WRITTEN | {"times"}),
    "attention weights that are looked at twice": Case(lambda: written_out(twice=True), WRITTEN | {"times"}),
    "attention of other lengths": Case(crossed, ATTENTION),
    "vit": Case(
        lambda: (zoo.small_vit(size=8, patch=4, width=8, depth=1, heads=2, classes=2), torch.rand(3, 3, 8, 8)),
        LN | ATTENTION | GRAM | {"times"},
    ),
}  # fmt: skip

HALVES: dict[str, tuple[Callable[[], Subject], torch.dtype]] = {
    "single, bfloat16": (single, HALF),
    "layer norm, bfloat16": (CASES["layer norm"].make, HALF),
    "multi-head, float16": (CASES["multi-head"].make, torch.float16),
}
"""Attention not in bfloat16: the interpreter multiplies its bits as whole numbers."""


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often each kernel runs."""
    module = sys.modules["nescio.trace.runtime.kernels"]
    calls = dict.fromkeys(
        (
            "times", "affine", "patches", "depthwise", "depthwise_weight", "layer_norm", "contracted", "attention",
            "product", "weighted", "scaled",
        ), 0
    )  # fmt: skip

    def spy(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return kernel(*args, **named)

        return run

    spies = {name: spy(name, getattr(module, name)) for name in calls}
    with mock.patch.multiple(module, **spies):
        yield calls


def slow(model: nn.Module, parameters: tuple[str, ...]) -> list[str]:
    """The parameters that took the general path."""
    plans = passes._PLANS[model].values()
    assert plans
    return sorted({name for plan in plans for name in parameters if name not in plan.fast})


def compare(case: Case) -> dict[str, Any]:
    """The engine in float32 with the kernels, and the oracle in float64."""
    model, x = case.make()
    flags = [p.requires_grad for p in model.parameters()]
    model = model if case.make is ignored_late else helpers.ready(model)
    model, x = case.prepare(model.double().eval()), case.prepare(x.double())
    settings = {"layers": "tensor"} | case.settings
    wanted = trace.reference.class_gradients(model, x, **settings)
    model, x = model.float(), x.float()
    assert [p.requires_grad for p in model.parameters()] == flags
    model.train()
    before, given = helpers.state(model), x.clone()
    with counted() as calls:
        ours = trace.class_gradients(model, x, **settings)
    after = helpers.state(model)
    with counted() as repeated:
        if case.repeat:
            trace.class_gradients(model, x, **settings)
    return {
        "error": error(ours.norms, wanted.norms),
        "layers": ours.layers == wanted.layers,
        "slow": slow(model, ours.layers),
        "calls": calls,
        "repeated": repeated,
        "changed": [key for key in before if not helpers.identical(before[key], after[key])]
        + ([] if torch.equal(x, given) else ["x"]),
    }


def error(ours: Tensor, wanted: Tensor) -> float:
    """The largest relative error; what is a thousandth of the input's largest norm or less is held against that."""
    assert ours.shape == wanted.shape and ours.isfinite().all() and wanted.amax() > 1e-3
    return float(((ours - wanted).abs() / (wanted + 1e-3 * wanted.amax((1, 2), keepdim=True))).max())


def rank(x: Tensor) -> Tensor:
    return x.flatten().argsort().argsort().double()


def halved(make: Callable[[], Subject], dtype: torch.dtype) -> dict[str, Any]:
    """In half precision, against the oracle in float64 with the same rounded weights."""
    model, x = make()
    model, x = helpers.ready(model).to(dtype), x.to(dtype)
    ours = trace.class_gradients(model, x, layers="tensor")
    general = slow(model, ours.layers)
    wanted = trace.reference.class_gradients(model.double(), x.double(), layers="tensor").norms
    both = torch.stack([rank(ours.norms), rank(wanted)])
    return {"finite": bool(ours.norms.isfinite().all()), "rank": float(torch.corrcoef(both)[0, 1]), "slow": general}


def stale() -> dict[str, Any]:
    """What a rule leaves for a backward pass that does not come is not taken by another one."""
    out = {}
    for name, norm, shape in (("batch", nn.BatchNorm1d(4), (3, 4)), ("layer", nn.LayerNorm(4), (3, 4))):
        norm = helpers.ready(norm).float()
        x = torch.randn(shape).requires_grad_()
        with substitutes.folding():
            y = norm(x)
        node: Any = y.grad_fn
        g = torch.randn_like(y)
        (wanted,) = torch.autograd.grad(y, x, g, retain_graph=True)
        node.ready = torch.randn(1, *shape), torch.full((1, *shape), 1e6)
        (ours,) = torch.autograd.grad(y, x, g, retain_graph=True)
        node.ready = g.unsqueeze(0), torch.full((1, *shape), 7.0)
        (own,) = torch.autograd.grad(y, x, g)
        taken = bool((own == 7).all())
        out[name] = {"error": apart(ours, wanted.double()), "left": node.ready is not None, "taken": taken}
    return out


def forked() -> list[int]:
    """In one backward pass through three blocks: products with a derivative, and those of them for two gradients."""
    model, x = blocks()
    model = helpers.ready(model).float()
    trace.class_gradients(model, x)
    module = sys.modules["nescio.trace.runtime.kernels"]
    with mock.patch.object(module, "times", wraps=module.times) as spy:
        trace.class_gradients(model, x)
    return [spy.call_count, sum(len(call.args) == 3 for call in spy.call_args_list)]


def rectified() -> dict[str, Any]:
    """A rectifier behind a sum and behind a batch norm, also in place: keeps its value, and sees when it is lost."""
    out = {}
    for name, norm, inplace in (
        ("plain", False, False),
        ("in place", False, True),
        ("norm", True, False),
        ("both", True, True),
    ):
        x = torch.randn(3, 4).requires_grad_()
        with substitutes.folding():
            y = F.relu(helpers.ready(nn.BatchNorm1d(4)).float()(x) if norm else x + 0, inplace)
        kept = any(t is not None and t.data_ptr() == y.data_ptr() for t in y.grad_fn.saved_tensors)
        y += 1
        try:
            torch.autograd.grad(y.sum(), x)
        except RuntimeError as error:
            out[name] = kept and "modified by an inplace operation" in str(error)
        else:
            out[name] = False
    return out


LANGUAGES = ("triton.language", "triton.language.core")
"""The modules that the interpreter changes."""


def attempt(work: Callable[[], Any]) -> Any:
    """What the work gives, or how it failed."""
    torch.manual_seed(0)
    start = time.perf_counter()
    try:
        found = work()
        return {"found": found, "seconds": time.perf_counter() - start}
    except Exception:
        return {"failed": traceback.format_exc(), "seconds": time.perf_counter() - start}


def patch_once() -> None:
    """Let Triton's interpreter put its own functions into the language once, not at every call: a third of the time."""
    from triton.runtime import interpreter

    patch, patched = interpreter._patch_lang, set()

    def once(fn: Callable[..., Any]) -> Any:
        names = frozenset(v.__name__ for v in fn.__globals__.values() if getattr(v, "__name__", "") in LANGUAGES)
        if names not in patched:
            patched.add(names)
            patch(fn)
        return mock.Mock(spec=["restore"])

    interpreter._patch_lang = once


def main(path: str) -> None:
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import triton
    except ImportError as error:
        result: dict[str, Any] = {"missing": f"Triton cannot be imported: {error}"}
    else:
        assert os.environ["TRITON_INTERPRET"] == "1"
        patch_once()
        assert kernels(torch.zeros(1)) is not None
        assert kernels(torch.zeros(1, dtype=torch.float64)) is None
        result = {
            "triton": triton.__version__,
            "kernels": {name: attempt(work) for name, work in KERNELS.items()},
            "models": {name: attempt(lambda case=case: compare(case)) for name, case in CASES.items()},
            "halves": {name: attempt(lambda half=half: halved(*half)) for name, half in HALVES.items()},
            "stale": attempt(stale),
            "forked": attempt(forked),
            "rectified": attempt(rectified),
        }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1])
