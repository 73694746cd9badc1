"""Which settings `nescio.score` should start with, chosen without any test data.

Known pictures are validation pictures, and what stands for foreign ones are the same pictures changed so that their
class is lost or blurred (`nescio_papers.runner.shifts`). No test picture and no foreign test set takes part.
"""

from nescio_papers.runner.shifts import SHIFTS
from nescio_papers.runner.study import Column, Part, Row, Study, pairs

KNOWN = ("mnist", "cifar10", "svhn")  # a ResNet152 of 100 classes would take longer than all others together
MOST = 500
BASE = {"layer_decay": 0.3, "sigma": 0.02, "samples": "N"}


def _row(label: str, **changed: object) -> Row:
    return Row(label, "regrad", {**BASE, "power": 2, **changed})


READINGS = tuple(
    _row(f"k = {power}, {variant}, layer = {layers}", power=power, variant=variant, layers=layers)
    for power in (2, 1)
    for variant in ("squares", "literal")
    for layers in ("module", "tensor")
)
DECAYS = tuple(
    _row(f"k = {power}, λ = {decay}", power=power, layer_decay=decay)
    for power in (2, 1)
    for decay in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1000.0)
)
NOISE = tuple(
    _row(f"k = {power}, σ = {sigma}", power=power, sigma=sigma)
    for power in (2, 1)
    for sigma in (0.0, 0.01, 0.02, 0.03, 0.05, 0.1)
)
COPIES = tuple(_row(f"N = {n}", samples=n) for n in (0, "auto", 16, 100))
OTHERS = (Row("Entropy", "entropy"), Row("Energy", "energy"), Row("GEN", "gen"), Row("ExGrad, L2", "exgrad"))

SHIFTED = pairs(" ".join(f"{known}→shift:{shift}" for known in KNOWN for shift in SHIFTS), split="validation")
FEW = tuple(column for column in SHIFTED if column.foreign in ("shift:shuffled", "shift:blended"))
PLAIN = pairs(" ".join(KNOWN), split="validation")


def _parts(title: str, rows: tuple[Row, ...], columns: tuple[Column, ...] = SHIFTED) -> tuple[Part, Part]:
    return (
        Part(f"{title}: shifts", "ood", columns, rows, ("auroc",), averages="each", most=MOST),
        Part(f"{title}: wrong answers", "calibration", PLAIN, rows, ("raulc",), averages="each", most=MOST),
    )


STUDY = Study(
    "defaults",
    "The defaults, on validation data",
    (
        *_parts("Both readings of Eq. 11 and 12, both meanings of layer", READINGS),
        *_parts("λ", DECAYS),
        *_parts("σ", NOISE),
        *_parts(
            "N", COPIES, tuple(column for column in SHIFTED if column.foreign in ("shift:shuffled", "shift:blended"))
        ),
        *_parts("Other scores", OTHERS),
    ),
    (
        "Foreign pictures here are validation pictures that were changed: " + ", ".join(SHIFTS) + ". The sets that the "
        f"tables are about were not looked at. At most {MOST} pictures of each set.",
    ),
)
