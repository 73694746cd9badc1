"""Gradient scores of a whole input and the whole network, for a model that answers at every position.

A map (`nescio.score`) has a number for each position, of the last layer. Here is one number for each input, of all
layers: the gradients are those of the mean log-probability over the positions Q of an input that are looked at,

    ℓ_c = (1/|Q|) Σ_{q in Q} log p_c(q),     g_c = ∂ℓ_c/∂θ,     p̄_c = (1/|Q|) Σ_{q in Q} p_c(q)

and a score is made from ‖g_c‖ and p̄ as for a classifier; with one position in Q it is that of a classifier of this
position. All C gradients come from cotangents that sum over the positions: C pulls, and not C for each position.

The engine wants the gradients of log softmax(z)_c. Given z = (ℓ_1, …, ℓ_C, K) with a constant K it gives

    ∂ log softmax(z)_c/∂θ = ∂ℓ_c/∂θ − Σ_k s_k ∂ℓ_k/∂θ,     s_k ≤ exp(ℓ_k − K) ≤ exp(−K)

which for K = 60 is g_c to 26 digits: nothing in the engine is special for this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier, ModelLike
from nescio.models.positions import accepting
from nescio.modes import predicting, preserved
from nescio.quantities import GradientNorms
from nescio.scores import Method, get
from nescio.types import InputError, NormTable

_SURE = 60.0
_X, _WHERE = "nescio_x", "nescio_where"
_BLOCK = 64  # inputs at a time: a table is held for one block


def whole_network(
    model: ModelLike,
    x: Data,
    method: str | Method = "regrad",
    *,
    where: Any = None,
    output: str | None = None,
    chunk: int | None = None,
    memory_gb: float | None = None,
    **settings: Any,
) -> Tensor:
    """Compute a gradient score of each input over the whole network, for a model that answers at every position.

    Args:
        model: A PyTorch module or a `Classifier` that answers at every position. It is left as it was found.
        x: As in `nescio.score`.
        method: The name of a gradient score, or such an object. Every class and layer is computed: `classes` and
            `tolerance` have no effect.
        where: Which positions of each input are looked at, bool ``[N, *positions]``, such as those of one object; None
            for all of them.
        output: As in `nescio.score`.
        chunk: As in `nescio.score`.
        memory_gb: As in `nescio.score`.
        settings: Settings of the method.

    Returns:
        The scores, float64 ``[N]`` on the CPU, higher = more uncertain.

    Raises:
        InputError: The method is no gradient score, or `where` does not fit.
        ModelError: The model has no gradients that could be computed.

    Examples:
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ELU(), torch.nn.Conv2d(4, 5, 1))
        >>> nescio.dense.whole_network(network, torch.rand(2, 3, 8, 8), "exgrad").shape
        torch.Size([2])
    """
    one = get(method, **settings)
    wanted = one.needs[0]
    if len(one.needs) != 1 or not isinstance(wanted, GradientNorms) or wanted.rows == "expected":
        raise InputError(
            f"expected a gradient score (exgrad, regrad, evengrad, gradnorm, ungrad, squared), got {one.name!r}; of "
            "the other methods take a summary of their maps: nescio.dense.DenseScores(maps).summary()"
        )
    request = replace(wanted, classes="exact", tolerance=0.0, decay=0.0)
    classifier = Classifier.of(model, output, dense=True)
    scores, done = [], 0
    with preserved(classifier):
        for batch in inputs.batches(x):
            for start in range(0, inputs.size(batch), _BLOCK):
                block = classifier.prepare(inputs.take(batch, slice(start, start + _BLOCK)))
                shape = _positions(classifier, block)
                own = _mask(where, done, inputs.size(block), shape)
                p = _mean_probabilities(classifier, block, own, chunk)
                given = {**(block if isinstance(block, Mapping) else {_X: block}), _WHERE: own}
                pooled = Pooled(classifier)
                table = trace.gradient_norms(pooled, given, request, chunk=chunk, memory_gb=memory_gb)[
                    wanted.rows
                ].cpu()
                scores.append(one(_as_of(table, p, wanted)))
                done += inputs.size(block)
    if where is not None and len(where) != done:
        raise InputError(f"expected `where` for each of {done} inputs, got {len(where)}")
    return torch.cat(scores)


class Pooled(Classifier):
    """A model that answers at every position as a classifier of inputs: ``[N, C + 1]``, ℓ_c and the constant.

    Its inputs are mappings with the positions to look at beside the model's own.
    """

    def __init__(self, classifier: Classifier) -> None:
        vars(self).update(vars(classifier))
        self.inner, self.output, self.class_dim = classifier, "logits", None

    def _run(self, x: Inputs, count: int) -> tuple[Tensor, Tensor]:
        own, where = _parted(x)
        z, out = self.inner._run(own, count)
        log_p = z.log_softmax(-1).flatten(1, -2)
        share = where.flatten(1).to(log_p)
        share = share / share.sum(1, keepdim=True)
        pooled = (share.unsqueeze(1) @ log_p).squeeze(1)
        return torch.cat([pooled, pooled.new_full((count, 1), _SURE)], 1), out


def _parted(x: Inputs) -> tuple[Inputs, Tensor]:
    assert isinstance(x, Mapping)
    own = {name: value for name, value in x.items() if name != _WHERE}
    return own.get(_X, own), x[_WHERE]


def _as_of(table: NormTable, p: Tensor, request: GradientNorms) -> NormTable:
    """The table of the C classes, without the constant one."""
    classes = p.shape[1]
    norms = table.norms[:, :classes] if request.rows == "classes" else table.norms * (classes + 1) / classes
    return NormTable(norms, p, table.layers)


def _positions(classifier: Classifier, x: Inputs) -> tuple[int, ...]:
    """The shape of the positions, from one input."""
    one = inputs.take(x, slice(0, 1))
    with predicting(classifier):
        z = accepting([classifier], lambda: classifier.logits(one))
    if z.ndim < 3:
        raise InputError(
            f"expected a model that answers at every position, got logits {list(z.shape)}; use nescio.score"
        )
    return tuple(z.shape[1:-1])


def _mask(where: Any, done: int, count: int, shape: tuple[int, ...]) -> Tensor:
    """Which positions of these inputs are looked at, uint8."""
    if where is None:
        return torch.ones(count, *shape, dtype=torch.uint8)
    own = torch.as_tensor(where)[done : done + count]
    if own.shape != (count, *shape):
        raise InputError(f"expected `where` of shape [N, {', '.join(map(str, shape))}], got {describe(where)}")
    own = (own != 0).to("cpu", torch.uint8)
    if not bool(own.flatten(1).any(1).all()):
        at = done + int((~own.flatten(1).any(1)).nonzero()[0])
        raise InputError(f"expected `where` to choose at least one position of each input, got none for input {at}")
    return own


def _mean_probabilities(classifier: Classifier, x: Inputs, where: Tensor, chunk: int | None) -> Tensor:
    """p̄, float64 ``[N, C]``."""

    def step(start: int, stop: int) -> Tensor:
        z = classifier.logits(inputs.take(x, slice(start, stop)))
        rows: Iterator[Tensor] = iter(z)
        means = [
            one.flatten(0, -2)[own.flatten() > 0].double().softmax(-1).mean(0)
            for one, own in zip(rows, where[start:stop].to(z.device), strict=True)
        ]
        return torch.stack(means).cpu()

    with predicting(classifier):
        return torch.cat(in_chunks(inputs.size(x), at_once(x, chunk), step))
