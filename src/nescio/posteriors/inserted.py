"""`InsertedDropout`: predictions under dropout that is inserted before a layer of a model that has none there.

Let h be the input of the last linear layer that the model calls. A mask m_s has d independent entries: 1/(1 − p) with
probability 1 − p, otherwise 0. The s-th prediction uses h ⊙ m_s. All inputs share the mask. Where the layer's output is
the model's output, the model runs once and only this layer runs for each draw. Elsewhere the model runs once for each
draw. The mask is put in by a temporary hook.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import integer, number
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier, ModelLike, named_modules
from nescio.models.structure import layer_error
from nescio.modes import eager, predicting
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.saving import about, check_tensors, same, saved
from nescio.types import ModelError

_MASKED = 2**24  # elements of masked input at once


@saved("inserted_dropout")
class InsertedDropout(PosteriorBase):
    """Insert dropout before the last linear layer of a model that has none (Ledda et al. 2023).

    Nothing is fitted: how much the samples disagree follows from p. So they do not tell doubt of the model and doubt of
    the data apart.

    Args:
        model: A PyTorch classifier, any callable that gives logits, or a `Classifier`; it is not changed.
        p: The share of features that a mask sets to 0.
        samples: S, the number of masks; all inputs share each of them.
        seed: Of the masks.
        layer: The name of the module before which the mask acts; None for the last linear layer.
        output: What the model returns, as in `nescio.score`.

    Examples:
        >>> InsertedDropout(torch.nn.Linear(4, 3), samples=10).predict(torch.rand(5, 4)).shape
        torch.Size([10, 5, 3])
    """

    learnt = False

    def __init__(
        self,
        model: Classifier | Callable[..., Any],
        p: float = 0.4,
        samples: int = 100,
        seed: int = 0,
        layer: str | None = None,
        *,
        output: str | None = None,
    ) -> None:
        self.classifiers = (Classifier.of(model, output, dense=True),)
        self.p, self.layer = number("p", p, above=0.0, below=1.0), layer
        self.samples, self.seed = integer("samples", samples, at_least=1), integer("seed", seed, at_least=0)

    def _logits(self, x: Inputs) -> Tensor:
        return dropped_logits(self.classifiers[0], x, self.p, self.samples, self.seed, self.layer)

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        own = {"p": self.p, "samples": self.samples, "seed": self.seed, "layer": self.layer}
        return own | {"model": about(self.classifiers[0])}, {}

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        check_tensors(tensors, {})
        own = {name: value for name, value in settings.items() if name != "model"}
        return cls(same(model, settings["model"]), **own)


@dataclass
class _Call:
    """The last call of some layers: what it got, what it gave, and the version of that, which changes with its values.

    times: how often its layer was called.
    """

    layer: nn.Module
    given: Any
    gave: Any
    version: int | None
    times: int


def dropped_logits(
    classifier: Classifier,
    x: Inputs,
    p: float,
    samples: int,
    seed: int,
    layer: str | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Logits under each mask, float64 [S, N, C]; p is the rate, and layer=None the last linear layer."""
    size = at_once(x, chunk)
    with predicting(classifier), eager():  # compiled code would pass the hooks by
        candidates = possible_layers(classifier, layer)

        def look(start: int, stop: int) -> tuple[_Call | None, Tensor]:
            return last_call(classifier, inputs.take(x, slice(start, stop)), candidates)

        seen = in_chunks(min(size, inputs.size(x)), size, look)
        last, logits = seen[0]
        if last is None:
            raise no_layer(classifier, layer)
        if not isinstance(last.given, Tensor) or not last.given.is_floating_point():
            raise ModelError(
                f"expected the layer before which dropout is inserted ({type(last.layer).__name__}) to take a "
                f"floating-point tensor, got {inputs.describe(last.given)}; name another one with layer='...'"
            )
        axis = 1 if isinstance(last.layer, nn.modules.conv._ConvNd) else -1
        masks = draw_masks(p, samples, seed, last.given.shape[axis]).to(last.given)
        if last.times == 1 and last.given.ndim == 2 and is_output(last, logits):
            done = [call.given for call, _ in seen if call is not None]
            return _last_layer_only(classifier, x, last.layer, masks, size, done)
        return _whole_model(classifier, x, last.layer, masks, axis, size)


def draw_masks(p: float, samples: int, seed: int, width: int) -> Tensor:
    """Return what features are multiplied by in each sample, ``[S, width]``: 0, or 1 / (1 − p)."""
    generator = torch.Generator("cpu").manual_seed(seed)
    kept = torch.rand(samples, width, generator=generator, dtype=torch.float32) >= p
    return kept / (1.0 - p)


def _last_layer_only(
    classifier: Classifier, x: Inputs, layer: nn.Module, masks: Tensor, size: int, done: list[Tensor]
) -> Tensor:
    """Logits under each mask from the layer's inputs, of which the first are `done`."""
    first = sum(map(len, done))

    def given(start: int, stop: int) -> Tensor:
        call, _ = last_call(classifier, inputs.take(x, slice(first + start, first + stop)), [layer])
        assert call is not None
        result: Tensor = call.given
        return result

    hidden = torch.cat(done + in_chunks(inputs.size(x) - first, size, given))

    def step(start: int, stop: int) -> Tensor:
        h = hidden[start:stop]

        def masked(first: int, end: int) -> Tensor:
            rows = (h * masks[first:end, None]).flatten(0, 1)
            result: Tensor = layer(rows).view(end - first, len(h), -1)
            return result

        return torch.cat(in_chunks(len(masks), max(1, _MASKED // h.numel()), masked))

    return torch.cat(in_chunks(len(hidden), size, step), dim=1).to("cpu", torch.float64)


def _whole_model(classifier: Classifier, x: Inputs, layer: nn.Module, masks: Tensor, axis: int, size: int) -> Tensor:
    def draw(mask: Tensor) -> Tensor:
        def step(start: int, stop: int) -> Tensor:
            return classifier.logits(inputs.take(x, slice(start, stop)))

        with dropping(layer, mask, axis):
            return torch.cat(in_chunks(inputs.size(x), size, step))

    return torch.stack([draw(mask) for mask in masks]).to("cpu", torch.float64)


@contextmanager
def dropping(layer: nn.Module, mask: Tensor, axis: int) -> Iterator[None]:
    """Multiply what goes into the layer by the mask, inside of the block."""

    def drop(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        shape = [1] * given[0].ndim
        shape[axis] = -1
        return (given[0] * mask.view(shape), *given[1:])

    handle = layer.register_forward_pre_hook(drop)
    try:
        yield
    finally:
        handle.remove()


def last_call(classifier: Classifier, x: Inputs, layers: list[nn.Module]) -> tuple[_Call | None, Tensor]:
    """The last call of any of these layers in a forward pass, and the logits."""
    last: _Call | None = None
    times: Counter[nn.Module] = Counter()

    def note(layer: nn.Module, given: tuple[Any, ...], gave: object) -> None:
        nonlocal last
        times[layer] += 1
        last = _Call(layer, given[0] if given else None, gave, _version(gave), times[layer])

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        logits = classifier.logits(x)
    finally:
        for handle in handles:
            handle.remove()
    return last, logits


def _modules(classifier: Classifier) -> dict[str, nn.Module]:
    return {} if classifier.module is None else dict(named_modules(classifier.module))


def possible_layers(classifier: Classifier, name: str | None) -> list[nn.Module]:
    """Return the layers before which dropout may be inserted."""
    modules = _modules(classifier)
    if name is None:
        return [module for module in modules.values() if isinstance(module, nn.Linear)]
    return [modules[name]] if name in modules else []


def no_layer(classifier: Classifier, name: str | None) -> ModelError:
    """Return the error for a model without that layer, or without a linear one."""
    unnamed = (
        "expected a model that calls an nn.Linear, before which dropout can be inserted, got one that calls none; use "
        "another method, such as perturb_x, or name the layer"
    )
    return layer_error(name, _modules(classifier), unnamed)


def is_output(call: _Call, logits: Tensor) -> bool:
    """Whether what the layer gave is what the model gave: the same memory, which nothing has written to since."""
    gave = call.gave
    if not isinstance(gave, Tensor) or call.version is None or call.version != _version(gave):
        return False
    return gave.shape == logits.shape and gave.stride() == logits.stride() and gave.data_ptr() == logits.data_ptr()


def _version(tensor: Any) -> int | None:
    return tensor._version if isinstance(tensor, Tensor) and not tensor.is_inference() else None
