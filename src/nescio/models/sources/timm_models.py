"""``timm:NAME``: a classifier of timm, random or with weights, and the pre-processing of its data configuration.

Weights are a file, or ``pretrained``: those that timm publishes, downloaded unless they are in its cache.
"""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any

from nescio._common.lazy_imports import need
from nescio.models.sources.base import Opened, Preprocess
from nescio.models.sources.heads import RANDOM, Weights, built, size
from nescio.models.sources.picture_transform import Pictures, Transformed
from nescio.types import InputError, ModelError

PRETRAINED = "pretrained"


def find(name: str, weights: Weights | None, trust_pickle: bool) -> Opened:
    """The model of that name."""
    timm = need("timm", "timm")
    published = str(weights) == PRETRAINED
    if not timm.is_model(name) and not name.startswith(("hf-hub:", "hf_hub:", "local-dir:")):
        close = get_close_matches(name, timm.list_models(), 4, 0.4)
        raise InputError(
            f"expected the name of a model of timm, got {name!r}; close to it: {', '.join(close) or 'none'}"
        )
    try:
        if published:
            model = timm.create_model(name, pretrained=True)
        else:
            model = built(lambda **more: timm.create_model(name, **more), weights, trust_pickle)
    except OSError as error:  # also those of the hub
        reason = str(error).splitlines()[0].rstrip(".")
        raise ModelError(
            f"cannot fetch timm:{name}: {reason}; copy its weights to this machine, and give the file as weights "
            "(--weights)"
        ) from error
    what = "published weights" if published else RANDOM if weights is None else f"weights of {weights}"
    config = need("timm.data", "timm").resolve_model_data_config(model)
    return Opened(
        model,
        f"timm:{name}, {what}, {size(model)}",
        _preprocess(config),
        None if weights is None else _classes(model),
    )


def _preprocess(config: dict[str, Any]) -> Preprocess:
    channels, height, width = config["input_size"]
    mean, std = tuple(map(float, config["mean"])), tuple(map(float, config["std"]))
    mode = config.get("crop_mode") or "center"
    scaled = tuple(math.floor(side / (config.get("crop_pct") or 0.875)) for side in (height, width))
    if mode == "squash" or (mode == "center" and height == width):
        resize = scaled if mode == "squash" else scaled[0]
        return Pictures(resize, (height, width), config["interpolation"], channels, mean=mean, std=std)
    transform = need("timm.data", "timm").create_transform(**config)
    steps = transform.transforms[:-1]  # the last one normalises
    words = f"timm's {mode} crop to {height}x{width}"

    def applied(picture: object) -> Any:
        for step in steps:
            picture = step(picture)
        return picture

    return Transformed(applied, words, channels, mean=mean, std=std)


def _classes(model: Any) -> tuple[str, ...] | None:
    """The names in timm's lists of ImageNet, for a model that was published with one of those."""
    data = need("timm.data", "timm")
    subset = data.infer_imagenet_subset(model)
    if subset is None:
        return None
    info = data.ImageNetInfo(subset)
    if info.num_classes() != model.num_classes:
        return None
    return tuple(info.index_to_description(index) for index in range(info.num_classes()))
