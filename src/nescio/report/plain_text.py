"""The table of a comparison in plain text, numbers aligned."""

from __future__ import annotations

from nescio._common.formatting import duration, percentage
from nescio.report.comparison import Comparison


def text_table(comparison: Comparison) -> str:
    """Return the table of a comparison in plain text: one line for each method, the best AUROC first.

    Args:
        comparison: What `nescio.demo.demo` returns.

    Returns:
        AUROC, AUPR and FPR95 in percent, and the time for one input, in columns.

    Examples:
        >>> scores = {"known": np.array([0.1, 0.2]), "foreign": {"noise": np.array([0.3, 0.9])}}
        >>> method = nescio.report.MethodResult("entropy", "The entropy.", "1", {}, 0.001, **scores)
        >>> known, noise = (
        ...     nescio.report.PictureSet(name, name, np.zeros((2, 8, 8)), np.array([3, 5]), np.array([0.9, 0.4]))
        ...     for name in ("digits", "noise")
        ... )
        >>> comparison = nescio.report.Comparison(known, (noise,), (method,), 0.9, {}, {}, "entropy")
        >>> print(nescio.report.text_table(comparison))
        method   AUROC ↑  AUPR ↑  FPR95 ↓  time per input
        ───────  ───────  ──────  ───────  ──────────────
        entropy    100.0   100.0      0.0            1 ms
    """
    kinds = [pictures.name for pictures in comparison.foreign]
    head = ["method", "AUROC ↑", "AUPR ↑", "FPR95 ↓", *(f"AUROC {kind}" for kind in kinds), "time per input"]
    if len(kinds) < 2:
        del head[4:-1]
    rows = [head]
    for method in comparison.ranked:
        result = method.result
        by_kind = [percentage(method.result_of(kind).auroc) for kind in kinds] if len(kinds) > 1 else []
        shares = [percentage(share) for share in (result.auroc, result.aupr, result.fpr95)]
        rows.append([method.name, *shares, *by_kind, duration(method.seconds_per_input)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )
