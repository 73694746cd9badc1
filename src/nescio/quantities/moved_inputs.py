"""What quantities share that move inputs a little: the check that they can be moved, the directions, the passes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.quantities.base import Budget
from nescio.trace.runtime.noise import takes
from nescio.types import InputError


def need_floating(x: Inputs) -> None:
    """Raise an InputError for inputs that cannot be moved a little, such as tokens."""
    if not takes(x):
        raise InputError(
            f"expected floating-point inputs, to which noise can be added, got {inputs.describe(x)}; "
            "use a method without noise on its inputs: entropy, perturb_theta, or a gradient score with samples=0"
        )


def plus(x: Inputs, shift: Inputs) -> Inputs:
    """The batch moved by `shift`; entries of a mapping that the shift does not have stay."""
    if isinstance(x, Tensor):
        assert isinstance(shift, Tensor)
        return x + shift
    assert not isinstance(shift, Tensor)
    return {name: value + shift[name] if name in shift else value for name, value in x.items()}


def loss_direction(logits: Tensor) -> Tensor:
    """∂ℓ/∂z = p − e_ŷ, divided by 1 − p_ŷ: the same signs, and no underflow where the model is sure. [1, N, C]."""
    top = logits.argmax(-1, keepdim=True)
    others = logits.detach().to(torch.float64).scatter(-1, top, -torch.inf).softmax(-1)
    return others.scatter(-1, top, -1.0).to(logits.dtype)[None]


def moved_logits(
    classifier: Classifier, x: Inputs, samples: int, budget: Budget, shift: Callable[[Tensor, Tensor], Inputs]
) -> Tensor:
    """Logits at x[n] + shift(s, n) for every draw s and input n, float64 [S, N, C].

    A forward pass takes as many pairs (s, n) as fit. Positions are made, and results kept, on the inputs' device: a GPU
    would wait for every one that crosses over.
    """
    count, device = inputs.size(x), inputs.tensors(x)[0].device

    def step(start: int, stop: int) -> Tensor:
        pair = torch.arange(start, stop, device=device)
        draw, at = pair // count, pair % count
        return classifier.logits(plus(inputs.take(x, at), shift(draw, at)))

    with predicting(classifier):
        parts = in_chunks(samples * count, at_once(x, budget.chunk), step)
    return torch.cat(parts).to("cpu", torch.float64).view(samples, count, -1)
