"""What a model's own error says of the input: a wrong type or shape of input, told in words that name the remedy.

Torch tells of these by the text of its message alone. Any other exception is the model's own and is left alone.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.types import InputError, ModelError

_TYPES = re.compile(r"dtype|scalar type|not implemented for '|[Ii]nput type .* should be the same")
_ARGUMENTS = re.compile(r"forward\(\) (missing \d+ required positional argument|got an unexpected keyword argument)")
_SHAPES = re.compile(
    r"shapes? |channels|dimension|sizes? of tensor|[Ss]izes? must match|size mismatch|input size|image size|\dD "
    r"|normalized_shape|input\.size|elements not|[Oo]utput size is too small|input of size|Dimension out of range"
    r"|[Ii]mage (height|width)|[Ii]nput (height|width)"
)


def explain(error: Exception, x: Inputs) -> InputError | ModelError | None:
    """The InputError for what a wrong type or shape of the input raises in a forward pass, the ModelError for an
    operation without a gradient; None for other errors.
    """
    message = str(error).strip().rstrip(".")
    says = f". It says: {message}. Expected"
    what = f"the model could not take {_form(x)}{says}"
    if isinstance(error, torch.OutOfMemoryError):
        return None
    if "does not support backward" in message:
        return ModelError(
            f"expected a model with gradients, but an operation of it has none here. It says: {message}. Use another "
            "device, another kind of attention, or a score without gradients, such as 'entropy'"
        )
    if isinstance(error, TypeError) and _ARGUMENTS.search(message):
        return InputError(
            f"{what} a mapping with a tensor [N, ...] for each input of the model, under the names that its forward() "
            "has: {'a': …, 'b': …}; from a file of arrays --x a,b"
        )
    if isinstance(error, RuntimeError) and _TYPES.search(message):
        if inputs.is_floating(x):
            return InputError(
                f"{what} inputs of the type that the model's layers take, such as whole numbers for an embedding; "
                "check that all parts of the model have one type too"
            )
        return InputError(
            f"{what} floating-point inputs, got whole numbers; for images of 0..255 divide by 255: x.float() / 255, "
            "and normalise as the model was trained"
        )
    if "index out of range in self" in message:
        return InputError(f"{what} indices within the model's vocabulary; use the tokenizer that belongs to the model")
    if _SHAPES.search(message):
        what = f"the model could not take {_form(x, types=False)} (tried with N = {inputs.size(x)}){says}"
        if isinstance(x, Tensor) and x.ndim == 1:
            return InputError(f"{what} inputs [N, ...], the batch first; one input alone becomes a batch by x[None]")
        return InputError(f"{what} inputs [N, ...] of the shape that the model was trained on, the batch first")
    return None


def _form(x: Inputs, types: bool = True) -> str:
    """The inputs in words. Their number is left open: a batch may be a few of many that the user gave."""
    if isinstance(x, Tensor):
        return f"inputs of shape {_shape(x)}" + f" and type {str(x.dtype).removeprefix('torch.')}" * types
    return "inputs " + ", ".join(f"{name!r} of shape {_shape(value)}" for name, value in x.items())


def _shape(x: Tensor) -> str:
    return "[" + ", ".join(["N", *map(str, x.shape[1:])]) + "]"
