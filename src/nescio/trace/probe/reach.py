"""Which parameters the logits depend on, and in which order the forward pass used them: what the graph tells at once.

`graph.Graph` finds how each parameter is used, which takes longer than the gradients of a few inputs of a small model.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.autograd.graph import Node

from nescio.trace.runtime import autograd_names as names


class Reach:
    """The parameters that the logits have a path to."""

    def __init__(self, logits: Tensor, parameters: Mapping[str, Tensor]) -> None:
        first: dict[int, int] = {}
        """For each leaf, autograd's sequence number of the first operation on it."""
        seen: set[Node] = set()
        todo = [] if logits.grad_fn is None else [logits.grad_fn]
        self._norms: list[Node] = []
        self.blind = False
        """Whether a path leads through an operation without a derivative: what is below has lost gradients."""
        while todo:
            node = todo.pop()
            number, name = node._sequence_nr(), node.name()
            if name == names.BATCH_NORM:
                self._norms.append(node)
            self.blind |= names.BLIND in name
            for child, _ in node.next_functions:
                if child is None:
                    continue
                if not child.next_functions and child.name() == names.LEAF:
                    leaf = id(child.variable)  # type: ignore[attr-defined]
                    first[leaf] = min(number, first.get(leaf, number))
                elif child not in seen:
                    seen.add(child)
                    todo.append(child)
        self.uses = {name: first[id(p)] for name, p in parameters.items() if id(p) in first}

    def order(self, name: str) -> int:
        """When the forward pass first used the parameter, as `Graph.order` tells it."""
        return self.uses[name]

    def lay_out_gradients(self) -> None:
        """Let batch norms get gradients in the layout that PyTorch's kernel is right for (`substitutes.corrected`)."""
        for node in self._norms:
            node.register_prehook(_contiguous)


def _contiguous(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if g is None else g.contiguous() for g in gradients)
