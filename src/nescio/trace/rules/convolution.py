"""Convolutions in 1, 2 or 3 dimensions, with groups, strides, dilation and padding, plain and transposed.

With the input unfolded into patches, ``a[n, g, t]`` the patch at output position t, a convolution is a matrix product
shared by all positions: ``∂/∂W = Σ_t δ_t ⊗ a_t``. A transposed convolution is the adjoint: there the output gradient
is unfolded, and the input gives one vector a position of the *input* grid. Padding modes other than zeros are
operations of their own before the convolution. Where every channel has a kernel of its own (`depthwise_weights`),
the gradient is written down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.norms import Form, Local, Outer
from nescio.trace.rules import Context, added, depthwise_weights, of_each_input, operand, rule
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime.gpu import kernels


@rule((names.CONVOLUTION, 1), (names.DATA_CONVOLUTION, 1))
def weight(c: Context, delta: Tensor) -> Form | None:
    """``y = W ⋆ x + b``."""
    if c.node.name() == names.DATA_CONVOLUTION:
        transposed, x = False, operand(c.node.saved_tensors[0])
        stride, padding, dilation, groups = c.node.geometry
    else:
        saved = ("transposed", "input", "stride", "padding", "dilation", "groups")
        transposed, x, stride, padding, dilation, groups = (getattr(c.node, f"_saved_{name}") for name in saved)
        x = operand(x)
    kernel, flat = c.shape[2:], operand(delta).flatten(0, 1)
    if c.shape[1] == 1 < groups:
        g = depthwise_weights.gradient(operand(delta), x, c.shape, stride, padding, dilation, transposed)
        return Local(of_each_input(c, g.flatten(2)))
    if transposed:
        d, a = unfold(flat, groups, kernel, stride, padding, dilation, x.shape[2:]), positions(x, groups)
    else:
        d, a = positions(flat, groups), unfold(x, groups, kernel, stride, padding, dilation, delta.shape[3:])
    a, d = c.layout.front(a), c.layout.front(d.unflatten(0, delta.shape[:2]), 1)  # [.., N, m, G, T, features]
    return Outer(a.movedim(1, 2).flatten(2, 3), d.movedim(2, 3).flatten(3, 4))


@rule((names.CONVOLUTION, 2), (names.DATA_CONVOLUTION, 2), exact=True)
def bias(c: Context, delta: Tensor) -> Form | None:
    """One value a channel, added at every position."""
    return Local(of_each_input(c, added(delta, tuple(range(3, delta.dim())))))


def positions(x: Tensor, groups: int) -> Tensor:
    """[B, G·c, *space] → [B, G, T, c] with T the positions in space; a view, whatever the memory format."""
    if x.stride(1) == 1 and x.dim() > 2:  # channels last
        return x.movedim(1, -1).flatten(1, -2).unflatten(-1, (groups, -1)).movedim(-2, 1)
    return x.flatten(2).unflatten(1, (groups, -1)).mT


def unfold(
    x: Tensor,
    groups: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out: Sequence[int],
) -> Tensor:
    """Patches of x [B, G·c, *space] under the T ``out`` positions: [B, G, T, kernel·c], copied in memory order."""
    last = x.stride(1) == 1
    flat = x.dim() == 4 and last and x.is_contiguous(memory_format=torch.channels_last)
    if flat and groups == 1 and math.prod(kernel) > 1 and kernels(x) is not None:
        return kernels(x).patches(x, kernel, stride, padding, dilation, out).unsqueeze(1)
    x = F.pad(x, [p for q in reversed(padding) for p in (q, q)]) if any(padding) else x
    for i, (k, s, d, o) in enumerate(zip(kernel, stride, dilation, out, strict=True)):
        x = x.unfold(2 + i, d * (k - 1) + 1, s).narrow(2 + i, 0, o)[..., ::d]
    dims = len(kernel)
    if all(k == 1 for k in kernel):
        return positions(x.flatten(1 + dims), groups)
    x = x.unflatten(1, (groups, -1))  # [B, G, c, *out, *kernel]
    space, window = range(3, 3 + dims), range(3 + dims, 3 + 2 * dims)
    if last:
        return x.permute(0, 1, *space, *window, 2).flatten(2 + dims).flatten(2, 1 + dims)
    return x.permute(0, 1, *window, 2, *space).flatten(3 + dims).flatten(2, 2 + dims).mT
