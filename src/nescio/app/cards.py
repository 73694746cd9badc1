"""From plain data to the HTML of the page's right side: first the verdict, then the answer, then the reasons.

Every text of others is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nescio.app.examples import Example
from nescio.app.opinion import Answer, Maps, Opinion, Reading, Ruling
from nescio.app.overlay import reach, seen, tiles, uri
from nescio.app.reference import ALARM, Scale
from nescio.decide.policy import percent
from nescio.guard import Verdict
from nescio.report.html import escape

TOP = 5
BINS = 40
DECADES = 6
"""How far below the largest value a scale goes at most; what lies below is in its first bar."""
HEADS = {"total": "Total", "aleatoric": "Aleatoric", "epistemic": "Epistemic"}
STATES = {
    "foreign": ("✕", "Foreign: do not trust this answer"),
    "unsure": ("?", "Known, but its answer is in doubt"),
    "fine": ("✓", "Fine: nothing speaks against this input"),
}
FAR = 6.0
"""The z at which the bar of a witness is full."""
ODD = 0.975
"""The share of known inputs beyond which a witness finds one odd: one in forty."""
LONG = 512
"""Pixels of a map's longer side above which the browser may smooth it."""


def verdict_card(opinion: Opinion, level: float | None, ruling: Ruling | None, things: str = "pictures") -> str:
    """The verdict, the answer, the reasons, and what a policy says; things: what inputs are called."""
    picture = ""
    if opinion.picture is not None:
        picture = (
            f'<figure class="seen"><img class="{_smooth(opinion.picture.shape)}" src="{seen(opinion.picture)}" '
            'alt="the input as the model sees it"><figcaption>what the model sees</figcaption></figure>'
        )
    state, banner, reasons = "none", _no_verdict(things), ""
    if opinion.verdict is not None and level is not None:
        state, banner = opinion.verdict.states(level)[0], _verdict(opinion.verdict, level, things)
        reasons = _reasons(opinion.verdict, things)
    return f"""<section class="card verdict" data-state="{state}">
{banner}
<div class="told">{picture}<div>
<h3>The model answers</h3>
<p class="answer">{escape(opinion.answers[0].name)}</p>
{_wrong(opinion.verdict, state, things)}
{_bars(opinion.answers[:TOP], len(opinion.answers))}
</div></div>
{reasons}{_ruled(ruling)}</section>"""


def rarity(p: float, ranks: int, things: str) -> str:
    """A p-value in a sentence."""
    if p < 1.5 / (ranks + 1):
        return f"None of the {ranks} known {things} that it was compared with looks this unusual."
    if p < 0.2:
        return f"About 1 in {round(1 / p)} known {things} looks this unusual."
    return f"About {round(100 * p)} of 100 known {things} look at least this unusual."


def _verdict(verdict: Verdict, level: float, things: str) -> str:
    sign, title = STATES[verdict.states(level)[0]]
    p = float(verdict.p_value[0])
    return f"""<div class="banner"><h2><span class="sign" aria-hidden="true">{sign}</span> {title}</h2>
<p class="words">{escape(verdict.words(level)[0])}</p>
<p>{escape(rarity(p, verdict.ranks, things))} <span class="quiet">(p = {p:.2g}; foreign: p ≤ {level:g})</span></p>
</div>"""


def _no_verdict(things: str) -> str:
    return f"""<div class="banner"><h2>No verdict: there is nothing to compare it with</h2>
<p class="words">No reference was given. Whether an input is foreign can only be told beside known ones.</p>
<p>Give some hundred {escape(things)} of the kind that the model is meant for and was not trained on:
<code>nescio app … --reference FOLDER</code></p></div>"""


def _wrong(verdict: Verdict | None, state: str, things: str) -> str:
    """How often such answers are wrong; nothing of a foreign input, for which nobody knows."""
    if verdict is None or verdict.wrong is None or state == "foreign":
        return ""
    value, low, high = (f"{100 * float(one[0]):.2g} %" for one in vars(verdict.wrong).values())
    return (
        f'<p class="quiet">Of known {escape(things)} with an answer as doubtful as this one, {value} got a wrong one '
        f"(90 % interval: {low} to {high}).</p>"
    )


def _reasons(verdict: Verdict, things: str) -> str:
    """The witnesses as bars."""
    rows = []
    for name, own in verdict.witnesses.items():
        z, beyond = float(own[0]), int(verdict.beyond[name][0])
        label = verdict.reasons.get(name, name).removesuffix(" is").removesuffix(" are")
        look = "odd" if beyond >= ODD * verdict.ranks else "usual"
        rows.append(
            f'<li class="{look}"><span class="name">{escape(label)}</span>{_track(min(max(z / FAR, 0.0), 1.0))}'
            f'<span class="number">further out than {beyond} of {verdict.ranks}</span></li>'
        )
    return (
        f'<div class="reasons"><h3>Reasons: how unusual it is beside known {escape(things)}</h3>'
        f'<ul class="bars">{"".join(rows)}</ul></div>'
    )


def _ruled(ruling: Ruling | None) -> str:
    if ruling is None:
        return ""
    several = ""
    if len(ruling.answers) > 1:
        listed = ", ".join(f"“{one.name}” ({_share(one.probability)})" for one in ruling.answers[:10])
        rest = f" and {len(ruling.answers) - 10} more" if len(ruling.answers) > 10 else ""
        several = f"<p>The set: {escape(listed)}{rest}.</p>"
    return f"""<div class="ruling" data-accepted="{str(ruling.accepted).lower()}"><h3>By the rule for answers</h3>
<p>{escape(ruling.text)}</p>{several}<p class="quiet">Policy: {escape(ruling.rule)}</p></div>"""


def doubt_card(opinion: Opinion, scale: Scale | None) -> str:
    """The kinds of doubt against the scale."""
    parts = "\n".join(_doubt(one, opinion.most, scale) for one in opinion.doubts)
    note = ""
    if scale is not None:
        note = (
            f'<p class="quiet">Grey: {len(scale)} inputs, {escape(scale.known)}, on a logarithmic scale of nats. The '
            f"line is this input; the shaded end is where {percent(ALARM)} of them lie.</p>"
        )
    if opinion.samples == 1:
        note += (
            '<p class="quiet">The model is a single network: whether more training data would help cannot be told. '
            "Give a distribution over it (--posterior), or training data (--fit).</p>"
        )
    title = "Three kinds of doubt" if opinion.samples > 1 else "How doubtful the answer is"
    return f'<details class="card"><summary>{title}</summary>\n{parts}\n{note}</details>'


def methods_card(opinion: Opinion) -> str:
    """All methods side by side."""
    scaled = any(one.place is not None for one in opinion.methods)
    head = '<th scope="col">more doubtful than</th>' if scaled else ""
    rows = "\n".join(_method(one, scaled) for one in opinion.methods)
    flags = sum(one.flagged for one in opinion.methods)
    many = f"{flags} of {len(opinion.methods)} methods" if flags else "None of the methods"
    few = f"{'find' if flags != 1 else 'finds'} it more doubtful than all but {percent(ALARM)} of what is known."
    note = f"<p>{many} {few}</p>" if scaled else ""
    return f"""<details class="card"><summary>Methods side by side</summary>{note}
<div class="scroll"><table><thead><tr><th scope="col">method</th><th scope="col">score</th>{head}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
<p class="quiet">Scores have units of their own; the share of known inputs with a lower one can be compared.</p>
</details>"""


def maps_card(maps: Maps | None, opinion: Opinion) -> str:
    """Where the doubt comes from; maps None: they are being made."""
    if maps is None:
        body = '<p class="quiet waiting">The maps are being made …</p>'
    elif maps.missing:
        body = f'<p class="quiet">{escape(maps.missing)}</p>'
    elif maps.names is None and next(iter(maps.parts.values())).ndim == 2:
        body = _pictures(maps, opinion)
    elif maps.names is not None:
        body = _named(maps)
    else:
        body = '<p class="quiet">The maps of this input are neither a picture nor a list, and cannot be shown.</p>'
    return f'<section class="card"><h2>Where the doubt comes from</h2>\n{body}</section>'


def examples_card(examples: Sequence[Example]) -> str:
    """Examples as buttons, the first of them chosen."""
    buttons = []
    for place, one in enumerate(examples):
        if one.picture is None:
            look, inside = ' class="text"', f"<span>{escape(_short(one.text))}</span>"
        else:
            look, inside = (
                "",
                f'<img class="pixels" src="{uri(one.picture / 255)}" alt=""><span>{escape(one.name)}</span>',
            )
        pressed = str(place == 0).lower()
        buttons.append(f'<button type="button" data-place="{place}" aria-pressed="{pressed}"{look}>{inside}</button>')
    return f'<section class="examples"><h3>Examples to click</h3><div>{"".join(buttons)}</div></section>'


def message_card(text: str) -> str:
    """What is wrong with an input."""
    return f'<section class="card problem" role="alert"><h2>This cannot be used</h2><p>{escape(text)}</p></section>'


def welcome_card(about: str, takes: str) -> str:
    """Before anything was given."""
    return f"""<section class="card welcome"><h2>How sure is it, and why?</h2>
<p>{escape(takes)} Then this page shows whether the model knows such inputs, its answer, and what the doubt comes
from.</p><p class="quiet">Model: {escape(about)}.</p></section>"""


def _bars(answers: tuple[Answer, ...], classes: int) -> str:
    rows = "".join(
        f'<li><span class="name">{escape(one.name)}</span>{_track(one.probability)}'
        f'<span class="number">{_share(one.probability)}</span></li>'
        for one in answers
    )
    rest = f'<p class="quiet">the likeliest of {classes} classes</p>' if classes > len(answers) else ""
    return f'<ol class="bars">{rows}</ol>{rest}'


def _doubt(one: Reading, most: float, scale: Scale | None) -> str:
    where = f"<b>{escape(one.words)}</b>" if one.words else ""
    drawn = "" if scale is None else _histogram(scale, one)
    mark = " flagged" if one.flagged else ""
    return f"""<div class="doubt{mark}"><h3>{HEADS[one.name]} <span class="quiet">{escape(one.about)}</span></h3>
<p>{where} <span class="quiet">{_number(one.value)} nats of at most {most:.3g}</span></p>
{drawn}</div>"""


def _histogram(scale: Scale, one: Reading) -> str:
    """Known values as bars, the end that is flagged shaded, and the value as a line."""
    known = scale.values[one.name]
    high = max(float(known.max()), one.value, 1e-300) * 1.2
    low = max(high * 10.0**-DECADES, 0.3 * min(float(known.min()), one.value))
    edges = np.geomspace(low, high, BINS + 1)
    counts = np.histogram(known.clip(low, high), edges)[0]
    tall = counts / counts.max()

    def at(value: float) -> float:
        return 400 * math.log(min(max(value, low), high) / low) / math.log(high / low)

    bars = "".join(
        f'<rect x="{10 * i:.0f}" y="{44 - 40 * share:.1f}" width="9" height="{40 * share:.1f}"/>'
        for i, share in enumerate(tall)
        if share > 0
    )
    limit = at(scale.limit(one.name))
    lowest, highest = math.ceil(math.log10(low)), math.floor(math.log10(high))
    ticks = "".join(
        f'<text x="{min(max(at(v), 12), 388):.1f}" y="59" text-anchor="middle">{_number(v)}</text>'
        for v in (10.0**power for power in range(lowest, highest + 1, 1 if highest - lowest < 4 else 2))
    )
    x = at(one.value)
    return (
        f'<svg viewBox="0 0 400 64" role="img" aria-label="{escape(one.name)}: {escape(one.words)}">'
        f'<rect class="end" x="{limit:.1f}" y="2" width="{400 - limit:.1f}" height="42"/><g class="known">{bars}</g>'
        f'<line class="axis" x1="0" x2="400" y1="44.5" y2="44.5"/><line class="here" x1="{x:.1f}" x2="{x:.1f}" y1="0" '
        f'y2="46"/><path class="here" d="M{x - 4:.1f} 0h8l-4 6z"/>{ticks}</svg>'
    )


def _method(one: Reading, scaled: bool) -> str:
    place = ""
    if one.place is not None:
        down = math.floor(100 * one.place + 1e-9)  # never more than is so
        place = (
            f'<td><div class="place">{_track(one.place)}'
            f'<span class="number">{down} %{" ⚑" if one.flagged else ""}</span></div></td>'
        )
    elif scaled:
        place = "<td></td>"
    mark = ' class="flagged"' if one.flagged else ""
    title = f' title="{escape(one.about)}"'
    return f'<tr{mark}><th scope="row"{title}>{escape(one.name)}</th><td>{_number(one.value)}</td>{place}</tr>'


def _pictures(maps: Maps, opinion: Opinion) -> str:
    drawn = tiles(maps.parts, opinion.picture)
    low, high, gradient = reach(maps.parts)
    more = " or more" if any(float(np.abs(part).max()) > high for part in maps.parts.values()) else ""
    look = _smooth(next(iter(maps.parts.values())).shape)
    figures = "".join(
        f'<figure><img class="{look}" src="{source}" alt="map of the {kind} doubt over the input"><figcaption>'
        f"<b>{HEADS[kind]}</b> {_number(maps.uncertainty[kind])} nats</figcaption></figure>"
        for kind, source in drawn.items()
    )
    return f"""<div class="maps">{figures}</div>
<p class="scale"><span>{_number(low)}</span><span class="colours" style="background:{gradient}, #e4e4e4"></span>
<span>{_number(high)} nats a pixel{more}</span></p>
<p class="quiet">Each map adds up to its doubt. By {escape(maps.about)}.</p>"""


def _named(maps: Maps) -> str:
    """Tokens or features, marked by their share of the largest."""
    assert maps.names is not None
    top = max(float(np.abs(part).max()) for part in maps.parts.values()) or 1.0
    blocks = []
    for kind, part in maps.parts.items():
        marks = "".join(
            f'<span class="token" style="--share:{min(1.0, abs(float(value)) / top):.3f}" '
            f'title="{_number(float(value))} nats">{escape(name)}</span> '
            for name, value in zip(maps.names, part, strict=True)
        )
        blocks.append(
            f'<p class="tokens"><b>{HEADS[kind]}</b> <span class="quiet">{_number(maps.uncertainty[kind])} nats</span>'
            f"<br>{marks}</p>"
        )
    return "".join(blocks) + f'<p class="quiet">The darker, the more doubt comes from it. By {escape(maps.about)}.</p>'


def _short(text: str) -> str:
    return text if len(text) <= 90 else text[:89] + "…"


def _track(share: float) -> str:
    return f'<span class="track"><span class="fill" style="width:{100 * share:.2f}%"></span></span>'


def _smooth(shape: tuple[int, ...]) -> str:
    return "smooth" if max(shape[-2:]) > LONG else "pixels"


def _share(value: float) -> str:
    """A probability in percent; never 100 % of what is less, nor 0 % of what is more."""
    text = f"{100 * value:.1f}"
    if text == "100.0" and value < 1:
        return "> 99.9 %"
    return "< 0.1 %" if text == "0.0" and value > 0 else f"{text} %"


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    mantissa, power = f"{value:.1e}".split("e")
    digits = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = mantissa.removesuffix(".0")
    return f"10{digits}" if mantissa == "1" else f"{mantissa}·10{digits}"
