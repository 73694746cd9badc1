"""Table 8: λ and σ of REGrad* on MNIST, CIFAR-10 and CIFAR-100."""

from nescio_papers.regrad.rows import LSUN, READINGS, SVHN
from nescio_papers.regrad.table5 import sweep
from nescio_papers.runner.study import Paper, Part, Study, pairs, paper_table

MNIST = paper_table("""
method | mnist→omniglot | mnist→fashion
λ → 0             | 97.80 97.54 | 98.42 98.45
λ → ∞             | 97.71 97.17 | 97.70 97.27
λ = 0.25          | 98.01 97.86 | 98.38 98.40
λ = 0.3           | 98.01 97.86 | 98.51 98.55
λ = 0.35          | 98.01 97.86 | 98.39 98.41
λ = 0.3, σ = .015 | 98.13 97.91 | 98.74 98.76
λ = 0.3, σ = .02  | 98.19 97.95 | 98.78 98.79
λ = 0.3, σ = .025 | 98.18 97.95 | 98.87 98.88
""")
CIFAR10 = paper_table("""
method | cifar10→svhn | cifar10→lsun
λ → 0             | 89.64 85.75 | 90.15 87.16
λ → ∞             | 89.87 86.76 | 90.65 88.71
λ = 0.15          | 90.29 86.51 | 90.94 88.11
λ = 0.2           | 90.33 87.45 | 90.79 88.86
λ = 0.25          | 90.45 86.92 | 91.02 88.30
λ = 0.2, σ = .01  | 92.50 89.08 | 91.01 89.03
λ = 0.2, σ = .015 | 92.45 89.08 | 91.06 89.37
λ = 0.2, σ = .02  | 92.32 89.42 | 91.11 89.93
""")
CIFAR100 = paper_table("""
method | cifar100→svhn | cifar100→lsun
λ → 0             | 81.43 81.12 | 78.95 73.71
λ → ∞             | 86.74 82.15 | 76.93 72.40
λ = 0.35          | 87.22 83.34 | 78.66 74.12
λ = 0.4           | 87.32 83.39 | 79.01 74.61
λ = 0.45          | 87.38 83.25 | 78.91 74.57
λ = 0.4, σ = .015 | 87.89 84.93 | 78.98 74.45
λ = 0.4, σ = .02  | 88.06 85.74 | 79.11 74.39
λ = 0.4, σ = .025 | 88.01 85.52 | 78.91 74.23
""")


def _part(title: str, columns: str, paper: Paper) -> Part:
    return Part(title, "ood", pairs(columns), sweep(list(paper)), ("auroc", "aupr"), paper)


STUDY = Study(
    "table8",
    "λ and σ on MNIST, CIFAR-10 and CIFAR-100",
    (
        _part("MNIST", "mnist→omniglot mnist→fashion", MNIST),
        _part("CIFAR-10", "cifar10→svhn cifar10→lsun cifar10→scenes", CIFAR10),
        _part("CIFAR-100", "cifar100→svhn cifar100→lsun cifar100→scenes", CIFAR100),
    ),
    (READINGS, LSUN, SVHN),
)
