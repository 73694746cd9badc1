"""Networks of Table 1 trained by the paper's own schedules, and SVHN's with its layers read as they are printed."""

from nescio_papers.regrad import table1
from nescio_papers.regrad.rows import LSUN, SVHN
from nescio_papers.runner.study import Column, Paper, Part, Row, Study, pairs

ROWS: tuple[Row, ...] = tuple(
    row for row in table1.ROWS if row.settings.get("norm", 2) != 1 and row.method != "ensemble"
)


def _paper(paper: Paper, *columns: str) -> Paper:
    return {label: {key: line[key] for key in columns} for label, line in paper.items()}


STUDY = Study(
    "schedules",
    "Table 1 with the paper's own schedules",
    (
        Part(
            "MNIST",
            "ood",
            pairs("mnist→omniglot mnist→fashion", model="own-"),
            ROWS,
            ("auroc", "aupr"),
            _paper(table1.UPPER, "mnist→omniglot", "mnist→fashion"),
            "joint",
        ),
        Part(
            "SVHN",
            "ood",
            pairs("svhn→cifar10 svhn→cifar100", model="own-"),
            ROWS,
            ("auroc", "aupr"),
            _paper(table1.LOWER, "svhn→cifar10", "svhn→cifar100"),
            "joint",
        ),
        Part(
            "SVHN, layers read as they are printed",
            "ood",
            tuple(Column("svhn", foreign, "literal-svhn") for foreign in ("cifar10", "cifar100")),
            ROWS,
            ("auroc", "aupr"),
            _paper(table1.LOWER, "svhn→cifar10", "svhn→cifar100"),
            "joint",
        ),
        Part(
            "CIFAR-10",
            "ood",
            pairs("cifar10→svhn cifar10→scenes", model="own-"),
            ROWS,
            ("auroc", "aupr"),
            _paper(table1.UPPER, "cifar10→svhn"),
            "joint",
        ),
    ),
    (
        "Expectations were written down before the run (`regrad/protocol.md`).",
        "Schedules: MNIST 30 epochs, SVHN 50, CIFAR-10 100 (ResNet18, in bfloat16), as the paper has them (supplement "
        "B.1). 40,000 of SVHN's 73,257 training pictures are at hand; a tenth of the pictures chooses between epochs.",
        "The paper prints SVHN's layers as Dense-ReLU-Dense-Dense-ReLU-Softmax. Elsewhere that is taken for a slip.",
        "Gradient baselines are in L2 here; the paper took the better of L1 and L2.",
        LSUN,
        SVHN,
    ),
)
