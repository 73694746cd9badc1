"""``torchvision:NAME``: a classifier of torchvision, random or with weights, and the transform that its weights want.

Weights are a file, or the name of published ones (``DEFAULT``, ``IMAGENET1K_V1`` …), which torchvision downloads unless
they are in its cache. The transform is that of the weights; for a file, that of the architecture's default weights.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from nescio._common.torchvision_import import torchvision_models
from nescio.models.sources.base import Opened, Preprocess
from nescio.models.sources.heads import RANDOM, Weights, built, size
from nescio.models.sources.picture_transform import Pictures, Transformed
from nescio.types import InputError, ModelError


def find(name: str, weights: Weights | None, trust_pickle: bool) -> Opened:
    """The model of that name."""
    models = torchvision_models()
    known = models.list_models(module=models)  # the classifiers: those of other tasks are in modules of their own
    if name not in known:
        raise InputError(
            f"expected the name of a classifier of torchvision, got {name!r}; "
            f"close to it: {', '.join(get_close_matches(name, known, 4, 0.4)) or 'none'}"
        )
    published = models.get_model_weights(name)
    chosen = published.__members__.get(str(weights))
    entry = chosen or published.DEFAULT
    extra = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}  # else they warn of slow start
    if chosen is not None:
        try:
            model = models.get_model(name, weights=chosen)
        except OSError as error:
            raise ModelError(
                f"cannot fetch the weights {chosen.name} of torchvision:{name}: {error}; copy the file "
                f"{chosen.url.rpartition('/')[2]} to this machine, and give it as weights (--weights)"
            ) from error
        what = f"weights {chosen.name}"
    else:
        model = built(lambda **more: models.get_model(name, weights=None, **extra, **more), weights, trust_pickle)
        what = RANDOM if weights is None else f"weights of {weights}"
    categories = tuple(entry.meta.get("categories", ()))
    classes = categories if weights is not None and len(categories) == _outputs(model) else None
    return Opened(model, f"torchvision:{name}, {what}, {size(model)}", _preprocess(entry.transforms()), classes)


def _preprocess(preset: Any) -> Preprocess:
    fields = ("crop_size", "resize_size", "mean", "std", "interpolation")
    if any(not hasattr(preset, key) for key in fields):
        return Transformed(preset, f"torchvision's {type(preset).__name__}")
    (resize,), (crop,) = preset.resize_size, preset.crop_size
    return Pictures(resize, (crop, crop), preset.interpolation.value, mean=tuple(preset.mean), std=tuple(preset.std))


def _outputs(model: Any) -> int | None:
    """How many classes the last layer has."""
    sizes = [layer.out_features for layer in model.modules() if hasattr(layer, "out_features")]
    return sizes[-1] if sizes else None
