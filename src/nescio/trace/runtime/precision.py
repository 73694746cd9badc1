"""Number types: what round-off leaves, and a classifier seen through copies of its parameters in half the bytes.

What rounding does to a gradient comes from the forward pass: it adds up from layer to layer and switches rectifiers.
So the forward pass is made in both types side by side, and what the narrow one keeps is the other's, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier


def round_off(gradient: Tensor) -> float:
    """What round-off may leave of a gradient that is zero, relative to those beside it that are not."""
    return 64 * min(torch.finfo(gradient.dtype).eps, torch.finfo(torch.float32).eps)


class Lowered(Classifier):
    """The classifier with every floating-point tensor of it, and its inputs, in ``dtype``. The model keeps its own."""

    def __init__(self, classifier: Classifier, dtype: torch.dtype) -> None:
        vars(self).update(vars(classifier))
        self.lower = dtype
        own = classifier.parameters()
        self.cast = {name: p.detach().to(dtype).requires_grad_() for name, p in own.items()}
        self.pairs = [(self.cast[name], p.detach()) for name, p in own.items()]
        self.wide = WeakTensorKeyDictionary()
        """For logits of a pass those in the classifier's own type, where it could be followed in that."""

    def parameters(self) -> dict[str, Tensor]:
        """The copies."""
        return self.cast

    def logits(self, x: Inputs, look: bool = True) -> Tensor:
        """Logits from the copies; their values are not looked at."""
        return self.functional({}, x)

    def functional(self, params: Mapping[str, Tensor], x: Inputs) -> Tensor:
        """Logits from the copies and these parameters."""
        given = lowered(x, self.lower)
        with _buffers(self.module, self.lower) as buffers:
            if params:  # in the middle of a transform of functions
                return super().functional({**self.cast, **params}, given)
            own = zip(inputs.tensors(given), inputs.tensors(x), strict=True)
            with _Beside(self.lower, [*self.pairs, *buffers, *((low, t.detach()) for low, t in own)]) as beside:
                logits = super().functional(self.cast, given)
            self.wide[logits] = beside.wide(logits)
        return logits


def lowered(x: Inputs, dtype: torch.dtype) -> Inputs:
    """The floating-point tensors of a batch in another type."""
    return inputs.apply(x, lambda t: t.to(dtype) if t.is_floating_point() else t)


class _Beside(TorchFunctionMode):
    """Inside, what is computed from ``pairs`` of narrow and wide tensors is computed in both, and the narrow result
    takes the values of the wide one.
    """

    def __init__(self, narrow: torch.dtype, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.narrow = narrow
        self.pairs = {id(low): (low, high) for low, high in pairs if low.dtype == narrow}

    def wide(self, low: Any) -> Any:
        """The wide tensor beside a narrow one; anything else as it is."""
        if id(low) in self.pairs:
            return self.pairs[id(low)][1]
        return low.float() if isinstance(low, Tensor) and low.dtype == self.narrow else low

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if not any(id(t) in self.pairs for t in given):
            return func(*args, **kwargs)
        with torch.no_grad():
            own = tree_map(self.wide, (args, kwargs))
        result = func(*args, **kwargs)
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.is_floating_point()]
        if not made:
            return result
        try:
            with torch.no_grad():
                wide = func(*own[0], **own[1])
                beside = [t for t in tree_leaves(wide) if isinstance(t, Tensor) and t.is_floating_point()]
        except (RuntimeError, TypeError, ValueError):  # it asks for the narrow type: go on from there
            beside = [t.detach().float() for t in made]
        shared = {t.untyped_storage().data_ptr() for t in given} if not _writes(func, kwargs) else set()
        for low, high in zip(made, beside, strict=True):
            if (
                low.shape == high.shape and low.untyped_storage().data_ptr() not in shared
            ):  # not a view of what has them
                low.data.copy_(high)
            self.pairs[id(low)] = low, high.float() if high.dtype == self.narrow else high
        return result


def _writes(func: Callable[..., Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function writes into what it is given."""
    name = getattr(func, "__name__", "")
    return bool(kwargs.get("inplace")) or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


class _buffers:
    """Floating-point buffers in another type for a while."""

    def __init__(self, module: nn.Module | None, dtype: torch.dtype) -> None:
        self.places: list[tuple[dict[str, Any], str, Tensor]] = [
            (part._buffers, name, b)
            for part in (module.modules() if module is not None else ())
            for name, b in part._buffers.items()
            if b is not None and b.is_floating_point()
        ]
        self.dtype = dtype

    def __enter__(self) -> list[tuple[Tensor, Tensor]]:
        for held, name, buffer in self.places:
            held[name] = buffer.to(self.dtype)
        return [(held[name], buffer) for held, name, buffer in self.places]

    def __exit__(self, *_: object) -> None:
        for held, name, buffer in self.places:
            held[name] = buffer
