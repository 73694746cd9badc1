"""The weight's gradient of a convolution in which every channel has a kernel of its own, for each cotangent and input.

There are as few numbers in it as the kernel has places, so it is written down: unfolded into patches the input would
be as many times larger. A GPU has a kernel of ours for it, a CPU oneDNN's for float32; what neither takes is summed up
place by place. oneDNN is quick for weights of 3 × 3; for larger ones the gradients at the output are taken as the
weights of a convolution of the input, which oneDNN does up to eighty times faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.rules import full
from nescio.trace.runtime.gpu import kernels

QUICK = 9
"""Places of a kernel up to which oneDNN's own gradient is the faster way."""


def gradient(
    delta: Tensor,
    x: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool = False,
) -> Tensor:
    """``∂/∂W`` [K, B, channels, places] of a weight of this shape, from the gradients at the output [K, B, ..]."""
    kernel, geometry = shape[2:], (stride, padding, dilation)
    plain = x.dim() == 4 and not transposed
    module = kernels(x, delta) if plain and shape[0] == x.shape[1] else None
    if module is not None and x.is_contiguous(memory_format=torch.channels_last):
        rows = delta.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, delta.shape[:2])
        result: Tensor = module.depthwise_weight(rows, x, kernel, *geometry)
        return result
    if plain and x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return (_by_library if math.prod(kernel) <= QUICK else _as_weights)(delta, x, shape, *geometry)
    own = full(x).unsqueeze(0)
    small, large = (own, full(delta)) if transposed else (full(delta), own)
    return _by_place(small, large, shape, *geometry)


def _by_library(
    delta: Tensor,
    x: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    like = x.new_empty(tuple(shape))
    back = torch.ops.aten.convolution_backward
    out = x.new_empty((*delta.shape[:2], *shape))
    for row, into in zip(delta, out, strict=True):
        for b in range(len(x)):
            into[b] = back(
                row[b : b + 1], x[b : b + 1], like, None, stride, padding, dilation, False, [0, 0], x.shape[1],
                [False, True, False],
            )[1]  # fmt: skip
    return out.flatten(3)


def _as_weights(
    delta: Tensor,
    x: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The convolution of each channel of x with its gradients at the output: its steps are the places of the kernel."""
    groups, space = math.prod(x.shape[:2]), delta.shape[3:]
    weights = delta.permute(1, 2, 0, 3, 4).reshape(-1, 1, *space)  # [inputs · channels · cotangents, ..]
    out = F.conv2d(x.reshape(1, groups, *x.shape[2:]), weights, None, dilation, padding, stride, groups)
    out = out[..., : shape[2], : shape[3]]  # with a stride the convolution may take a step more
    return out.reshape(len(x), delta.shape[2], len(delta), -1).permute(2, 0, 1, 3)


def _by_place(
    small: Tensor,
    large: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """``Σ_t small[t] · large[s t + d place − p]`` for each place of the kernel; [K or 1, B, channels, *space] each."""
    large = F.pad(large, [p for q in reversed(padding) for p in (q, q)]) if any(padding) else large
    size, narrow = small.shape[3:], min(small.shape[2], large.shape[2])
    small, large = (t.unflatten(2, (narrow, -1)) for t in (small, large))
    parts = []
    for place in product(*map(range, shape[2:])):
        under = large
        for i, (at, n, s, d) in enumerate(zip(place, size, stride, dilation, strict=True)):
            under = under.narrow(4 + i, at * d, s * (n - 1) + 1)[(slice(None),) * (4 + i) + (slice(None, None, s),)]
        rows = range(max(len(small), len(under))) if small.device.type == "cpu" else (slice(None),)
        parts.append(torch.cat([(_row(small, k) * _row(under, k)).flatten(4).sum(4) for k in rows]))
    return torch.stack(parts, 4).flatten(2, 3)


def _row(t: Tensor, k: int | slice) -> Tensor:
    """One cotangent's part, or what all of them share."""
    return t if isinstance(k, slice) or len(t) == 1 else t[k : k + 1]
