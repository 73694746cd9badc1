"""The proof that an input's logits are its own: the same in every call, and whatever else is in the batch.

When a plan is found, each of a few inputs is run alone too. A model may still look at its neighbours for some batches
only: one that trims padding to the longest text of the batch does so where texts differ in length. So whenever inputs
differ in how much of them is not zero, the one with least is run alone again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.memory import exhausted
from nescio.models import Classifier
from nescio.types import ModelError

STEADY = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 0.2, torch.bfloat16: 0.2}
"""How far the logits of two calls of the model may be apart, relative to the largest logit."""


def prove_steady(classifier: Classifier, x: Any, first: Tensor, second: Tensor) -> None:
    """Raise ModelError when the logits of an input change from call to call (``first`` and ``second`` are those of x),
    or with the rest of the batch.
    """
    if _apart(first, second):
        raise ModelError(
            f"expected a model that gives the same logits each time it sees an input, but those of {classifier.name} "
            "change from call to call, in eval mode too; switch its randomness off (functional dropout needs "
            "training=self.training), or what it keeps from one call to the next"
        )
    for i in reversed(range(len(first) if len(first) > 1 else 0)):
        try:
            _prove_own(classifier, x, second, i)
        except (RuntimeError, ValueError, IndexError) as error:
            if i < len(first) - 1 or exhausted(error) or isinstance(error, ModelError):
                raise
            raise _coupled(classifier) from error  # it takes several inputs, and not one


def prove_own(classifier: Classifier, x: Any, logits: Tensor) -> None:
    """Raise ModelError when inputs differ in how much of them is not zero, and the logits of the one with least change
    with the rest of the batch.
    """
    if len(logits) == 1:
        return
    filled = torch.stack([(t.detach().reshape(len(t), -1) != 0).sum(1) for t in inputs.tensors(x)]).sum(0)
    least, most = torch.stack(filled.aminmax()).tolist()
    if least < most:
        _prove_own(classifier, x, logits, int(filled.argmin()))


def _prove_own(classifier: Classifier, x: Any, logits: Tensor, i: int) -> None:
    """Raise ModelError when the i-th input has other logits alone than in the batch."""
    one = slice(i, i + 1)
    # with gradients on, as the batch was: without, torch's own transformer layers take another way
    if _apart(classifier.functional({}, inputs.take(x, one)), logits[one]):
        raise _coupled(classifier)


def _coupled(classifier: Classifier) -> ModelError:
    return ModelError(
        f"expected a model that treats each input of a batch on its own, but the logits of {classifier.name} for "
        "an input change with the others in the batch; look for attention over the first dimension "
        "(batch_first=True is missing), statistics of the batch (a dynamically quantised layer takes its scale "
        "from them), texts that are cut to the longest of the batch without a mask, or a reshape that mixes "
        "inputs; or give one input in each call"
    )


def _apart(a: Tensor, b: Tensor) -> bool:
    tolerance = STEADY.get(a.dtype, 1e-2)
    a, b = a.detach().double(), b.detach().double()
    return not bool(((a - b).abs() <= tolerance * torch.maximum(a.abs().max(), b.abs().max())).all())
