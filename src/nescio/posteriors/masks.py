"""Dropout that is on in eval mode, with one mask for all inputs: a listener to the calls of torch's dropout functions.

For a call on a tensor h, with keep ~ Bernoulli(1 − p) of the shape that h has for a single input:

    dropout             h ⊙ keep/(1 − p)
    dropout1d, 2d, 3d   the same, one entry of keep for each channel
    alpha_dropout       a (h ⊙ keep + α (keep − 1 + p)),   α = 1.758…,  a = ((1 − p)(1 + p α²))^(−1/2)
    attention           softmax(q kᵀ/√d) ⊙ keep/(1 − p) · v
    recurrent layers    h_t of every layer but the last ⊙ keep_t/(1 − p)

It listens to functions and not to modules, so that calls of `torch.nn.functional.dropout` count as the modules do, and
no module needs to be put into training mode. The k-th call of sample s draws from a generator that knows the seed, s
and k alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nescio._common.seeds import derived_seed
from nescio.models.batch_axis import Unit, grown
from nescio.types import ModelError

_ALPHA = 1.7580993408473766  # of the self-normalising activation (SELU), as in torch
_PLAIN = {F.dropout, torch.dropout}
_CHANNELS = {F.dropout1d: 2, F.dropout2d: 0, F.dropout3d: 4, torch.feature_dropout: 0}  # dimensions without a batch
_ALPHAS = {F.alpha_dropout: False, F.feature_alpha_dropout: True}  # whether by channel
_RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


class Unshared(Exception):
    """A mask cannot be laid out for several inputs."""


class Masks(TorchFunctionMode):
    """Inside, the model's dropout is on, with the masks of sample `draw` for `count` inputs, which lie as `units` say.

    For a single input no units are needed; `shapes` has afterwards those that were met.
    """

    def __init__(self, seed: int, draw: int, count: int = 1, units: Sequence[Unit] = ()) -> None:
        super().__init__()
        self.seed, self.draw, self.count, self.units = seed, draw, count, units
        self.shapes: list[torch.Size] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func in _PLAIN:
            return self._plain(*args, **named)
        if func in _CHANNELS:
            return self._channels(_CHANNELS[func], *args, **named)
        if func in _ALPHAS:
            return self._alpha(_ALPHAS[func], *args, **named)
        if func is F.multi_head_attention_forward:
            return self._attention(func, *args, **named)
        if func in _RECURRENT:
            return self._recurrent(func, *args, **named)
        return func(*args, **named)

    def _plain(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return input if p == 0 else _times(input, self._scale(input, input.shape, p), inplace)

    def _channels(
        self, single: int, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if p == 0:
            return input
        kept = 1 if input.ndim == single else 2
        shape = torch.Size([*input.shape[:kept], *[1] * (input.ndim - kept)])
        return _times(input, self._scale(input, shape, p), inplace)

    def _alpha(
        self, channels: bool, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor:
        if p == 0:
            return input
        shape = torch.Size([*input.shape[:2], *[1] * (input.ndim - 2)]) if channels else input.shape
        if p == 1:
            return _times(input, input.new_zeros(()), inplace)
        keep = self._keep(shape, p).to(input)
        a = ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5
        result = a * (input * keep + _ALPHA * (keep - 1 + p))
        return input.copy_(result) if inplace else result

    def _attention(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        arguments = inspect.signature(func).bind(*args, **kwargs).arguments
        if arguments["dropout_p"] == 0:
            return func(*args, **kwargs)
        # The function asks every listener first, which would bring us back here, and calls `dropout` by its global name
        # where attention weights are asked for. So its own code runs, with these two names replaced.
        own = {**func.__globals__, "has_torch_function": lambda _: False, "dropout": self._plain}
        inner = FunctionType(func.__code__, own, func.__name__, func.__defaults__)
        result, weights = inner(**{**arguments, "training": True, "need_weights": True})
        return result, weights if arguments.get("need_weights", True) else None

    def _recurrent(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        packed = len(args) == 9 and isinstance(args[3], tuple | list)
        layers, p = args[5 if packed else 4], args[6 if packed else 5]
        if layers == 1 or p == 0:
            return func(*args, **kwargs)
        if packed:
            raise ModelError(
                f"expected padded sequences for dropout between recurrent layers (dropout={p:g}), got packed ones, "
                "in which no mask can be shared by all inputs; set dropout=0 there, or use InsertedDropout(model)"
            )
        h, hx, weights, bias, _, _, _, both, first = args
        states = hx if isinstance(hx, tuple | list) else (hx,)
        each, ways = len(weights) // layers, 2 if both else 1
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(layers):
            start = tuple(state[layer * ways : (layer + 1) * ways] for state in states)
            own = weights[layer * each : (layer + 1) * each]
            h, *end = func(h, start if func is torch.lstm else start[0], own, bias, 1, 0.0, False, both, first)
            ends.append(tuple(end))
            if layer < layers - 1:
                h = h * self._scale(h, h.shape, p)
        return h, *(torch.cat(parts) for parts in zip(*ends, strict=True))

    def _scale(self, like: Tensor, shape: torch.Size, p: float) -> Tensor:
        return self._keep(shape, p).to(like) / (1.0 - p if p < 1 else 1.0)

    def _keep(self, shape: torch.Size, p: float) -> Tensor:
        """The mask of this call for tensors of that shape, which is that for all the inputs together."""
        call = len(self.shapes)
        self.shapes.append(shape)
        unit, axis = (shape, None) if self.count == 1 else self.units[call] if call < len(self.units) else (None, None)
        if unit is None or shape != grown(unit, axis, self.count):
            raise Unshared
        mixed = derived_seed(self.seed, self.draw, call)
        generator = torch.Generator("cpu").manual_seed(mixed)
        keep = torch.rand(unit, generator=generator, dtype=torch.float32, device="cpu") >= p
        return keep if axis is None else torch.cat([keep] * self.count, dim=axis)


def _times(input: Tensor, mask: Tensor, inplace: bool) -> Tensor:
    return input.mul_(mask) if inplace else input * mask
