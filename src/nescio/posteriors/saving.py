"""A fitted distribution in a folder (`nescio.data.bundles`): `posterior.json` has its class and settings.

A model is code, which no file here holds: `load` is given the model.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from nescio.data.bundles import Bundle
from nescio.inputs import describe
from nescio.models import Classifier, ModelLike
from nescio.models.structure import listing
from nescio.models.weights import fill
from nescio.modes.state import modules_of
from nescio.training import seeded
from nescio.types import InputError, ModelError, NescioError, Posterior

if TYPE_CHECKING:
    from nescio.posteriors.base import PosteriorBase

RECORD = "posterior.json"
BUNDLE = Bundle(RECORD, "nescio.posterior", 1, "distribution")

_classes: dict[str, type[PosteriorBase]] = {}
C = TypeVar("C", bound="type[PosteriorBase]")


def saved(name: str) -> Callable[[C], C]:
    """Register a class under the name by which `load` finds it; the name is in the files and must not change."""

    def register(cls: C) -> C:
        assert name not in _classes, f"two distributions are named {name!r}"
        _classes[name] = cls
        return cls

    return register


def save(posterior: PosteriorBase, folder: str | os.PathLike[str]) -> None:
    """Write the distribution to the folder, which is made where it is missing; what it held before is replaced."""
    BUNDLE.write(folder, *pack(posterior))


def load(folder: str | os.PathLike[str], model: ModelLike | Sequence[ModelLike]) -> Any:
    """Load a distribution that was saved in a folder.

    Args:
        folder: Where `save` wrote it.
        model: For a distribution around a network of yours (dropout, Laplace, temperature …) that same network, with
            its weights. For one that has weights of its own (ensembles, SWAG, variational …) a module of the same
            architecture, of which copies are filled, or a function that makes one; for an ensemble also a list of them.
            It is not changed.

    Returns:
        The distribution, of the class that was saved.

    Raises:
        InputError: The folder holds no distribution.
        ModelError: The model is another one.

    Examples:
        >>> import tempfile
        >>> model = torch.nn.Linear(4, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     nescio.posteriors.InsertedDropout(model, samples=10).save(folder)
        ...     nescio.posteriors.load(folder, model).samples
        10
    """
    return unpack(*BUNDLE.read(folder), model)


def pack(posterior: Posterior) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Class and settings of the distribution, and its tensors."""
    name = next((name for name, cls in _classes.items() if type(posterior) is cls), None)
    if name is None:
        raise InputError(
            f"expected a distribution that can be saved ({listing(list(_classes))}), got {describe(posterior)}"
        )
    own = cast("PosteriorBase", posterior)
    settings, tensors = own._state()
    return {"class": name, "settings": settings, "preprocess": _preprocessed(own)}, tensors


def unpack(record: Any, tensors: dict[str, Tensor], model: ModelLike | Sequence[ModelLike]) -> Any:
    """The opposite of `pack`."""
    if not isinstance(record, Mapping):
        raise InputError(f"expected the record of a saved distribution, got {describe(record)}; save it again")
    name, settings = record.get("class"), record.get("settings")
    if name not in _classes:
        raise InputError(f"expected one of {listing(list(_classes))} to load, got {name!r}; is nescio too old for it?")
    if not isinstance(settings, dict):
        raise InputError(f"expected the settings of {name!r}, got {describe(settings)}; save it again")
    try:
        posterior = _classes[name]._from_state(model, settings, tensors)
    except NescioError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"expected the settings of {name!r}, got others ({error!r}); save it again") from error
    if _preprocessed(posterior) != record.get("preprocess"):
        raise ModelError(
            "expected a function before the model where there was one when it was saved (a transform in training is "
            f"one), and none elsewhere, got {_preprocessed(posterior)} in place of {record.get('preprocess')}; "
            "give a nescio.Classifier(model, preprocess=...), or a function that makes one"
        )
    return posterior


def _preprocessed(posterior: PosteriorBase) -> list[bool]:
    """Whether each model has a function before it: that is code, which is not saved, and must not be forgotten."""
    return [classifier.preprocess is not None for classifier in posterior.classifiers]


def check_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Sequence[int]]) -> None:
    """Raise an InputError unless exactly the expected tensors are there, in these shapes, and finite."""
    faults = [f"{name!r} is missing" for name in expected if name not in tensors]
    faults += [f"{name!r} is not known" for name in tensors if name not in expected]
    for name in expected.keys() & tensors.keys():
        if tuple(tensors[name].shape) != tuple(expected[name]):
            faults.append(f"{name!r} has shape {list(tensors[name].shape)}, not {list(expected[name])}")
        elif not bool(tensors[name].isfinite().all()):
            faults.append(f"{name!r} has NaN or infinite values")
    if faults:
        raise InputError(f"expected a state that fits the model and settings, but {listing(faults, quoted=False)}")


def about(classifier: Classifier) -> dict[str, Any]:
    """What to keep in the settings of a distribution around a network of the user, for `same`."""
    return {"output": classifier.output, "weights": fingerprint(classifier)}


def same(model: ModelLike, settings: Mapping[str, Any]) -> Classifier:
    """The model as a Classifier; a ModelError where its weights are not those that `about` saw."""
    classifier = Classifier.of(model, settings["output"], dense=True)
    own = fingerprint(classifier)
    if own != settings["weights"]:
        raise ModelError(
            f"expected the model that this was saved with, got {classifier.name} with other weights "
            f"({own} in place of {settings['weights']}); load its own weights into it first"
        )
    return classifier


def fingerprint(classifier: Classifier) -> str | None:
    """A hash of all parameters and buffers, in order; None for a plain function."""
    if classifier.module is None:
        return None
    total = hashlib.sha256()
    for value in classifier.module.state_dict().values():
        if isinstance(value, Tensor):
            dense = (value.to_dense() if value.layout != torch.strided else value).detach().cpu().contiguous()
            total.update(f"{dense.dtype}{list(dense.shape)}".encode())
            total.update(dense.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def versions(classifier: Classifier) -> tuple[Any, ...]:
    """Return something that changes when weights are replaced or written to."""
    if classifier.module is None:
        return ()
    held = [values for m in modules_of(classifier.module) for values in (m._parameters, m._buffers) if values]
    tensors = [tensor for values in held for tensor in values.values() if tensor is not None]
    return tuple([(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors])


def weights(classifier: Classifier, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of the network itself, named with the prefix, for a distribution that has weights of its own."""
    if classifier.module is None:
        raise ModelError(f"expected a torch.nn.Module, whose weights can be saved, got {classifier.name}")
    return {prefix + name: t for name, t in classifier.module.state_dict().items() if isinstance(t, Tensor)}


def refilled(
    model: ModelLike, tensors: Mapping[str, Tensor], prefix: str = "", output: str | None = None
) -> Classifier:
    """A new Classifier like `model` with those of the tensors whose name begins with the prefix as weights.

    model: a module or Classifier, which is copied, or a function without arguments that makes one.
    """
    made = copy.deepcopy(model) if isinstance(model, nn.Module | Classifier) else _make(model)
    classifier = Classifier.of(made, output, dense=True)
    if classifier.module is None:
        raise ModelError(f"expected a torch.nn.Module, or a function that makes one, got {describe(model)}")
    state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    fill(classifier.module, state, "the saved state")
    return classifier


def _make(factory: Any) -> Any:
    if not callable(factory):
        raise ModelError(f"expected a torch.nn.Module, or a function that makes one, got {describe(factory)}")
    with seeded(0):  # its own first weights are drawn for nothing
        return factory()
