"""`open_model`: the word before the colon, or the ending of the file, says which kind of source it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

from nescio.models.classifier import Classifier
from nescio.models.sources import exported, factory, huggingface, onnx_models, timm_models, torchvision_models
from nescio.models.sources.base import Channels, Opened, Size, Source
from nescio.models.sources.heads import Weights
from nescio.models.sources.picture_transform import Pictures
from nescio.types import InputError

KINDS: dict[str, Callable[[str, Weights | None, bool], Opened]] = {
    "torchvision": torchvision_models.find,
    "timm": timm_models.find,
}
FILES: dict[str, Callable[[str, Weights | None, bool], Opened]] = {".pt2": exported.find, ".onnx": onnx_models.find}
FORMS = "package.module:factory, torchvision:NAME, timm:NAME, hf:PATH-OR-ID, FILE.onnx or FILE.pt2"


def open_model(
    spec: str,
    weights: Weights | None = None,
    *,
    trust_pickle: bool = False,
    output: str | None = None,
    size: Size | None = None,
    crop: Size | None = None,
    mean: Channels | None = None,
    std: Channels | None = None,
    task: str | None = None,
) -> Source:
    """Open the model that a text names, and find out what it does to a row of data first.

    Args:
        spec: What the docstring of `nescio.models.sources` lists, such as "torchvision:resnet18".
        weights: A file of weights (see `nescio.models.read_weights`), or for torchvision and timm the name of published
            ones.
        trust_pickle: Whether a file of weights may run code while it is read.
        output: What the model returns, as `Classifier` takes it; None finds out.
        size: One side (of the crop too), or (height, width), other than the source's own; 0 leaves the step out.
        crop: The same for the crop.
        mean: What is subtracted from each channel, other than the source's own; () leaves it out.
        std: What each channel is divided by, likewise.
        task: What a model of transformers is for, such as "token-classification", where its folder does not say it.

    Returns:
        The model, with what makes a row ready for it.

    Raises:
        InputError: If the text names nothing that can be opened, or a setting does not fit the model.

    Examples:
        >>> open_model("nescio.zoo:small_cnn").about
        'nescio.zoo:small_cnn, ... parameters'
    """
    kind, colon, name = spec.partition(":")
    if task is not None and kind != "hf":
        raise InputError(f"--task: expected it with a model hf:PATH-OR-ID only, got it with {spec!r}; leave it out")
    if kind == "hf" and colon:
        opened = huggingface.find(name, weights, trust_pickle, task)
    elif colon and kind in KINDS:
        opened = KINDS[kind](name, weights, trust_pickle)
    elif Path(spec).suffix in FILES:
        opened = FILES[Path(spec).suffix](spec, weights, trust_pickle)
    elif not colon:
        raise InputError(f"expected {FORMS}, got {spec!r}, which is none of these; check the name")
    else:
        opened = factory.find(spec, weights, trust_pickle)
    return with_own_settings(opened, output, (size, crop, mean, std))


def with_own_settings(
    opened: Opened,
    output: str | None,
    changes: tuple[Size | None, Size | None, Channels | None, Channels | None],
) -> Source:
    """The source with a person's own settings, its normalisation inside of the Classifier."""
    preprocess = opened.preprocess
    if any(change is not None for change in changes):
        preprocess = (preprocess or Pictures(channels=_channels(opened.model))).changed(*changes)
    classifier = Classifier.of(opened.model, output)
    step = None if preprocess is None else preprocess.normalise
    if step is not None:
        if classifier.preprocess is not None:
            raise InputError(
                "expected no mean and std beside a Classifier that has a function before the model already; "
                "leave them out, or let the factory return the model alone"
            )
        if classifier.device is not None:
            step.to(classifier.device)
        classifier = Classifier(
            classifier.model,
            output=classifier.output,
            preprocess=step,
            item=classifier.item,
            class_dim=classifier.class_dim,
        )
    return Source(classifier, preprocess, opened.about, opened.classes)


def _channels(model: object) -> int:
    """Of the pictures that a model takes: 1 where its first convolution says so, else 3."""
    inside = model.module if isinstance(model, Classifier) else model
    modules = inside.modules() if isinstance(inside, nn.Module) else ()
    first = next((one for one in modules if isinstance(one, nn.Conv2d)), None)
    return 1 if first is not None and first.in_channels == 1 else 3
