"""The papers' own way, and the oracle of every test: a loop over inputs and rows with `torch.autograd.grad`.

It is slow and obvious, and takes nothing for granted: one input (with its noisy copies) at a time, the objective as the
papers write it, one backward pass for each row, and the norm of what autograd returns. In float32 it loses digits for
confident inputs: errors of up to 5e-3, and exact zeros. As an oracle it is run in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from nescio import inputs, modes
from nescio.inputs import Data
from nescio.models import Classifier, ModelLike
from nescio.trace.backward.substitutes.corrected import CorrectedOps, doubled
from nescio.trace.probe.cached_tensors import forget
from nescio.trace.probe.graph import Graph
from nescio.trace.probe.layers import find_layers
from nescio.trace.probe.proofs import prove_silent
from nescio.trace.runtime import noise
from nescio.types import ClassGradients


def class_gradients(
    model: ModelLike, x: Data, *, output: str | None = None, chunk: int | None = None, **settings: Any
) -> ClassGradients:
    """Compute the norms of ``∂ log p_c/∂θ_l`` by the loop.

    Args:
        model: an ``nn.Module`` or a `nescio.Classifier`; it is run in eval mode.
        x: a batch of inputs [N, ...], or a mapping of argument names to tensors.
        output: what the model returns, as in `nescio.trace.class_gradients`.
        chunk: not used; there for the same call as the engine's.
        settings: norm, layers, select, exclude, sigma, samples, seed and smoothing, as there.

    Returns:
        `ClassGradients` with ``norms`` [N, C, L], ``probabilities`` [N, C] and ``layers``.

    Examples:
        >>> import torch
        >>> from nescio import trace
        >>> model, x = torch.nn.Linear(4, 3).double(), torch.randn(2, 4).double()
        >>> exact = trace.reference.class_gradients(model, x).norms
        >>> torch.allclose(trace.class_gradients(model, x).norms, exact)
        True
    """
    norms, probabilities, names = gradient_norms(Classifier.of(model, output=output), x, rows=("classes",), **settings)
    return ClassGradients(norms["classes"], probabilities, names)


def gradient_norms(
    classifier: Classifier,
    x: Data,
    *,
    rows: Sequence[str] = ("classes",),
    norm: int = 2,
    layers: str = "module",
    select: Sequence[str] | None = None,
    sigma: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    smoothing: str = "log",
    chunk: int | None = None,
    exclude: Sequence[str] | None = None,
) -> tuple[dict[str, Tensor], Tensor, tuple[str, ...]]:
    """The same numbers as `nescio.trace.gradient_norms`, one input and one row at a time (``chunk`` is not used)."""
    with modes.preserved(classifier), modes.tracing(classifier):
        x = inputs.apply(classifier.prepare(x), Tensor.detach)
        forget(classifier, inputs.take(x, slice(0, 1)))
        parameters = classifier.parameters()
        first = Graph(classifier.logits(inputs.take(x, slice(0, 1))), parameters)
        table = find_layers(first, parameters, layers, select, exclude)
        prove_silent(classifier, inputs.take(x, slice(0, 1)), [n for n in table.parameters if n not in first.uses])
        chosen = [parameters[name] for name in table.parameters]
        results: dict[str, list[Tensor]] = {row: [] for row in rows}
        probabilities = []

        def row_norms(log_p: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            p = log_p[0].detach().exp()
            smooth = log_p.mean(0) if smoothing == "log" else log_p.exp().mean(0).log()
            objectives = {"classes": list(smooth), "uniform": [smooth.mean()], "expected": [(p * smooth).sum()]}
            norms_by_row = {}
            for row in rows:
                norms = []
                for objective in objectives[row]:
                    grads = torch.autograd.grad(objective, chosen, retain_graph=True, allow_unused=True)
                    powers = {name: _power(g, norm) for name, g in zip(table.parameters, grads, strict=True)}
                    norms.append(table.gather(powers, norm))
                norms_by_row[row] = torch.stack(norms)
            return norms_by_row, p.double().cpu()

        for i in range(inputs.size(x)):
            own = noise.copies(inputs.take(x, slice(i, i + 1)), sigma, samples, seed)
            try:
                with CorrectedOps():
                    logits = classifier.logits(own)
                norms_by_row, p = row_norms(logits.log_softmax(1))
            except CheckpointError:
                norms_by_row, p = row_norms(doubled(classifier, own).log_softmax(1))
            for row in rows:
                results[row].append(norms_by_row[row])
            probabilities.append(p)
    return {row: torch.stack(r).cpu() for row, r in results.items()}, torch.stack(probabilities), table.names


def _power(g: Tensor | None, norm: int) -> Tensor:
    """``Σ|g|^norm`` as a float64 number."""
    if g is None:
        return torch.zeros((), dtype=torch.float64, device="cpu")
    g = g.to_dense() if g.is_sparse else g
    return ((g * g).sum() if norm == 2 else g.abs().sum()).double().cpu()
