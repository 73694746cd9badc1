"""How few noisy copies reach the quality of 100, when they come in pairs x ± σε, and when they do not."""

from nescio_papers.regrad.rows import SVHN, decays
from nescio_papers.runner.study import Part, Row, Study, pairs

REFERENCE = "independent, 100 copies"
COUNTS = (2, 4, 8, 16, 32, 64)
EXACT = {"sigma": 0.02, "classes": "exact", "tolerance": 0.0}
ROWS = (
    Row("no copies", "regrad", {**EXACT, "samples": 0}, decays()),
    *(Row(f"pairs, {n} copies", "paired_regrad", {**EXACT, "copies": n, "seed": 1}, decays()) for n in COUNTS),
    *(Row(f"independent, {n} copies", "regrad", {**EXACT, "samples": n, "seed": 1}, decays()) for n in COUNTS),
    Row(REFERENCE, "regrad", {**EXACT, "samples": 100}, decays()),
    Row(
        "another 100 copies",
        "regrad",
        {**EXACT, "samples": 100, "seed": 1},
        decays(),
        note="with other noise: how far two runs of 100 copies are apart",
    ),
)

STUDY = Study(
    "copies",
    "How few noisy copies are enough?",
    (
        Part(
            "REGrad*, k = 2, by number of copies",
            "ood",
            pairs("mnist→omniglot cifar10→svhn svhn→cifar10"),
            ROWS,
            ("auroc", "rho"),
            averages="each",
            reference=REFERENCE,
            line="copies",
            most=500,
        ),
    ),
    (
        "At most 500 pictures of each set. The rank correlation (Spearman) is that with the scores of 100 independent "
        "copies, over known and foreign pictures together. The other rows have noise of their own.",
        SVHN,
    ),
)
