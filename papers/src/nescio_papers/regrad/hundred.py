"""CIFAR-100 with ResNet18, which trains in seconds: L1 rows, three seeds and an ensemble; ResNet152 is too slow."""

from nescio_papers.regrad import table1, table2
from nescio_papers.regrad.rows import BASELINES, BEYOND, LSUN, NORMS, REGRAD_STAR
from nescio_papers.runner.study import Column, Part, Study

PLAN = "cifar100-brief"
ROWS = (*BASELINES, *REGRAD_STAR, *(row for row in BEYOND if row.method != "evengrad"))

STUDY = Study(
    "hundred",
    "CIFAR-100 with ResNet18: L1 rows, three seeds, an ensemble",
    (
        Part(
            "Detection",
            "ood",
            tuple(Column("cifar100", foreign, PLAN) for foreign in ("svhn", "scenes")),
            ROWS,
            ("auroc", "aupr"),
            {row: {"cifar100→svhn": cells["cifar100→svhn"]} for row, cells in table1.LOWER.items()},
            "joint",
            most=500,
        ),
        Part(
            "rAULC on the test set",
            "calibration",
            (Column("cifar100", model=PLAN),),
            ROWS,
            ("raulc",),
            {row: {"cifar100": cells["cifar100"]} for row, cells in table2.PAPER.items()},
            "joint",
            most=500,
        ),
    ),
    (
        "Expectations were written down before the run (`regrad/protocol.md`). 500 pictures of each set.",
        "The paper's network is ResNet152, ours here ResNet18 with 16 epochs, so that three seeds, L1 and an ensemble "
        "take minutes. `table1` has ResNet152 with one seed and L2 alone.",
        NORMS,
        LSUN,
    ),
)
