"""Parameters that are broadcast into an element-wise operation: class tokens, position embeddings, layer scales,
PReLU slopes.

The gradient of an input's part is the product of the output gradient with the operation's derivative, summed over the
dimensions that were broadcast.
"""

from __future__ import annotations

from torch import Tensor

from nescio.trace.norms import Form, Local
from nescio.trace.rules import Context, any_dim, full, rule
from nescio.trace.runtime import autograd_names as names


@rule((names.EXPAND, 0), (names.ADD, 0), (names.SUB, 0), batch=any_dim, exact=True)
def same(c: Context, delta: Tensor) -> Form | None:
    """``y = p`` or ``y = p + x``."""
    return _broadcast(c, full(delta))


@rule((names.ADD, 1), batch=any_dim, exact=True)
def added(c: Context, delta: Tensor) -> Form | None:
    """``y = x + α p``."""
    return _broadcast(c, full(delta), float(c.saved("alpha")))


@rule((names.SUB, 1), batch=any_dim, exact=True)
def subtracted(c: Context, delta: Tensor) -> Form | None:
    """``y = x − α p``."""
    return _broadcast(c, full(delta), -float(c.saved("alpha")))


@rule((names.MUL, 0), batch=any_dim, exact=True)
def factor_left(c: Context, delta: Tensor) -> Form | None:
    """``y = p x``."""
    return _broadcast(c, full(delta) * c.saved("other"))


@rule((names.MUL, 1), batch=any_dim, exact=True)
def factor_right(c: Context, delta: Tensor) -> Form | None:
    """``y = x p``."""
    return _broadcast(c, full(delta) * c.saved("self"))


@rule((names.PRELU, 1), batch=any_dim, exact=True)
def prelu(c: Context, delta: Tensor) -> Form | None:
    """``y = max(x, 0) + p min(x, 0)``."""
    return _broadcast(c, full(delta) * c.saved("self").clamp(max=0))


def _broadcast(c: Context, product: Tensor, factor: float = 1.0) -> Form | None:
    """Sum each input's part down to the operand's shape, then multiply."""
    part = c.layout.split(product, 1)
    dims = part.dim() - 2
    shape = (1,) * (dims - len(c.shape)) + c.shape
    own = part.shape[2:]
    if any(want not in (1, have) for want, have in zip(shape, own, strict=True)):
        return None
    if c.layout.inputs > 1 and shape[c.layout.dim] != 1:
        return None  # the parameter has entries for the batch itself
    summed = [2 + i for i, (want, have) in enumerate(zip(shape, own, strict=True)) if want != have]
    part = (part.sum(summed, keepdim=True) if summed else part).flatten(2)
    return Local(part if factor == 1.0 else part * factor)
