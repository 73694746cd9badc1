"""Affine parameters of normalisation layers: ``y = γ x̂ + β`` with ``∂/∂γ = Σ_positions δ x̂`` and ``∂/∂β =
Σ_positions δ``.

Batch norm in eval mode normalises with its running statistics; in train mode it couples the inputs and has no rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward.substitutes import batch_norm, layer_norm
from nescio.trace.norms import Form, Local
from nescio.trace.rules import Context, full, of_each_input, rule
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime.gpu import kernels


@rule(*((name, 1) for name in names.BATCH_NORMS))
def batch_norm_weight(c: Context, delta: Tensor) -> Form | None:
    """``Σ δ x̂`` over positions."""
    sums = _batch_norm_sums(c, delta)
    return None if sums is None else Local(of_each_input(c, sums[0]))


@rule(*((name, 2) for name in names.BATCH_NORMS))
def batch_norm_bias(c: Context, delta: Tensor) -> Form | None:
    """``Σ δ`` over positions."""
    sums = _batch_norm_sums(c, delta)
    return None if sums is None else Local(of_each_input(c, sums[1]))


def _batch_norm_sums(c: Context, delta: Tensor) -> tuple[Tensor, Tensor] | None:
    """``Σ δ x̂`` and ``Σ δ`` [K, B, channels], ``x̂ = (x − running mean)/√(running variance + ε)``.

    x̂ is formed, since ``r (Σ δ x − mean Σ δ)`` would cancel. A kernel makes both sums and the data gradient at once.
    """
    if "sums" in c.shared:
        return c.shared["sums"]
    eps_name = names.BATCH_NORMS[c.node.name()]
    if eps_name is None and kernels(c.node.saved_tensors[0]) is not None:
        grad, *sums = batch_norm.pulled(c.node, delta)
        c.node.ready = delta, grad
        c.shared["sums"] = tuple(sums)
        return c.shared["sums"]
    if eps_name is None:
        x, _, mean, var, _ = c.node.saved_tensors
        x, eps = full(x), c.node.eps
    else:
        if c.saved("training"):
            return None
        x, mean, var, eps = (c.saved(k) for k in ("input", "running_mean", "running_var", eps_name))
    normal = (x - batch_norm.by_channel(mean, x)) * batch_norm.by_channel((var + eps).rsqrt(), x)
    d = full(delta)
    space = tuple(range(3, d.dim()))
    # a cotangent at a time: the products stay in the cache
    products = torch.stack([(row * normal).sum(tuple(range(2, row.dim()))) for row in d]) if space else d * normal
    c.shared["sums"] = products, d.sum(space) if space else d
    return c.shared["sums"]


def _leading(node: Any, dims: int) -> Sequence[int]:
    """Layer norm: the batch may be any dimension before the normalised ones."""
    return range(max(1, dims - len(node._saved_normalized_shape)))


@rule((names.LAYER_NORM, 1), batch=_leading)
def layer_norm_weight(c: Context, delta: Tensor) -> Form | None:
    """``x̂ = (x − mean) · rstd`` over the last dimensions, with the statistics that the forward saved."""
    normal = (c.saved("input") - c.saved("result1")) * c.saved("result2")
    return _trailing(c, full(delta) * normal)


@rule((names.DATA_LAYER_NORM, 1), batch=lambda node, dims: range(max(1, dims - 1)))
def data_layer_norm_weight(c: Context, delta: Tensor) -> Form | None:
    """As `layer_norm_weight`, from a kernel's sums."""
    return _data_layer_norm(c, delta)[0]


@rule((names.DATA_LAYER_NORM, 2), batch=lambda node, dims: range(max(1, dims - 1)))
def data_layer_norm_bias(c: Context, delta: Tensor) -> Form | None:
    """As `layer_norm_bias`, from a kernel's sums."""
    return _data_layer_norm(c, delta)[1]


def _data_layer_norm(c: Context, delta: Tensor) -> tuple[Form, Form]:
    """Both sums; an input's rows must be adjacent for the kernel to add them up."""
    if "sums" not in c.shared:
        if c.layout.dim == 0 and c.layout.major:
            grad, products, sums = layer_norm.pulled(c.node, delta, c.layout.inputs)
            c.node.ready = delta, grad
            c.shared["sums"] = Local(products), Local(sums)
        else:
            x, _, mean, rstd = c.node.saved_tensors
            normal = (full(x) - mean) * rstd
            c.shared["sums"] = _trailing(c, full(delta) * normal), _trailing(c, full(delta))
    return c.shared["sums"]


@rule((names.RMS_NORM, 1), batch=_leading)
def rms_norm_weight(c: Context, delta: Tensor) -> Form | None:
    """``x̂ = x · rstd``."""
    return _trailing(c, full(delta) * (c.saved("input") * c.saved("result1")))


@rule((names.LAYER_NORM, 2), batch=_leading)
def layer_norm_bias(c: Context, delta: Tensor) -> Form | None:
    """``Σ δ`` over positions."""
    return _trailing(c, full(delta))


def _trailing(c: Context, product: Tensor) -> Form:
    """Sum over everything but the batch and the normalised dimensions."""
    rows = c.layout.front(product, 1)
    keep = len(c.shape)
    return Local(rows.flatten(2, -keep - 1).sum(2).flatten(2))


@rule((names.GROUP_NORM, 1))
def group_norm_weight(c: Context, delta: Tensor) -> Form | None:
    """Statistics for each input and group of channels."""
    x, groups = c.saved("input"), int(c.saved("group"))
    mean, rstd = (c.saved(k).reshape(x.shape[0], groups, 1) for k in ("result1", "result2"))
    normal = (x.reshape(x.shape[0], groups, -1) - mean) * rstd
    return _channels(c, full(delta) * normal.view(x.shape))


@rule((names.GROUP_NORM, 2))
def group_norm_bias(c: Context, delta: Tensor) -> Form | None:
    """``Σ δ`` over positions."""
    return _channels(c, full(delta))


def _channels(c: Context, product: Tensor) -> Form:
    """Sum over positions; channels are dimension 1 of the output."""
    product = product.sum(tuple(range(3, product.dim()))) if product.dim() > 3 else product
    return Local(of_each_input(c, product))


@rule((names.REPEAT, 0))
def repeated(c: Context, delta: Tensor) -> Form | None:
    """A vector repeated for every input, as instance norm does with its affine parameters."""
    if len(c.shape) != 1 or delta.dim() != 2:
        return None
    rows = c.layout.front(full(delta), 1)
    if rows.shape[2] % c.shape[0]:
        return None
    return Local(rows.unflatten(2, (-1, c.shape[0])).sum(2))
