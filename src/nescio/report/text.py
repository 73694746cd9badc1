"""The table of a comparison in plain text, numbers aligned."""

from __future__ import annotations

from nescio.report.comparison import Comparison


def text_table(comparison: Comparison) -> str:
    """One line a method, best AUROC first: AUROC, AUPR and FPR95 in percent, and the time for one input."""
    kinds = [pictures.name for pictures in comparison.foreign]
    head = ["method", "AUROC ↑", "AUPR ↑", "FPR95 ↓", *(f"AUROC {kind}" for kind in kinds), "time per input"]
    if len(kinds) < 2:
        del head[4:-1]
    rows = [head]
    for method in comparison.ranked:
        result = method.result
        by_kind = [percent(method.result_of(kind).auroc) for kind in kinds] if len(kinds) > 1 else []
        shares = [percent(share) for share in (result.auroc, result.aupr, result.fpr95)]
        rows.append([method.name, *shares, *by_kind, duration(method.seconds_per_input)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def percent(share: float) -> str:
    """A share as percent with one digit after the point: 0.9731 → '97.3'."""
    return f"{100 * share:.1f}"


def number(value: float) -> str:
    """Three digits that mean something (all of those before the point up to a million), with a true minus sign."""
    return (f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}").replace("-", "−")


def duration(seconds: float) -> str:
    """A time with two or three digits that mean something, in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def chance(probability: float) -> str:
    """A probability in percent that never says certainty, or impossibility, of what is neither."""
    shown = percent(probability)
    if shown == "100.0" and probability < 1:
        return "over 99.9 %"
    return "under 0.1 %" if shown == "0.0" and probability > 0 else f"{shown} %"
