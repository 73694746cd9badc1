"""Operations evaluated in a form that folds well under `vmap`: `batch_norm` in eval mode and `data_convolution`; on a
GPU also `layer_norm`, element-wise activations (`pointwise`) and `attention` without a mask.

Inside `folding` the model's own calls of these go through ours; nothing of the model is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from nescio.trace.backward.substitutes import activations as pointwise
from nescio.trace.backward.substitutes import attention, batch_norm, layer_norm
from nescio.trace.backward.substitutes import convolution as data_convolution
from nescio.trace.backward.substitutes.corrected import CorrectedOps

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


class _Folding(TorchFunctionMode):
    """Sends what has a substitute there, and everything else where it was going."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm and (call := batch_norm.arguments(*args, **kwargs)) is not None:
            return batch_norm.AffineBatchNorm.apply(*call)
        if func in CONVOLUTIONS and (call := data_convolution.arguments(*args, **kwargs)) is not None:
            return data_convolution.DataConvolution.apply(*call)
        if func is F.layer_norm and (call := layer_norm.arguments(*args, **kwargs)) is not None:
            return layer_norm.DataLayerNorm.apply(*call)[0]
        if func is F.scaled_dot_product_attention and (call := attention.arguments(*args, **kwargs)) is not None:
            return attention.Attention.apply(*call)
        if func is F.multi_head_attention_forward and (done := attention.multi_head(*args, **kwargs)) is not None:
            return done
        if func in pointwise.ACTIVATIONS and (value := pointwise.call(func, args, kwargs)) is not None:
            return value
        return func(*args, **kwargs)


@contextmanager
def folding(wanted: bool = True) -> Iterator[None]:
    """Inside, substitutes are used, where that is wanted."""
    with ExitStack() as stack:
        for mode in (CorrectedOps(), _Folding()) if wanted else ():
            stack.enter_context(mode)
        yield
