"""Proofs that norms mean what they say; a model for which they fail is refused with what to do.

* An input's logits are its own: the same in every call, and whatever else is in the batch (`prove_steady`). When a plan
  is found, each of a few inputs is run alone too. A model may still look at its neighbours for some batches only: one
  that trims padding to the longest text of the batch does so where texts differ in length. So whenever inputs differ
  in how much of them is not zero, the one with least is run alone again (`prove_own`).
* A parameter without a path to the logits has no influence on them (`prove_silent`).
* The inputs have a path to the logits (`refuse_blind`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.memory import exhausted
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.trace.probe.graph import Graph
from nescio.trace.probe.leaves import leaf
from nescio.types import ModelError

STEADY = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 0.2, torch.bfloat16: 0.2}
"""How far the logits of two calls of the model may be apart, relative to the largest logit."""

SILENT = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""A change of the logits, relative to the largest, that is no more than kernels which add up in another order make."""

NOISE = 8191
"""How many numbers are drawn to change a parameter; a larger one has them again and again, as drawing takes long."""


def prove_steady(classifier: Classifier, x: Inputs, first: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The logits [1, C] of each input that goes through the model alone, with its place in the batch.

    Raise ModelError when they are not ``first``, those of x: they change from call to call, or with the rest of the
    batch.
    """
    for i in reversed(range(len(first))):
        own = inputs.take(x, slice(i, i + 1))
        try:
            # with gradients on, as the batch was: without, torch's own transformer layers take another way
            alone = classifier.functional({}, leaf(own)[0])
        except (RuntimeError, ValueError, IndexError) as error:
            if i < len(first) - 1 or len(first) == 1 or exhausted(error) or isinstance(error, ModelError):
                raise
            _prove_same(classifier, x, first)
            raise _coupled(classifier) from error  # it takes several inputs, and not one
        if apart(alone, first[i : i + 1]):
            _prove_same(classifier, x, first)
            raise _coupled(classifier)
        yield i, alone


def _prove_same(classifier: Classifier, x: Inputs, first: Tensor) -> None:
    """Raise ModelError when another call gives other logits."""
    if apart(first, classifier.logits(leaf(x)[0])):
        raise ModelError(
            f"expected a model that gives the same logits each time it sees an input, but those of {classifier.name} "
            "change from call to call, in eval mode too; switch its randomness off (functional dropout needs "
            "training=self.training), or what it keeps from one call to the next"
        )


def prove_own(classifier: Classifier, x: Inputs, logits: Tensor) -> None:
    """Raise ModelError when inputs differ in how much of them is not zero, and the logits of the one with least change
    with the rest of the batch.
    """
    if len(logits) == 1:
        return
    if (i := least_filled(x)) is not None:
        _prove_own(classifier, x, logits, i)


def least_filled(x: Inputs) -> int | None:
    """The input with the fewest numbers that are not zero; None: all have as many."""
    filled = torch.stack([(t.detach().reshape(len(t), -1) != 0).sum(1) for t in inputs.tensors(x)]).sum(0)
    least, most = torch.stack(filled.aminmax()).tolist()
    return int(filled.argmin()) if least < most else None


def _prove_own(classifier: Classifier, x: Inputs, logits: Tensor, i: int) -> None:
    """Raise ModelError when the i-th input has other logits alone than in the batch."""
    one = slice(i, i + 1)
    # with gradients on, as the batch was: without, torch's own transformer layers take another way
    if apart(classifier.functional({}, inputs.take(x, one)), logits[one]):
        raise _coupled(classifier)


def _coupled(classifier: Classifier) -> ModelError:
    return ModelError(
        f"expected a model that treats each input of a batch on its own, but the logits of {classifier.name} for "
        "an input change with the others in the batch; look for attention over the first dimension "
        "(batch_first=True is missing), statistics of the batch (a dynamically quantised layer takes its scale "
        "from them), texts that are cut to the longest of the batch without a mask, or a reshape that mixes "
        "inputs; or give one input in each call"
    )


def apart(a: Tensor, b: Tensor) -> bool:
    """Whether two calls gave other logits."""
    tolerance = STEADY.get(a.dtype, 1e-2)
    a, b = a.detach().double(), b.detach().double()
    return not bool(((a - b).abs() <= tolerance * torch.maximum(a.abs().max(), b.abs().max())).all())


def prove_silent(classifier: Classifier, x: Inputs, names: Sequence[str], logits: Tensor | None = None) -> None:
    """Raise ModelError when a parameter without a gradient changes the logits all the same.

    If the logits of x are known and stay the same, the model runs once in place of twice.
    """
    if not names:
        return
    parameters = classifier.parameters()
    tolerance = SILENT.get(parameters[names[0]].dtype, 1e-5)
    generator = torch.Generator("cpu").manual_seed(0)

    def changed(p: Tensor) -> Tensor:
        count = p.numel()
        noise = torch.randn(min(count, NOISE), generator=generator, dtype=torch.float32, device="cpu").to(p)
        noise = noise.repeat(-(-count // NOISE))[:count].view(p.shape)
        return torch.addcmul(p.detach(), noise, 1 + p.detach().abs().mean())

    def influence(chosen: Sequence[str], before: Tensor | None = None) -> bool:
        with torch.no_grad():
            if before is None:
                before = classifier.functional({name: parameters[name].detach() for name in chosen}, x)
            before = before.double()
            after = classifier.functional({name: changed(parameters[name]) for name in chosen}, x).double()
        same = (after - before).abs() <= tolerance * before.abs().max()
        return not bool(same.all())  # NaN is not the same

    if (logits is None or influence(names, logits)) and influence(names):
        guilty = [name for name in names if influence([name])] or list(names)
        shown = ", ".join(guilty[:5]) + (f" and {len(guilty) - 5} more" if len(guilty) > 5 else "")
        raise ModelError(
            f"the parameters {shown} change the logits, but autograd has no path to them (the model detaches a value, "
            "runs a part under no_grad or inference_mode, uses re-entrant checkpointing, or computes with an operation "
            "that has no derivative, such as a quantised layer), so their gradient cannot be had; remove that from the "
            "model, or leave these layers out with exclude="
        )


def refuse_blind(classifier: Classifier, logits: Tensor, leaves: tuple[Tensor, ...]) -> None:
    """Raise ModelError when autograd has no way, or not every way, from the logits back to the inputs."""
    if not logits.requires_grad or Graph(logits, {}, leaves).blind:
        raise ModelError(
            f"expected logits with a gradient at the input, but those of {classifier.name} have none; remove no_grad, "
            "inference_mode, detach or an operation without a derivative, such as a quantised layer, from the model"
        )
