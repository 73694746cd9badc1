"""`retrain`: a network trained anew with maps as attention, by `nescio.training.train`.

    θ ← training on (1 + αA) ⊙ h(x; θ),   A = (1 − M) ⊙ M of maps that were made before

Without maps A is 0 and everything else is the same: the control that an attention is to be compared with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor, nn

from nescio import inputs, training
from nescio._common.argument_checks import integer
from nescio.attribution import Attribution, explain
from nescio.inputs import Data, Inputs, describe
from nescio.mitigate.map_attention import ALPHA, Attended, Maps, Normalise, Where, as_maps, attention, check_pictures
from nescio.mitigate.moving import OnPictures, together
from nescio.models import Classifier, ModelOrPosterior
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.sampled import copied
from nescio.training import Epoch, Recipe
from nescio.types import InputError, Posterior

MapSource: TypeAlias = Maps | Callable[[Tensor], Maps] | ModelOrPosterior | None
"""Maps, or what makes them of pictures; None for no attention."""


class Mitigated(PosteriorBase):
    """Take a network that attends as a distribution of one sample: `predict` gives probabilities ``[1, N, C]``.

    `retrain` makes one.

    Args:
        network: The trained `Attended`.
        source: What makes maps for new pictures, a function of x; None where maps were given as numbers.
        attends: False for the control, which was trained without maps.
        normalise: How maps are brought to one scale, see `attention`.
        transform: Applied to every picture before the network.
        history: What each epoch came to.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 3))
        >>> mitigated = Mitigated(nescio.mitigate.Attended(model))
        >>> mitigated.predict(torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8)).shape
        torch.Size([1, 2, 3])
    """

    def __init__(
        self,
        network: Attended,
        *,
        source: Callable[[Tensor], Maps] | None = None,
        attends: bool = True,
        normalise: Normalise = "range",
        transform: Callable[[Any], Any] | None = None,
        history: tuple[Epoch, ...] = (),
    ) -> None:
        self.network, self.source, self.attends, self.normalise = network, source, attends, normalise
        self.history = history
        self.classifiers = (Classifier(network, preprocess=None if transform is None else OnPictures(transform)),)

    def predict(self, x: Data, maps: MapSource | Literal["own"] = "own", *, progress: bool | None = None) -> Tensor:
        """Predict the class probabilities of pictures.

        Args:
            x: A batch or an iterable of batches.
            maps: Of all these pictures. None is no attention; "own" is as in training: what made the maps there makes
                them here too, and the control has none.
            progress: As in `nescio.score`.

        Returns:
            Probabilities, float64 ``[1, N, C]`` on the CPU.
        """
        if isinstance(maps, str) and maps == "own":
            return super().predict(x, progress=progress)
        return super().predict(self._joined(x, maps), progress=progress)

    def _joined(self, x: Data, maps: MapSource) -> Iterator[Inputs]:
        """The batches with their attention."""
        whole = None if maps is None or _maker(maps) else attention(cast(Maps, maps), self.normalise)
        done = 0
        for batch in inputs.batches(x):
            pictures = check_pictures(batch)
            if whole is None:
                yield {"x": pictures, "attention": made_attention(maps, pictures, self.normalise)}
            else:
                yield {"x": pictures, "attention": whole[done : done + len(pictures)]}
            done += len(pictures)
        if whole is not None and len(whole) != done:
            raise InputError(f"expected a map for each of {done} pictures, got {len(whole)}; explain these very inputs")

    def _batch(self, x: Inputs, moved: Callable[[int], object]) -> Tensor:
        if not isinstance(x, Tensor):
            return super()._batch(x, moved)
        if self.attends and self.source is None:
            raise InputError(
                "expected maps of these pictures, for the network was trained with maps that were given, got none; "
                "give predict(x, maps), or maps=None for a prediction without attention"
            )
        return super()._batch({"x": x, "attention": made_attention(self.source, x, self.normalise)}, moved)

    def _logits(self, x: Inputs) -> Tensor:
        return self.classifiers[0].logits(x)[None]


def retrain(
    model: Callable[[], nn.Module] | nn.Module,
    data: tuple[Tensor, Any],
    maps: MapSource,
    validation: tuple[Tensor, Any] | None = None,
    *,
    validation_maps: Maps | None = None,
    recipe: Recipe | None = None,
    where: Where = "features",
    layer: str | None = None,
    alpha: float | None = None,
    normalise: Normalise = "range",
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Mitigated:
    """Train a network with attention to what maps say.

    Args:
        model: A function without arguments that makes a network, whose weights are drawn from the seed; or a network,
            which is left as it is: a copy is trained on from its weights.
        data: Pictures ``[N, C, H, W]`` and their labels.
        maps: An `Attribution` or numbers ``[N, H, W]`` of these pictures. Or what makes them: a function of x that
            gives either, a distribution or a network (by `nescio.explain` with its defaults). Or None for no attention.
        validation: Pictures and labels that choose between epochs.
        validation_maps: Of those, where maps are given as numbers.
        recipe: As for `nescio.training.train`. Crops, mirror images and turns move the attention with the picture;
            other augmentations are refused.
        where: "features" of the last convolution, or "input".
        layer: Another module whose output is attended.
        alpha: α; None is `ALPHA` for normalise="range", the number of pixels for "softmax".
        normalise: How maps are brought to one scale, see `attention`.
        seed: Of the weights and of the training.
        folder: Where the run is kept, and goes on from when it is started again with the same arguments.
        progress: True shows a bar, False none, None one where it takes long.
        on_epoch: Called after each epoch.

    Returns:
        `Mitigated`, whose `predict` gives probabilities ``[1, N, C]``.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 3))
        >>> x, y, recipe = torch.rand(6, 1, 8, 8), torch.arange(6) % 3, nescio.training.Recipe(epochs=1)
        >>> mitigated = nescio.mitigate.retrain(model, (x, y), torch.rand(6, 8, 8), recipe=recipe, progress=False)
        >>> len(mitigated.history)
        1
    """
    recipe = Recipe() if recipe is None else recipe
    x, y = _pair(data, "data")
    held_out = None if validation is None else _pair(validation, "validation")
    maker = _maker(maps)
    given = maps is not None and maker is None
    if validation_maps is not None and (not given or validation is None):
        raise InputError("expected validation_maps= with validation data, and with maps that are numbers, got it alone")
    if given and validation is not None and validation_maps is None:
        raise InputError("expected validation_maps=, maps of the validation pictures, as the network takes both")
    if alpha is None:
        alpha = ALPHA if normalise == "range" else float(x.shape[2:].numel())
    network = Attended(copied(model, integer("seed", seed, at_least=0)), where, layer, alpha)
    first = next((p for p in network.parameters() if p.is_floating_point()), torch.zeros(()))
    example: Any = inputs.to(x[:1], first.device, first.dtype)
    network.prepare(example if recipe.transform is None else recipe.transform(example))
    changed = replace(
        recipe,
        transform=None if recipe.transform is None else OnPictures(recipe.transform),
        augment=together(recipe.augment, f"attention at {where} ({network.layer}), alpha {network.alpha:g}"),
    )
    train = ({"x": x, "attention": made_attention(maps, x, normalise)}, y)
    check = None
    if held_out is not None:
        check_maps = validation_maps if given else maps
        check = ({"x": held_out[0], "attention": made_attention(check_maps, held_out[0], normalise)}, held_out[1])
    more: Any = {"seed": seed, "folder": folder, "progress": progress, "on_epoch": on_epoch}
    history = training.train(network, train, check, recipe=changed, **more)
    return Mitigated(
        network,
        source=maker,
        attends=maps is not None,
        normalise=normalise,
        transform=recipe.transform,
        history=tuple(history),
    )


def made_attention(maps: MapSource, x: Tensor, normalise: Normalise) -> Tensor:
    """The attention of pictures, float64 [N, H, W], from maps or from what makes them; 0 without."""
    if maps is None:
        return torch.zeros(len(x), *x.shape[2:], dtype=torch.float64)
    maker = _maker(maps)
    return attention(as_maps(cast(Maps, maps) if maker is None else maker(x), x), normalise)


def _maker(maps: MapSource) -> Callable[[Tensor], Maps] | None:
    """Return what makes the maps of pictures; None for maps themselves, and for no attention."""
    if isinstance(maps, Posterior | nn.Module | Classifier):
        return partial(explain, maps)
    return maps if callable(maps) and not isinstance(maps, Attribution) else None


def _pair(data: Data, what: Literal["data", "validation"]) -> tuple[Tensor, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(f"expected {what}= to be a pair of pictures [N, C, H, W] and labels, got {describe(data)}")
    return check_pictures(data[0], f"{what}= with pictures"), data[1]
