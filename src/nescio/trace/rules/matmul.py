"""Matrix products: ``y = x W`` over rows, the operation behind ``Linear`` and attention projections.

``∂/∂W = Σ_rows x_row ⊗ δ_row``; a bias is added to every row, ``∂/∂b = Σ_rows δ_row``. Rows that belong to one input
(tokens, pixels, time steps) are positions of one gradient.
"""

from __future__ import annotations

from torch import Tensor

from nescio.trace.backward.substitutes.linear import reached
from nescio.trace.norms import Form, Local, Outer
from nescio.trace.rules import Context, added, operand, rule
from nescio.trace.runtime import autograd_names as names


@rule((names.ADDMM, 2))
def addmm_weight(c: Context, delta: Tensor) -> Form | None:
    """``y = β b + α x W``."""
    return _weight(c, c.node._saved_mat1, delta, float(c.saved("alpha")))


@rule((names.MM, 1))
def mm_weight(c: Context, delta: Tensor) -> Form | None:
    """``y = x W``."""
    return _weight(c, c.node._saved_self, delta)


@rule((names.ADDMM, 0), exact=True)
def addmm_bias(c: Context, delta: Tensor) -> Form | None:
    """``y = β b + α x W`` with one b for all rows."""
    if len(c.shape) != 1:
        return None
    return Local(added(c.layout.front(delta, 1), 2) * float(c.saved("beta")))


@rule((names.LINEAR, 1), batch=lambda node, dims: range(max(1, dims - 1)))
def linear_weight(c: Context, delta: Tensor) -> Form | None:
    """``y = x Wᵀ + b`` kept as one operation (some back ends)."""
    x = operand(c.node._saved_input)
    if x.dim() < 2:
        return None
    a = c.layout.front(x).flatten(1, -2)
    return Outer(a.unsqueeze(1), c.layout.front(operand(delta), 1).flatten(2, -2).unsqueeze(2))


@rule((names.DATA_LINEAR, 1), batch=lambda node, dims: range(max(1, dims - 1)))
def data_linear_weight(c: Context, delta: Tensor) -> Form | None:
    """As `linear_weight`, at the positions that a gradient reaches."""
    a = c.layout.front(c.node.saved_tensors[0]).flatten(1, -2)
    d = c.layout.front(delta, 1).flatten(2, -2)
    at = reached(d, 2)
    if at is not None:
        at = at if len(at) else at.new_zeros(1)  # the gradient is zero, and some position has to say so
        a, d = a[:, at], d[:, :, at]
    return Outer(a.unsqueeze(1), d.unsqueeze(2))


@rule((names.LINEAR, 2), (names.DATA_LINEAR, 2), batch=lambda node, dims: range(max(1, dims - 1)), exact=True)
def linear_bias(c: Context, delta: Tensor) -> Form | None:
    """``y = x Wᵀ + b``."""
    return Local(added(c.layout.front(delta, 1).flatten(2, -2), 2))


def _weight(c: Context, x: Tensor | None, delta: Tensor, alpha: float = 1.0) -> Form | None:
    if x is None or x.dim() != 2:
        return None
    d = c.layout.front(operand(delta), 1).unsqueeze(2)
    return Outer(c.layout.front(operand(x)).unsqueeze(1), d if alpha == 1.0 else d * alpha)
