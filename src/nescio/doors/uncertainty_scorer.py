"""`UncertaintyScorer`: the doubt of a classifier, as the outlier detectors of scikit-learn score theirs.

In `score_samples` and `decision_function` **higher means more normal**, there as here. `uncertainty` has nescio's sign:
higher means more uncertain. It gives a Series with the index of X where X is a DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from nescio import scores, scoring
from nescio._common.argument_checks import probability
from nescio.doors.estimator_base import Array, NetworkEstimator, labelled_like
from nescio.scores import Method
from nescio.scores.base import must_be_fitted
from nescio.types import InputError


class UncertaintyScorer(NetworkEstimator):
    """Score how sure a network is of its answers, in the manner of scikit-learn's outlier detectors.

    `fit` trains the network on a part of the data, fits the method to that part where it needs it, and finds the
    threshold between sure and doubtful on the rest. With ``prefit=True`` the network is used as it is.

    Args:
        module: As in `GuardedClassifier`.
        method: A name of `nescio.methods()`, or such an object.
        settings: Settings of the method, such as ``{"k": 5}``.
        prefit: Whether the module is trained already. Then labels are needed only by methods such as "mahalanobis".
        classes: As in `GuardedClassifier`.
        output: As in `GuardedClassifier`.
        alpha: The share of inputs like those of the fit that are called doubtful.
        held_out: The share of the data that the threshold is found on.
        hidden: The widths of the hidden layers where no module is given.
        epochs: How many passes over the data training takes, for a torch module.
        batch_size: How many inputs a step has, for a torch module.
        lr: The largest learning rate, for a torch module.
        random_state: The seed of training and of what is held out, or a RandomState.

    Attributes:
        method_: The method, fitted.
        offset_: ``decision_function = score_samples − offset_``.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(200, 4))
        >>> scorer = UncertaintyScorer(method="entropy", epochs=5).fit(X, X[:, 0] > 0)
        >>> u = scorer.uncertainty([[3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
        >>> bool(u[0] < u[1])
        True
    """

    def __init__(
        self,
        module: Any = None,
        *,
        method: str | Method = "gen",
        settings: Mapping[str, Any] | None = None,
        prefit: bool = False,
        classes: Any = None,
        output: str | None = None,
        alpha: float = 0.05,
        held_out: float = 0.2,
        hidden: tuple[int, ...] = (100,),
        epochs: int = 50,
        batch_size: int = 32,
        lr: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        self.module, self.method, self.settings, self.prefit = module, method, settings, prefit
        self.classes, self.output, self.alpha, self.held_out = classes, output, alpha, held_out
        self.hidden, self.epochs, self.batch_size, self.lr = hidden, epochs, batch_size, lr
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Train the network, fit the method where it needs it, and find the threshold.

        Args:
            X: Inputs ``[N, F]``, or with more dimensions for a module that takes them.
            y: The label of each input. With ``prefit=True`` it may be left out where the method does without.

        Returns:
            The estimator itself.
        """
        level = 1.0 - probability("alpha", self.alpha)
        self.method_ = scores.get(self.method, **dict(self.settings or {}))
        if must_be_fitted(self.method_) and y is None and self.prefit:
            raise InputError(
                f"expected labels y for the method '{self.method_.name}', which is fitted to them, got none"
            )
        x, codes, held_out, _ = self._prepare(X, y)
        if must_be_fitted(self.method_):
            data = x[~held_out], codes[~held_out]  # type: ignore[index]
            self.method_ = scoring.fit(self.classifier_, self.method_, data, progress=False)
        self.offset_ = -_threshold(self._scores(x[held_out]), level)
        return self

    def uncertainty(self, X: ArrayLike) -> Any:
        """Return the score of nescio.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The scores, float64 ``[N]``: **higher means more uncertain**.
        """
        return labelled_like(X, self._scores(self._inputs(X)), "uncertainty")

    def score_samples(self, X: ArrayLike) -> Array:
        """Return the uncertainty, negated.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The scores ``[N]``: as in scikit-learn, **higher means more normal**.
        """
        return -self._scores(self._inputs(X))

    def decision_function(self, X: ArrayLike) -> Array:
        """Return `score_samples` less `offset_`.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            The values ``[N]``: below 0 where an answer is doubtful.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> Array:
        """Return whether the network is sure of its answers.

        Args:
            X: Inputs ``[N, F]``.

        Returns:
            1 where it is sure, −1 where its answer is doubtful, ``[N]``.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _scores(self, x: Tensor) -> Array:
        result: Array = scoring.score(self.classifier_, x, self.method_, progress=False).numpy()
        return result


def _threshold(known: Array, level: float) -> float:
    """The score that a share `level` of the known does not exceed, half way to the next: so none lies on it."""
    least = float(np.quantile(known, level, method="higher"))
    room = 1e-6 * max(abs(least), 1.0)
    above = known[known > least + room]
    return (least + float(above.min())) / 2 if len(above) else least + room
