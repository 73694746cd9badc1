"""The page of a model on somebody's data: which inputs not to trust, why, and what to do; then the details.

It is given one dictionary of plain values, as `nescio.findings.gather` makes it, and every number on the page is
in there. Sections that there is nothing for are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from nescio.report import answer
from nescio.report import model_sections as sections
from nescio.report.html import document, escape, facts
from nescio.report.model_cards import cards
from nescio.report.tables import Cell, table, words
from nescio.types import InputError

Result = Mapping[str, Any]


def model_page(result: Result) -> str:
    """One self-contained HTML page."""
    if result.get("format") != "nescio.report":
        raise InputError("result: expected what nescio.findings.gather gives, but got another dictionary")
    parts: dict[str, tuple[str, Callable[[Result], str]]] = {
        "examples": ("Where doubt comes from", _examples),
        "doubt": ("How doubtful it is", sections.doubt),
        "kinds": ("Which kind of doubt", sections.kinds),
        "calibration": ("Do its probabilities mean what they say?", sections.calibration),
        "selective": ("Answering only where doubt is low", sections.selective),
        "other": ("Does it notice the other set?", sections.foreign),
        "limits": ("Far away from the data", sections.limits),
        "model": ("What the model is", _model),
        "data": ("The data", _data),
        "repeat": ("To repeat it", _repeat),
    }
    made = {key: (title, part(result)) for key, (title, part) in parts.items()}
    shown = {key: found for key, found in made.items() if found[1]}
    links = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, (title, _) in shown.items())
    body = "\n".join(f'<h2 id="{key}">{escape(title)}</h2>\n{part}' for key, (title, part) in shown.items())
    front = result["answer"]
    said = [line for line in result["summary"] if line not in (front["headline"], *front["said"], *front["lines"])]
    lines = f"<ul>{''.join(f'<li>{words(line)}</li>' for line in said)}</ul>" if said else ""
    model, data = result["model"]["about"], result["data"]["about"]
    text = document(
        f"nescio: {model}",
        f"""{answer.opening(front, f"{model}, on {data}")}
{answer.rest(front)}
<h2 id="details">The details</h2>
{lines}
<nav aria-label="Sections"><ul>{links}</ul></nav>
{body}
</main>""",
    )
    style = files("nescio.report").joinpath("model_page.css").read_text(encoding="utf-8")
    return text.replace("</style>", style + "</style>", 1)


def _examples(result: Result) -> str:
    leading, found = result["leading"], result["examples"]
    if not any(one["why"]["form"] for own in found.values() for one in own):
        return ""  # the strip shows the inputs themselves
    titles = {
        "most": "Most doubtful",
        "least": "Least doubtful",
        "foreign": "Least doubtful of the other set: the most easily taken for known ones",
    }
    shown = [f"<h3>{titles[key]}</h3>\n{cards(own, leading)}" for key, own in found.items() if own]
    why = next((one["why"]["about"] for own in found.values() for one in own if one["why"].get("about")), "")
    how = f"In {escape(why.partition(' uncertainty of ')[2])}.".replace("Deterministic (1 members)", "the network")
    return f"""<p>The answers that are most and least in doubt, by <code>{escape(leading)}</code>. That is another
question than whether an input is foreign.</p>
<p class="quiet">{how}</p>
{"".join(shown)}"""


def _model(result: Result) -> str:
    model = result["model"]
    names = model["class_names"]
    few = "" if names is None else ": " + ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
    pairs = {
        "source": model["about"],
        "what": model["kind"] + (f" of {model['networks']} networks" if model["networks"] > 1 else ""),
        "pre-processing": model["preprocess"],
        "classes": f"{model['classes']:,}{few}",
        "parameters": f"{model['parameters']:,} in {len(model['layers'])} layers",
        "runs on": f"{model['device'] or 'unknown'}, {model['dtype'] or 'unknown'}",
        "hash of the weights": ", ".join(one or "none" for one in model["hash"]) or "none",
    }
    rows = [
        (one["name"], [Cell(one["type"], one["type"]), Cell(one["of"], one["of"]), _count(one["parameters"])])
        for one in model["layers"]
    ]
    heads = [("layer", "ascending"), ("type", "ascending"), ("of", "ascending"), ("parameters", "descending")]
    layers = table(heads, rows, "The layers of the model", kind="long")
    return f"{facts(pairs)}\n" + (f"<details><summary>Layers</summary>\n{layers}</details>" if rows else "")


def _data(result: Result) -> str:
    shown = []
    for one in (result["data"], result["foreign"]):
        if one is None:
            continue
        drawn = f"a sample of {one['read']:,}, drawn with the seed (--most {one['most']})" if one["sampled"] else "all"
        pairs = {"what": one["about"], "read": drawn, "used": f"{one['used']:,} rows"}
        pairs |= {"labels": f"{one['labels']} ({one['labelled']:,} rows)"} if "labels" in one else {}
        if one.get("copies"):
            pairs["copies"] = f"{one['copies']:,} are copies of others, and are shown once"
        shown.append(facts(pairs))
        if one["problems"]:
            rows = [
                (bad["name"], [_count(bad["index"]), Cell(bad["reason"], bad["reason"])]) for bad in one["problems"]
            ]
            heads = [("name", "ascending"), ("row", "ascending"), ("why", "ascending")]
            listing = table(heads, rows, "Rows that could not be used", kind="long")
            shown.append(f"<h3>{len(rows)} rows that could not be used</h3>\n{listing}")
    return "\n<p></p>\n".join(shown)


def _repeat(result: Result) -> str:
    methods = {
        one["name"]: f"{one['summary']} ({one['chosen']}) "
        + (", ".join(f"{key}={value}" for key, value in one["settings"].items()) or "no settings")
        for one in result["methods"]
    }
    return f"{facts(result['repeat'])}\n<h3>Settings of each score</h3>\n{facts(methods)}"


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)
