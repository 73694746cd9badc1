"""Where the inputs of a batch lie in a tensor inside of a network.

A layer need not see the batch in dimension 0: sequence-first transformers have it in dimension 1, a token-wise linear
layer gets inputs and tokens merged into rows, a window attention merges inputs and windows. Three kinds of evidence
tell, the best first:

* gradients (`find_layout`): those of a cotangent that is non-zero for one input alone are non-zero in that input's rows
  alone;
* the shapes for one input and for several (`axes_from_shapes`): the dimension that has grown;
* the size of a dimension (`axis_of_size`): two dimensions may have it, so it has to be asked again with another batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Unit: TypeAlias = tuple[torch.Size, int | None]
"""The shape of a tensor for a single input, and the dimension along which those of several lie; None: they share it."""


@dataclass(frozen=True)
class Layout:
    """Dimension ``dim`` holds ``inputs`` × m entries, inputs outermost (``major``: an input's entries are adjacent) or
    innermost.
    """

    dim: int
    major: bool
    inputs: int

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape can have this layout."""
        return self.dim < len(shape) and shape[self.dim] > 0 and shape[self.dim] % self.inputs == 0

    def front(self, t: Tensor, lead: int = 0) -> Tensor:
        """[.., N·m at dim, ..] → [.., N, m, ..] with the two new dimensions right after the first ``lead`` ones."""
        d = self.dim + lead
        if self.major:
            result: Tensor = t.unflatten(d, (self.inputs, -1)).movedim((d, d + 1), (lead, lead + 1))
            return result
        result = t.unflatten(d, (-1, self.inputs)).movedim((d + 1, d), (lead, lead + 1))
        return result

    def split(self, t: Tensor, lead: int = 0) -> Tensor:
        """[.., N·m at dim, ..] → [.., N, .., m at dim, ..]: the part of each input, in its own shape."""
        return self.front(t, lead).movedim(lead + 1, lead + 1 + self.dim)


def candidates(shape: Sequence[int], inputs: int, dims: Sequence[int]) -> Iterator[Layout]:
    """Layouts that the shape allows, the usual ones first."""
    for major in (True, False):
        for dim in dims:
            layout = Layout(dim, major, inputs)
            if layout.fits(shape) and (major or shape[dim] > inputs):
                yield layout


def find_layout(evidence: Sequence[Tensor] | Tensor, inputs: int, dims: Sequence[int]) -> Layout | None:
    """The layout that explains ``evidence`` (item n: the output gradient of a cotangent of input n alone), or None.

    With three inputs or more, each with a gradient, rows of inputs that lie innermost cannot pass for outermost. What
    could be explained by two dimensions is not explained.
    """
    shape = evidence[0].shape
    if inputs == 1:
        return Layout(0, True, 1) if shape else None
    own = [[m == n for m in range(inputs)] for n in range(inputs)]
    fitting = [one for one in candidates(shape, inputs, dims) if _touched([one.front(t) for t in evidence]) == own]
    return fitting[0] if len({layout.dim for layout in fitting}) == 1 else None


def _touched(rows: Sequence[Tensor]) -> list[list[bool]]:
    """For each item of evidence [N, ..] the inputs in whose rows there is anything but zero."""
    touched: list[list[bool]] = torch.stack([t.any(dim=tuple(range(1, t.dim()))) for t in rows]).tolist()
    return touched


def grown(unit: torch.Size, axis: int | None, count: int) -> torch.Size:
    """The shape for ``count`` inputs, where ``unit`` is that for a single one."""
    return torch.Size(size * count if at == axis else size for at, size in enumerate(unit))


def axes_from_shapes(single: Sequence[torch.Size], several: Sequence[torch.Size], count: int) -> list[Unit] | None:
    """Where the inputs lie in each tensor, from the shapes for one and for ``count``; None if that cannot be told."""
    if len(single) != len(several):
        return None
    units: list[Unit] = []
    for one, many in zip(single, several, strict=True):
        axes = [at for at, (a, b) in enumerate(zip(one, many, strict=False)) if a != b]
        axis = axes[0] if axes else None
        if math.prod(one) == 0 or grown(one, axis, count) != many:
            return None
        units.append((one, axis))
    return units


def axis_of_size(shape: Sequence[int], count: int) -> int | None:
    """The dimension that may hold ``count`` inputs: 0 or, of tensors [tokens, inputs, features], 1; None: neither."""
    if len(shape) and shape[0] == count:
        return 0
    return 1 if len(shape) == 3 and shape[1] == count else None
