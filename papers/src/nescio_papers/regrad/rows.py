"""The rows that several tables share, with the settings of the paper's supplement (B.2, B.3).

In the settings samples="N" stands for the number of noisy copies of the scale (the paper: 100) and samples="draws" for
its number of perturbed predictions (the paper: 100).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nescio_papers.runner.study import Row

LAMBDA: Mapping[str, float] = {"mnist": 0.3, "cifar10": 0.2, "svhn": 0.2, "cifar100": 0.4}
SIGMA = 0.02
NEW = "not in the paper"
TURNED = "the same number, negated: the norm is large where the network is sure"


def norms(label: str, method: str, paper: str | None = None, note: str = "", **settings: Any) -> tuple[Row, Row]:
    """Return a gradient baseline in L1 and in L2, the better of which stands for the paper's row."""
    one, two = (
        Row(f"{label}, L{norm}", method, {"norm": norm, **settings}, paper=paper, choice=paper or "", note=note)
        for norm in (1, 2)
    )
    return one, two


def decays(values: Mapping[str, float] = LAMBDA) -> dict[str, dict[str, float]]:
    """Return λ by data set."""
    return {known: {"layer_decay": value} for known, value in values.items()}


def readings(
    label: str, paper: str | None, by_set: Mapping[str, Mapping[str, Any]] | None = None, **settings: Any
) -> tuple[Row, Row]:
    """Return REGrad in both readings of Eq. 11; the default one, k = 2, is ranked among the paper's methods."""
    two, one = (
        Row(f"{label}, k = {power}", "regrad", {**settings, "power": power}, by_set or {}, paper, ranked=power == 2)
        for power in (2, 1)
    )
    return two, one


PLAIN: Mapping[str, Any] = {"layer_decay": None, "samples": 0}
SELECTIVE: Mapping[str, Any] = {"samples": 0}
STAR: Mapping[str, Any] = {"sigma": SIGMA, "samples": "N"}

REGRAD_STAR = readings("REGrad*", "REGrad*", decays(), **STAR)
REGRAD = readings("REGrad", "REGrad", **PLAIN)
REGRAD_LAYERS = readings("REGrad + layer-selective", "REGrad + layer-selective", decays(), **SELECTIVE)
REGRAD_FULL = readings("REGrad + layer-selective + perturb", "REGrad + layer-selective + perturb", decays(), **STAR)
EXGRAD = norms("ExGrad", "exgrad", "ExGrad")

PERTURB_X = Row(
    "Perturb x",
    "perturb_x",
    {"sigma": 0.008, "samples": "draws"},
    {"cifar100": {"sigma": 0.02}},
    "Perturb x",
)
PERTURB_THETA = Row(
    "Perturb θ", "perturb_theta", {"sigma": 0.008, "samples": "draws"}, {"cifar100": {"sigma": 0.0003}}, "Perturb θ"
)

GRADIENTS: Sequence[Row] = (
    *norms("NEGrad", "negrad", "NEGrad", note="identically zero: what is compared is round-off"),
    *norms("UNGrad", "ungrad", "UNGrad"),
    *norms("GradNorm as published", "gradnorm", "GradNorm", as_published=True),
    *norms("GradNorm, sign turned", "gradnorm", note=TURNED),
    *EXGRAD,
)
OTHERS: Sequence[Row] = (
    PERTURB_X,
    PERTURB_THETA,
    Row("MC-AA", "mc_aa", {"a": 1e-4, "samples": "draws"}, {"cifar100": {"a": 5e-4}}, "MC-AA"),
    Row("Inserted Dropout", "inserted_dropout", {"rate": 0.4, "samples": "draws"}, paper="Inserted Dropout"),
    Row("Entropy", "entropy", paper="Entropy"),
    Row("ExGrad V Term", "exgrad_v", paper="ExGrad V Term"),
    Row("LA", "laplace", {"samples": "draws"}, paper="LA", note="last layer; needs the training data"),
)
BASELINES: tuple[Row, ...] = (*GRADIENTS, *OTHERS)

BEYOND: tuple[Row, ...] = (
    Row("EvenGrad", "evengrad", note=f"{NEW}; settings chosen on shifted validation pictures"),
    Row("Max probability", "max_probability", note=NEW),
    Row("Energy", "energy", note=NEW),
    Row("GEN", "gen", note=NEW),
    Row("Mahalanobis", "mahalanobis", note=f"{NEW}; needs the training data"),
    Row("KNN", "knn", note=f"{NEW}; needs the training data"),
    Row("Deep ensemble, mutual information", "ensemble", note=f"{NEW}; its members are the models of all seeds"),
)
COMPONENTS: tuple[Row, ...] = (*EXGRAD, *REGRAD, *REGRAD_LAYERS, *REGRAD_FULL)

NORMS = (
    "The paper took the better of L1 and L2 for each gradient baseline. Both are shown; that with the better average "
    "is set against the paper's number. That choice looks at the test sets, which is the paper's way and favours the "
    "baselines."
)
LSUN = (
    "LSUN is not at hand, so its columns are not run; `scenes`, other pictures of scenes, stands beside them under "
    "its own name and has no number of the paper to compare with."
)
SVHN = "The SVHN crops at hand are reconstructed, not the original files: differences on SVHN may come from that."
READINGS = (
    "Eq. 11 can be read with the norm squared (k = 2) or with the square under the root (k = 1). Both are shown; "
    "k = 2 takes part in the ranking."
)
TABLE_NOTES = (NORMS, READINGS, LSUN, SVHN)
