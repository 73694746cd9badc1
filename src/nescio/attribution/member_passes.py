"""One forward pass of a member, and cotangents pulled back from it: all logits of a batch in one batched backward.

The graph is that of `nescio.trace`: convolutions, batch norm and attention in the form that folds well under vmap (with
more of them on a CPU, `nescio.trace.backward.substitutes.cpu`). Each layer's gradients are handed to a reader as they
come, so that those of one layer are in memory at a time. No weight gets a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio.attribution.sampled_members import Member
from nescio.attribution.source import Source
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.batch_axis import axis_of_size
from nescio.modes import preserved, tracing
from nescio.trace.backward import pull as backward
from nescio.trace.backward.substitutes import folding
from nescio.trace.backward.substitutes.cpu import OnCPU
from nescio.trace.probe.proofs import refuse_blind
from nescio.types import InputError, ModelError

Change = Callable[[Tensor], Tensor]
Keep = Callable[[nn.Module, Tensor], Any]


@dataclass(frozen=True)
class Call:
    """A call of a module: the node of the graph at its output, what was kept of it, and where its inputs lie.

    axis: the dimension of the output along which the inputs of the batch lie, 0 or 1 (tokens first); None: neither.
    """

    module: nn.Module
    node: Any
    kept: Any
    axis: int | None


@dataclass
class Run:
    """A forward pass: logits [N, C], the attributed tensor, and the calls of which something was kept."""

    logits: Tensor
    root: Tensor
    calls: list[Call]
    grid: tuple[int, ...] | None
    """Positions of the last convolution: in a vision transformer those of the patches."""
    node: Any = field(repr=False)

    def pull(self, vectors: Tensor, read: Callable[[Call | None, Tensor], None]) -> None:
        """Call ``read(call, gradient [K, *shape])`` at each call, and with None at the attributed tensor.

        vectors: cotangents [K, N, C] at the logits.
        """
        nodes = {0: self.node, **{at: call.node for at, call in enumerate(self.calls, 1)}}

        def hand(at: int, g: Tensor) -> None:
            read(None if at == 0 else self.calls[at - 1], g)

        with torch.no_grad():
            backward.visit(self.logits, nodes, [0], vectors, hand)


def pulled(run: Run, vectors: Tensor, read: Callable[[], Callable[[Call | None, Tensor], None]]) -> None:
    """`Run.pull` with a new reader; one cotangent after another, each with its own, where vmap cannot follow."""
    try:
        run.pull(vectors, read())
    except backward.NotFolded:
        for row in vectors.split(1):
            run.pull(row, read())


@contextmanager
def forward(member: Member, x: Inputs, source: Source, change: Change, keep: Keep | None = None) -> Iterator[Run]:
    """A pass of `change` of what is attributed; `keep` says what to keep of the output of a module (None: nothing)."""
    classifier, batch = member.batch(x)
    roots: list[tuple[Tensor, Any]] = []
    calls: list[Call] = []
    unsure: list[bool] = []
    count = inputs.size(batch)
    grids: list[tuple[int, ...]] = []

    def settle(value: Tensor, last: bool) -> Tensor:
        root = change(value.detach()).detach().clone().requires_grad_()
        tracked = root.clone(memory_format=torch.channels_last if last else torch.contiguous_format)
        roots[:] = [(root, tracked.grad_fn)]
        calls.clear()  # of an attempt that failed
        unsure.clear()
        return tracked

    def note(module: nn.Module, _: Any, gave: Any) -> Any:
        y = gave[0] if isinstance(gave, tuple) else gave
        if isinstance(module, nn.modules.conv._ConvNd) and isinstance(y, Tensor):
            grids.append(tuple(y.shape[2:]))
        kept = keep(module, y) if keep is not None and isinstance(y, Tensor) and y.requires_grad else None
        if kept is None:
            return None
        copy = y.clone()  # a node of its own: on a GPU a batch norm is joined with the activation behind it
        calls.append(Call(module, copy.grad_fn, kept, axis_of_size(y.shape, count)))
        unsure.append(count > 1 and y.ndim == 3 and y.shape[1] == count)  # or there are as many tokens as inputs
        return (copy, *gave[1:]) if isinstance(gave, tuple) else copy

    with preserved(classifier, again=False), tracing(classifier):
        parts = [] if keep is None or classifier.module is None else list(classifier.module.modules())
        handles = [part.register_forward_hook(note) for part in parts]
        try:
            logits = _logits(member, classifier, batch, source, settle)
        finally:
            for handle in handles:
                handle.remove()
        root, node = roots[0]
        refuse_blind(classifier, logits, (root,))
        if any(unsure):  # with a single input it can be told
            with forward(member, inputs.take(x, slice(0, 1)), source, change, keep) as one:
                if [call.module for call in one.calls] == [call.module for call in calls]:
                    calls = [replace(call, axis=alone.axis) for call, alone in zip(calls, one.calls, strict=True)]
        yield Run(logits, root.detach(), calls, grids[-1] if grids else None, node)


def _logits(
    member: Member,
    classifier: Classifier,
    batch: Inputs,
    source: Source,
    settle: Callable[[Tensor, bool], Tensor],
) -> Tensor:
    """The logits of a pass, with channels last in memory where the network takes that: convolutions are faster so."""

    def attempt(last: bool) -> Tensor:
        settled = source.settled(classifier, batch, lambda value: settle(value, last))
        # entered anew, for masks count the calls, and last, so that they see attention before it is replaced
        with folding(), OnCPU(), member.enter(batch), settled as given:
            return member.finish(classifier.logits(given))

    t = source.tensor(batch)
    if not source.tokens and t.ndim == 4:
        # a network that calls view() on what a convolution gives does not take it
        with suppress(RuntimeError, InputError, ModelError):
            return attempt(True)
    return attempt(False)
