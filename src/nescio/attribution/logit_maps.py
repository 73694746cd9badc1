"""From a logit to the input: a map of each logit z_i over the places of the input.

    gradient    |∂z_i/∂x|
    smoothgrad  |mean over copies x + σε of ∂z_i/∂x|,   ε the same for all inputs
    gradcam     relu(Σ_k mean_positions(∂z_i/∂A_k) A_k),   A what the last convolution gave, or the last tokens
    fullgrad    |∂z_i/∂x ⊙ x| + Σ_l |∂z_i/∂b_l ⊙ b_l|

with the mean over features (channels). The gradient by a bias is taken at each position where the bias is added, so
|∂z/∂b ⊙ b| is a map; A bias of the dense layers behind a convolution has no position in the picture, and would only add
a constant. A bias is also what batch norm adds in eval mode, β − γμ/√(v + ε), and what attention adds, b_o + W_o b_v,
since its weights add up to one. For a network of piecewise linear layers z = ⟨∂z/∂x, x⟩ + Σ_l ⟨∂z/∂b_l, b_l⟩.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nescio.attribution.member_passes import Call, Run
from nescio.attribution.places import FEATURES_LAST, Places
from nescio.trace.backward.substitutes.batch_norm import scale_and_shift
from nescio.trace.runtime.precision import round_off
from nescio.types import InputError

Path = Literal["fullgrad", "gradient", "smoothgrad", "gradcam"]
PATHS: tuple[str, ...] = get_args(Path)

_WITH_BIAS = (nn.Linear, nn.modules.conv._ConvNd, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)

_BLOCK = 2**16
"""Numbers in a block that is worked on in the cache of a CPU."""


def bias_of(module: nn.Module, y: Tensor | None = None) -> Tensor | None:
    """What the module adds to its output y in eval mode, by channel or feature; None: nothing."""
    if isinstance(module, _BatchNorm):
        mean, variance = module._buffers["running_mean"], module._buffers["running_var"]
        if mean is None or variance is None:
            return None
        weight, bias = (None if p is None else p.detach() for p in (module.weight, module.bias))
        return scale_and_shift(weight, bias, mean, variance, module.eps)[1]
    if isinstance(module, nn.MultiheadAttention):
        inner, out = module._parameters["in_proj_bias"], module.out_proj
        if inner is None or out.bias is None:  # both are there, or none is
            return None
        return out.bias.detach() + out.weight.detach() @ inner.detach()[2 * module.embed_dim :]
    own_bias = module.bias if isinstance(module, _WITH_BIAS) else None
    return own_bias.detach().clone() if isinstance(own_bias, Tensor) else None


def added(module: nn.Module, bias: Tensor, dims: int) -> Tensor:
    """The bias in a form that multiplies a gradient with so many dimensions."""
    if isinstance(module, FEATURES_LAST) or bias.ndim > 1:
        return bias
    return bias.view(-1, *[1] * (dims - 3))


def keeper(path: str, layer: nn.Module | None = None) -> Callable[[nn.Module, Tensor], Any] | None:
    """What a pass keeps for a path."""
    if path == "fullgrad":
        return bias_of
    if path != "gradcam":
        return None
    if layer is not None:
        return lambda module, y: y.detach().clone() if module is layer else None
    kinds = (nn.modules.conv._ConvNd, nn.LayerNorm)
    return lambda module, y: y.detach().clone() if isinstance(module, kinds) and y.ndim > 2 else None


def reader(path: str, run: Run, places: Places, maps: list[Tensor]) -> Callable[[Call | None, Tensor], None]:
    """A reader for `Run.pull` that adds what it made of all calls to `maps`: maps [K, N, *places] of the path.

    For "gradient" and "smoothgrad" it is the gradient itself, [K, *shape of the input].
    """
    if path == "fullgrad":
        return _FullGrad(run, places, maps)
    if path == "gradcam":
        return _GradCAM(run, places, maps)

    def read(call: Call | None, g: Tensor) -> None:
        if call is None:
            maps.append(g)

    return read


class _FullGrad:
    def __init__(self, run: Run, places: Places, maps: list[Tensor]) -> None:
        self.run, self.places, self.maps = run, places, maps
        self.sums: dict[tuple[bool, tuple[int, ...]], Tensor] = {}

    def __call__(self, call: Call | None, g: Tensor) -> None:
        if call is not None:
            self._add(call, g)
            return
        total = self.places.mean((g * self.run.root).abs())
        for (patches, _), part in self.sums.items():
            total = total + self.places.brought(part, patches)
        self.maps.append(total)

    def _add(self, call: Call, g: Tensor) -> None:
        term = self.places.arranged(call.module, g, call.axis, self.run.grid)
        if term is None:
            return
        bias, size = call.kept.abs().to(term.dtype), term.shape[2]  # autocast makes them differ
        part = (term.abs() * bias).mean(2) if bias.ndim > 1 else weighted(term, bias / size)
        key = (isinstance(call.module, FEATURES_LAST), tuple(part.shape[2:]))
        self.sums[key] = self.sums[key] + part if key in self.sums else part


def weighted(t: Tensor, weights: Tensor) -> Tensor:
    """Σ_f w_f |t_f| over the features of ``[K, N, features, *places]``: a product, which is one pass over memory."""
    if t.stride(2) != 1:
        result: Tensor = (weights @ t.flatten(3).abs()).unflatten(2, t.shape[3:])
        return result
    last = t.movedim(2, -1)
    if t.is_cuda:
        return last.abs() @ weights
    # in blocks whose magnitudes stay in the cache, and in memory that is not asked for again and again
    flat = last.flatten(0, -2)
    step = max(1, _BLOCK // flat.shape[1])
    room, sums = flat.new_empty(min(step, len(flat)), flat.shape[1]), flat.new_empty(len(flat))
    for block, out in zip(flat.split(step), sums.split(step), strict=True):
        torch.mv(torch.abs(block, out=room[: len(block)]), weights, out=out)
    return sums.view(last.shape[:-1])


class _GradCAM:
    """The last convolution, or behind it the last tokens of which more than the class token counts."""

    def __init__(self, run: Run, places: Places, maps: list[Tensor]) -> None:
        self.run, self.places, self.maps = run, places, maps
        self.map: Tensor | None = None
        if not any(self._arranged(call, call.kept.unsqueeze(0)) is not None for call in run.calls):
            raise InputError(
                "expected a network with a convolution, or with tokens, for Grad-CAM, got none whose positions are "
                "those of the input; take path='gradient' or path='fullgrad', or name a module with layer='...'"
            )

    def _arranged(self, call: Call, t: Tensor) -> Tensor | None:
        return self.places.arranged(call.module, t, call.axis, self.run.grid)

    def __call__(self, call: Call | None, g: Tensor) -> None:
        if call is None:  # gradients come from the last call to the first
            self.maps.append(self.map if self.map is not None else g.new_zeros(*g.shape[:2], *self.places.shape))
            return
        if self.map is not None:
            return
        slope = self._arranged(call, g)
        value = self._arranged(call, call.kept.unsqueeze(0))
        if slope is None or value is None or not bool(slope.any()):
            return
        weights = slope.flatten(3).mean(3)
        # behind a norm over places slopes add up to zero: the round-off of that sum is not a weight
        none = weights.abs() <= round_off(slope) * slope.flatten(3).abs().mean(3)
        weights = weights.masked_fill(none, 0.0)
        weighted_sum = torch.einsum("knf,nf...->kn...", weights, value[0]).relu()
        self.map = self.places.brought(weighted_sum, isinstance(call.module, FEATURES_LAST))
