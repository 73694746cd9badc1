"""Maps as attention: A = (1 − M) ⊙ M, highest where a pixel counts and is not what the doubt comes from.

M is the map of an image, brought to one scale for all methods. With m = max(map, 0), the part that adds doubt:

    range     M = (m − min m)/(max m − min m),  in [0, 1]: A is in [0, ¼]. A flat map has M = 0, and no attention
    softmax   M = softmax over the pixels of that,  so A ≈ M ≈ 1/pixels

(The paper takes a softmax, and does not say of what: of the map itself, whose values are all near 0, it would be flat.)
A softmax makes features larger everywhere, which alone changes how fast a network learns: compare with maps of ones.
The attention changes what a network sees, at its input or in the features h_k of its last convolution, as

    (1 + α A) ⊙ x        or        (1 + α A↓) ⊙ h_k,

where A↓ is A averaged over the area of each position of the features. A = 0 leaves the network as it is.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from nescio._common.argument_checks import choice, number
from nescio._common.arrays import Values
from nescio.attribution import Attribution
from nescio.evaluate.map_checks import pixel_maps
from nescio.inputs import describe
from nescio.models.structure import named_modules
from nescio.modes import eager, predicting, preserved
from nescio.types import InputError, ModelError

Maps: TypeAlias = Attribution | Values
"""Maps, one for each picture, as they are given."""
Normalise = Literal["range", "softmax"]
Where = Literal["features", "input"]

ALPHA = 8.0
"""α where none is given: attention at its highest, ¼, then makes a feature three times as large. No paper states it: of
0, 2, 4, 8 and 16 it has the best likelihood on held-out pictures that costs less than a point of accuracy (`nescio
reproduce ua-sweep`).
"""


def attention(maps: Maps, normalise: Normalise = "range") -> Tensor:
    """Compute attention from maps, A = (1 − M) ⊙ M.

    Args:
        maps: An `Attribution`, or numbers ``[N, H, W]``.
        normalise: How maps are brought to one scale M: "range" by their range, "softmax" by a softmax over the pixels.

    Returns:
        A, float64 ``[N, H, W]`` on the CPU.

    Examples:
        >>> attention(torch.tensor([[[0.0, 1.0, 2.0]]]))
        tensor([[[0.0000, 0.2500, 0.0000]]], dtype=torch.float64)
    """
    choice("normalise", normalise, get_args(Normalise))
    m = scaled(as_maps(maps))
    if normalise == "softmax":
        m = m.flatten(1).softmax(1).view_as(m)
    return (1.0 - m) * m


def as_maps(maps: Maps, x: Tensor | None = None) -> Tensor:
    """Maps as numbers, float64 [N, H, W] on the CPU, checked; of pictures x [N, C, H, W] where they are given."""
    numbers = torch.from_numpy(pixel_maps(maps.maps if isinstance(maps, Attribution) else maps, "maps"))
    if x is not None and numbers.shape != (len(x), *x.shape[2:]):
        raise InputError(
            f"expected one map for each picture, one number for each pixel: shape {[len(x), *x.shape[2:]]}, got "
            f"{list(numbers.shape)}; explain these very inputs, and add up the channels"
        )
    return numbers


def scaled(maps: Tensor) -> Tensor:
    """The positive part of each map [N, H, W] by its range, in [0, 1]; 0 for one that is flat."""
    m = maps.clamp(min=0.0)
    low, high = m.amin((1, 2), keepdim=True), m.amax((1, 2), keepdim=True)
    return (m - low) / (high - low).clamp(min=torch.finfo(m.dtype).tiny)


def check_pictures(x: object, what: str = "pictures") -> Tensor:
    """The pictures [N, C, H, W], or an InputError."""
    if not isinstance(x, Tensor) or x.ndim != 4 or x.numel() == 0:
        raise InputError(f"expected {what}, a tensor [N, C, H, W] of at least one, got {describe(x)}")
    return x


class Attended(nn.Module):
    """Wrap a network of pictures so that attention multiplies the pictures, or features of a layer, by 1 + αA.

    Called with pictures ``[N, C, H, W]`` alone, it runs the network as it is.

    Args:
        network: The network.
        where: "features" or "input".
        layer: The name of the module whose output is multiplied, at its last call. None takes what the last
            `nn.Conv2d` gave, with all that follows before its positions are pooled or flattened; it is found by a pass
            at the first call, or by `prepare`.
        alpha: α.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 3))
        >>> Attended(model)(torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, network: nn.Module, where: Where = "features", layer: str | None = None, alpha: float = ALPHA
    ) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise ModelError(f"expected a torch.nn.Module to attend in, got {describe(network)}")
        choice("where", where, get_args(Where))
        if where == "input" and layer is not None:
            raise InputError(f"expected layer= with where='features' only, got {layer!r} with where='input'")
        number("alpha", alpha, at_least=0, hint="less would turn signs around")
        self.network, self.where, self.layer, self.alpha = network, where, layer, float(alpha)
        self._call: int | None = None  # which call of the layer, counted from 0; None: not looked for yet

    def forward(self, x: Tensor, attention: Tensor | None = None) -> Any:
        """What the network returns for pictures [N, C, H, W]."""
        if attention is None:
            return self.network(x)
        check_pictures(x)
        if attention.shape != (len(x), *x.shape[2:]):
            raise InputError(
                f"expected attention of shape {[len(x), *x.shape[2:]]}, one number for each pixel, got "
                f"{list(attention.shape)}"
            )
        if self.where == "input":
            return self.network(self._weighted(x, attention))
        self.prepare(x)
        heard = 0

        def weigh(_: nn.Module, __: Any, y: Any) -> Any:
            nonlocal heard
            heard += 1
            return self._weighted(y, attention) if heard == 1 + (self._call or 0) else None

        handle = self._module().register_forward_hook(weigh)
        try:
            output = self.network(x)
        finally:
            handle.remove()
        if heard <= (self._call or 0):
            raise ModelError(
                f"expected the layer {self.layer!r} to be called in every pass, got one without it; name another module"
            )
        return output

    def prepare(self, x: Tensor) -> Attended:
        """Find the features by a pass over one of the pictures, where that was not done yet.

        Args:
            x: Pictures ``[N, C, H, W]``.

        Returns:
            The network itself.
        """
        if self.where == "features" and self._call is None:
            self.layer, self._call = _features(self.network, x[:1], self.layer)
        return self

    def _weighted(self, y: Tensor, attention: Tensor) -> Tensor:
        small = attention.unsqueeze(1).to(y)
        if small.shape[2:] != y.shape[2:]:
            small = nn.functional.interpolate(small, y.shape[2:], mode="area")
        return y * (1.0 + self.alpha * small)

    def _module(self) -> nn.Module:
        return dict(named_modules(self.network))[str(self.layer)]


def _features(network: nn.Module, x: Tensor, layer: str | None) -> tuple[str, int]:
    """The name of the layer whose output is attended, and which of its calls, counted from 0."""
    names = dict(named_modules(network))
    if layer is not None and layer not in names:
        raise ModelError(f"expected layer= to name a module of the network, got {layer!r}; it has {_some(names)}")
    calls: list[tuple[str, torch.Size | None]] = []

    def listener(name: str) -> Any:
        def note(_: nn.Module, __: object, y: object) -> None:
            calls.append((name, y.shape if isinstance(y, Tensor) else None))

        return note

    with preserved(network), predicting(network), eager():
        for name, module in names.items():
            module.register_forward_hook(listener(name))  # `preserved` takes it away
        network(x)
    own = [shape for name, shape in calls if name == layer]
    if layer is not None and (not own or own[-1] is None or len(own[-1]) != 4):
        came = "it was not called" if not own else "something else" if own[-1] is None else f"shape {list(own[-1])}"
        raise ModelError(f"expected layer={layer!r} to give features [N, K, h, w], got {came}; name another module")
    if layer is not None:
        return layer, len(own) - 1
    last = [at for at, (name, shape) in enumerate(calls) if isinstance(names[name], nn.Conv2d) and shape is not None]
    if not last or calls[last[-1]][1][2:].numel() < 2:  # type: ignore[index]
        raise ModelError(
            f"expected a network with an nn.Conv2d whose features have several positions, got {type(network).__name__},"
            " which has none; take where='input', or name a module with layer='...'"
        )
    at = end = last[-1]
    grid = calls[at][1][2:]  # type: ignore[index]
    # what follows a convolution up to its pooling (norm, activation, the sum of a residual block) belongs to it
    while end + 1 < len(calls) and (shape := calls[end + 1][1]) is not None and len(shape) == 4 and shape[2:] == grid:
        end += 1
    name = calls[end][0]
    return name, sum(other == name for other, _ in calls[:end])


def _some(names: dict[str, nn.Module]) -> str:
    known = [name for name in names if name]
    return ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
