"""Convolutions in 1, 2 or 3 dimensions, with groups, strides, dilation and padding, plain and transposed.

With the input unfolded into patches, ``a[n, g, t]`` the patch at output position t, a convolution is a matrix product
shared by all positions: ``∂/∂W = Σ_t δ_t ⊗ a_t``. A transposed convolution is the adjoint: there the output gradient
is unfolded, and the input gives one vector a position of the *input* grid. Padding modes other than zeros are
operations of their own before the convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from nescio.trace.forms import Form, Local, Outer
from nescio.trace.rules import Context, full, rule


@rule(("ConvolutionBackward0", 1))
def weight(c: Context, delta: Tensor) -> Form | None:
    """``y = W ⋆ x + b``."""
    x, groups = c.saved("input"), int(c.saved("groups"))
    delta = full(delta)
    stride, padding, dilation = (c.saved(k) for k in ("stride", "padding", "dilation"))
    kernel = c.shape[2:]
    if c.saved("transposed"):
        d = unfold(delta.flatten(0, 1), kernel, stride, padding, dilation, x.shape[2:])
        a = x.flatten(2)
    else:
        a = unfold(x, kernel, stride, padding, dilation, delta.shape[3:])
        d = delta.flatten(0, 1).flatten(2)
    a = a.unflatten(1, (groups, -1))
    d = d.unflatten(1, (groups, -1)).unflatten(0, delta.shape[:2])
    return Outer(_positions(c.layout.front(a)), _positions(c.layout.front(d, 1)))


@rule(("ConvolutionBackward0", 2))
def bias(c: Context, delta: Tensor) -> Form | None:
    """One value a channel, added at every position."""
    return Local(c.layout.front(full(delta).flatten(3).sum(3), 1).sum(2))


def unfold(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out: Sequence[int],
) -> Tensor:
    """Patches of x [B, C, *space] under each of the ``out`` positions: [B, C·kernel, positions]."""
    if all(k == 1 for k in kernel) and not any(padding):
        for i, (o, s) in enumerate(zip(out, stride, strict=True)):
            x = x.narrow(2 + i, 0, (o - 1) * s + 1).unfold(2 + i, 1, s).squeeze(-1)
        return x.flatten(2)
    x = F.pad(x, [p for q in reversed(padding) for p in (q, q)]) if any(padding) else x
    dims = len(kernel)
    for i, (k, s, d, o) in enumerate(zip(kernel, stride, dilation, out, strict=True)):
        x = x.unfold(2 + i, d * (k - 1) + 1, s).narrow(2 + i, 0, o)[..., ::d]
    order = [0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims)]
    return x.permute(order).flatten(1, 1 + dims).flatten(2)


def _positions(t: Tensor) -> Tensor:
    """[.., N, m, G, features, T] → [.., N, G, m·T, features]."""
    return t.movedim(-4, -3).movedim(-1, -2).flatten(-3, -2) if t.shape[-4] > 1 else t.squeeze(-4).mT
