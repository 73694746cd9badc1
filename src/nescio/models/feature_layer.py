"""Features: what goes into the last linear layer that a model calls, or what a module of a given name gives.

They are listened to in a forward pass by temporary hooks and copied at once, since a later layer may work in place.
`pooled` makes one vector of each input: positions of a picture and tokens of a sequence are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nescio.inputs import Inputs, describe
from nescio.models.classifier import Classifier
from nescio.models.structure import layer_error, named_modules
from nescio.modes import eager
from nescio.types import ModelError

_FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.MultiheadAttention)
_CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)


@dataclass(frozen=True)
class Heard:
    """The last call of a module: its public name, the module, and the tensor that was listened to."""

    name: str
    module: nn.Module
    value: Tensor


def listen(
    classifier: Classifier,
    x: Inputs,
    layers: Iterable[str | None],
    modules: Mapping[str, nn.Module] | None = None,
    look: bool = True,
) -> tuple[Tensor, dict[str | None, Heard]]:
    """The logits of a prepared batch, and in the same pass for each layer what the last call of it gave.

    Args:
        classifier: the model.
        x: the batch.
        layers: names of modules; None stands for the input of the last `nn.Linear` that the model calls.
        modules: those of the model by their names, where they are at hand.
        look: as in `Classifier.logits`.
    """
    if modules is None:
        modules = {} if classifier.module is None else dict(named_modules(classifier.module))
    heard: dict[str | None, Heard] = {}

    def note(key: str | None, name: str, module: nn.Module, value: object) -> None:
        value = value[0] if isinstance(value, tuple | list) and value else value
        value = getattr(value, "last_hidden_state", value)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise ModelError(
                f"expected floating-point features from '{name}' ({type(module).__name__}), got {describe(value)}; "
                "name another module with layer='...'"
            )
        heard[key] = Heard(name, module, value.detach().clone())

    wanted = list(dict.fromkeys(layers))
    handles = []
    try:
        for key in wanted:
            if key is None:
                for name, module in modules.items():
                    if isinstance(module, nn.Linear):
                        handles.append(module.register_forward_pre_hook(_given(name, note), with_kwargs=True))
            elif key in modules:
                handles.append(modules[key].register_forward_hook(_gave(key, note)))
        with eager():  # compiled code would pass the hooks by
            logits = classifier.logits(x, look)
    finally:
        for handle in handles:
            handle.remove()
    for key in wanted:
        if key not in heard:
            raise layer_error(
                key,
                modules,
                "expected a model that calls an nn.Linear, whose input are its features, got one that calls none; name "
                "the module whose output to take",
            )
    return logits, heard


def pooled(heard: Heard, count: int) -> Tensor:
    """One vector for each of `count` inputs, float64 ``[N, D]``, where the model lies.

    Features [N, T, D] are averaged over T, and features [N, D, H, W] over H and W. The output of a layer whose features
    come last, such as a linear layer or a layer norm, is averaged over all dimensions between the first and the last.
    The output of a convolution is averaged over all dimensions after the second.
    """
    value = heard.value
    if value.ndim == 0 or len(value) != count:
        raise ModelError(
            f"expected features with one row for each of {count} inputs from '{heard.name}', got {describe(value)}; "
            "name a module whose output has the inputs first with layer='...'"
        )
    value = value.to(torch.float64)
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim > 2:
        last = isinstance(heard.module, _FEATURES_LAST) or value.ndim == 3
        channels_first = isinstance(heard.module, _CHANNELS_FIRST) or not last
        value = value.flatten(2).mean(2) if channels_first else value.flatten(1, -2).mean(1)
    return value


def _given(name: str, note: Callable[..., None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        note(None, name, module, args[0] if args else kwargs.get("input"))

    return hook


def _gave(name: str, note: Callable[..., None]) -> Callable[..., None]:
    def hook(module: nn.Module, _: object, gave: object) -> None:
        note(name, name, module, gave)

    return hook
