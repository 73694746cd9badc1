"""How α and β of EvenGrad were chosen: on validation pictures that were changed, without any test data."""

from nescio_papers.regrad.defaults import MOST, PLAIN, SHIFTED
from nescio_papers.runner.study import Part, Row, Study

BASE = {"sigma": 0.02, "samples": "N"}
TEMPERS = tuple(
    Row(f"α = {alpha}, β = {beta}", "evengrad", {**BASE, "alpha": alpha, "beta": beta})
    for alpha in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
    for beta in (0.0, 0.25, 0.5, 0.75, 1.0)
)
DEPTHS = tuple(
    Row(f"λ = {decay}, σ = {sigma}", "evengrad", {"layer_decay": decay, "sigma": sigma, "samples": "N"})
    for decay, sigma in ((0.1, 0.02), (0.3, 0.0), (0.3, 0.01), (0.3, 0.02), (0.3, 0.05), (0.6, 0.02), (1.0, 0.02))
)
OTHERS = (
    Row("REGrad*, k = 2", "regrad", {**BASE, "power": 2}),
    Row("REGrad*, k = 1", "regrad", {**BASE, "power": 1}),
    Row("Energy", "energy"),
    Row("GEN", "gen"),
    Row("Entropy", "entropy"),
)
ROWS = (*TEMPERS, *DEPTHS, *OTHERS)

STUDY = Study(
    "even",
    "The settings of EvenGrad, on validation data",
    (
        Part("Shifts", "ood", SHIFTED, ROWS, ("auroc",), averages="each", most=MOST),
        Part("Wrong answers", "calibration", PLAIN, ROWS, ("raulc",), averages="each", most=MOST),
    ),
    (
        "Foreign pictures here are validation pictures that were changed. The sets that the tables are about were not "
        "looked at, nor any picture of CIFAR-100. λ = 0.3 where a row does not say another one.",
    ),
)
