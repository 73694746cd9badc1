"""The result of a comparison: one set of known pictures, several of foreign ones, and every method's scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio.evaluate import ROC, OODResult, ood, roc
from nescio.report.findings_types import FirstScreen

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PictureSet:
    """Hold a set of pictures, and what the model takes each for.

    Attributes:
        name: What the set is called.
        about: What it is, in a sentence without its point.
        pictures: Grey pictures ``[N, H, W]`` in [0, 1].
        predicted: The class that the model answers ``[N]``.
        probability: That class's probability ``[N]``.
        labels: The right classes ``[N]``; None where no class is right.

    Examples:
        >>> black = PictureSet("black", "black pictures", np.zeros((1, 8, 8)), np.array([3]), np.array([0.9]))
        >>> black.labels is None
        True
    """

    name: str
    about: str
    pictures: Floats
    predicted: NDArray[np.int64]
    probability: Floats
    labels: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class MethodResult:
    """Hold the scores of one method, where higher means more uncertain, and its time.

    Attributes:
        name: The name of the method.
        summary: What it does, in a sentence.
        cost: What it costs, in words.
        settings: Its settings by name.
        seconds_per_input: The time for one input.
        known: The scores of the known set.
        foreign: The scores of each foreign set, by its name.

    Examples:
        >>> scores = {"known": np.array([0.1, 0.2]), "foreign": {"noise": np.array([0.3, 0.9])}}
        >>> method = MethodResult("entropy", "The entropy.", "1", {}, 0.001, **scores)
        >>> method.result.auroc
        1.0
    """

    name: str
    summary: str
    cost: str
    settings: Mapping[str, Any]
    seconds_per_input: float
    known: Floats
    foreign: Mapping[str, Floats]

    @property
    def all_foreign(self) -> Floats:
        """The scores of the foreign sets, one after the other."""
        return np.concatenate(list(self.foreign.values()))

    @property
    def result(self) -> OODResult:
        """Separation of all foreign inputs from the known ones."""
        return ood(self.known, self.all_foreign, bootstrap=0)

    @property
    def curve(self) -> ROC:
        """The ROC curve of all foreign inputs against the known ones."""
        return roc(self.known, self.all_foreign)

    def result_of(self, kind: str) -> OODResult:
        """Return how well one foreign set is told from the known one.

        Args:
            kind: The name of the foreign set.

        Returns:
            The metrics.
        """
        return ood(self.known, self.foreign[kind], bootstrap=0)


@dataclass(frozen=True)
class Comparison:
    """Hold a comparison of methods.

    Attributes:
        known: The pictures of the kind that the model was made for.
        foreign: Sets of pictures of other kinds.
        methods: The scores of each method, and its time.
        accuracy: The share of known pictures that the model answers rightly.
        facts: What somebody needs to repeat it, in words.
        front: Which of some pictures not to trust, as `nescio.findings.first_screen` gives it.
        featured: The method whose histogram and pictures are shown.

    Examples:
        >>> scores = {"known": np.array([0.1, 0.2]), "foreign": {"noise": np.array([0.3, 0.9])}}
        >>> method = MethodResult("entropy", "The entropy.", "1", {}, 0.001, **scores)
        >>> known, noise = (
        ...     PictureSet(name, name, np.zeros((2, 8, 8)), np.array([3, 5]), np.array([0.9, 0.4]))
        ...     for name in ("digits", "noise")
        ... )
        >>> comparison = Comparison(known, (noise,), (method,), 0.9, {}, {}, "entropy")
        >>> comparison.featured_method.name, comparison.ranked[0].result.auroc
        ('entropy', 1.0)
    """

    known: PictureSet
    foreign: tuple[PictureSet, ...]
    methods: tuple[MethodResult, ...]
    accuracy: float
    facts: Mapping[str, str]
    front: FirstScreen
    featured: str

    @property
    def ranked(self) -> list[MethodResult]:
        """The methods by falling AUROC, ties by name; none is left out."""
        return sorted(self.methods, key=lambda method: (-method.result.auroc, method.name))

    @property
    def featured_method(self) -> MethodResult:
        """The featured method."""
        return next(method for method in self.methods if method.name == self.featured)
