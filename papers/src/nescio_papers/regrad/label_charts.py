"""Figures of active learning: the gain over random choice, and what the paper's column of NLL is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from nescio.plots.style import COLOURS, FAINT, INK, panels
from nescio_papers.regrad import table3
from nescio_papers.runner.drawing import svg
from nescio_papers.runner.program import Figure
from nescio_papers.runner.study import FULL_NAMES as NAMES

Cells = Sequence[Mapping[str, Any]]
ENOUGH = 3
"""Seeds that a row needs to be shown, where other rows of its data set have as many."""


def gains(cells: Cells) -> list[Figure]:
    """Draw the mean gain over random of each method, with a 95 % interval over seeds."""
    cells = [cell for cell in cells if "metrics" in cell]
    if not cells:
        return []
    known = list(dict.fromkeys(cell["column"] for cell in cells))
    labels = list(dict.fromkeys(cell["row"] for cell in cells))
    height = 0.24 * len(labels) + 1.1
    figure, axes = panels(1.9 + 2.1 * len(known), height, 1, len(known), sharey=True)
    single = False
    for ax, name in zip(axes, known, strict=True):
        by_row = {label: _gains(cells, label, name) for label in labels}
        most = max(map(len, by_row.values()))
        single |= most == 1
        for place, values in enumerate(by_row.values()):
            ax.axhline(-place, color=FAINT, linewidth=0.5, zorder=0)
            if len(values) < min(ENOUGH, most):  # not run on this data set, or on too few seeds
                continue
            half, fill = interval(values), COLOURS[0] if most > 1 else "white"
            ax.errorbar(values.mean(), -place, xerr=half, fmt="o", color=COLOURS[0], mfc=fill, markersize=4, capsize=2)
        ax.axvline(0, color="0.6", linewidth=1)
        ax.set_title(f"{NAMES[name]}, {most} seed{'s' if most > 1 else ''}", fontsize="small", color=INK)
        ax.tick_params(labelsize=8)
        ax.set_xlabel("accuracy over random, points", fontsize="small")
    axes[0].set_yticks([-place for place in range(len(labels))], labels, fontsize=8)
    alt = "How much better each method's acquisitions are than random ones, with intervals over seeds"
    return [
        Figure(
            "Gain over random acquisition",
            "Mean accuracy over the acquisitions, minus that of random acquisition with the same seed; 95 % intervals "
            "over seeds (Student's t). An interval that holds 0 ranks nothing."
            + (" A hollow dot is one seed, which ranks nothing either." if single else ""),
            alt,
            svg(figure, alt, "regrad-acquisition"),
        )
    ]


def _gains(cells: Cells, label: str, name: str) -> Any:
    """Return the gains of a row on a data set, in points, a number for each seed."""
    return 100 * np.array([c["metrics"]["gain"] for c in cells if (c["row"], c["column"]) == (label, name)])


def interval(values: Any) -> float:
    """Return half of the 95 % interval of a mean, by Student's t; 0 for one value."""
    t = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
    count = len(values)
    return 0.0 if count < 2 else t.get(count, 1.96) * float(np.std(values, ddof=1)) / math.sqrt(count)


def twice_sure(accuracy: float, classes: int) -> float:
    """Return log(e + C − 1) − accuracy: cross-entropy of softmax outputs of a network that is sure of all it says."""
    return math.log(math.e + classes - 1) - accuracy


def identity(cells: Cells = ()) -> Figure:
    """Draw accuracy and NLL of the paper: on the line that a sure softmax, passed through softmax again, gives.

    Args:
        cells: Ours, with cross-entropy of softmax outputs, as crosses: the mean over seeds of each method.
    """
    classes = {"mnist": 10, "cifar10": 10, "svhn": 10, "cifar100": 100}
    figure, axes = panels(8.8, 2.7, 1, 4)
    for ax, (known, count) in zip(axes, classes.items(), strict=True):
        points = [(line[known][0][0] / 100, line[known][1][0]) for line in table3.PAPER.values()]
        ours = _ours(cells, known)
        x = np.array([one for one, _ in (*points, *ours)])
        middle, half = (x.min() + x.max()) / 2, max(0.06, (x.max() - x.min()) / 2 + 0.02)
        ends = middle + np.array([-half, half])  # a point of accuracy is 0.01 of NLL on all axes
        line = [twice_sure(end, count) for end in ends]
        ax.plot(100 * ends, line, color=COLOURS[1], linewidth=1, label="log(e + C − 1) − accuracy")
        for some, marker, colour, label in ((points, ".", COLOURS[0], "the paper"), (ours, "x", INK, "ours")):
            ax.plot(
                [100 * one for one, _ in some],
                [nll for _, nll in some],
                marker,
                color=colour,
                markersize=5,
                label=label if cells else None,
            )
        ax.set_title(NAMES[known], fontsize="small")
        ax.set_xlabel("accuracy, %", fontsize="small")
        ax.tick_params(labelsize=8)
    axes[0].set_ylabel("NLL", fontsize="small")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside upper center", ncols=3, labelcolor=INK)
    alt = "The paper's accuracies and NLLs of Table 3 fall along the lines log(e + C − 1) − accuracy, on four data sets"
    text = (
        "Each dot is a row of the paper's Table 3. The lines are log(e + C − 1) − accuracy: what cross-entropy gives "
        "when it is applied to the softmax outputs of a network that is sure of every answer. On MNIST, with 20 labels "
        "to begin with, networks are less sure, and the dots lie a little above."
    )
    if cells:
        text += " Crosses are ours: cross-entropy of softmax outputs, which nothing forces onto the line."
    return Figure("Table 3's NLL is another quantity", text, alt, svg(figure, alt, "regrad-identity"))


def _ours(cells: Cells, known: str) -> list[tuple[float, float]]:
    """Return mean accuracy and cross-entropy of softmax outputs of each method."""
    by_row: dict[str, list[Mapping[str, float]]] = {}
    for cell in cells:
        if cell["column"] == known and "metrics" in cell:
            by_row.setdefault(cell["row"], []).append(cell["metrics"])
    return [(fmean(one["acc"] for one in own), fmean(one["twice"] for one in own)) for own in by_row.values()]
