"""The same as Markdown, for a repository: `ours ±sd (paper's ±, difference)`, ✓ where ours lies inside."""

from __future__ import annotations

from collections.abc import Sequence

from nescio_papers.runner.compare import Line, Table, Value, table
from nescio_papers.runner.results import Results


def markdown(results: Results | Sequence[Results]) -> str:
    """Return the results as a Markdown document."""
    several = [results] if isinstance(results, dict) else list(results)
    return "\n".join(_run(one) for one in several)


def _run(results: Results) -> str:
    lines = [f"## {results['study']}: {results['title']}", "", f"Scale **{results['scale']}**: {results['about']}.", ""]
    if not results["complete"]:
        lines += ["**The run was ended before all was done.**", ""]
    for part in results["parts"]:
        shown = table(part, results["scale"])
        lines += [f"### {shown.title}", "", shown.summary, "", *_table(shown), ""]
        if shown.printed:
            lines += [shown.printed, ""]
        if shown.reasons:
            lines += ["Not run, or failed:", "", *(f"- {reason}" for reason in shown.reasons), ""]
    lines += [f"**{figure['title']}** (drawn on the page): {figure['text']}\n" for figure in results.get("figures", [])]
    lines += [f"{note}\n" for note in results["notes"]]
    if results["models"]:
        lines += ["| model | seed | right on the test set |", "|---|---|---|"]
        lines += [f"| {m['plan']} | {m['seed']} | {100 * m['accuracy']:.2f} % |" for m in results["models"]]
        lines.append("")
    machine, git = results["machine"], results["git"]
    state = "" if git is None else f", commit {git['commit'][:12]}{' (changed since)' if git['dirty'] else ''}"
    more = "".join(f", joined with the run of {run['started']}" for run in results.get("earlier", []))
    lines.append(f"Run on {machine['name']} at {results['started']}{state}{more}.\n")
    return "\n".join(lines)


def _table(shown: Table) -> list[str]:
    heads = ["method", *shown.heads, "rank"]
    return [_cells(heads), _cells(["---"] * len(heads)), *(_row(line, shown) for line in shown.lines)]


def _row(line: Line, shown: Table) -> str:
    label = f"**{line.label}**" if line.stands else line.label
    rank = "–" if line.rank is None else str(line.rank)
    if line.rank_among is not None:
        rank += f" ({line.rank_among}" + (")" if line.paper_rank is None else f", paper {line.paper_rank})")
    return _cells([label, *map(_value, shown.numbers(line)), rank])


def _value(value: Value) -> str:
    digits = value.metric.digits
    if value.mean is None:
        return value.missing if value.paper is None else f"{value.missing} ({value.paper:.{digits}f})"
    text = f"{value.mean:.{digits}f}" + (f" ±{value.sd:.{digits}f}" if value.sd is not None else "")
    if value.difference is not None:
        spread = "" if value.paper_sd is None else f" ±{value.paper_sd:.{digits}f}"
        text += f" ({value.paper:.{digits}f}{spread}, {value.difference:+.{digits}f}{' ✓' if value.inside else ''})"
    return text.replace("-", "−")


def _cells(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"
