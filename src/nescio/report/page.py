"""The page of a comparison: which pictures not to trust, and why; then every method, and how to repeat it.

Every number on the page comes out of the comparison; no method is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nescio import plots
from nescio.report import answer
from nescio.report.comparison import Comparison, MethodResult, PictureSet
from nescio.report.embed import png, svg
from nescio.report.html import document, escape, facts
from nescio.report.text import duration, number, percent
from nescio.report.words import COLUMNS, NOTES

STRIP = 8  # pictures in a row of examples


def page(comparison: Comparison) -> str:
    """The comparison as one self-contained HTML page."""
    sections = (_opening, _table, _curves, _histogram, _pictures, _sets, _repeat)
    return document("nescio: does it know what it does not know?", "\n".join(part(comparison) for part in sections))


def _opening(c: Comparison) -> str:
    story = f"""<p>A small network has learnt to read handwritten digits, and reads {percent(c.accuracy)} % of
those that it had never seen correctly. Some of the pictures below are no digits at all. It cannot say so: it must
answer with a digit, and is often sure of it. The guard of <i>nescio</i> says which answers not to trust. It knows other
digits, and has never seen a picture of another kind.</p>
"""
    return f"{answer.opening(c.front, 'Does it know what it does not know?', story)}\n{answer.rest(c.front)}"


def _table(c: Comparison) -> str:
    kinds = [pictures.name for pictures in c.foreign] if len(c.foreign) > 1 else []
    heads = [("method", "ascending"), ("AUROC", "descending"), ("AUPR", "descending"), ("FPR95", "ascending")]
    heads += [(f"AUROC, {kind}", "descending") for kind in kinds] + [("time per input", "ascending")]
    cells = "".join(
        f'<th scope="col" data-first="{first}"{" aria-sort=" + chr(34) + first + chr(34) if name == "AUROC" else ""}>'
        f'<button type="button">{escape(name)}</button></th>'
        for name, first in heads
    )
    rows = "\n".join(_row(method, kinds, method.name == c.featured) for method in c.ranked)
    what = "".join(f"<dt><code>{escape(m.name)}</code></dt><dd>{escape(m.summary)}</dd>" for m in c.methods)
    notes = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in COLUMNS.items())
    names = {method.name for method in c.methods}
    remarks = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd>{escape(text)}</dd>" for name, text in NOTES.items() if name in names
    )
    best, foreign = c.ranked[0], sum(len(pictures.pictures) for pictures in c.foreign)
    return f"""<h2>All methods side by side</h2>
<p>All {len(c.known.pictures)} digits stand against all {foreign} pictures that are none. Each method gives every
picture one number, <b>higher = more uncertain</b>, without training anything anew. A good one is higher for the
pictures that are no digits. In this run the best separation was that of <code>{escape(best.name)}</code>,
with an AUROC of {percent(best.result.auroc)} %. This is one network, one seed and small pictures: differences of a
point or two say little, and another task may order the methods differently.</p>
<p class="quiet">Press a heading to sort. Shares are in percent.</p>
<div class="scroll"><table class="sortable"><thead><tr>{cells}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
<h3>What the columns mean</h3>
<dl>{notes}</dl>
<h3>What the methods are</h3>
<dl class="pairs">{what}</dl>
<h3>To be read with care</h3>
<dl>{remarks}</dl>"""


def _row(method: MethodResult, kinds: list[str], featured: bool) -> str:
    result = method.result
    shares = [result.auroc, result.aupr, result.fpr95, *(method.result_of(kind).auroc for kind in kinds)]
    cells = "".join(
        f'<td data-value="{share!r}" class="bar" style="--share: {percent(share)}%">{percent(share)}</td>'
        for share in shares
    )
    time = f'<td data-value="{method.seconds_per_input!r}">{duration(method.seconds_per_input)}</td>'
    mark = ' class="featured"' if featured else ""
    return f'<tr{mark}><th scope="row">{escape(method.name)}</th>{cells}{time}</tr>'


def _curves(c: Comparison) -> str:
    curves = {method.name: method.curve for method in c.ranked}
    panels = []
    for method in c.ranked:
        figure = plots.roc(curves, highlight=method.name, size=1.9)
        axes = figure.axes[0]
        axes.set(title="", xlabel="", ylabel="")
        auroc = percent(method.result.auroc)
        alt = f"ROC curve of {method.name}, area {auroc} percent, with the other methods faintly behind it"
        panels.append(
            f"<figure>{svg(figure, alt, f'roc-{method.name}')}"
            f"<figcaption><b>{escape(method.name)}</b><br>AUROC {auroc} %</figcaption></figure>"
        )
    return f"""<h2>ROC curves</h2>
<p>Move a threshold over the score from high to low. Upwards: the share of not-digits that are caught. To the right:
the share of digits that are flagged by mistake. A curve that hugs the upper left corner is good; the dotted diagonal
is what guessing gives. Each panel shows one method, with all the others in grey.</p>
<div class="panels">{"".join(panels)}</div>"""


def _histogram(c: Comparison) -> str:
    method = c.shown
    groups = {c.known.name: method.known, **method.foreign}
    figure = plots.histogram(groups, f"{method.name} (higher = more uncertain)", width=5.6, height=3.4)
    medians = "; ".join(f"{name} {number(float(np.median(scores)))}" for name, scores in groups.items())
    alt = f"Histogram of {method.name} for each set. Medians: {medians}."
    return f"""<h2>How <code>{escape(method.name)}</code> sees the sets</h2>
<p>The less the blue heap (digits) overlaps with the others, the better they can be told apart.
Medians: {escape(medians)}.</p>
<div class="plot"><div>{svg(figure, alt, "histogram")}</div></div>"""


def _pictures(c: Comparison) -> str:
    method = c.shown
    strips = []
    for title, sets, scores in (
        (c.known.name, (c.known,), method.known),
        ("things that are not digits", c.foreign, method.all_foreign),
    ):
        order = np.argsort(scores, kind="stable")
        cards = list(_cards(sets, scores))
        for word, chosen in (("Most", order[::-1][:STRIP]), ("Least", order[:STRIP])):
            items = "".join(cards[place] for place in chosen)
            strips.append(f'<h3>{word} doubtful: {escape(title)}</h3><ul class="strip">{items}</ul>')
    return f"""<h2>The most and the least doubtful pictures</h2>
<p>By <code>{escape(method.name)}</code>. Under each picture: what the network took it for, with which probability,
and the score. Where a digit was read wrongly, the right answer stands below.</p>
{"".join(strips)}"""


def _cards(sets: tuple[PictureSet, ...], scores: np.ndarray) -> Iterator[str]:
    place = 0
    for pictures in sets:
        for i, picture in enumerate(pictures.pictures):
            guess, sure = int(pictures.predicted[i]), f"{100 * pictures.probability[i]:.0f} %"
            label = None if pictures.labels is None else int(pictures.labels[i])
            truth = pictures.name if label is None else f"handwritten {label}"
            wrong = f'<br><span class="wrong">is a {label}</span>' if label not in (None, guess) else ""
            alt = escape(f"{truth}, taken for {guess} with probability {sure}")
            yield (
                f'<li><img src="{png(picture)}" alt="{alt}" width="{picture.shape[1]}" height="{picture.shape[0]}">'
                f"“{guess}”, {sure}{wrong}<br>{number(scores[place])}</li>"
            )
            place += 1


def _sets(c: Comparison) -> str:
    entries = "".join(
        f"<dt>{escape(pictures.name)} ({len(pictures.pictures)})</dt><dd>{escape(pictures.about)}.</dd>"
        for pictures in (c.known, *c.foreign)
    )
    return f"<h2>What the sets are</h2>\n<dl>{entries}</dl>"


def _repeat(c: Comparison) -> str:
    settings = {
        method.name: ", ".join(f"{key}={value!r}" for key, value in method.settings.items()) or "no settings"
        for method in c.methods
    }
    return f"""<h2>To repeat it</h2>
{facts(c.facts)}
<h3>Settings of each method (the defaults)</h3>
{facts(settings)}
</main>"""
