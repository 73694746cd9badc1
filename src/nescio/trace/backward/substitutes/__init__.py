"""Operations that the engine evaluates in the place of PyTorch's; nothing of the model is changed.

    corrected      those whose gradients PyTorch gets wrong (`cdist`, norms, padded `average_pool`), on any device, in
                   the oracle too
    folding        those that fold well under `vmap`: `convolution`, `batch_norm` in eval mode, `parts` of a tensor that
                   are picked one by one, padding by nothing, and on a CPU `linear` layers at many positions and plain
                   `attention`; on a GPU also `average_pool`, `spatial_mean` and, by kernels, `layer_norm`,
                   element-wise `activations` (`forks`: under two edges), `channel_scale`, `attention` without a mask,
                   and attention through windows that is written out in `score_products`
    cpu            those whose data gradients are fast on a CPU, for maps over the input

A context manager sends the model's own calls there. A call that a substitute is not made for goes to PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from nescio.trace.backward.substitutes import (
    attention,
    average_pool,
    batch_norm,
    channel_scale,
    layer_norm,
    linear,
    score_products,
    spatial_mean,
)
from nescio.trace.backward.substitutes import convolution as data_convolution
from nescio.trace.backward.substitutes import pointwise as pointwise
from nescio.trace.backward.substitutes.corrected import CorrectedOps
from nescio.trace.backward.substitutes.forks import ASKING, SUMS, SUMS_IN_PLACE, Forks
from nescio.trace.backward.substitutes.picked_parts import Picker

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
FORKING = {*CONVOLUTIONS, *SUMS, *SUMS_IN_PLACE}


class _Folding(TorchFunctionMode):
    """Sends what has a substitute there, and everything else where it was going."""

    def __init__(self, picks: bool, last: bool, forks: Forks | None) -> None:
        super().__init__()
        self._forks = forks
        self._picker = Picker() if picks else None
        self._last = last

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._forks and func in FORKING:
            args = self._forks.turned(func, args)
        if self._forks and func in ASKING:
            self._forks.asked = True
        if self._last and args and (func is F.batch_norm or func is F.conv2d):
            args = (data_convolution.channels_last(args[0]), *args[1:])
        if func is F.batch_norm and (call := batch_norm.arguments(*args, **kwargs)) is not None:
            return batch_norm.AffineBatchNorm.apply(*call)
        if func in CONVOLUTIONS and (call := data_convolution.arguments(*args, **kwargs)) is not None:
            return data_convolution.DataConvolution.apply(*call)
        if func is F.layer_norm and (call := layer_norm.arguments(*args, **kwargs)) is not None:
            return layer_norm.DataLayerNorm.apply(*call)[0]
        if func is F.linear and (call := linear.arguments(*args, **kwargs)) is not None:
            return linear.DataLinear.apply(*call)
        if func is F.scaled_dot_product_attention and (call := attention.arguments(*args, **kwargs)) is not None:
            return attention.Attention.apply(*call)
        if func is F.multi_head_attention_forward and (done := attention.multi_head(*args, **kwargs)) is not None:
            return done
        if func in pointwise.ACTIVATIONS and (value := pointwise.call(func, args, kwargs, self._forks)) is not None:
            return value
        if func in channel_scale.CALLS and (value := channel_scale.call(args, kwargs)) is not None:
            return value
        if func in spatial_mean.CALLS and (value := spatial_mean.call(func, args, kwargs)) is not None:
            return value
        if func in score_products.CALLS and (value := score_products.call(func, args, kwargs)) is not None:
            return value
        if func is torch.Tensor.__getitem__ and self._picker and (part := self._picker.pick(*args)) is not None:
            return part
        if func is F.avg_pool2d and (call := average_pool.arguments(*args, **kwargs)) is not None:
            return average_pool.DataAverage.apply(*call)
        if func is F.pad and not any(args[1] if len(args) > 1 else kwargs["pad"]):
            return args[0].clone() if args else kwargs["input"].clone()  # its gradient goes on without a copy
        return func(*args, **kwargs)


@contextmanager
def folding(on: bool = True, picks: bool = True, last: bool = False, forks: Forks | None = None) -> Iterator[None]:
    """Inside, the first two kinds of substitutes are used; not with ``on=False``.

    ``picks``: whether `parts` are; a model that writes into a part cannot do with them. ``last``: whether convolutions
    and batch norms take pictures with channels last in memory on a GPU, however they come. ``forks``: the activations
    that may have two edges there; nobody may ask for gradients at them then.
    """
    with ExitStack() as stack:
        for mode in (CorrectedOps(), _Folding(picks, last, forks)) if on else ():
            stack.enter_context(mode)
        yield
