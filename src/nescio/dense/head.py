"""The last layer of a model that answers at every position, and how large a gradient it gives at each.

The logits are z_c(q) = Σ_s w_qs (Σ_i W_ci a_i(s) + b_c): a convolution (or linear layer) W, b of features a, of which
a(s) are those that position s sees, and a resize w behind it, if there is one. So

    ∂z_k(q)/∂W_ci = 1[k = c] ã_i(q),     ã(q) = Σ_s w_qs a(s)          features, resized as the logits are
    ∂ℓ(q)/∂W      = δ(q) ã(q)ᵀ,          δ = ∂ℓ/∂z(q) ∈ ℝ^C,           and  ‖∂ℓ(q)/∂W‖ = ‖δ(q)‖ ‖ã(q)‖

for any loss ℓ(q) of position q, such as log p_c(q) with δ = e_c − p(q); for b it is ‖δ(q)‖ Σ_s w_qs. No backward pass
is needed: ‖ã(q)‖ is one map, and ‖δ(q)‖ a function of p(q). Every forward pass is checked: the layer that was found,
and the resize behind it, must give the logits of its first input again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.dense.resize import MODES, Resize
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.structure import named_modules
from nescio.modes import eager
from nescio.types import ModelError

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
_LATEST, _FEW = 3, 4  # calls that are kept, and layers with as many channels whose calls are kept
_CLOSE = 1e3  # times the precision of the logits' type: what rounding may change
_LOOKED = 48  # rows and columns of a resized map that are looked at
_FOUND: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()  # the last layers, which are tried first


@dataclass
class Call:
    """A layer's call: its name, the layer, what it was given, and the shape of what it gave."""

    name: str
    layer: Any
    given: Tensor
    shape: torch.Size

    @property
    def width(self) -> int:
        """How many channels it gave."""
        return _width(self.layer)


@dataclass(frozen=True)
class Head:
    """The last layers of one forward pass, whose outputs are added, and the resize behind them."""

    calls: tuple[Call, ...]
    resize: Resize | None

    def names(self, by: str) -> tuple[str, ...]:
        """Return the layers' names, a module each (`by` = "module") or a parameter ("tensor")."""
        if by == "module":
            return tuple(call.name for call in self.calls)
        parameters = [(call, key) for call in self.calls for key in _keys(call.layer)]
        return tuple(f"{call.name}.{key}" if call.name else key for call, key in parameters)

    def sizes(self, by: str, norm: int) -> Tensor:
        """Return how large ∂z_c(q)/∂θ_l is for each of the layers of `names`, float64 ``[N, *positions, L]``.

        Args:
            by: "module" or "tensor".
            norm: 2 for its length, 1 for the sum of absolute values.
        """
        columns = []
        for call in self.calls:
            powers = [_powers(call, self.resize, norm)]
            if "bias" in _keys(call.layer):
                powers.append(_bias(call, self.resize, norm).expand_as(powers[0]))
            columns += powers if by == "tensor" else [sum(powers[1:], powers[0])]
        table = torch.stack(columns)
        return (table.sqrt_() if norm == 2 else table).movedim(0, -1)  # a layer after the other in memory


@contextmanager
def watched(classifier: Classifier) -> Iterator[list[Call]]:
    """Gives a list that a forward pass within the block fills with the calls that may be the last layer.

    Where the last layers of the model were found before, only their calls are noted. Otherwise the latest calls are
    kept, and those of layers whose number of channels few other layers have, as is mostly so for that of the classes: a
    network may have a second head, which is called later. What others were given can be freed.
    """
    calls: list[Call] = []
    modules = [] if classifier.module is None else list(named_modules(classifier.module))
    before = None if classifier.module is None else _FOUND.get(classifier.module)
    layers = [
        (name, module) for name, module in modules if isinstance(module, _LAYERS) and (before is None or name in before)
    ]
    often = Counter(_width(module) for _, module in layers)

    def note(name: str) -> Any:
        def hook(layer: nn.Module, given: tuple[Any, ...], gave: object) -> None:
            if given and isinstance(given[0], Tensor) and isinstance(gave, Tensor):
                calls.append(Call(name, layer, given[0].detach(), gave.shape))
            if len(calls) > _LATEST and often[calls[-_LATEST - 1].width] > _FEW:
                del calls[-_LATEST - 1]

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in layers]
    try:
        with eager():  # compiled code would pass the hooks by
            yield calls
    finally:
        for handle in handles:
            handle.remove()


def logits_and_head(classifier: Classifier, x: Inputs) -> tuple[Tensor, Head]:
    """Return the logits ``[N, *positions, C]`` of a forward pass, and its last layers.

    Args:
        classifier: The model.
        x: What its `prepare` gave.

    Raises:
        ModelError: As `find` does.
    """
    module = classifier.module
    known = module is not None and module in _FOUND
    with watched(classifier) as calls:
        logits = classifier.logits(x)
    try:
        return logits, find(classifier, calls, logits)
    except ModelError:
        if not known or module is None:
            raise
        del _FOUND[module]  # the model has other last layers than before
    return logits_and_head(classifier, x)


def find(classifier: Classifier, calls: Sequence[Call], logits: Tensor) -> Head:
    """Return the last layers among the calls of a forward pass, checked against the logits of its first input.

    Args:
        classifier: The model.
        calls: What `watched` noted.
        logits: Of the same pass, ``[N, *positions, C]``.

    Raises:
        ModelError: No convolution or linear layer, or the sum of some, gives the logits, resized or not.
    """
    dim = classifier.class_dim or 1
    z = logits[:1].detach()
    z = (z[..., 1:] - z[..., :1] if classifier.output == "binary" else z).movedim(-1, dim)
    fitting = [call for call in calls if call.width == z.shape[dim] and _usable(call)]
    outputs = [call.layer.forward(call.given[:1]) for call in fitting]  # without hooks of the user
    module, names = classifier.module, tuple(call.name for call in fitting)
    before = None if module is None else _FOUND.get(module)
    sums = [
        chosen
        for count in range(1, min(len(fitting), 3) + 1)
        for chosen in reversed(list(combinations(range(len(fitting)), count)))
    ]
    for chosen in sorted(sums, key=lambda own: tuple(names[at] for at in own) != before):
        parts = [outputs[at] for at in chosen]
        if len({part.shape for part in parts}) > 1:
            continue
        made = sum(parts[1:], parts[0])
        if (how := _resize(made, z)) is not False:
            if module is not None:
                _FOUND[module] = tuple(names[at] for at in chosen)
            return Head(tuple(fitting[at] for at in chosen), how)
    raise ModelError(
        f"expected a last layer whose gradient at each position is known, a convolution or a linear layer that gives "
        f"the logits, resized or not, got {classifier.name}, which does something else after its last layers "
        f"({', '.join(call.name for call in calls[-3:]) or 'none was called'}); use a method that needs no gradients, "
        "such as 'entropy'"
    )


def _resize(made: Tensor, z: Tensor) -> Resize | Literal[False] | None:
    """How z came from what the layers gave: None as it is, False not at all."""
    low, high = (float(end) for end in made.detach().aminmax())
    near = _CLOSE * torch.finfo(z.dtype).eps * max(-low, high, 1e-30)
    if made.shape == z.shape:
        return None if float((made - z).abs().max()) <= near else False
    if made.ndim != 4 or made.shape[:2] != z.shape[:2]:
        return False
    rows, columns = (torch.linspace(0, n - 1, min(n, _LOOKED)).round().long().to(z.device) for n in z.shape[2:])
    wanted, small = z[:, :, rows][..., columns].double(), made.double()
    ways = [Resize((z.shape[2], z.shape[3]), mode, align) for mode, align in MODES]
    errors = []
    for way in ways:
        tall, wide = way.weights(made.shape[2], made.shape[3], z.device)
        errors.append(float((tall[rows] @ small.detach() @ wide[columns].mT - wanted).abs().max()))
        if errors[-1] <= near / 30:
            return way
    best = min(range(len(ways)), key=errors.__getitem__)
    return ways[best] if errors[best] <= near else False


def _width(layer: Any) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)


def _usable(call: Call) -> bool:
    """Whether each logit depends on its own row of the weight alone, and the row sees what `_powers` takes."""
    layer = call.layer
    if isinstance(layer, nn.Linear):
        return call.given.ndim >= 3
    batched = call.given.ndim == layer.weight.ndim
    return bool(batched and layer.groups == 1 and layer.padding_mode == "zeros")


def _keys(layer: nn.Module) -> tuple[str, ...]:
    return ("weight",) if layer.bias is None else ("weight", "bias")


def _powers(call: Call, resize: Resize | None, norm: int) -> Tensor:
    """Σ_i |ã_i(q)|^norm, float64 ``[N, *positions]``."""
    a, layer = call.given, call.layer
    if resize is not None:
        if max(layer.kernel_size) > 1:
            size = [
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, p, d, k, s in zip(
                    a.shape[2:], layer.padding, layer.dilation, layer.kernel_size, layer.stride, strict=True
                )
            ]
            a = F.unfold(a, layer.kernel_size, layer.dilation, layer.padding, layer.stride).unflatten(-1, size)
        return resize.squares(a) if norm == 2 else resize.sizes(a)
    axis = -1 if isinstance(layer, nn.Linear) else 1
    own = sum(part.double().abs().pow(norm).sum(axis) for part in a.split(64, axis))
    assert isinstance(own, Tensor)
    return own if isinstance(layer, nn.Linear) else _summed(layer, own)


def _summed(layer: Any, own: Tensor) -> Tensor:
    """The sum of a map over what each position of the layer's output sees."""
    ones = own.new_ones(1, 1, *layer.kernel_size)
    if layer.transposed:
        more = layer.output_padding, 1, layer.dilation
        return F.conv_transpose2d(own[:, None], ones, None, layer.stride, layer.padding, *more)[:, 0]
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[own.ndim - 1]
    return convolve(own[:, None], ones, None, layer.stride, layer.padding, layer.dilation)[:, 0]


def _bias(call: Call, resize: Resize | None, norm: int) -> Tensor:
    """(Σ_s w_qs)^norm, which is 1 for most."""
    if resize is None:
        return torch.ones((), dtype=torch.float64, device=call.given.device)
    return resize.ones(call.given.new_zeros(1, 1, *call.shape[2:])).abs().pow(norm)
