"""How much of the score sits in the last layers: REGrad* of the last k layers alone, against the time it takes."""

from nescio_papers.regrad.rows import SVHN, decays
from nescio_papers.runner.study import Part, Row, Study, pairs

EXACT = {"sigma": 0.02, "samples": "N", "classes": "exact", "tolerance": 0.0}
ROWS = (
    *(
        Row(f"last {k} layer{'s' if k > 1 else ''}", "regrad", {**EXACT, "last": k}, decays())
        for k in (1, 2, 3, 4, 6, 8, 12, 16, 24)
    ),
    Row("all layers", "regrad", EXACT, decays()),
)

STUDY = Study(
    "depth",
    "How much of the score sits in the last layers?",
    (
        Part(
            "REGrad*, k = 2, of the last layers",
            "ood",
            pairs("mnist→omniglot cifar10→svhn svhn→cifar10"),
            ROWS,
            ("auroc", "aupr", "seconds"),
            averages="each",
            alone=True,
            line="seconds",
            most=1000,
        ),
    ),
    (
        "Each row is timed by itself; seconds are for 1,000 pictures. A network with fewer layers than a row asks for "
        "gives the score of all of its layers there.",
        SVHN,
    ),
)
