"""Table 10: a vision transformer in the place of the ResNets."""

from nescio_papers.regrad.rows import BEYOND, LSUN, NORMS, PERTURB_THETA, SVHN, TURNED, decays, norms, readings
from nescio_papers.runner.study import Part, Row, Study, pairs, paper_table

PAPER = paper_table("""
method | cifar10→svhn | cifar10→lsun | cifar100→svhn | cifar100→lsun
UNGrad    | 78.77 72.51 | 84.83 76.61 | 70.20 60.06 | 72.08 60.19
GradNorm  | 53.03 58.91 | 72.84 71.04 | 56.30 54.84 | 63.76 57.20
ExGrad    | 92.41 88.06 | 89.06 86.55 | 85.47 78.91 | 85.55 79.68
Perturb θ | 89.13 81.26 | 90.70 81.59 | 84.35 77.37 | 85.70 77.74
Ours      | 96.62 95.69 | 94.99 94.06 | 90.22 88.61 | 88.38 85.10
""")

STUDY = Study(
    "table10",
    "Vision transformer",
    (
        Part(
            "AUROC and AUPR",
            "ood",
            pairs("cifar10→svhn cifar10→lsun cifar10→scenes cifar100→svhn cifar100→lsun cifar100→scenes", model="vit-"),
            (
                *norms("UNGrad", "ungrad", "UNGrad"),
                *norms("GradNorm as published", "gradnorm", "GradNorm", as_published=True),
                *norms("GradNorm, sign turned", "gradnorm", note=TURNED),
                *norms("ExGrad", "exgrad", "ExGrad"),
                PERTURB_THETA,
                Row("Entropy", "entropy", note="not in this table of the paper"),
                *readings("REGrad*", "Ours", decays(), sigma=0.02, samples="N"),
                *BEYOND,
            ),
            ("auroc", "aupr"),
            PAPER,
            "joint",
        ),
    ),
    (
        NORMS,
        LSUN,
        SVHN,
        "The paper does not say which λ and σ it used here; those of the ResNets are taken.",
        "The paper takes `vit_timm` of a public repository, which is a ViT-B/16 for pictures of 384 pixels, trained "
        "before on other pictures. Ours have six layers, pictures of 32 pixels, and are trained from nothing.",
    ),
)
