"""The page of a comparison: which pictures not to trust, and why; then every method, and how to repeat it.

Every number on the page comes out of the comparison; no method is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nescio import plots
from nescio._common.formatting import duration, number, percentage
from nescio._common.images import data_uri, png
from nescio.report.answer import Answer, answer_of
from nescio.report.comparison import Comparison, Floats, PictureSet
from nescio.report.content import Cell, Column, Figure, Picture, Row, Table, ascending, descending, share_cell
from nescio.report.figure_svg import svg
from nescio.report.method_notes import COLUMNS, NOTES
from nescio.report.render import render

STRIP = 8
"""Pictures in a row of examples."""


@dataclass(frozen=True)
class PictureCard:
    """A picture, what the network took it for, and its score; `truth` where that was wrong."""

    picture: Picture
    width: int
    height: int
    guess: int
    probability: str
    score: str
    truth: int | None


@dataclass(frozen=True)
class Strip:
    """The most or the least doubtful pictures of a set."""

    title: str
    cards: Sequence[PictureCard]


@dataclass(frozen=True)
class ComparisonPage:
    """What is on the page of a comparison, in its order; mappings go from a name to what is said of it."""

    answer: Answer
    accuracy: float
    known: int
    foreign: int
    best: str
    best_auroc: float
    table: Table
    columns: Mapping[str, str]
    summaries: Mapping[str, str]
    notes: Mapping[str, str]
    curves: Sequence[Figure]
    featured: str
    histogram: Figure
    strips: Sequence[Strip]
    sets: Mapping[str, str]
    facts: Mapping[str, str]
    settings: Mapping[str, str]


def page(comparison: Comparison) -> str:
    """Return a comparison of methods as one self-contained HTML page.

    Args:
        comparison: What `nescio.demo.demo` returns.

    Returns:
        The HTML, which opens offline.

    Raises:
        MissingExtra: If matplotlib is not installed, which draws the figures.

    Examples:
        >>> scores = {"known": np.array([0.1, 0.2]), "foreign": {"noise": np.array([0.3, 0.9])}}
        >>> method = nescio.report.MethodResult("entropy", "The entropy.", "1", {}, 0.001, **scores)
        >>> known, noise = (
        ...     nescio.report.PictureSet(name, name, np.zeros((2, 8, 8)), np.array([3, 5]), np.array([0.9, 0.4]))
        ...     for name in ("digits", "noise")
        ... )
        >>> front = {"judged": False, "kind": "pictures", "headline": "2 pictures.", "lines": [], "strip": []}
        >>> front |= {"left": {}, "do": [], "command": None}
        >>> comparison = nescio.report.Comparison(known, (noise,), (method,), 0.9, {}, front, "entropy")
        >>> nescio.report.page(comparison)[:15]
        '<!doctype html>'
    """
    return render("comparison.html.j2", page=comparison_page(comparison))


def comparison_page(comparison: Comparison) -> ComparisonPage:
    """Return what is on the page of a comparison.

    Args:
        comparison: What `nescio.demo.demo` returns.

    Returns:
        The content of the page.
    """
    best, names = comparison.ranked[0], {method.name for method in comparison.methods}
    return ComparisonPage(
        answer=answer_of(comparison.front),
        accuracy=comparison.accuracy,
        known=len(comparison.known.pictures),
        foreign=sum(len(pictures.pictures) for pictures in comparison.foreign),
        best=best.name,
        best_auroc=best.result.auroc,
        table=_table(comparison),
        columns=COLUMNS,
        summaries={method.name: method.summary for method in comparison.methods},
        notes={name: text for name, text in NOTES.items() if name in names},
        curves=_curves(comparison),
        featured=comparison.featured,
        histogram=_histogram(comparison),
        strips=list(_strips(comparison)),
        sets={
            f"{pictures.name} ({len(pictures.pictures)})": f"{pictures.about}."
            for pictures in (comparison.known, *comparison.foreign)
        },
        facts=comparison.facts,
        settings={
            method.name: ", ".join(f"{key}={value!r}" for key, value in method.settings.items()) or "no settings"
            for method in comparison.methods
        },
    )


def _table(comparison: Comparison) -> Table:
    kinds = [pictures.name for pictures in comparison.foreign] if len(comparison.foreign) > 1 else []
    columns = [
        *ascending("method"),
        Column("AUROC", "descending", sorted=True),
        *descending("AUPR"),
        *ascending("FPR95"),
        *descending(*(f"AUROC, {kind}" for kind in kinds)),
        *ascending("time per input"),
    ]
    rows = []
    for method in comparison.ranked:
        result, seconds = method.result, method.seconds_per_input
        shares = [result.auroc, result.aupr, result.fpr95, *(method.result_of(kind).auroc for kind in kinds)]
        cells = [*map(share_cell, shares), Cell(duration(seconds), seconds)]
        rows.append(Row(method.name, cells, featured=method.name == comparison.featured))
    return Table(columns, rows)


def _curves(comparison: Comparison) -> list[Figure]:
    curves = {method.name: method.curve for method in comparison.ranked}
    panels = []
    for method in comparison.ranked:
        figure = plots.roc(curves, highlight=method.name, size=1.9)
        figure.axes[0].set(title="", xlabel="", ylabel="")
        auroc = percentage(method.result.auroc)
        alt = f"ROC curve of {method.name}, area {auroc} percent, with the other methods faintly behind it"
        panels.append(Figure(svg(figure, alt, f"roc-{method.name}"), method.name, f"AUROC {auroc} %"))
    return panels


def _histogram(comparison: Comparison) -> Figure:
    method = comparison.featured_method
    groups = {comparison.known.name: method.known, **method.foreign}
    figure = plots.histogram(groups, f"{method.name} (higher = more uncertain)", width=5.6, height=3.4)
    medians = "; ".join(f"{name} {number(float(np.median(scores)))}" for name, scores in groups.items())
    alt = f"Histogram of {method.name} for each set. Medians: {medians}."
    return Figure(svg(figure, alt, "histogram"), caption=medians)


def _strips(comparison: Comparison) -> Iterator[Strip]:
    method = comparison.featured_method
    for title, sets, scores in (
        (comparison.known.name, (comparison.known,), method.known),
        ("things that are not digits", comparison.foreign, method.all_foreign),
    ):
        cards = list(_cards(sets, scores))
        order = np.argsort(scores, kind="stable")
        yield Strip(f"Most doubtful: {title}", [cards[place] for place in order[::-1][:STRIP]])
        yield Strip(f"Least doubtful: {title}", [cards[place] for place in order[:STRIP]])


def _cards(sets: Sequence[PictureSet], scores: Floats) -> Iterator[PictureCard]:
    score = iter(scores)
    for pictures in sets:
        for i, picture in enumerate(pictures.pictures):
            guess, probability = int(pictures.predicted[i]), f"{100 * pictures.probability[i]:.0f} %"
            label = None if pictures.labels is None else int(pictures.labels[i])
            what = pictures.name if label is None else f"handwritten {label}"
            alt = f"{what}, taken for {guess} with probability {probability}"
            height, width = picture.shape
            truth = None if label == guess else label
            yield PictureCard(
                Picture(data_uri(png(picture)), alt), width, height, guess, probability, number(next(score)), truth
            )
