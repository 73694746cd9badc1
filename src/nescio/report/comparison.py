"""What a comparison of methods came to: one set of known pictures, some of foreign ones, and every method's scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio.evaluate import ROC, OODResult, ood, roc

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PictureSet:
    """Grey pictures [N, H, W] in [0, 1], and what the model takes each for: its class and that class's probability."""

    name: str
    about: str
    pictures: Floats
    predicted: NDArray[np.int64]
    probability: Floats
    labels: NDArray[np.int64] | None = None  # None where no class is right


@dataclass(frozen=True)
class MethodResult:
    """One method's scores (higher = more uncertain) of the known set and of each foreign set, and its time."""

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
        """Separation of one foreign set from the known one."""
        return ood(self.known, self.foreign[kind], bootstrap=0)


@dataclass(frozen=True)
class Comparison:
    """All of it; `facts` is what somebody needs to repeat it, in words."""

    known: PictureSet
    foreign: tuple[PictureSet, ...]
    methods: tuple[MethodResult, ...]
    accuracy: float
    facts: Mapping[str, str]
    front: Mapping[str, Any]  # which of some pictures not to trust, as `nescio.findings.first_screen` gives it
    featured: str  # the method whose histogram and pictures are shown

    @property
    def ranked(self) -> list[MethodResult]:
        """The methods by falling AUROC, ties by name; none is left out."""
        return sorted(self.methods, key=lambda method: (-method.result.auroc, method.name))

    @property
    def shown(self) -> MethodResult:
        """The featured method."""
        return next(method for method in self.methods if method.name == self.featured)
