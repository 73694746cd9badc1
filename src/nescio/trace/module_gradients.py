"""Gradients at the input, and values and gradients at the outputs of modules, for given cotangents.

Cotangents are [R, N, C], or a function of the logits [N, C] that gives them; each of the R rows is pulled back for the
whole batch at once. Saliency maps read the gradient at the input, Grad-CAM and FullGrad the outputs of modules with
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from nescio import modes
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelLike
from nescio.trace.backward.pull import pull
from nescio.trace.backward.substitutes.corrected import CorrectedOps
from nescio.trace.probe.leaves import leaf
from nescio.trace.probe.proofs import refuse_blind
from nescio.types import InputError

Vectors = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ModuleTrace:
    """One call of a module: its ``output`` and, for each cotangent, the ``gradient`` [R, *output shape] there."""

    module: str
    output: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Trace:
    """Logits [N, C], gradients at the input [R, *input shape] (None for token indices), and calls of modules in
    forward order.
    """

    logits: Tensor
    inputs: Any
    calls: tuple[ModuleTrace, ...]


def input_gradients(model: ModelLike, x: Data, cotangents: Vectors) -> Any:
    """Compute the gradients of ``Σ cotangent·logits`` at the input. The model stays as it was.

    Args:
        model: an ``nn.Module`` or a `nescio.Classifier`; it is run in eval mode.
        x: a batch of inputs [N, ...], or a mapping of argument names to tensors.
        cotangents: [R, N, C], or a function from the logits [N, C] to them.

    Returns:
        Gradients [R, *shape of x]; for a mapping a mapping of those of its floating-point entries.

    Raises:
        InputError: the cotangents have another shape.
        ModelError: autograd has no path from the logits to the input.

    Examples:
        >>> import torch
        >>> from nescio import trace
        >>> likeliest = lambda logits: torch.nn.functional.one_hot(logits.argmax(1), 3).unsqueeze(0)
        >>> trace.input_gradients(torch.nn.Linear(4, 3), torch.randn(5, 4), likeliest).shape
        torch.Size([1, 5, 4])
    """
    return output_gradients(model, x, cotangents, modules=()).inputs


def output_gradients(model: ModelLike, x: Data, cotangents: Vectors, modules: Sequence[str] | None = None) -> Trace:
    """Compute values and gradients at the outputs of modules, and gradients at the input. The model stays as it was.

    A module that is called more than once gives one entry a call; one whose output does not reach the logits gets
    zeros.

    Args:
        model: an ``nn.Module`` or a `nescio.Classifier`; it is run in eval mode.
        x: a batch of inputs [N, ...], or a mapping of argument names to tensors.
        cotangents: [R, N, C], or a function from the logits [N, C] to them.
        modules: names of modules; None takes every module without children.

    Returns:
        A `Trace` with ``logits`` [N, C], the gradients at the ``inputs`` [R, *shape of x], and ``calls``: for each its
        ``module``, ``output`` and ``gradient`` [R, *shape of the output].

    Raises:
        InputError: there is no module of that name, or the cotangents have another shape.
        ModelError: autograd has no path from the logits to the input.

    Examples:
        >>> import torch
        >>> from nescio import trace
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> found = trace.output_gradients(model, torch.randn(5, 4), torch.ones(2, 5, 3), modules=["1"])
        >>> [(call.module, call.output.shape, call.gradient.shape) for call in found.calls]
        [('1', torch.Size([5, 8]), torch.Size([2, 5, 8]))]
    """
    classifier = Classifier.of(model)
    with modes.preserved(classifier), modes.tracing(classifier), CorrectedOps():
        x = classifier.prepare(x)
        tracked, roots = leaf(x)
        seen: list[tuple[str, Tensor, Any]] = []
        handles = [
            module.register_forward_hook(lambda _m, _i, y, name=name: _note(seen, name, y), prepend=True)
            for name, module in _chosen(classifier, modules)
        ]
        try:
            logits = classifier.logits(tracked)
        finally:
            for handle in handles:
                handle.remove()
        if len(logits):
            refuse_blind(classifier, logits, roots)
        vectors = (cotangents(logits.detach()) if callable(cotangents) else cotangents).to(logits)
        if vectors.dim() != 3 or vectors.shape[1:] != logits.shape or not len(vectors):
            raise InputError(
                f"expected cotangents [R, {logits.shape[0]}, {logits.shape[1]}] (rows, inputs, classes) with R >= 1; "
                f"got {list(vectors.shape)}"
            )
        pulled = pull(logits, [*roots, *(edge for _, _, edge in seen)], vectors)
        zeros = [
            torch.zeros((len(vectors), *t.shape), dtype=t.dtype, device=t.device)
            for t in (*roots, *(y for _, y, _ in seen))
        ]
        grads = [z if g is None else g.detach() for g, z in zip(pulled, zeros, strict=True)]
        calls = tuple(ModuleTrace(name, y, g) for (name, y, _), g in zip(seen, grads[len(roots) :], strict=True))
    return Trace(logits.detach(), _like(x, grads[: len(roots)]), calls)


def _note(seen: list[tuple[str, Tensor, Any]], name: str, y: Any) -> Tensor | None:
    """Remember an output; the module gives a copy of one that is a view, in whose place the graph puts another node
    when it is written to.
    """
    if not isinstance(y, torch.Tensor) or not y.requires_grad:
        return None
    copy = y.clone() if y._is_view() else None
    seen.append((name, y.detach().clone(), get_gradient_edge(y if copy is None else copy)))
    return copy


def _chosen(classifier: Classifier, names: Sequence[str] | None) -> list[tuple[str, torch.nn.Module]]:
    if classifier.module is None:
        return []
    known = dict(classifier.module.named_modules())
    if names is None:
        return [(name, m) for name, m in known.items() if next(m.children(), None) is None]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"the model has no module named {unknown[0]!r}; it has: {', '.join(n for n in known if n)}")
    return [(name, known[name]) for name in names]


def _like(x: Inputs, grads: list[Tensor]) -> Any:
    if isinstance(x, torch.Tensor):
        return grads[0] if grads else None
    names = [name for name, t in x.items() if t.is_floating_point()]
    return dict(zip(names, grads, strict=True))
