"""What the estimators for scikit-learn share: a network that is trained here or by skorch, or that comes trained."""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from nescio import training
from nescio._common.argument_checks import probability
from nescio.models import Classifier
from nescio.posteriors.deterministic import Deterministic
from nescio.types import InputError, ModelError

Array = NDArray[Any]
_NUMBERS = (np.float64, np.float32)
_OUTPUTS = {"CrossEntropyLoss": "logits", "NLLLoss": "probabilities", "BCEWithLogitsLoss": "binary"}
"""What a module of skorch returns, by the loss that it is trained with."""


class NetworkEstimator(BaseEstimator):
    """Make the network of an estimator, and bring arrays and tables to it; the base of the estimators.

    After the fit `classifier_` is the network as a `nescio.Classifier`, `module_` its module, and `classes_` has the
    label of each of its outputs.

    Examples:
        >>> from nescio.doors.guarded_classifier import GuardedClassifier
        >>> issubclass(GuardedClassifier, NetworkEstimator)
        True
    """

    module: Any
    prefit: bool
    classes: Any
    output: str | None
    held_out: float
    hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    lr: float
    random_state: Any

    def __sklearn_tags__(self) -> Any:
        """Labels are needed to train, and not where the network comes trained."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = not self.prefit
        return tags

    def _prepare(self, X: Any, y: Any) -> tuple[Tensor, Tensor | None, Tensor, int]:
        """Make the network. Gives the inputs, their classes, which of them are held out, and a seed."""
        share = probability("held_out", self.held_out)
        least = 1 if self.prefit else 2
        checks: dict[str, Any] = {"allow_nd": True, "dtype": _NUMBERS, "ensure_min_samples": least}
        if y is None and self.prefit:
            X = validate_data(self, X, **checks)
        else:
            X, y = validate_data(self, X, y, **checks)
            check_classification_targets(y)
        random = check_random_state(self.random_state)
        held_out = torch.zeros(len(X), dtype=torch.bool)
        held_out[torch.from_numpy(random.permutation(len(X))[: math.ceil(share * len(X))])] = True
        seed, x = int(random.randint(2**31 - 1)), _tensor(X)
        if self.prefit:
            self._take_trained(x, y)
            return x, None if y is None else self._codes(y), held_out, seed
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise InputError(f"expected labels of at least two classes to train with, got one class, {y[0]!r}")
        codes = self._codes(y)
        self._train(x[~held_out], codes[~held_out], seed)
        self._check_outputs(x)
        return x, codes, held_out, seed

    def _train(self, x: Tensor, y: Tensor, seed: int) -> None:
        """Train a copy of the module, or of skorch's net; the user's own stays as it is."""
        if _is_skorch(self.module):
            output = self.output or _output_of(self.module)
            net = clone(self.module).fit(x.float().numpy(), (y.float() if output == "binary" else y).numpy())
            self.classifier_ = Classifier(net.module_, output=output)
        else:
            if self.output not in (None, "logits"):
                raise InputError(f"expected a module that gives logits to be trained, got output={self.output!r}")
            recipe = training.Recipe(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)
            with training.seeded(seed):
                network = self._mlp(x[0].numel()) if self.module is None else copy.deepcopy(self.module)
            training.train(network, (x, y), recipe=recipe, seed=seed, progress=False)
            self.classifier_ = Classifier(network)
        self.module_ = self.classifier_.module

    def _take_trained(self, x: Tensor, y: Array | None) -> None:
        """Take the network as it is, and find the labels of its outputs."""
        net = self.module
        if net is None:
            raise InputError("expected a trained module with prefit=True, got None; give it as the first argument")
        if _is_skorch(net):
            check_is_fitted(net, "module_")
            self.classifier_ = Classifier(net.module_, output=self.output or _output_of(net))
        else:
            self.classifier_ = Classifier.of(net, self.output)
        self.module_ = self.classifier_.module
        count = self._probabilities(x[:1]).shape[1]
        if self.classes is not None:
            self.classes_ = np.asarray(self.classes)
        else:
            seen = np.arange(count) if y is None else np.unique(y)
            self.classes_ = seen if len(seen) == count else np.arange(count)
        self._check_outputs(x)

    def _mlp(self, features: int) -> nn.Module:
        """The network where no module is given. It is in float64, so that digits do not depend on the batch."""
        widths = [features, *self.hidden, len(self.classes_)]
        layers: list[nn.Module] = [nn.Flatten()]
        for narrow, wide in pairwise(widths):
            layers += [nn.Linear(narrow, wide), nn.ReLU()]
        return nn.Sequential(*layers[:-1]).double()

    def _check_outputs(self, x: Tensor) -> None:
        count = self._probabilities(x[:1]).shape[1]
        if count != len(self.classes_):
            raise ModelError(
                f"expected a module with an output for each of the {len(self.classes_)} classes, got {count} outputs; "
                "change its last layer, or say which labels they have: classes=[...]"
            )

    def _codes(self, y: Array) -> Tensor:
        """The number of each label's class."""
        numbers = {label: number for number, label in enumerate(self.classes_.tolist())}
        if strange := set(y.tolist()) - set(numbers):
            raise InputError(f"expected labels among {self.classes_.tolist()}, got {sorted(map(str, strange))[:5]}")
        return torch.tensor([numbers[label] for label in y.tolist()], dtype=torch.long)

    def _inputs(self, X: ArrayLike) -> Tensor:
        """New inputs, checked against those of the fit: as many features, with the same names in a table."""
        check_is_fitted(self)
        return _tensor(validate_data(self, X, reset=False, allow_nd=True, dtype=_NUMBERS))

    def _probabilities(self, x: Tensor) -> Array:
        p: Array = Deterministic(self.classifier_).predict(x, progress=False)[0].numpy()
        return p


def labelled_like(X: Any, values: Array, name: str) -> Any:
    """Return values as a Series with the index of X where X is a table of pandas; else as they are.

    Args:
        X: What an estimator was given.
        values: One for each row.
        name: The name of the Series.

    Returns:
        The Series or the array.

    Examples:
        >>> labelled_like([[1.0], [2.0]], np.array([0.1, 0.2]), "doubt")
        array([0.1, 0.2])
    """
    if not type(X).__module__.startswith("pandas"):
        return values
    import pandas

    return pandas.Series(values, index=X.index, name=name)


def _tensor(X: Array) -> Tensor:
    """A copy: torch takes no array that is read-only or reversed."""
    return torch.from_numpy(np.array(X, order="C"))


def _is_skorch(module: Any) -> bool:
    return not isinstance(module, nn.Module) and hasattr(module, "get_params") and hasattr(module, "initialize")


def _output_of(net: Any) -> str:
    """What the module of a net of skorch returns."""
    loss = getattr(net.criterion, "__name__", type(net.criterion).__name__)
    if loss not in _OUTPUTS:
        raise InputError(f"expected a net that is trained with {', '.join(_OUTPUTS)}, got {loss}; say output='logits'")
    return _OUTPUTS[loss]
