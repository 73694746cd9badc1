"""Pictures and tables of what `gpu.py` measured: `python benchmarks/plot.py` draws results/*.png and fills README.md.

Time an input against classes, noisy copies, batch and size of the pictures, and the tables between README's markers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from readme import fill

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
INK, FAINT = "#20242c", "#8a919c"
EXACT, CUT, LOOP = "#0072b2", "#d55e00", "#009e73"  # of Okabe and Ito's colours, which everyone can tell apart
PANELS = {"classes": "classes", "samples": "noisy copies", "batch": "batch", "pixels": "width of the pictures, pixels"}
TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "exact": (
        "Exact norms of all layers and ten classes; × is against the papers' loop (GradNorm: against one by one)",
        {
            "model": "model", "batch": "batch", "way": "way", "inputs_per_second": "inputs/s", "ratio": "×",
            "forwards": "forward passes", "peak_gb": "peak GB", "training_ratio": "of a training step",
            "error": "largest error",
        },
    ),
    "bf16": (
        "Gradients in bfloat16; ρ and errors of REGrad against float64",
        {
            "model": "model", "batch": "batch", "precision": "precision", "inputs_per_second": "inputs/s", "ratio": "×",
            "forwards": "forward passes", "rho": "ρ", "median_error": "median error", "max_error": "largest error",
        },
    ),
    "classes": (
        "Many classes; × is against exact norms",
        {
            "model": "model", "classes": "classes", "rows": "rows", "inputs": "inputs", "ms": "ms an input",
            "ratio": "×", "forwards": "forward passes", "peak_gb": "peak GB",
        },
    ),
    "photographs": (
        "1,000 classes, ImageNet weights, photographs; × and errors of REGrad against exact norms",
        {
            "model": "model", "pictures": "pictures", "rows": "rows", "power": "power", "inputs": "inputs",
            "ms": "ms an input", "ratio": "×", "rho": "ρ", "median_error": "median error",
            "max_error": "largest error", "reported_median": "median error reported",
        },
    ),
    "smoothing": (
        "Smoothing; ρ and errors against 1,000 copies",
        {
            "inputs are": "inputs are", "way": "way", "forwards": "forward passes", "seconds_1000": "s for 1,000",
            "rho": "ρ", "median_error": "median error", "mean_error": "mean error", "max_error": "largest error",
        },
    ),
    "tolerance": (
        "Layers of little weight estimated; errors against every layer exact, × against the loop",
        {
            "model": "model", "batch": "batch", "way": "way", "forwards": "forward passes", "ratio": "×", "rho": "ρ",
            "median_error": "median error", "max_error": "largest error", "checked": "inputs checked",
            "checked_worst": "worst of those",
        },
    ),
    "others": (
        "Scores from draws; × is against as many plain forward passes, as they come and grouped in larger batches",
        {
            "model": "model", "batch": "batch", "draws": "draws", "method": "method", "seconds": "s",
            "ratio_forwards": "× passes", "ratio_grouped": "× grouped passes",
        },
    ),
    "memory": (
        "Memory of exact norms beside a training step",
        {
            "model": "model", "classes": "classes", "batch": "batch", "memory_gb": "limit GB", "peak_gb": "peak GB",
            "training_gb": "training step GB", "training_ratio": "of a training step",
        },
    ),
    "rates": (
        "Arithmetic a second; exact norms by the 15 forward passes that they need",
        {"what": "what", "tflop": "TFLOP", "tflop_per_second": "TFLOP/s"},
    ),
    "profile": (
        "Where the time of exact norms goes: ResNet18, batch 256",
        {"kernel": "kernel", "ms": "ms", "share": "share"},
    ),
}  # fmt: skip


def render(result: dict[str, Any], name: str = "gpu") -> str:
    """The tables in Markdown."""
    machine = result["machine"]
    where = f"one {machine['device']}" if machine["tf32"] else f"{machine['threads']} cores ({machine['device']})"
    tf32 = ", TF32 allowed" if machine["tf32"] else ""
    lines = [f"Measured on {where} with torch {machine['torch']}{tf32}, from `results/{name}.json`.", ""]
    if later := result.get("later"):
        commits = ", ".join(f"`{part}` (commit {own['commit']})" for part, own in later.items())
        lines[0] += f" Commit {machine['commit']}; measured again later, on another such machine: {commits}."
    if result["parts"].get("sweeps"):
        lines += [f"![Time an input against classes, copies, batch and size of the pictures](results/{name}.png)", ""]
    for part, (title, heads) in TABLES.items():
        if rows := result["parts"].get(part):
            used = {key: head for key, head in heads.items() if any(key in row for row in rows)}
            lines += [f"<details><summary>{title}</summary>", "", _line(used.values()), "|" + "---|" * len(used)]
            lines += [*(_line(_cells(row, list(used))) for row in rows), "", "</details>", ""]
    return "\n".join(lines).strip()


def everything() -> str:
    """The tables of all result files that are there."""
    found = [(name, HERE / "results" / f"{name}.json") for name in ("gpu", "cpu")]
    return "\n\n".join(render(json.loads(path.read_text()), name) for name, path in found if path.exists())


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: dict[str, Any], keys: list[str]) -> list[str]:
    cells = [_cell(row.get(key)) for key in keys]
    if "failed" in row:
        cells[-1] = "fails: " + row["failed"].partition(":")[0]
    return cells


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if value >= 1000:
        return f"{value:,.0f}"
    if 0 < abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value:.4f}" if 0.99 < value < 1 else f"{value:.3g}"


def draw(result: dict[str, Any]) -> Figure:
    """Time an input against four quantities, one panel each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 6.4), layout="constrained")
    every = [row for row in result["parts"]["sweeps"] if "ms" in row]
    for place, (against, label) in enumerate(PANELS.items()):
        ax = figure.add_subplot(2, 2, place + 1)
        rows = [row for row in every if row["against"] == against]
        exact = [row for row in rows if row["rows"] == "exact"]
        cut = [row for row in rows if row["rows"] != "exact"]
        _curve(ax, exact, "ms", EXACT, "exact", "-o")
        _curve(ax, exact, "forward_ms", FAINT, "one forward pass", "--")
        if cut:
            _curve(ax, cut, "ms", CUT, f"classes={cut[0]['rows']}", "-s")
        if against == "batch" and (loop := _loop(result)):
            _curve(ax, [{**row, "ms": loop} for row in exact], "ms", LOOP, "the papers' loop", ":")
        _dress(ax, label, {_place(row): str(row["value"]) for row in rows})
    batch = result.get("sweep_batch", 64)
    figure.suptitle(
        f"ResNet18, 32 × 32, 10 classes, batch {batch} unless said otherwise; {result['machine']['device']}"
    )
    figure.texts[0].set(color=INK, fontsize=10)
    return figure


def _loop(result: dict[str, Any]) -> float | None:
    """Milliseconds an input of the papers' loop on the same model."""
    for row in result["parts"].get("exact", []):
        if row["model"] == "resnet18" and row.get("way") == "loop":
            return 1e3 / row["inputs_per_second"]
    return None


def _curve(ax: Axes, rows: list[dict[str, Any]], key: str, colour: str, name: str, style: str) -> None:
    """A line with its name at its last point, so that no legend is needed."""
    if not rows:
        return
    ax.plot([_place(row) for row in rows], [row[key] for row in rows], style, color=colour, markersize=4)
    below = key == "forward_ms" and rows[-1][key] <= rows[0][key]  # where the line does not pass through its name
    ax.annotate(
        name, (_place(rows[-1]), rows[-1][key]), (0, -6 if below else 6), textcoords="offset points", ha="right",
        va="top" if below else "bottom", color=colour, fontsize=9,
    )  # fmt: skip


def _place(row: dict[str, Any]) -> int:
    """Where a row stands: n noisy copies are n + 1 passes, which a logarithmic axis can show for none too."""
    return row["value"] + (row["against"] == "samples")


def _dress(ax: Axes, label: str, ticks: dict[int, str]) -> None:
    """Logarithmic axes with the measured values as ticks, and numbers as people write them."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set_xticks([], minor=True)
    ax.set_xlabel(label, color=INK)
    ax.set_ylabel("ms an input", color=INK)
    ax.margins(x=0.06, y=0.18)
    ax.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)


if __name__ == "__main__":
    for name in ("gpu", "cpu"):
        path = HERE / "results" / f"{name}.json"
        if path.exists() and (measured := json.loads(path.read_text()))["parts"].get("sweeps"):
            draw(measured).savefig(path.with_suffix(".png"), dpi=140)
    readme = HERE / "README.md"
    readme.write_text(fill(readme.read_text(), "gpu", everything()))
