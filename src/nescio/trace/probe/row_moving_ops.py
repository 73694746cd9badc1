"""Operations that can move rows from one input's place to another's, in a way that depends on the data.

Sorting a batch by length, routing inputs to experts and looking rows up in a table do that. A few inputs tell where the
batch lies in a layer's output (`models.batch_axis`); below such an operation, and above it, that need not hold for
other inputs.

A move along a dimension whose size is no multiple of the number of inputs N leaves inputs where they are, for the
batch must be in another dimension; so does picking one position of each input, ``h[arange(N), t]``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from nescio.trace.runtime import autograd_names as names


def looks_up(node: Any) -> bool:
    """Whether an operation picks rows by an index; what comes out depends on the data even if the rows do not."""
    return node.name() in names.MOVERS or node.name().startswith(names.EMBEDDINGS)


def has_fixed_index(node: Any, storages: Collection[int]) -> bool:
    """Whether an operation picks rows by an index that the model holds: it lies in one of these pieces of memory."""
    if node.name() not in (names.INDEX, names.INDEX_SELECT, names.EMBEDDING):
        return False
    saved = node._saved_index if node.name() == names.INDEX_SELECT else node._saved_indices
    indices = [i for i in ([saved] if isinstance(saved, Tensor) else saved) if i is not None]
    held = all(i.untyped_storage().data_ptr() in storages for i in indices)
    return held and not any(0 in i.stride() for i in indices)  # one that is repeated may be so for every input


def moves_rows(node: Any, inputs: int) -> bool:
    """Whether an operation on a batch can bring a row of one of ``inputs`` inputs to another's place."""
    if inputs == 1 or not looks_up(node):
        return False
    shape = _shape(node)
    if node.name() == names.INDEX and shape is not None:
        indices = node._saved_indices
        if indices and indices[0] is not None and shape[0] == inputs and _in_turn(indices[0], inputs):
            return False
        masks = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)
        return masks or any(i is not None and shape[d] % inputs == 0 for d, i in enumerate(indices))
    if node.name() in names.ALONG and shape:
        dim = node._saved_dim
        return shape[dim - (1 << 64) if dim >= 1 << 63 else dim] % inputs == 0  # −1 is kept as an unsigned number
    return True


def _in_turn(index: Tensor, inputs: int) -> bool:
    """Whether an index takes 0 … N−1 in order."""
    if index.shape[:1] != (inputs,) or index.numel() != inputs or index.dtype == torch.bool:
        return False
    return bool((index.flatten() == torch.arange(inputs, device=index.device)).all())


def _shape(node: Any) -> tuple[int, ...] | None:
    """Shape of what the operation takes rows from."""
    child, output = node.next_functions[0] if node.next_functions else (None, 0)
    meta = getattr(child, "_input_metadata", ())
    return tuple(meta[output].shape) if output < len(meta) else None
