"""Element-wise activations by their derivative, which all cotangents share: one product in the backward pass.

The derivative is worked out once, by autograd itself, when the activation is called; that of a rectifier is where its
value is not zero, and as in PyTorch the value is kept for it. On a GPU PyTorch's own backward
would read the saved tensor through slow broadcasting; on a CPU that of smooth activations copies it once for every
cotangent, and works out exponentials for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from nescio.trace.backward.pull import folded
from nescio.trace.backward.substitutes.batch_norm import activated, written
from nescio.trace.backward.substitutes.forks import Forks
from nescio.trace.runtime.engine_gradients import engine_gradients
from nescio.trace.runtime.gpu import kernels

ACTIVATIONS = {
    F.relu, F.relu6, F.hardtanh, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.softplus, F.hardswish,
    torch.relu, torch.tanh, torch.sigmoid, F.tanh, F.sigmoid,
}  # fmt: skip

RECTIFIERS = {F.relu, torch.relu}
SMOOTH = ACTIVATIONS - RECTIFIERS - {F.relu6, F.hardtanh, F.leaky_relu}
"""Those whose derivative takes longer than a product."""


class Pointwise(torch.autograd.Function):
    """``y = f(x)`` given y and ``d = f'(x)`` (None: of a rectifier); ``inplace`` writes y into x, ``forked`` gives it
    under two edges.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, d: Tensor | None, inplace: bool, forked: bool = False) -> Any:
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(x if inplace else y)  # y is the result itself, not a view of it: models write into it
        y = written(x, y) if inplace else y
        ctx.rectified = d is None
        ctx.save_for_backward(y if d is None else d)
        return (y, y.detach()) if forked else y

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor | None) -> tuple[Tensor | None, ...]:
        (d,) = ctx.saved_tensors
        module = kernels(d)

        def run(*g: Tensor) -> tuple[Tensor]:
            if module is not None:
                return (module.times(g[0], d, *g[1:], rectified=ctx.rectified),)
            return (sum(g[1:], g[0]) * (d > 0 if ctx.rectified else d),)

        arrived = [delta for delta in deltas if delta is not None]
        return (folded(arrived[0], run, *arrived[1:])[0] if arrived else None), *[None] * 4


def call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], forks: Forks | None = None
) -> Tensor | None:
    """The activation's value, or None for a call that is left to PyTorch; on a GPU under two edges for ``forks``."""
    x = args[0] if args else kwargs.get("input")
    if not isinstance(x, Tensor) or not (x.requires_grad and torch.is_grad_enabled()):
        return None
    on_gpu = kernels(x) is not None
    if not on_gpu and not (func in SMOOTH and _on_cpu(x)):
        return None
    named = dict(kwargs)
    inplace = bool(named.pop("inplace", False))
    if func is F.relu and len(args) > 1:
        args, inplace = args[:1], bool(args[1])
    elif any(isinstance(a, bool) for a in args[1:]):
        return None
    if inplace and (x._is_view() or x.is_leaf):
        return None
    root = x.detach()
    d = None
    if func in RECTIFIERS:  # passes over memory are all that they cost: none for ones, for a copy or a derivative
        y = root.relu_() if inplace else root.relu()
    else:
        root.requires_grad_()
        named.pop("input", None)
        with saved_tensors_hooks(_itself, _itself):  # none of a checkpoint's, which would compute all of it again
            y = func(root, *args[1:], **named)
            (d,) = engine_gradients([y], [root], [torch.ones_like(y)])
    if on_gpu and (joined := activated(x, y.detach(), d, inplace)) is not None:
        return joined
    if on_gpu and forks is not None:
        return forks.keep(*Pointwise.apply(x, y.detach(), d, inplace, True))
    return Pointwise.apply(x, y.detach(), d, inplace)


def _itself(t: Tensor) -> Tensor:
    return t


def _on_cpu(x: Tensor) -> bool:
    """Whether it is a plain tensor there, of a type in which a product has as many digits as PyTorch's own backward."""
    plain = x.device.type == "cpu" and x.layout == torch.strided and not x.is_nested
    return plain and x.dtype in (torch.float32, torch.float64) and not torch._C._are_functorch_transforms_active()
