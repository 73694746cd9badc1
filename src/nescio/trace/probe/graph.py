"""Where autograd's graph uses each parameter.

A walk from the logits along ``next_functions`` meets every operation that can carry influence from a parameter to the
logits. The ``AccumulateGrad`` leaf of a parameter is reached through zero or more *chain* operations, which only
re-arrange the parameter (transpose, view, cast, split …) and so keep the norm of its gradient, from the operation
that *uses* it: a matrix product, a convolution, a norm. A parameter may have many uses (a module called twice, tied
weights, the steps of a recurrent cell).

A parameter may also go through a part of the network that no input enters before it meets one: a table of attention
biases that is looked up at fixed places, a small network that makes it from coordinates. Such a use is at the operation
where the inputs come in, and what is in between is left to autograd (`through`).

The walk is complete by construction: a parameter without a leaf in it has no path to the logits. One that is used below
an operation without a derivative (a quantised layer) has a path along which its gradient is lost, and no use here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node

from nescio.trace import rules
from nescio.trace.probe.row_moving_ops import has_fixed_index, looks_up, moves_rows
from nescio.trace.runtime import autograd_names as names
from nescio.types import ModelError

Chain = tuple[tuple[str, int, int], ...]
"""Steps (operation, which of its outputs, node)."""


@dataclass(frozen=True)
class Use:
    """One use of a parameter: operand ``slot`` of the operation ``node``, reached through ``chain``."""

    parameter: str
    node: int
    slot: int
    chain: Chain
    shape: tuple[int, ...]
    """Shape of the operand, after the chain."""
    moved: bool
    """Whether rows may have been moved between inputs (`row_moving_ops`) before the operation, or are after it."""
    through: bool = False
    """Whether more than `CHAIN` lies between, but no input."""

    @property
    def block(self) -> tuple[tuple[str, int], ...]:
        """Uses with the same steps address the same block of the parameter's entries."""
        return tuple((name, output) for name, output, _ in self.chain)


class Graph:
    """The operations between parameters and logits, in a deterministic order, and the uses of each parameter."""

    def __init__(
        self,
        logits: Tensor,
        parameters: Mapping[str, Tensor],
        inputs: tuple[Tensor, ...] = (),
        tracked: bool = False,
        held: Collection[int] = (),
    ) -> None:
        """``inputs``: leaves of inputs, with ``tracked`` of all; ``held``: memory of tensors that the model holds."""
        self.parameters = parameters
        self.nodes = [] if logits.grad_fn is None else _walk(logits.grad_fn)
        if any(meta.is_nested_tensor for node in self.nodes for meta in getattr(node, "_input_metadata", ())):
            raise ModelError(
                "expected a model that computes with plain tensors, but it makes nested ones (torch.nested), in which "
                "inputs cannot be told apart; let it pad them, with a mask, or use a score without gradients"
            )
        self._index = {node: i for i, node in enumerate(self.nodes)}
        self._above: list[list[tuple[int, int, int]]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for slot, (child, output) in enumerate(node.next_functions):
                if child is not None:
                    self._above[self._index[child]].append((i, slot, output))
        leaves = {id(n.variable): i for i, n in enumerate(self.nodes) if n.name() == names.LEAF}
        self._leaves = {name: leaves[id(p)] for name, p in parameters.items() if id(p) in leaves}
        below = self._find_blind()
        lost = {name for name, leaf in self._leaves.items() if below[leaf]}
        self.blind = any(below[leaves[id(x)]] for x in inputs if id(x) in leaves)
        """Whether an operation without a derivative is between the inputs and the logits."""
        self._fixed = [has_fixed_index(node, held) for node in self.nodes]
        self._tracked, self._held, self._alone = tracked, held, len(logits) == 1
        self.active = self._find_active({leaves[id(x)] for x in inputs if id(x) in leaves})
        self._before, self._after = self._find_moved(len(logits))
        self.uses = {
            name: tuple(dict.fromkeys(self._climb(name, leaf, 0, (), tuple(parameters[name].shape))))
            for name, leaf in self._leaves.items()
            if name not in lost
        }

    @property
    def signature(self) -> tuple[object, ...]:
        """What the graph looks like, apart from the sizes of tensors: equal for two passes that did the same
        operations.
        """
        parameter_of = {leaf: name for name, leaf in self._leaves.items()}
        return tuple(
            (
                parameter_of.get(i, n.name()),
                tuple(self._index.get(c, -1) for c, _ in n.next_functions),
                tuple(getattr(n, key, None) for key in names.DIMS),
            )
            for i, n in enumerate(self.nodes)
        )

    def order(self, name: str) -> int:
        """When the forward pass first used the parameter (autograd's sequence number of the first operation on it)."""
        return min(self.nodes[i]._sequence_nr() for i, _, _ in self._above[self._leaves[name]])

    def output_shape(self, node: int) -> tuple[int, ...]:
        """The shape of what the operation gives."""
        return tuple(self.nodes[node]._input_metadata[0].shape)

    def output_bytes(self, node: int) -> float:
        """The bytes of what the operation gives, if it depends on the input."""
        meta = getattr(self.nodes[node], "_input_metadata", ())
        if not (meta and self.active[node]):
            return 0.0
        return float(math.prod(meta[0].shape) * meta[0].dtype.itemsize)

    def lowest(self, wanted: Collection[int]) -> list[int]:
        """Those of the wanted nodes below which no other wanted node lies."""
        below = [False] * len(self.nodes)
        for i, node in enumerate(self.nodes):
            children = [self._index[c] for c, _ in node.next_functions if c is not None]
            below[i] = any(below[j] or j in wanted for j in children)
        return [i for i in sorted(wanted) if not below[i]]

    def _climb(
        self, name: str, at: int, output: int, chain: Chain, shape: tuple[int, ...], through: bool = False
    ) -> Iterator[Use]:
        for above, slot, into in self._above[at]:
            if into != output:
                continue
            node = self.nodes[above]
            if node.name() in names.CHAIN or self._closed(above, slot, shape):
                beyond = through or node.name() not in names.CHAIN
                for k, meta in enumerate(node._input_metadata):
                    steps = () if beyond else (*chain, (node.name(), k, above))
                    yield from self._climb(name, above, k, steps, tuple(meta.shape), beyond)
            else:
                moved = any(self._before[j] for j in self._below(above)) or self._after[above]
                yield Use(name, above, slot, chain, shape, moved, through)

    def _closed(self, i: int, slot: int, shape: tuple[int, ...]) -> bool:
        """Whether no input enters an operation on parameters, as far as it can be told, nor their number."""
        name, operands = self.nodes[i].name(), self.nodes[i].next_functions
        if self._fixed[i] or name in names.UNARY:
            return not self.active[i]
        if not self._tracked or self.active[i]:
            return False
        if name in names.PRODUCTS or name == names.DATA_LINEAR:
            kept, data = names.PRODUCTS.get(name, ("tensors", 0))
            x = self.nodes[i].saved_tensors[0] if kept == "tensors" else getattr(self.nodes[i], f"_saved_{kept}")
            return operands[data][0] is not None or (x is not None and x.untyped_storage().data_ptr() in self._held)
        # a token that is expanded to the batch keeps its shape where that is one input
        alike = self.output_shape(i) == shape and not (name == names.EXPAND and self._alone)
        seen = len(operands) > 1 and all(child is not None for child, _ in operands)
        return alike or seen or rules.find(name, slot) is None

    def _below(self, i: int) -> list[int]:
        return [self._index[child] for child, _ in self.nodes[i].next_functions if child is not None]

    def _find_blind(self) -> list[bool]:
        """For each node: is it used by an operation that autograd has no derivative of."""
        blind = [names.BLIND in node.name() for node in self.nodes]
        for i in reversed(range(len(self.nodes))):
            for j in self._below(i):
                blind[j] = blind[j] or blind[i]
        return blind

    def _find_active(self, inputs: set[int]) -> list[bool]:
        """For each node: does it depend on the input."""
        active = [False] * len(self.nodes)
        for i, node in enumerate(self.nodes):
            looked = looks_up(node) and not self._fixed[i]
            active[i] = i in inputs or looked or any(active[j] for j in self._below(i))
        return active

    def _find_moved(self, inputs: int) -> tuple[list[bool], list[bool]]:
        """For each node: is there a move of rows in what it is made from, and in what is made from it."""
        before, after = [False] * len(self.nodes), [False] * len(self.nodes)
        for i, node in enumerate(self.nodes):
            batch = any(self.active[j] for j in self._below(i))
            before[i] = any(before[j] for j in self._below(i)) or (batch and moves_rows(node, inputs))
        for i in reversed(range(len(self.nodes))):
            batch = any(self.active[j] for j in self._below(i))
            moving = moves_rows(self.nodes[i], inputs) if batch else inputs > 1 and looks_up(self.nodes[i])
            for j in self._below(i):
                after[j] = after[j] or after[i] or moving
        return before, after


def summable(uses: Sequence[Use]) -> bool:
    """Whether several uses of one parameter can be added up block by block: equal chains, cut at one place at the
    most.
    """
    if len(uses) == 1:
        return True
    steps = [step for use in uses for step in use.chain]
    cuts = {node for name, _, node in steps if name in names.SPLITS}
    shapes = {tuple((name, 0 if name in names.SPLITS else output) for name, output, _ in use.chain) for use in uses}
    return all(name in names.PLAIN | names.SPLITS for name, _, _ in steps) and len(cuts) <= 1 and len(shapes) == 1


def _walk(root: Node) -> list[Any]:
    """Every node reachable from ``root``, each after all that it depends on, in an order given by the graph's shape
    alone.
    """
    nodes: list[Any] = []
    seen: set[Node] = {root}
    stack = [(root, iter(root.next_functions))]
    while stack:
        node, children = stack[-1]
        child = next((c for c, _ in children if c is not None and c not in seen), None)
        if child is None:
            nodes.append(node)
            stack.pop()
        else:
            seen.add(child)
            stack.append((child, iter(child.next_functions)))
    return nodes
