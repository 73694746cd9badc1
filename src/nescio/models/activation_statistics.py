"""What the layers of a model give, summed up for each input: at which depths to look, and what is kept there.

A *depth* is a module that is called once in a forward pass, with one tensor for each input. `depths` finds a handful of
them in any model, spread over the forward pass: the tree of modules is cut so that no piece holds more than a quarter
of the leaf modules that were called. So a stage, a residual block, an encoder layer or a single convolution can be one.

At a depth the mean of each channel over the positions of the input is kept, and its standard deviation:

    [N, C, H, W], [N, C, L]   channels first: 2C numbers        [N, T, D], [N, H, W, D]   features last: 2D numbers
    [N, D]                    a vector is kept as it is
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models.classifier import Classifier
from nescio.models.structure import named_modules
from nescio.modes import eager
from nescio.types import Depth, ModelError

MOST = 8  # depths that are looked at
SHARE = 4  # no depth holds more than one in so many of the leaf modules
WIDEST = 8192  # channels, beyond which an activation is no summary of an input
Moments = Callable[[Tensor], Tensor | None]
"""Gives mean and standard deviation ``[N, 2C]`` of channels ``[N, C, S]``, or None."""
_FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.MultiheadAttention)


@dataclass
class _Call:
    """A module's call: its name, what it gave, and the last leaf with parameters that ran before it ended."""

    name: str
    value: Tensor
    leaf: nn.Module | None


def depths(classifier: Classifier, x: Inputs, most: int = MOST) -> tuple[Depth, ...]:
    """Find depths of the model in forward order, from one forward pass over a few prepared inputs.

    Args:
        classifier: the model.
        x: a prepared batch of at least two inputs.
        most: how many depths at most; they are spread evenly over the pass.

    Returns:
        The depths; none for a plain function, or where no module gives one tensor for each input.
    """
    if classifier.module is None:
        return ()
    modules = {name: module for name, module in named_modules(classifier.module) if name}
    calls, logits = _calls(classifier, x, modules)
    pieces = _pieces(classifier.module, modules, {call.name for call in calls})
    count = inputs.size(x)
    candidates: list[Depth] = []
    seen = {(logits.data_ptr(), logits.numel())}
    often = [call.name for call in calls]
    for call in calls:
        place = (call.value.data_ptr(), call.value.numel())
        if call.name not in pieces or often.count(call.name) > 1 or place in seen:
            continue
        seen.add(place)  # a flattened view, a dropout that does nothing: the same numbers again
        axis = _channel_axis(call)
        fair = call.value.ndim >= 2 and len(call.value) == count and call.value.is_floating_point()
        if fair and 2 <= call.value.shape[axis] <= WIDEST:
            candidates.append(Depth(call.name, axis))
    if len(candidates) <= most:
        return tuple(candidates)
    return tuple(candidates[round(i * (len(candidates) - 1) / (most - 1))] for i in range(most))


@contextmanager
def summaries(
    classifier: Classifier,
    places: Sequence[Depth],
    x: Inputs,
    modules: Mapping[str, nn.Module],
    moments: Moments | None = None,
) -> Iterator[dict[Depth, Tensor]]:
    """Gives a dictionary that a forward pass over x within the block fills with the statistics of each depth.

    A depth without a name is the input itself. ``modules``: those of the model by their names. ``moments`` is as in
    `statistics`.
    """
    by_depth: dict[Depth, Tensor] = {}
    mask = x.get("attention_mask") if isinstance(x, Mapping) else None

    def note(depth: Depth) -> Callable[..., None]:
        def hook(_: nn.Module, __: object, gave: object) -> None:
            by_depth[depth] = statistics(_tensor(gave), depth.axis, mask, moments)

        return hook

    handles = []
    try:
        for depth in places:
            if depth.layer == "":
                value = inputs.tensors(x)[0]
                by_depth[depth] = statistics(value, depth.axis, moments=moments)
                continue
            if depth.layer not in modules:
                raise ModelError(
                    f"expected a module '{depth.layer}' in {classifier.name}, but there is none; fit it anew"
                )
            handles.append(modules[depth.layer].register_forward_hook(note(depth)))
        with eager():  # compiled code would pass the hooks by
            yield by_depth
    finally:
        for handle in handles:
            handle.remove()


def statistics(value: Tensor, axis: int, mask: Tensor | None = None, moments: Moments | None = None) -> Tensor:
    """The mean and the standard deviation of each channel over the positions, ``[N, 2C]``.

    What has one position alone, such as a vector ``[N, C]``, is given as it is, ``[N, C]``; but where there is a mask,
    the positions are tokens, of which another batch may have more.

    Args:
        value: what a module gave, ``[N, ...]``.
        axis: the dimension of the channels.
        mask: where it is given and has the shape of the positions, ``[N, T]``, only positions that are not 0 count.
        moments: a faster way for channels ``[N, C, S]`` whose positions lie side by side; it may decline.
    """
    value = value.detach()
    rows = axis == 1 and value.ndim > 2 and value.is_contiguous() and math.prod(value.shape[2:]) > 1
    if moments is not None and rows and (quick := moments(value.flatten(2))) is not None:
        return quick
    if value.dtype in (torch.float16, torch.bfloat16):
        value = value.float()
    if value.ndim == 2 or (mask is None and value.numel() == len(value) * value.shape[axis]):
        return value.flatten(1).clone()  # a later layer may work in place
    flat, dim = (value.flatten(2), 2) if axis == 1 else (value.flatten(1, -2), 1)
    if mask is not None and dim == 1 and mask.shape == flat.shape[:2]:
        weights = (mask != 0).to(flat).unsqueeze(2)
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1.0)
        mean = (flat * weights).sum(1)
        variance = ((flat - mean.unsqueeze(1)).square() * weights).sum(1)
    else:
        variance, mean = torch.var_mean(flat, dim, correction=0)
    return torch.cat([mean, variance.sqrt()], dim=1)


def _calls(classifier: Classifier, x: Inputs, modules: Mapping[str, nn.Module]) -> tuple[list[_Call], Tensor]:
    """Every call that gave a tensor, in the order in which calls ended, and the logits. All tensors are kept alive."""
    calls: list[_Call] = []
    leaf: list[nn.Module] = []

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, _: object, gave: object) -> None:
            if not module._modules and next(module.parameters(recurse=False), None) is not None:
                leaf[:] = [module]
            value = _tensor(gave)
            if isinstance(value, Tensor):
                calls.append(_Call(name, value, leaf[0] if leaf else None))

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in modules.items()]
    try:
        with eager():
            logits = classifier.logits(x)
    finally:
        for handle in handles:
            handle.remove()
    return calls, logits


def _pieces(root: nn.Module, modules: Mapping[str, nn.Module], called: set[str]) -> set[str]:
    """The names at which the tree is cut: no piece holds more than 1/SHARE of the leaves that were called."""

    def leaves(name: str) -> int:
        inside = [n for n in called if n == name or n.startswith(f"{name}." if name else "")]
        return sum(not modules[n]._modules for n in inside)

    limit = max(1, leaves("") // SHARE)
    pieces: set[str] = set()
    todo = [""]
    while todo:
        name = todo.pop()
        module = modules.get(name, root)
        if name and name in called and (leaves(name) <= limit or not module._modules):
            pieces.add(name)
        else:
            prefix = f"{name}." if name else ""
            todo += [n for n in modules if n.startswith(prefix) and "." not in n[len(prefix) :]]
    return pieces


def _channel_axis(call: _Call) -> int:
    """The dimension of the channels: where the last layer with parameters has put them."""
    value, leaf = call.value, call.leaf
    if value.ndim <= 2:
        return value.ndim - 1
    width = getattr(leaf, "out_features", None) or getattr(leaf, "out_channels", None)
    width = width or getattr(leaf, "num_features", None) or getattr(leaf, "num_channels", None)
    if width is None and isinstance(leaf, nn.LayerNorm):
        width = leaf.normalized_shape[-1]
    first, last = value.shape[1] == width, value.shape[-1] == width
    if first != last:
        return 1 if first else value.ndim - 1
    return value.ndim - 1 if isinstance(leaf, _FEATURES_LAST) or (leaf is None and value.ndim == 3) else 1


def _tensor(gave: object) -> Any:
    """The tensor in what a module gave: the first of several, or the last hidden state."""
    gave = gave[0] if isinstance(gave, tuple | list) and gave else gave
    return getattr(gave, "last_hidden_state", gave)
