"""A fitted `GuardedClassifier` in a folder, without pickle: `estimator.json`, the weights, and the guard."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nescio.data.bundles import Bundle
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.types import InputError

BUNDLE = Bundle("estimator.json", "nescio.sklearn", 1, "classifier")
_KEPT = ("alpha", "held_out", "doubt", "hidden", "epochs", "batch_size", "lr")


def save(estimator: Any, folder: str | os.PathLike[str]) -> None:
    """Write the fitted estimator to the folder, which is made where it is missing.

    Args:
        estimator: A `GuardedClassifier` that is fitted.
        folder: The folder.

    Raises:
        InputError: If the network is a plain function, whose weights nobody knows.

    Examples:
        >>> import tempfile
        >>> X = np.random.default_rng(0).normal(size=(2000, 4))
        >>> estimator = nescio.sklearn.GuardedClassifier(epochs=5).fit(X, X[:, 0] > 0)
        >>> folder = tempfile.mkdtemp()
        >>> save(estimator, folder)
        >>> load(nescio.sklearn.GuardedClassifier, folder, None).predict([[3.0, 0.0, 0.0, 0.0]])
        array([ True])
    """
    check_is_fitted(estimator)
    if estimator.module_ is None:
        raise InputError("expected an estimator of a torch module to save, got one of a plain function")
    names = getattr(estimator, "feature_names_in_", None)
    weights = dict(estimator.module_.state_dict())
    record = {
        "settings": {name: getattr(estimator, name) for name in _KEPT},
        "own_module": None if estimator.module is None else type(estimator.module_).__name__,
        "inputs": next(iter(weights.values())).shape[1] if estimator.module is None else None,
        "output": estimator.classifier_.output,
        "classes": estimator.classes_.tolist(),
        "type": estimator.classes_.dtype.str,
        "features": estimator.n_features_in_,
        "names": None if names is None else list(names),
        "guard": estimator.guard_ is not None,
    }
    BUNDLE.write(folder, record, weights)
    if estimator.guard_ is not None:
        estimator.guard_.save(Path(folder) / "guard")


def load(kind: Any, folder: str | os.PathLike[str], module: Any) -> Any:
    """Return the estimator of this class that was saved in the folder.

    Args:
        kind: The class of the estimator.
        folder: The folder that `save` wrote.
        module: The network that the weights belong to; None where the estimator made its own.

    Returns:
        The fitted estimator.

    Raises:
        InputError: If the module is not of the kind that was saved.

    Examples:
        >>> load(nescio.sklearn.GuardedClassifier, "no such folder", None)
        Traceback (most recent call last):
        nescio.types.InputError: expected a folder that a ... was saved to, but there is no ...
    """
    record, weights = BUNDLE.read(folder)
    if (module is None) != (record["own_module"] is None):
        wanted = "no module" if record["own_module"] is None else f"a module {record['own_module']}"
        raise InputError(f"expected {wanted} to load the weights of {os.fspath(folder)} into, got {module!r:.60}")
    settings = record["settings"]
    estimator = kind(module, **{**settings, "hidden": tuple(settings["hidden"])})
    estimator.classes_ = np.array(record["classes"], dtype=np.dtype(record["type"]))
    network = estimator._mlp(record["inputs"]) if module is None else copy.deepcopy(module)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(
            f"expected a module with the weights of {os.fspath(folder)}, got another one: {error}"
        ) from error
    estimator.classifier_ = Classifier(network.eval(), output=record["output"])
    estimator.module_ = network
    estimator.n_features_in_ = record["features"]
    if record["names"] is not None:
        estimator.feature_names_in_ = np.array(record["names"], dtype=object)
    estimator.guard_ = Guard.load(Path(folder) / "guard", estimator.classifier_) if record["guard"] else None
    return estimator
