"""Operations whose gradients PyTorch gets wrong, in a form in which they are right.

* The backward of `torch.cdist` is wrong under `vmap` (`cdist`).
* On a CPU the backward of batch norm, and of instance norm, which is built on it, is wrong for a batch of one picture
  whose gradient lies in memory with the channels last: the kernel takes it for one with the channels first. So norms
  are written down here as what they are, and autograd differentiates that.
* Before PyTorch 2.15 the backward of group norm reads memory that is not its own, where channels are last and no
  gradient of its input is wanted.

Inside of `CorrectedOps` a network's own calls go through these, in the oracle too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.trace.backward.substitutes.average_pool import averaging
from nescio.trace.backward.substitutes.batch_norm import by_channel, laid_out, normalised, wide
from nescio.trace.backward.substitutes.cdist import distances

FIXED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
"""Whether this PyTorch has the right group norm."""


class CorrectedOps(TorchFunctionMode):
    """Inside, calls of these operations have the right gradient."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        substitute = _SUBSTITUTES.get(func)
        result = None if substitute is None else substitute(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is None else result


def doubled(classifier: Classifier, x: Inputs) -> Tensor:
    """Logits of inputs that go through the model with a copy of them: of two the gradient of a norm is right too.

    For a model with activation checkpointing: its backward pass runs parts of it again, out of `CorrectedOps`' reach.
    """
    return classifier.logits(inputs.concatenate([x, x]))[: inputs.size(x)]


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """`F.batch_norm`; None for a call that is left to PyTorch."""
    if training or running_mean is None or running_var is None or not _broken(input, 2):
        return None
    mean, var = by_channel(running_mean, input), by_channel(running_var, input)
    return laid_out(normalised(input, mean, var, weight, bias, eps))


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """`F.instance_norm`; None for a call that is left to PyTorch."""
    if not use_input_stats:
        result = _batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        return None if result is None else result.contiguous()
    if running_mean is not None or not _broken(input, 3) or input[0, 0].numel() < 2:
        return None
    var, mean = torch.var_mean(wide(input), tuple(range(2, input.dim())), correction=0, keepdim=True)
    return normalised(input, mean, var, weight, bias, eps).contiguous()


def _group_norm(func: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def call(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
        if FIXED or input.device.type != "cpu" or input.is_contiguous():
            return None
        return func(input.contiguous(), *args, **kwargs)

    return call


def _broken(x: Tensor, least: int) -> bool:
    return x.device.type == "cpu" and x.dim() >= least and x.layout == torch.strided and x.is_floating_point()


def _inner(norm: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    """The same for the operation behind the function, which has its arguments in another order."""

    def call(
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool = True,
    ) -> Tensor | None:
        return norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

    return call


_SUBSTITUTES: dict[Any, Callable[..., Tensor | None]] = {
    torch.cdist: distances,
    F.batch_norm: _batch_norm,
    torch.batch_norm: _inner(_batch_norm),
    torch.ops.aten.batch_norm.default: _inner(_batch_norm),
    F.instance_norm: _instance_norm,
    torch.instance_norm: _inner(_instance_norm),
    torch.ops.aten.instance_norm.default: _inner(_instance_norm),
    **{func: _group_norm(func) for func in (F.group_norm, torch.group_norm, torch.ops.aten.group_norm.default)},
    **{func: averaging(func) for func in (F.avg_pool2d, torch.ops.aten.avg_pool2d.default)},
}
