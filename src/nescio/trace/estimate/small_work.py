"""Few inputs of few classes: the loop itself, which is faster than finding out how to do without it.

The engine runs a model several times before it trusts a rule, and folds all classes into one backward pass, at a price
that does not depend on their number. For a handful of inputs and classes on a CPU that takes longer than one backward
pass for each input and class. So these are computed in that way, whatever the model is, and nothing is estimated. The
proofs are those of the engine, and what cannot be computed so is left to it: it says why.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.trace.backward import cotangents
from nescio.trace.backward.cotangents import Cotangents
from nescio.trace.backward.substitutes.corrected import FIXED, CorrectedOps
from nescio.trace.estimate.cut import AUTO
from nescio.trace.probe.layers import find_layers
from nescio.trace.probe.proofs import apart, least_filled, prove_silent
from nescio.trace.probe.reach import Reach
from nescio.trace.runtime.engine_gradients import engine_gradients
from nescio.types import NormSettings, NormTable

ROWS = 16
"""Backward passes that are few."""
WORK = 1e11
"""Multiplications of all of them, roughly, up to which the loop was found to be faster, at first and later."""
LARGE = 1 << 15
"""Numbers in a parameter, on the mean of all, from which on inputs go through the model one by one."""
LONG = 1 << 14
"""Numbers whose squares are added up in float32 row by row."""
SAFE = 1e-15, 1e15
"""Norms whose squares are far from the ends of float32."""

_PROVED: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
"""Models whose logits were found to be each input's own, for one input (1) and several (2)."""


def may_be_small(classifier: Classifier, x: Inputs, request: NormSettings) -> bool:
    """Whether the loop may be the faster way, before the number of classes is known."""
    device = classifier.device
    if device is None or device.type != "cpu" or request.precision is not None:
        return False
    return 2 * inputs.size(x) <= ROWS and not (request.sigma > 0 and request.samples > 0)


def by_loop(
    classifier: Classifier, x: Inputs, rows: Sequence[str], request: NormSettings
) -> dict[str, NormTable] | None:
    """The table of norms for each kind of row by the loop; None: it is not the faster way, or cannot be taken."""
    parameters = classifier.parameters()
    size = inputs.size(x)
    if not _may_have_few_classes(classifier, parameters, size):
        return None
    step = 1 if _alone_is_faster(parameters) else size
    try:
        passes = [_logits(classifier, inputs.take(x, slice(0, step)))]
        if not _few(x, parameters, passes[0].shape[1], request):
            return None
        passes += [_logits(classifier, inputs.take(x, slice(i, i + step))) for i in range(step, size, step)]
        if not _own(classifier, x, torch.cat([logits.detach() for logits in passes]), together=step > 1):
            return None
        return _tables(classifier, x, rows, request, passes, parameters)
    except Exception:  # whatever it is, the engine meets it too, and says what to do
        return None


def _may_have_few_classes(classifier: Classifier, parameters: Mapping[str, Tensor], size: int) -> bool:
    """Whether a parameter may be that of the last layer of few classes: most networks have no narrow layer."""
    if classifier.output == "binary":
        return True
    widths = (width for p in parameters.values() if p.dim() > 1 for width in (p.shape if p.dim() == 2 else p.shape[:1]))
    return any(1 < width <= ROWS // size for width in widths)


def _alone_is_faster(parameters: Mapping[str, Tensor]) -> bool:
    """Whether a backward pass of one input takes so much less time than one of all that the inputs go through the model
    alone: through convolutions, and where the parameters are large.
    """
    convolutions = sum(p.dim() > 3 for p in parameters.values())
    return 8 * convolutions > len(parameters) or sum(p.numel() for p in parameters.values()) > LARGE * len(parameters)


def _few(x: Inputs, parameters: Mapping[str, Tensor], classes: int, request: NormSettings) -> bool:
    """Whether the loop is the faster way, and all that is asked for would be computed, not estimated."""
    budget = {"exact": classes, "auto": AUTO}.get(str(request.classes), request.classes)
    rows = inputs.size(x) * classes
    if rows > ROWS or classes > int(budget):
        return False
    positions = max(math.prod(t.shape[2:] if t.dim() > 2 else t.shape[1:]) for t in inputs.tensors(x))
    return rows * sum(p.numel() for p in parameters.values()) * max(1, positions / 256) <= WORK


def _logits(classifier: Classifier, x: Inputs) -> Tensor:
    with nullcontext() if FIXED else CorrectedOps():
        return classifier.logits(x)


def _own(classifier: Classifier, x: Inputs, z: Tensor, together: bool) -> bool:
    """Whether logits are the same in another call, and whatever else is in the batch.

    As in the engine it is looked at once for a model, and where inputs differ in how much of them is not zero. If all
    went through the model together, it is looked at for the last of them, or the one with least.
    """
    kind, proved = min(len(z), 2), _PROVED.setdefault(classifier.module, set())
    least = None if len(z) == 1 else least_filled(x)
    if kind in proved and least is None:
        return True
    if together:
        i = len(z) - 1 if least is None else least
        own = not apart(classifier.functional({}, inputs.take(x, slice(i, i + 1))), z[i : i + 1])
    else:
        own = not apart(classifier.functional({}, x), z)
    if own:
        proved.add(kind)
    return own


def _tables(
    classifier: Classifier,
    x: Inputs,
    rows: Sequence[str],
    request: NormSettings,
    passes: Sequence[Tensor],
    parameters: Mapping[str, Tensor],
) -> dict[str, NormTable] | None:
    reaches = [Reach(logits, parameters) for logits in passes]
    if any(reach.blind for reach in reaches):
        return None  # the engine says of which layers the gradient is lost
    table = find_layers(reaches[0], parameters, request.layers, request.select, request.exclude)
    silent: dict[tuple[str, ...], list[int]] = {}
    for i, reach in enumerate(reaches):
        reach.lay_out_gradients()
        silent.setdefault(tuple(name for name in table.parameters if name not in reach.uses), []).append(i)
    step, z = len(passes[0]), torch.cat([logits.detach() for logits in passes])
    for unused, places in silent.items():  # inputs that are silent alike are looked at together
        alike = [i * step + k for i in places for k in range(step)]
        prove_silent(classifier, inputs.take(x, alike), unused, z[alike])
    wanted = [parameters[name] for name in table.parameters]
    layer = torch.tensor([at for at, members in enumerate(table.members) for _ in members])
    p = z.double().softmax(1)
    tables = {}
    for row in rows:
        block = cotangents.build(row, z, 1, request.smoothing)
        powers = _norms(passes, wanted, block, p, request.norm) ** request.norm
        sums = p.new_zeros((*powers.shape[:2], len(table.names))).index_add_(2, layer, powers)
        norms = (sums.sqrt() if request.norm == 2 else sums) * block.scale.T.unsqueeze(2)
        tables[row] = NormTable(norms, p, table.names, logits=z)
    return tables


def _norms(passes: Sequence[Tensor], wanted: Sequence[Tensor], block: Cotangents, p: Tensor, norm: int) -> Tensor:
    """Norms [N, R, P] of the parameters' gradients for cotangents [R, N, C], before their scale.

    One class of each input follows from the others without a backward pass of its own, since Σ_c p_c ∂ log p_c = 0. It
    is the likeliest: the others have small weights in it.
    """
    step, vectors = len(passes[0]), block.vectors.to(passes[0].dtype)
    norms = p.new_zeros(len(p), len(vectors), len(wanted))
    all_classes = 1 < len(vectors) == p.shape[1]
    for i in range(len(p)):
        logits = passes[i // step]
        skipped = int(p[i].argmax()) if all_classes else -1
        weights = (block.vectors[skipped, i] * block.scale[:, i] / p[i, skipped]).tolist() if all_classes else ()
        rest: list[Tensor] = []
        for row, vector in enumerate(vectors[:, i]):
            if row == skipped:
                continue
            alone = torch.zeros_like(logits)
            alone[i % step] = vector
            found = engine_gradients([logits], wanted, [alone], retain=True)
            there = [at for at, g in enumerate(found) if g is not None]
            dense = [g.to_dense() if g.is_sparse else g for g in found if g is not None]
            norms[i, row, there] = _sizes(dense, norm)
            if all_classes and not rest:
                rest = list(torch._foreach_mul(dense, weights[row])) if dense else []
            elif all_classes:
                torch._foreach_add_(rest, dense, alpha=weights[row])
        if rest:
            norms[i, skipped, there] = _sizes(rest, norm)
    return norms


def _sizes(gradients: list[Tensor], norm: int) -> Tensor:
    """The norms of gradients in float64."""
    if not gradients:
        return torch.zeros(0, dtype=torch.float64)
    if all(g.dtype == torch.float32 for g in gradients):
        parts = [vector_norm(g.flatten(1), norm, 1) if g.numel() > LONG and g.dim() > 1 else g for g in gradients]
        sizes = torch.stack(torch._foreach_norm(parts, norm)).double()
        least, most = torch.stack(sizes.aminmax()).tolist()
        if SAFE[0] < least and most < SAFE[1]:
            return sizes
        again = ((sizes <= SAFE[0]) | ~(sizes < SAFE[1])).nonzero().flatten().tolist()  # and those that are NaN
        sizes[again] = torch.stack(torch._foreach_norm([gradients[at] for at in again], norm, dtype=torch.float64))
        return sizes
    return torch.stack(torch._foreach_norm(gradients, norm, dtype=torch.float64))
