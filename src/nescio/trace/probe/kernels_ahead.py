"""Which kernels a backward pass will ask for: known from the graph of the forward pass, so that they can be compiled
while the model is still being looked at.

What the operations' backward passes and rules do with a kernel is done here with tensors that have a shape and no
memory. That need not be complete, nor exact: what is missing is compiled when it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from nescio.trace.backward.substitutes import attention, score_products
from nescio.trace.norms import Outer
from nescio.trace.probe.graph import Graph
from nescio.trace.probe.shapes_alone import ShapesAlone
from nescio.trace.rules import convolution as convolution_rules
from nescio.trace.rules import depthwise_weights
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime.gpu import compiler, kernels

Shadow = Callable[[Tensor], Tensor]
"""Gives a tensor without memory, laid out as another one."""
COTANGENTS = (1, 12)
"""At a time: when the model is looked at, and about as many as when it is scored."""


def prepare(graph: Graph, inputs: int, device: torch.device, dtype: torch.dtype | None = None) -> None:
    """Compile, in threads, the kernels for a backward pass through this graph.

    Args:
        graph: Of a forward pass.
        inputs: That went through it.
        device: Where it ran; nothing is done on a CPU.
        dtype: The type of the gradients, where it is not that of the forward pass.
    """
    ahead = compiler(device)
    if ahead is None:
        return

    def shadow(t: Tensor) -> Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=dtype or t.dtype, device="meta")

    with ahead.noted() as found, torch.no_grad(), ShapesAlone():
        for node, count in product((node for node in graph.nodes if node.name() in _ASK), COTANGENTS):
            with suppress(Exception):  # an operation that is used in an unusual way, and not wrong for that
                _ASK[node.name()](node, shadow, count, inputs)
    ahead.compile_all(found, device)


def prepare_forward(module: nn.Module | None, device: torch.device) -> None:
    """Compile those of a forward pass, before there is a graph: batch norm, and convolutions by channel.

    Args:
        module: The model.
        device: Where it will run; nothing is done on a CPU.
    """
    ahead = compiler(device)
    if ahead is None or module is None:
        return
    parts = [part for part in module.modules() if isinstance(part, nn.Conv2d) and 1 < part.groups == part.in_channels]
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d) and part.running_var is not None]
    with ahead.noted() as found, torch.no_grad(), suppress(Exception):
        for part in parts:
            if part.weight.dtype == torch.float32 and len(part.weight) == part.groups:
                x = torch.empty((3, 16, 16, part.groups), device="meta").permute(0, 3, 1, 2)
                weight = torch.empty(part.weight.shape, device="meta")
                kernels(x).depthwise(x, weight, part.stride, (1, 1), part.dilation, (16, 16), False)
        for norm in norms:
            _normalised(norm)
    ahead.compile_all(found, device)


def _normalised(norm: nn.BatchNorm2d) -> None:
    """Ask for its map of pictures, with channels first and last."""
    tensors = norm.weight, norm.bias, norm.running_mean, norm.running_var
    parameters = [None if t is None else torch.empty_like(t, device="meta") for t in tensors]
    x = torch.empty((3, norm.num_features, 16, 16), dtype=norm.running_var.dtype, device="meta")  # type: ignore[union-attr]
    for each in (x, x.contiguous(memory_format=torch.channels_last)):
        kernels(x).channel_map(each, *parameters, norm.eps)


def _rows(like: Tensor, count: int) -> Tensor:
    """Gradients of so many cotangents, each laid out as ``like``."""
    shape, stride = (count, *like.shape), (like.numel(), *like.stride())
    return torch.empty_strided(shape, stride, dtype=like.dtype, device="meta")


def _activation(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    d = shadow(node.saved_tensors[0])
    g = _rows(d, count)
    kernels(d).times(g, d, *[g] * (len(node._input_metadata) - 1), rectified=node.rectified)


def _batch_norm(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    x, *others = node.saved_tensors
    x, (*parameters, gate) = shadow(x), (None if t is None else shadow(t) for t in others)
    kernels(x).affine(_rows(x, count), x, *parameters, node.eps, gate, node.rectified)


def _layer_norm(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    x, weight, mean, rstd = node.saved_tensors
    x, mean, rstd = map(shadow, (x, mean, rstd))
    kernels(x).layer_norm(_rows(x, count), x, mean, rstd, None if weight is None else shadow(weight), inputs)


def _convolution(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    x, weight = map(shadow, node.saved_tensors)
    if x.dim() != 4:
        return
    stride, padding, dilation, groups = node.geometry
    geometry = (stride, padding, dilation)
    reach = zip(x.shape[2:], weight.shape[2:], *geometry, strict=True)
    size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in reach]
    y = x.new_empty((len(x), len(weight), *size))
    y = y.contiguous(memory_format=torch.channels_last) if x.stride(1) == 1 else y
    if weight.shape[1] == 1 < groups:
        depthwise_weights.gradient(_rows(y, count), x, weight.shape, *geometry)
        if weight.shape[0] == x.shape[1] and x.is_contiguous(memory_format=torch.channels_last):
            kernels(x).depthwise(y, weight, *geometry, x.shape[2:], True)
        return
    a = convolution_rules.unfold(x, groups, weight.shape[2:], *geometry, size)
    d = convolution_rules.positions(_rows(y, count).flatten(0, 1), groups)
    Outer(a, d.unflatten(0, (count, -1))).power(2)


def _product(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    x = getattr(node, f"_saved_{names.PRODUCTS[node.name()][0]}")
    if x is None or x.dim() < 2 or x.shape[0] % inputs:
        return
    out = node._input_metadata[0].shape[-1]
    a = shadow(x).flatten(0, -2).unflatten(0, (inputs, -1)).unsqueeze(1)
    Outer(a, a.new_empty((count, inputs, 1, a.shape[2], out))).power(2)


def _attention(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    q, k, v = map(shadow, node.saved_tensors)
    attention.pulled(_rows(q, count), q, k, v, node.scale)


def _packed_attention(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    qkv = shadow(node.saved_tensors[0])
    g = qkv.new_empty((*qkv.shape[:2], qkv.shape[2] // 3))
    attention.pulled_packed(_rows(g, count), qkv, node.heads, node.first)


def _scores(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    a, b = map(shadow, node.saved_tensors)
    score_products.pulled(a.new_empty((count, *a.shape[:-1], b.shape[-2])), a, b)


def _weighted(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    weights, v = map(shadow, node.saved_tensors)
    lead, d = weights.shape[:-2], v.shape[-1]
    if len(lead) < 2:  # heads beside each other, as the projection behind attention gives them
        g = v.new_empty((count, *weights.shape[:-1], d))
    else:
        g = v.new_empty((count, *lead[:-1], weights.shape[-2], lead[-1], d)).transpose(-2, -3)
    score_products.pulled_weighted(g, weights, v)


def _channel_scale(node: Any, shadow: Shadow, count: int, inputs: int) -> None:
    x, scale = map(shadow, node.saved_tensors)
    kernels(x).scaled(_rows(x, count), x, scale.flatten(1))


_ASK: dict[str, Callable[[Any, Shadow, int, int], None]] = {
    names.POINTWISE: _activation,
    names.AFFINE_BATCH_NORM: _batch_norm,
    names.DATA_LAYER_NORM: _layer_norm,
    names.DATA_CONVOLUTION: _convolution,
    names.ATTENTION: _attention,
    names.PACKED_ATTENTION: _packed_attention,
    names.CHANNEL_SCALE: _channel_scale,
    names.SCORES: _scores,
    names.WEIGHTED: _weighted,
} | dict.fromkeys(names.PRODUCTS, _product)
