"""The general path: gradients of any parameter of any model, one input at a time, by `torch.func` or a plain loop.

For the parameters ``θ_g`` that have no rule, each input (with its noisy copies) is a function ``θ_g → logits``; its
vector–Jacobian products with all cotangents are the gradients. `vmap` runs many inputs and cotangents at once; a
model that `vmap` cannot follow (control flow on data, unknown operations, parameters that it holds in other places
than its modules) is run in a loop over inputs. Nothing is assumed about the model but that it is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.utils.checkpoint import CheckpointError

from nescio import inputs
from nescio._common.memory import exhausted
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.trace.backward.pull import pull, pull_each, quiet
from nescio.trace.backward.substitutes import linear
from nescio.trace.backward.substitutes.corrected import CorrectedOps, doubled
from nescio.trace.runtime.engine_gradients import engine_gradients

FALLBACK = (RuntimeError, NotImplementedError, TypeError, ValueError, KeyError)
"""What a model that vmap cannot follow may raise."""

VMAP_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}
"""Largest block of per-input gradients held at once."""


def power_sums(
    classifier: Classifier,
    x: Inputs,
    names: Sequence[str],
    vectors: Tensor,
    copies: int,
    norm: int,
    follow: bool = True,
) -> dict[str, Tensor]:
    """``Σ|g|^norm`` [K, N] of each named parameter, for x of N·copies inputs and cotangents [K, N·copies, C].

    ``follow``: whether vmap may be tried (`follows`).
    """
    n = inputs.size(x) // copies
    out = {name: vectors.new_zeros((len(vectors), n), dtype=torch.float64) for name in names}
    if not names:
        return out
    for at, grads in _gradients(classifier, x, names, vectors, copies, follow):
        for name, g in grads.items():
            flat = g.reshape(*g.shape[:2], -1).double()  # a parameter may be a single number
            out[name][:, at] = (flat * flat).sum(2) if norm == 2 else flat.abs().sum(2)
    return out


def gradients(classifier: Classifier, x: Inputs, names: Sequence[str], vectors: Tensor) -> dict[str, Tensor]:
    """The gradients [K, 1, *shape] themselves, for x that is one input with all its copies."""
    if not names:
        return {}
    return _one(classifier, x, names, vectors)


def follows(classifier: Classifier, x: Inputs, names: Sequence[str], vectors: Tensor, tolerance: float) -> bool:
    """Whether vmap gives autograd's own gradients of the named parameters, for inputs x and cotangents [1, N, C]."""
    if not isinstance(x, torch.Tensor):
        return False
    try:
        many = _many(classifier, x, names, vectors, 1)
    except FALLBACK as error:
        if exhausted(error):
            raise
        return False
    for i in range(len(x)):
        own = _one(classifier, x[i : i + 1], names, vectors[:, i : i + 1])
        largest = max(g.double().norm() for g in own.values())
        for name, g in own.items():
            apart = (many[name][:, i] - g[:, 0]).double().norm()
            if not bool(apart <= tolerance * (g.double().norm() + 1e-3 * largest)):
                return False
    return True


def _gradients(
    classifier: Classifier, x: Inputs, names: Sequence[str], vectors: Tensor, copies: int, follow: bool
) -> Any:
    """Blocks (slice of inputs, {name: [K, inputs in block, *shape]})."""
    n = inputs.size(x) // copies
    parameters = classifier.parameters()
    each = sum(parameters[name].numel() * parameters[name].element_size() for name in names) * len(vectors)
    width = max(1, min(n, VMAP_BYTES.get(vectors.device.type, 1 << 28) // max(each, 1)))
    follow = follow and n > 1
    for start in range(0, n, width):
        block = slice(start, min(start + width, n))
        rows = slice(block.start * copies, block.stop * copies)
        part, v = inputs.take(x, rows), vectors[:, rows]
        if isinstance(part, torch.Tensor) and follow:
            try:
                gradients = _many(classifier, part, names, v, copies)
            except FALLBACK as error:
                if exhausted(error):
                    raise
                follow = False
            else:
                yield block, gradients
                continue
        for i in range(block.start, block.stop):
            own = slice(i * copies, (i + 1) * copies)
            yield slice(i, i + 1), _one(classifier, inputs.take(x, own), names, vectors[:, own])


def _many(classifier: Classifier, x: Tensor, names: Sequence[str], vectors: Tensor, copies: int) -> dict[str, Tensor]:
    """Many inputs at once by vmap over inputs of a vjp that is vmapped over cotangents."""
    fixed = {name: p.detach() for name, p in classifier.parameters().items()}
    chosen = {name: fixed.pop(name) for name in names}

    def one(group: Tensor, v: Tensor) -> dict[str, Tensor]:
        logits, back, *_ = torch.func.vjp(lambda theta: classifier.functional({**fixed, **theta}, group), chosen)
        return torch.func.vmap(lambda u: back(u)[0])(v.to(logits.dtype))

    groups = x.detach().unflatten(0, (-1, copies))
    with quiet(), CorrectedOps():
        gradients = torch.func.vmap(one)(groups, vectors.unflatten(1, (-1, copies)).movedim(0, 1))
    return {name: g.movedim(0, 1) for name, g in gradients.items()}


def _one(classifier: Classifier, x: Inputs, names: Sequence[str], vectors: Tensor) -> dict[str, Tensor]:
    """One input by ordinary autograd."""
    parameters = classifier.parameters()
    wanted = [parameters[name] for name in names]
    try:
        with CorrectedOps():
            pulled = pull(classifier.logits(inputs.take(x, slice(None))), wanted, vectors)
    except CheckpointError:
        pulled = pull_each(doubled(classifier, x), wanted, vectors)
    pulled = [g.to_dense() if g is not None and g.is_sparse else g for g in pulled]
    shapes = ((len(vectors), *parameters[name].shape) for name in names)
    return {
        name: (vectors.new_zeros(shape) if g is None else g).unsqueeze(1)
        for name, g, shape in zip(names, pulled, shapes, strict=True)
    }


def pulled_through(edges: Sequence[GradientEdge], parameter: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    """Gradients [B, *shape] of a parameter for B gradients at edges of the graph that no input lies below."""
    each = parameter.numel() * parameter.element_size() + sum(v[0].numel() * v.element_size() for v in vectors)
    width = max(1, VMAP_BYTES.get(parameter.device.type, 1 << 28) // max(each, 1))

    def back(*own: Tensor) -> Tensor:
        with linear.weights_too():
            (g,) = engine_gradients(edges, [parameter], own, retain=True)
        assert g is not None
        return g.to_dense() if g.is_sparse else g

    parts = []
    for some in zip(*(v.split(width) for v in vectors), strict=True):
        try:
            with quiet():
                parts.append(torch.func.vmap(back)(*some))
        except FALLBACK as error:
            if exhausted(error):
                raise
            parts.append(torch.stack([back(*own) for own in zip(*some, strict=True)]))
    return torch.cat(parts)
