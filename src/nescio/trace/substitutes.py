"""Operations evaluated in a form that folds well under `vmap`: `batch_norm` in eval mode and `data_convolution`.

Inside `folding` the model's own calls of these go through ours; nothing of the model is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from nescio.trace import batch_norm, data_convolution

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
        return func(*args, **kwargs)


@contextmanager
def folding(wanted: bool = True) -> Iterator[None]:
    """Inside, substitutes are used, where that is wanted."""
    if not wanted:
        yield
        return
    with _Folding():
        yield
