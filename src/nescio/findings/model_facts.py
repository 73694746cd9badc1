"""What a model is, and everything that somebody needs to get the same numbers: versions, hashes, machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from nescio import __version__
from nescio._common.formatting import count
from nescio.data.sources import Rows
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.posteriors.saving import fingerprint
from nescio.report.findings_types import LayerFacts, ModelFacts
from nescio.types import Posterior

PACKAGES = ("numpy", "torchvision", "timm", "transformers", "pillow", "pyarrow", "safetensors", "matplotlib")
_MODULES = {"pillow": "PIL"}


def model_facts(source: Source, rows: Rows, classes: int, class_names: Sequence[str] | None) -> ModelFacts:
    """Return what the model is, layer by layer, and what it does to a row first.

    Args:
        source: The model.
        rows: The data.
        classes: The number of classes.
        class_names: Their names.
    """
    every = networks(source.model)
    first = every[0] if every else None
    module = None if first is None else first.module
    sizes = [] if first is None else [int(value.numel()) for value in first.parameters().values()]
    return {
        "about": source.about,
        "kind": "one network" if isinstance(source.model, Classifier) else type(source.model).__name__,
        "networks": len(every),
        "preprocess": str(rows.preprocess),
        "classes": classes,
        "class_names": None if class_names is None else list(class_names),
        "parameters": sum(sizes),
        "layers": [] if module is None else _layers(module),
        "device": None if first is None or first.device is None else str(first.device),
        "dtype": None if first is None or first.dtype is None else str(first.dtype).removeprefix("torch."),
        "hash": [fingerprint(one) for one in every],
    }


def networks(model: Classifier | Posterior) -> tuple[Classifier, ...]:
    """Return the networks of a model or a posterior."""
    return (model,) if isinstance(model, Classifier) else tuple(getattr(model, "classifiers", ()))


def versions() -> dict[str, str]:
    """Return the versions of nescio, Python and torch, and of those packages that were used."""
    numbers = {"nescio": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for name in PACKAGES:
        if _MODULES.get(name, name) in sys.modules:
            try:
                numbers[name] = version(name)
            except PackageNotFoundError:  # a copy on the path that was never installed
                numbers[name] = "unknown"
    return numbers


def origin(source: Source, rows: Rows) -> dict[str, str]:
    """Return in words which data, versions and machine the numbers come from."""
    return {
        "data": f"{rows.about} (identity {rows.identity})",
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "machine": machine(source),
    }


def machine(source: Source) -> str:
    """Return in words what computes; on another machine the last digits may be others."""
    every = networks(source.model)
    device = every[0].device if every else None
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = count(torch.get_num_threads(), "thread")
    return f"{platform.machine()}, {threads}, {torch.backends.cpu.get_cpu_capability()}"


def _layers(module: torch.nn.Module) -> list[LayerFacts]:
    """The parts that have parameters of their own, in order."""
    layers: list[LayerFacts] = []
    for name, part in module.named_modules():
        own = sum(int(value.numel()) for value in part.parameters(recurse=False))
        if own:
            shown = " ".join(part.extra_repr().split())
            layers.append({"name": name or "(the model)", "type": type(part).__name__, "of": shown, "parameters": own})
    return layers
