"""Table 5: λ and σ of REGrad* on SVHN."""

from typing import Any

from nescio_papers.regrad.rows import READINGS, SVHN, readings
from nescio_papers.runner.study import Part, Row, Study, pairs, paper_table

PAPER = paper_table("""
method | svhn→cifar10
λ → 0             | 90.22 88.16
λ → ∞             | 88.21 83.92
λ = 0.25          | 90.65 88.72
λ = 0.3           | 90.72 88.82
λ = 0.35          | 90.80 88.82
λ = 0.3, σ = .015 | 91.05 89.55
λ = 0.3, σ = .02  | 91.11 89.63
λ = 0.3, σ = .025 | 90.98 89.41
""")
LIMITS = {"0": None, "∞": 1e3}  # exp(−1000) is 0: the last layer alone


def sweep(labels: list[str]) -> tuple[Row, ...]:
    """Return rows from labels such as `λ → ∞` and `λ = 0.3, σ = .02`."""
    rows: list[Row] = []
    for label in labels:
        decay, _, noise = label.partition(", σ = ")
        value = decay.split()[-1]
        settings: dict[str, Any] = {"layer_decay": LIMITS[value] if "→" in decay else float(value)}
        settings |= {"sigma": float(noise), "samples": "N"} if noise else {"samples": 0}
        rows += readings(label, label, **settings)
    return tuple(rows)


STUDY = Study(
    "table5",
    "λ and σ on SVHN",
    (
        Part(
            "AUROC and AUPR",
            "ood",
            pairs("svhn→cifar10"),
            sweep(list(PAPER)),
            ("auroc", "aupr"),
            PAPER,
        ),
    ),
    (READINGS, SVHN, "The paper uses λ = 0.3 in this table, and gives λ = 0.2 for SVHN in its supplement."),
)
