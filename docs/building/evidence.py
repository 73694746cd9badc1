"""What holds and what does not: `python docs/building/evidence.py` writes docs/evidence.md from results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from claims import ABOUT, PAPERS, PLANNED, RUNS, claims
from results import RESULTS, ROOT, measured

PAGE = ROOT / "docs" / "evidence.md"


def command(shown: str) -> str:
    """What shows it."""
    return "python benchmarks/escape.py" if shown == "escape" else f"nescio reproduce {shown}"


def runs(names: list[str]) -> list[str]:
    """A line for each result file that the page reads."""
    made = []
    for name in names:
        for path in sorted(RESULTS.glob(f"{name}-quick-*.json")):
            result = json.loads(path.read_text())
            commit = (result["git"] or {"commit": "not recorded"})["commit"][:12]
            machine, seconds = result["machine"]["name"], result["seconds"]
            made.append(
                f"| `papers/results/{path.name}` | {machine} | {seconds:,.0f} s | {commit} |"
            )
    escape = measured("escape")["machine"]
    return [
        *made,
        f"| `benchmarks/results/escape.json` | {escape['device']} | – | {escape['commit']} |",
    ]


def page() -> str:
    """The whole page."""
    every = claims()
    text = [
        "# What holds and what does not",
        "",
        ABOUT,
        "",
        "| claim | the paper | ours | verdict | shown by |",
    ]
    text += ["|---|---|---|---|---|"]
    text += [
        f"| {c.claim} | {c.paper} | {c.ours} | **{c.verdict}** | [`{c.shown}`](#runs) |"
        for c in every
    ]
    for name, about in PAPERS.items():
        text += ["", f"## {name}", "", about]
        for c in every:
            if c.of == name:
                text += ["", f"**{c.claim}: {c.verdict}.** {c.why} `{command(c.shown)}`"]
    missing = [
        f"- {about}"
        for name, about in PLANNED.items()
        if not list(RESULTS.glob(f"{name}-quick-*.json"))
    ]
    text += [
        "",
        "## Not run",
        "",
        "There is no result for these, so nothing is said:",
        "",
        *missing,
    ]
    studies = [name for name in dict.fromkeys(c.shown for c in every) if name != "escape"]
    text += [
        "",
        "## Runs",
        "",
        RUNS,
        "",
        "| file | machine | time | commit |",
        "|---|---|---:|---|",
        *runs(studies),
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    PAGE.write_text(page())
