"""What the commands that run a user's own model share: its arguments, and how model and data are made ready."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from nescio.models import Classifier


def add_model(command: argparse.ArgumentParser) -> None:
    """Where the model comes from."""
    command.add_argument(
        "--model", required=True, metavar="PACKAGE.MODULE:FACTORY", help="a function that makes the model"
    )
    command.add_argument("--weights", metavar="FILE", help="its weights: .safetensors, or a file of torch.save")


def add_running(command: argparse.ArgumentParser) -> None:
    """How it is run."""
    command.add_argument(
        "--output", choices=("logits", "probabilities", "binary"), help="what the model returns (default: logits)"
    )
    command.add_argument("--batch-size", type=_positive, default=256, metavar="N", help="default: %(default)s")
    command.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 … (default: where the factory puts it)")
    command.add_argument(
        "--trust-pickle", action="store_true", help="read weights that may run code; only for files you trust"
    )


def tensor(array: Any) -> Tensor:
    """An array of a file as a tensor."""
    import numpy as np
    import torch

    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)  # torch has no wider number
    return torch.from_numpy(array)


def move(classifier: Classifier, device: str) -> None:
    """Bring the model to the device that was named."""
    from nescio.types import InputError

    if classifier.module is None:
        raise InputError("--device: expected a torch.nn.Module to move, but the factory gives a plain function")
    try:
        for root in classifier.roots:
            root.to(device)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        raise InputError(f"--device: cannot use '{device}' here: {error}") from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got '{text}'")
    return int(text)
