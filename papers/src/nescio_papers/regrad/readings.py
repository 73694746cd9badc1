"""The readings that the paper's formulas leave open, and rows of other papers that were never run as printed."""

from nescio_papers.regrad.rows import LSUN, NEW, SIGMA, STAR, SVHN, decays
from nescio_papers.runner.study import Part, Row, Study, pairs

_LAST = {"norm": 1, "layers": "tensor", "last": 1}
ROWS = (
    Row("REGrad*, k = 2", "regrad", STAR, decays()),
    Row("REGrad*, k = 1", "regrad", {**STAR, "power": 1}, decays()),
    Row("REGrad*, mean probability", "regrad", {**STAR, "smoothing": "mean"}, decays()),
    Row("REGrad*, sum of norms", "regrad", {**STAR, "variant": "literal"}, decays()),
    Row("REGrad*, tensors as layers", "regrad", {**STAR, "layers": "tensor"}, decays()),
    Row(
        "REGrad*, all three",
        "regrad",
        {**STAR, "smoothing": "mean", "variant": "literal", "layers": "tensor"},
        decays(),
    ),
    Row("REGrad*, λ = 0.3", "regrad", {"sigma": SIGMA, "samples": "N", "layer_decay": 0.3}),
    Row("REGrad, no noise, as it comes", "regrad", note=NEW),
    Row("GradNorm of the last weight, L1, as published", "gradnorm", {**_LAST, "as_published": True}),
    Row("GradNorm of the last weight, L1, sign turned", "gradnorm", _LAST),
    Row("LA, prior by marginal likelihood", "laplace", {"samples": "draws"}),
    Row("LA, prior precision 1", "laplace", {"samples": "draws", "prior": 1.0}),
    Row("Entropy", "entropy"),
)

STUDY = Study(
    "readings",
    "Does it matter how the formulas are read?",
    (
        Part(
            "AUROC and AUPR",
            "ood",
            pairs("mnist→omniglot mnist→fashion cifar10→svhn cifar10→scenes svhn→cifar10 svhn→cifar100"),
            ROWS,
            ("auroc", "aupr"),
            averages="each",
        ),
    ),
    (
        "Expectations were written down before the run (`regrad/protocol.md`).",
        "λ is the paper's for each data set, but in the row that says so; the paper's Table 1 for SVHN is its λ = 0.3.",
        LSUN,
        SVHN,
    ),
)
