"""Figures of the two studies that ask why the paper's tables came out otherwise, from the cells of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from nescio.plots.style import COLOURS, FAINT, INK, panels
from nescio_papers.runner.drawing import svg
from nescio_papers.runner.program import Figure
from nescio_papers.runner.study import FULL_NAMES as NAMES

Cells = Sequence[Mapping[str, Any]]
PAIRS: dict[str, tuple[str | None, str | None]] = {
    "Gradient × blur": (None, "Gradient × (x − blur x)"),
    "Blur IG": ("Blur IG, magnitudes", "Blur IG"),
    "IG": ("IG, magnitudes", "IG"),
    "CLUE": ("CLUE", "CLUE, signed"),
    "Grad": ("Grad", "Grad, signed"),
    "UA-Backprop": ("UA-Backprop + FullGrad", "UA-Backprop + FullGrad, signed"),
    "Random numbers": ("Random order", "Random numbers, signed"),
}
"""Maps as magnitudes and with signs, by what the figure calls them."""


def signs(cells: Sequence[Cells]) -> list[Figure]:
    """Draw what share of the doubt goes, of magnitudes and of maps with signs, data set by data set."""
    done = [[cell for cell in part if "metrics" in cell] for part in cells]
    known = list(dict.fromkeys(cell["column"].partition("→")[0] for part in done for cell in part))
    if not known:
        return []
    figure, axes = panels(1.6 + 1.9 * len(known), 2.9, 1, len(known), sharey=True)
    for ax, name in zip(axes, known, strict=True):
        for at, both in enumerate(reversed(PAIRS.values())):
            for part, row in enumerate(both):
                values = [c["metrics"]["murr5"] for c in done[part] if _is(c, row, name)]
                colour, marker, up = (COLOURS[0], "o", -0.15) if part else (COLOURS[1], "x", 0.15)
                label = ("magnitudes", "with signs")[part] if at == 1 else None
                ax.plot(values, [at + up] * len(values), marker, color=colour, markersize=4, label=label)
            ax.axhline(at, color=FAINT, linewidth=0.5, zorder=0)
        ax.set_title(NAMES.get(name, name), fontsize="small", color=INK)
        ax.set_xlabel("share of the doubt that goes", fontsize="small")
        ax.set_xticks([0.0, 0.5, 1.0])
        ax.set_xlim(min(-0.04, ax.get_xlim()[0]), 1.04)
        ax.tick_params(labelsize=8)
    axes[0].set_yticks(range(len(PAIRS)), list(reversed(PAIRS)), fontsize="small")
    _legend(figure, axes[0])
    alt = (
        "Share of the doubt that goes when 5 % of the pixels are blurred, for seven kinds of maps as magnitudes and "
        "with signs, on " + ", ".join(NAMES.get(name, name) for name in known)
    )
    text = (
        "Each mark is one way of choosing pictures and one width of the blur. A map with signs knows whether blurring "
        "a pixel takes doubt away or adds some."
    )
    return [Figure("Maps with signs beside magnitudes", text, alt, svg(figure, alt, "ua-signs"))]


def _legend(figure: Any, ax: Any) -> None:
    """Put one legend over all panels."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside upper center", ncols=2, labelcolor=INK)


def _is(cell: Mapping[str, Any], row: str | None, known: str) -> bool:
    return bool(cell["row"] == row and cell["column"].partition("→")[0] == known)


def temperature(cells: Cells) -> list[Figure]:
    """Draw NLL by the mean factor of features in training, before and after temperature scaling."""
    done = [cell for cell in cells if "metrics" in cell]
    known = list(dict.fromkeys(cell["column"] for cell in done))
    if not known:
        return []
    figure, axes = panels(3.2 * len(known), 3.0, 1, len(known))
    for ax, name in zip(axes, known, strict=True):
        rows = dict.fromkeys(cell["row"] for cell in done if cell["column"] == name)
        own = {row: [c["metrics"] for c in done if (c["row"], c["column"]) == (row, name)] for row in rows}
        for at, (metric, label) in enumerate((("nll", "as it is"), ("tempered", "temperature scaled"))):
            x, y = ([fmean(m[what] for m in metrics) for metrics in own.values()] for what in ("factor", metric))
            ax.plot(x, y, "o" if at else "x", color=COLOURS[1 - at], markersize=4, zorder=3 - at, label=label)
        ax.set_title(NAMES.get(name, name), fontsize="small", color=INK)
        ax.set_xlabel("mean factor 1 + αA in training", fontsize="small")
        ax.tick_params(labelsize=8)
    axes[0].set_ylabel("negative log-likelihood", fontsize="small")
    _legend(figure, axes[0])
    alt = "Negative log-likelihood of every row by the factor of its features in training, before and after scaling"
    text = (
        "Each mark is a row, the mean over runs. If the crosses fell with the factor and the dots did not, the gain "
        "would be a temperature alone."
    )
    return [Figure("Is the gain a temperature?", text, alt, svg(figure, alt, "ua-attention"))]
