"""`GuardedClassifier`: a classifier for scikit-learn that says which inputs are foreign.

Methods that scikit-learn has give arrays, as they do there. Those that it does not have give a Series with the index of
X where X is a DataFrame.
"""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from nescio._common.argument_checks import probability
from nescio.doors import estimator_saving
from nescio.doors.estimator_base import Array, NetworkEstimator, labelled_like
from nescio.guard import Guard, Verdict
from nescio.types import InputError

LEAST = 20
"""Different inputs that a guard needs."""


def _has_guard(estimator: Any) -> bool:
    return getattr(estimator, "guard_", None) is not None


class GuardedClassifier(ClassifierMixin, NetworkEstimator):
    """Classify, and say which inputs are unlike those that the classifier knows.

    `fit` trains the network on a part of the data and fits a guard (`nescio.Guard`) to the rest. With ``prefit=True``
    the network is used as it is, and the guard is fitted to all of the data, which should be new to the network. Below
    20 different inputs there is no guard, and a warning says so.

    Args:
        module: A `torch.nn.Module` that takes rows of X and gives logits, or a net of skorch. It is not changed: a copy
            is trained. None makes a multi-layer perceptron of `hidden`; put a `StandardScaler` in front of it.
        prefit: Whether the module is trained already.
        classes: With `prefit`, the label of each output; None takes those of y, or numbers from 0.
        output: What the module returns: "logits", "probabilities" or "binary". None: logits, or what the loss of a net
            of skorch says.
        alpha: The share of known inputs that may be called foreign.
        held_out: The share of the data that the guard is fitted to.
        doubt: The score that the guard's witness of doubt uses, a name of `nescio.methods()`.
        hidden: The widths of the hidden layers where no module is given.
        epochs: How many passes over the data training takes, for a torch module.
        batch_size: How many inputs a step has, for a torch module.
        lr: The largest learning rate, for a torch module.
        random_state: The seed of training and of what is held out, or a RandomState.

    Attributes:
        classes_: The label of each output.
        module_: The trained network.
        guard_: The fitted `nescio.Guard`; None where there were too few inputs.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(2000, 4))
        >>> model = GuardedClassifier(epochs=5).fit(X, np.where(X[:, 0] > 0, "right", "left"))
        >>> new = np.array([[1.0, 0.0, 0.0, 0.0], [50.0, 50.0, 50.0, 50.0]])
        >>> model.predict(new[:1]), model.foreign(new)
        (array(['right'], dtype='<U5'), array([False,  True]))
    """

    def __init__(
        self,
        module: Any = None,
        *,
        prefit: bool = False,
        classes: Any = None,
        output: str | None = None,
        alpha: float = 0.05,
        held_out: float = 0.2,
        doubt: str = "gen",
        hidden: tuple[int, ...] = (100,),
        epochs: int = 50,
        batch_size: int = 32,
        lr: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        self.module, self.prefit, self.classes, self.output = module, prefit, classes, output
        self.alpha, self.held_out, self.doubt = alpha, held_out, doubt
        self.hidden, self.epochs, self.batch_size, self.lr = hidden, epochs, batch_size, lr
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Train the network, and fit the guard.

        Args:
            X: Inputs ``[N, F]``, or with more dimensions for a module that takes them.
            y: The label of each input. With ``prefit=True`` it may be left out.

        Returns:
            The estimator itself.
        """
        probability("alpha", self.alpha)
        x, codes, held_out, seed = self._prepare(X, y)
        if not self.prefit:
            assert codes is not None
            x, codes = x[held_out], codes[held_out]
        self.guard_ = None
        if (count := len(x.unique(dim=0))) < LEAST:
            warnings.warn(
                f"expected at least {LEAST} different inputs to fit the guard to, got {count}; there is no guard. Give "
                "more data, or a larger share: held_out=0.5",
                UserWarning,
                stacklevel=2,
            )
        else:
            guard = Guard(self.classifier_, doubt=self.doubt)
            self.guard_ = guard.fit(x if codes is None else (x, codes), seed=seed, progress=False)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Return the likeliest label of each input.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The labels ``[N]``.
        """
        x = self._inputs(X)
        return self.classes_[self._probabilities(x).argmax(1)]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of each of `classes_`.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The probabilities ``[N, C]``.
        """
        return self._probabilities(self._inputs(X))

    def check(self, X: ArrayLike) -> Verdict:
        """Return all that the guard says of the inputs.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The verdict: p-values, states, and sentences.
        """
        x = self._inputs(X)
        if self.guard_ is None:
            raise InputError(f"expected a guard, got none: the fit had fewer than {LEAST} inputs for it; give it more")
        return self.guard_.check(x, progress=False)

    def p_value(self, X: ArrayLike) -> Any:
        """Return how usual each input is: of inputs like those of the fit a share α has p ≤ α.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The p-values ``[N]``.
        """
        return labelled_like(X, self.check(X).p_value.numpy(), "p_value")

    def foreign(self, X: ArrayLike, alpha: float | None = None) -> Any:
        """Return which inputs are foreign.

        Args:
            X: Inputs ``[N, F]``.
            alpha: As in the constructor.

        Returns:
            True for each foreign input, bool ``[N]``.
        """
        level = self.alpha if alpha is None else alpha
        return labelled_like(X, self.check(X).foreign(level).numpy(), "foreign")

    def predict_or_abstain(self, X: ArrayLike, alpha: float | None = None, abstention: Any = None) -> Any:
        """Return the label of each input, and `abstention` in its place where the input is foreign.

        Args:
            X: Inputs as in `fit`.
            alpha: As in the constructor.
            abstention: What stands for no answer, such as "unknown" or -1.

        Returns:
            Labels ``[N]``, as objects.
        """
        labels = self.predict(X).astype(object)
        labels[np.asarray(self.foreign(X, alpha))] = abstention
        return labelled_like(X, labels, "prediction")

    @available_if(_has_guard)  # type: ignore[untyped-decorator]
    def score_samples(self, X: ArrayLike) -> Array:
        """Return the score of the guard, negated, ``[N]``: as in scikit-learn, **higher means more normal**."""
        return -self.check(X).score.numpy()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the fitted estimator to a folder, as safetensors and JSON, without pickle.

        Args:
            folder: Where to write; it is made where it is missing.
        """
        estimator_saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str], module: Any = None) -> Self:
        """Read an estimator that was saved.

        Args:
            folder: What `save` wrote.
            module: A torch module of the same make, where one was given to the constructor. A copy of it gets the saved
                weights.

        Returns:
            The estimator, fitted.

        Raises:
            InputError: The module is another one, or the folder holds no estimator.
        """
        result: Self = estimator_saving.load(cls, folder, module)
        return result
