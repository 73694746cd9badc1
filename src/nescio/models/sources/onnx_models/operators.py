"""Operators of ONNX that onnx2torch lacks, or reads in old versions alone, as functions of tensors.

`OPERATORS[name](attributes)` gives the function. It is called with the operator's inputs in order; one that is left out
is None. Where an operator changed between versions of ONNX, the function understands all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attributes = Mapping[str, Any]
Function = Callable[..., Any]


class Operator(nn.Module):
    """A function of tensors as a module, so that it has a name and can be listened to."""

    def __init__(self, name: str, attributes: Attributes) -> None:
        super().__init__()
        self.name = name
        self.function = OPERATORS[name](attributes)

    def forward(self, *tensors: Tensor | None) -> Any:
        """What the function gives."""
        return self.function(*tensors)

    def extra_repr(self) -> str:
        """The name of the operator."""
        return self.name


def _plain(function: Function) -> Callable[[Attributes], Function]:
    return lambda attributes: function


def _reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[[Attributes], Function]:
    """Over axes that are an attribute (until version 13 or 18 of ONNX) or an input (later)."""

    def made(attributes: Attributes) -> Function:
        keep = bool(attributes.get("keepdims", 1))

        def reduce(x: Tensor, axes: Tensor | None = None) -> Tensor:
            given = attributes.get("axes", ()) if axes is None else axes.tolist()
            if not given and attributes.get("noop_with_empty_axes", 0):
                return x
            return function(x, list(given) or list(range(x.ndim)), keep)

        return reduce

    return made


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _reshape(attributes: Attributes) -> Function:
    keeps = not attributes.get("allowzero", 0)

    def reshape(x: Tensor, shape: Tensor) -> Tensor:
        sides = [x.shape[i] if side == 0 and keeps else side for i, side in enumerate(shape.tolist())]
        return x.reshape(sides)

    return reshape


def _expand(x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape.tolist())))


def _concat(attributes: Attributes) -> Function:
    axis = attributes["axis"]

    def concat(*tensors: Tensor) -> Tensor:
        rows = max(len(x) for x in tensors)
        if axis != 0:  # a constant for one row, in a file that was made for one row at once
            tensors = tuple(x.expand(rows, *x.shape[1:]) if len(x) == 1 else x for x in tensors)
        return torch.cat(tensors, axis)

    return concat


def _split(attributes: Attributes) -> Function:
    axis = attributes.get("axis", 0)

    def split(x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        given = attributes.get("split") if lengths is None else lengths.tolist()
        if given is None:
            given = -(-x.shape[axis] // attributes["outputs"])  # the last part is the smaller one
        parts: tuple[Tensor, ...] = x.split(given, dim=axis)
        return parts

    return split


def _slice(attributes: Attributes) -> Function:
    def cut(x: Tensor, *tensors: Tensor | None) -> Tensor:
        given = dict(attributes) | {
            name: value.tolist() for name, value in zip(("starts", "ends", "axes", "steps"), tensors, strict=False)
            if value is not None
        }  # fmt: skip
        count = len(given["starts"])
        for start, end, axis, step in zip(
            given["starts"], given["ends"], given.get("axes", range(count)), given.get("steps", [1] * count),
            strict=True,
        ):  # fmt: skip
            places = range(x.shape[axis])[start:end:step] if step > 0 else _backwards(x.shape[axis], start, end, step)
            if step == 1:
                x = x.narrow(axis, places.start if len(places) else 0, len(places))
            else:
                x = x.index_select(axis, torch.tensor(list(places), dtype=torch.long, device=x.device))
        return x

    return cut


def _backwards(length: int, start: int, end: int, step: int) -> range:
    """As ONNX counts: what lies before the first place ends at it."""
    start, end = (place + length if place < 0 else place for place in (start, end))
    return range(min(start, length - 1), max(end, -1), step)


def _pad(attributes: Attributes) -> Function:
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[
        attributes.get("mode", "constant")
    ]

    def pad(x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
        given = attributes["pads"] if pads is None else pads.tolist()
        which = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes.tolist()]
        sides = {axis: (given[i], given[i + len(given) // 2]) for i, axis in enumerate(which)}
        flat = [side for axis in range(x.ndim - 1, -1, -1) for side in sides.get(axis, (0, 0))]
        if mode == "constant":
            return F.pad(x, flat, value=attributes.get("value", 0.0) if value is None else value.item())
        return F.pad(x, flat[: 2 * (x.ndim - 2)], mode=mode)  # as torch wants it: not of rows and channels

    return pad


def _gather(attributes: Attributes) -> Function:
    axis = attributes.get("axis", 0)

    def gather(x: Tensor, index: Tensor) -> Tensor:
        place = torch.where(index < 0, index + x.shape[axis], index).long()
        if axis == 0 and x.ndim == 2 and x.is_floating_point():
            return F.embedding(place, x)
        chosen = x.index_select(axis, place.flatten())
        before = axis % x.ndim
        return chosen.reshape([*x.shape[:before], *index.shape, *x.shape[before + 1 :]])

    return gather


def _layer_norm(attributes: Attributes) -> Function:
    def norm(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shape = x.shape[attributes.get("axis", -1) :]
        bias = None if bias is None else bias.expand(shape)
        return F.layer_norm(x, shape, weight.expand(shape), bias, attributes.get("epsilon", 1e-5))

    return norm


def _group_norm(attributes: Attributes) -> Function:
    groups = attributes["num_groups"]

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if len(weight) != x.shape[1]:  # one number for each group, until version 21 of ONNX
            weight, bias = (one.repeat_interleave(x.shape[1] // groups) for one in (weight, bias))
        return F.group_norm(x, groups, weight, bias, attributes.get("epsilon", 1e-5))

    return norm


def _gelu(attributes: Attributes) -> Function:
    return lambda x: F.gelu(x, approximate=attributes.get("approximate", "none"))


def _trilu(attributes: Attributes) -> Function:
    shape = torch.triu if attributes.get("upper", 1) else torch.tril
    return lambda x, diagonal=None: shape(x, 0 if diagonal is None else int(diagonal))


def _scatter(attributes: Attributes) -> Function:
    axis, how = attributes.get("axis", 0), attributes.get("reduction", "none")
    named = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}

    def scatter(x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
        place = torch.where(index < 0, index + x.shape[axis], index)
        return x.scatter(axis, place, updates) if how == "none" else x.scatter_reduce(axis, place, updates, named[how])

    return scatter


def _one_hot(attributes: Attributes) -> Function:
    def one_hot(index: Tensor, depth: Tensor, values: Tensor) -> Tensor:
        count = int(depth)
        chosen = F.one_hot(torch.where(index < 0, index + count, index).long(), count).bool()
        return torch.where(chosen, values[1], values[0]).movedim(-1, attributes.get("axis", -1))

    return one_hot


def _shrink(attributes: Attributes) -> Function:
    lambd, bias = attributes.get("lambd", 0.5), attributes.get("bias", 0.0)
    return lambda x: torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


def _flattened_max(x: Tensor) -> Tensor:
    return x.flatten(2).amax(2).reshape(*x.shape[:2], *(1 for _ in x.shape[2:]))


def _shape(attributes: Attributes) -> Function:
    return lambda x: torch.tensor(
        x.shape[attributes.get("start", 0) : attributes.get("end")], dtype=torch.long, device=x.device
    )


def _instance_norm(attributes: Attributes) -> Function:
    return lambda x, weight, bias: F.instance_norm(x, weight=weight, bias=bias, eps=attributes.get("epsilon", 1e-5))


def _rms_norm(attributes: Attributes) -> Function:
    return lambda x, weight: F.rms_norm(
        x, list(x.shape[attributes.get("axis", -1) :]), weight, attributes.get("epsilon", 1e-5)
    )


def _lp_norm(attributes: Attributes) -> Function:
    return lambda x: F.normalize(x, p=attributes.get("p", 2), dim=attributes.get("axis", -1), eps=0.0)


OPERATORS: dict[str, Callable[[Attributes], Function]] = {
    "ReduceSum": _reduced(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "ReduceMean": _reduced(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceMax": _reduced(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "ReduceMin": _reduced(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "ReduceProd": _reduced(_prod),
    "ReduceL1": _reduced(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "ReduceL2": _reduced(lambda x, axes, keep: x.square().sum(axes, keepdim=keep).sqrt()),
    "ReduceSumSquare": _reduced(lambda x, axes, keep: x.square().sum(axes, keepdim=keep)),
    "ReduceLogSum": _reduced(lambda x, axes, keep: x.sum(axes, keepdim=keep).log()),
    "ReduceLogSumExp": _reduced(lambda x, axes, keep: x.logsumexp(axes, keepdim=keep)),
    "Reshape": _reshape,
    "Expand": _plain(_expand),
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Gather": _gather,
    "Shape": _shape,
    "Size": _plain(lambda x: torch.tensor(x.numel(), device=x.device)),
    "CastLike": _plain(lambda x, like: x.to(like.dtype)),
    "Trilu": _trilu,
    "ScatterElements": _scatter,
    "OneHot": _one_hot,
    "GlobalMaxPool": _plain(_flattened_max),
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "RMSNormalization": _rms_norm,
    "LpNormalization": _lp_norm,
    "Gelu": _gelu,
    "Mish": _plain(F.mish),
    "Swish": lambda attributes: lambda x: x * torch.sigmoid(attributes.get("alpha", 1.0) * x),
    "ThresholdedRelu": lambda attributes: lambda x: torch.where(x > attributes.get("alpha", 1.0), x, 0.0),
    "Shrink": _shrink,
    "Sinh": _plain(torch.sinh),
    "Cosh": _plain(torch.cosh),
    "Asinh": _plain(torch.asinh),
    "Acosh": _plain(torch.acosh),
    "Atanh": _plain(torch.atanh),
    "IsNaN": _plain(torch.isnan),
}
"""By the name in ONNX's own domain."""
