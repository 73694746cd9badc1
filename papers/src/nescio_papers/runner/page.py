"""The page of one or several runs: ours beside the paper's, number by number, in one file that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from nescio.report.html import document, escape, facts
from nescio_papers.runner.chart import chart
from nescio_papers.runner.compare import Line, Table, Value, table
from nescio_papers.runner.results import Results
from nescio_papers.runner.study import METRICS

STYLE = """<style>
body { max-width: 100rem; }
.reproduce td { line-height: 1.3; }
.reproduce td small { color: var(--quiet); }
.reproduce .inside { color: var(--accent); font-weight: 600; }
.reproduce tbody th { white-space: normal; min-width: 17rem; font-family: inherit; }
.reproduce tr.stands > th { font-weight: 650; }
.reproduce th small { font-weight: 400; color: var(--quiet); }
.reproduce { margin: 0.75rem 0; }
figure { margin: 0.75rem 0; } figure img, figure svg { max-width: 100%; height: auto; }
.smoke { border: 2px solid var(--wrong); border-radius: 8px; padding: 0.4rem 0.8rem; }
</style>"""
CURVES = ("REGrad*, k = 2", "ExGrad, L2", "Entropy", "Random")


def render(results: Results | Sequence[Results]) -> str:
    """The results as one self-contained HTML page."""
    several = [results] if isinstance(results, dict) else list(results)
    body = "\n".join(_run(one) for one in several)
    names = ", ".join(f"{one['study']} ({one['scale']})" for one in several)
    return document(
        f"nescio reproduce: {names}",
        f"{STYLE}\n<header>\n<h1>Ours beside the paper's</h1>\n<p class='motto'>{escape(names)}</p>\n</header>\n"
        f"<main>\n{_reading()}\n{body}\n</main>",
    )


def _reading() -> str:
    return """<p>Each number is the mean over the seeds, with the standard deviation behind ±. Below it, in grey, the
paper's number, and then ours less the paper's; “inside” means that our mean lies within the
paper's ±. Rows in bold stand for a row of the paper; other rows are variants of it, or methods the paper does not
have. “Rank” is among all rows, and behind it among those in bold, ours and then the paper's.</p>"""


def _run(results: Results) -> str:
    title = f"{results['study']}: {results['title']}"
    loud = ' class="smoke"' if results["scale"] == "smoke" else ""
    sections = [
        f"<h2>{escape(title)}</h2>",
        f"<p{loud}><b>Scale {escape(results['scale'])}</b>: {escape(results['about'])}.</p>",
    ]
    if not results["complete"]:
        sections.append("<p><b>The run was ended before all was done.</b></p>")
    for part in results["parts"]:
        sections.append(_part(part, table(part, results["scale"])))
    sections += [_figure(figure) for figure in results.get("figures", [])]
    sections.append("".join(f"<p class='quiet'>{escape(note)}</p>" for note in results["notes"]))
    sections.append(_about(results))
    return "\n".join(sections)


def _part(part: Mapping[str, Any], found: Table) -> str:
    heads = [("method", "ascending")]
    for column in found.columns:
        for name in found.metrics:
            heads.append((f"{column['label']} {METRICS[name].label}", _first(METRICS[name].higher)))
    averages = list(found.lines[0].averages) if found.lines else []
    heads += [(f"average {METRICS[name].label if name else ''}".strip(), _first(True)) for name in averages]
    heads.append(("rank", "ascending"))
    cells = "".join(
        f'<th scope="col" data-first="{first}"><button type="button">{escape(label)}</button></th>'
        for label, first in heads
    )
    rows = "\n".join(_row(line, found, averages) for line in found.lines)
    over = ", ".join(column["label"] for column in found.columns if column["key"] in found.common)
    below = f"<p class='quiet'>Averages and ranks are over {escape(over)}.</p>" if over else ""
    if found.printed:
        below += f"<p class='quiet'>{escape(found.printed)}</p>"
    if found.reasons:
        listed = "".join(f"<li>{escape(reason)}</li>" for reason in found.reasons)
        below += f"<details><summary>What was not run, and why</summary><ul>{listed}</ul></details>"
    return f"""<h3>{escape(found.title)}</h3>
<p>{escape(found.summary)}</p>
{charts(part, found)}
<div class="scroll reproduce"><table class="sortable"><thead><tr>{cells}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
{below}"""


def _figure(figure: Mapping[str, str]) -> str:
    alt = escape(figure["alt"])
    drawn = (
        figure["image"] if figure["image"].startswith("<svg") else f'<img src="{escape(figure["image"])}" alt="{alt}">'
    )
    return (
        f"<h3>{escape(figure['title'])}</h3>\n<figure>{drawn}<figcaption>{escape(figure['text'])}</figcaption></figure>"
    )


def _row(line: Line, found: Table, averages: Sequence[str]) -> str:
    note = f"<br><small>{escape(line.note)}</small>" if line.note else ""
    values = [line.values[column["key"], name] for column in found.columns for name in found.metrics]
    cells = "".join(_cell(value) for value in [*values, *(line.averages[name] for name in averages)])
    rank = "–" if line.rank is None else str(line.rank)
    if line.rank_among is not None:
        theirs = "" if line.paper_rank is None else f", paper {line.paper_rank}"
        rank += f"<br><small>{line.rank_among}{theirs}</small>"
    mark = ' class="stands"' if line.stands else ""
    order = line.rank or 10**6
    return f'<tr{mark}><th scope="row">{escape(line.label)}{note}</th>{cells}<td data-value="{order}">{rank}</td></tr>'


def _cell(value: Value) -> str:
    digits = value.metric.digits
    if value.mean is None:
        paper = "" if value.paper is None else f"<br><small>{_number(value.paper, digits)}</small>"
        word = "–" if value.reason == "not all were run" else "failed" if value.reason[:6] == "failed" else "not run"
        return f'<td data-value="-1e9" title="{escape(value.reason)}"><small>{word}</small>{paper}</td>'
    text = _number(value.mean, digits) + (f" <small>±{value.sd:.{digits}f}</small>" if value.sd is not None else "")
    if value.difference is not None:
        spread = "" if value.paper_sd is None else f" ±{value.paper_sd:.{digits}f}"
        inside = ' <span class="inside">inside</span>' if value.inside else ""
        text += (
            f"<br><small>{_number(value.paper or 0.0, digits)}{spread}</small>"
            f"<br><small>{_number(value.difference, digits, signed=True)}{inside}</small>"
        )
    return f'<td data-value="{value.mean!r}">{text}</td>'


def charts(part: Mapping[str, Any], found: Table) -> str:
    """The curves of a part that asks for them."""
    if part["task"] == "active":
        return _curves(part)
    if not part["line"]:
        return ""
    settings: dict[str, Mapping[str, Any]] = {cell["row"]: cell.get("settings", {}) for cell in part["cells"]}
    drawn = []
    for name in (name for name in found.metrics if name != "seconds"):
        series: dict[str, list[tuple[float, float, str]]] = {}
        for line in found.lines:
            if name == "rho" and line.label == part["reference"]:
                continue  # it is compared with itself
            y = _mean(line, found, name)
            own = settings.get(line.label, {})
            if part["line"] == "seconds":
                x, kind = _mean(line, found, "seconds"), "REGrad*"
            else:
                paired = own.get("method") == "paired_regrad"
                x, kind = own.get("copies" if paired else "samples"), "pairs" if paired else "independent"
            if y is not None and isinstance(x, int | float) and x > 0:
                series.setdefault(kind, []).append((float(x), y, line.label))
        words = "seconds for 1,000 pictures" if part["line"] == "seconds" else "noisy copies"
        drawn.append(chart(series, words, f"{METRICS[name].label}, mean over columns", log=True))
    return "".join(drawn)


def _mean(line: Line, found: Table, name: str) -> float | None:
    values = [line.values[key, name].mean for key in found.common if (key, name) in line.values]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _curves(part: Mapping[str, Any]) -> str:
    """Accuracy by number of labels, for a few rows of each data set."""
    drawn = []
    for column in part["columns"]:
        series = {}
        for label in CURVES:
            runs = [
                c["curve"] for c in part["cells"] if c["row"] == label and c["column"] == column["key"] and "curve" in c
            ]
            if runs:
                accuracies = zip(*(run["acc"] for run in runs), strict=True)
                means = [100 * fmean(step) for step in accuracies]
                series[label] = [(n, y, f"{n} labels") for n, y in zip(runs[0]["labels"], means, strict=True)]
        drawn.append(chart(series, f"labels, {column['label']}", "ACC"))
    return "".join(drawn)


def _about(results: Results) -> str:
    git = results["git"]
    state = (
        "in no repository" if git is None else f"commit {git['commit']}" + (", changed since" if git["dirty"] else "")
    )
    machine = results["machine"]
    seeds = "; ".join(f"{plan}: {', '.join(map(str, found))}" for plan, found in results["settings"]["seeds"].items())
    models = {
        f"{m['plan']}, seed {m['seed']}": f"{100 * m['accuracy']:.2f} % right on the test set; trained in "
        f"{m['seconds']:.0f} s; {m['about']}"
        for m in results["models"]
    }
    sets = {found["name"]: f"{found['pictures']} pictures; {found['about']}" for found in results["sets"]}
    return f"""<details><summary>How it was run: models, data, machine</summary>
{
        facts(
            {
                "command": f"nescio reproduce {results['study']} --scale {results['scale']}",
                "started": f"{results['started']}, {results['seconds']:.0f} s in this run",
                **_earlier(results),
                "sources": state,
                "machine": f"{machine['name']} ({machine['device']}), {machine['platform']}",
                "versions": ", ".join(f"{name} {number}" for name, number in results["versions"].items()),
                "seeds": seeds,
            }
        )
    }
<h4>Models</h4>
{facts(models) if models else "<p>None could be trained or read.</p>"}
<h4>Data</h4>
{facts(sets) if sets else "<p>None could be read.</p>"}
</details>"""


def _earlier(results: Results) -> dict[str, str]:
    """The runs that numbers of this page come from too."""
    runs = [f"{run['started']} ({run['seconds']:.0f} s)" for run in results.get("earlier", [])]
    return {"joined with runs of": ", ".join(runs)} if runs else {}


def _number(value: float, digits: int, signed: bool = False) -> str:
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def _first(higher: bool) -> str:
    return "descending" if higher else "ascending"
