"""A tiny scale and a tiny study, and one folder of networks for all tests of this room."""

from dataclasses import replace

import pytest

from nescio_papers.runner import scale as scales
from nescio_papers.runner.study import Part, Row, Study, pairs, paper_table

PAPER = paper_table("""
method  | mnist→omniglot | cifar10→svhn | avg
Entropy | 90.00±0.50 80.00±0.50 | 70.00±0.50 60.00±0.50 | 75.00
ExGrad  | 91.00±0.50 81.00±0.50 | 71.00±0.50 61.00±0.50 | 76.00
""")
ROWS = (
    Row("Entropy", "entropy", paper="Entropy"),
    Row("ExGrad, L1", "exgrad", {"norm": 1}, paper="ExGrad", choice="ExGrad"),
    Row("ExGrad, L2", "exgrad", {"norm": 2}, paper="ExGrad", choice="ExGrad"),
    Row("KNN", "knn", {"k": 5}),
    Row("Ensemble", "ensemble"),
)
TINY = Study(
    "tiny",
    "A tiny study",
    (
        Part(
            "Detection",
            "ood",
            pairs("mnist→omniglot cifar10→svhn"),
            ROWS,
            ("auroc", "aupr"),
            PAPER,
            "joint",
        ),
        Part("Calibration", "calibration", pairs("mnist"), ROWS, ("raulc",), averages="each"),
    ),
)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def tiny(monkeypatch):
    """The smoke scale, made smaller still."""
    smaller = replace(scales.SCALES["smoke"], pictures=25, training=60, epochs_trained=1)
    monkeypatch.setattr(scales, "SCALES", {**scales.SCALES, "smoke": smaller})
    return TINY
