"""The README's tables, made from what is committed: `python benchmarks/readme.py` writes them between their markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nescio
from nescio_papers import reproduce
from nescio_papers.runner.compare import table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NAMES = {"cnn": "the papers' CNN, 28²", "resnet18": "ResNet18, CIFAR stem, 32²", "vit": "small ViT, 32²"}


def speed() -> str:
    """Exact class-gradient norms beside the papers' loop and the peers, one line a model and batch."""
    lines = []
    for name, read in (("gpu", _exact), ("gradients-cpu", lambda result: result["results"])):
        path = RESULTS / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            machine = result["machine"]
            lines += [
                "Norms of ∂ log p_c/∂θ_l for all layers and ten classes on "
                f"{_device(machine)} (torch {machine['torch']}), from `benchmarks/results/{name}.json`:",
                "",
                "| model | batch | inputs/s | × the papers' loop | forward passes | peak GB | vmap × | BackPACK × |",
                "|---|---:|---:|---:|---:|---:|---:|---:|",
                *(_row(r) for r in read(result)),
                "",
            ]
    return "\n".join(lines).strip()


def kinds() -> str:
    """Calibration and kinds of doubt on bundled digits, one line a distribution."""
    result = json.loads((RESULTS / "kinds.json").read_text())
    lines = [
        f"On bundled digits (means over {len(result['runs'])} seeds, from `benchmarks/results/kinds.json`; AUROC tells "
        "digits from things that are none):",
        "",
        "| distribution | accuracy | ECE | NLL | AUROC of total | AUROC of epistemic | AUROC of vacuity |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["means"].items():
        cells = [f"{100 * found['accuracy']:.1f} %", f"{found['ece']:.4f}", f"{found['nll']:.4f}"]
        parts = [found.get(f"auroc of {part}") for part in ("total", "epistemic", "vacuity")]
        cells += ["" if value is None else f"{100 * value:.1f}" for value in parts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def truth() -> str:
    """AUROC of the pairs that were run, our mean over the seeds of each, and the paper's average beside ours."""
    runs = [reproduce.load(path) for path in sorted((ROOT / "papers" / "results").glob("table1-quick-*.json"))]
    (result,) = reproduce.joined(runs)
    found = [table(part, result["scale"]) for part in result["parts"]]
    columns = [(part, column) for part in found for column in part.columns]
    places = range(len(found[0].lines))
    rows = [[part.lines[at].values[column["key"], "auroc"] for part, column in columns] for at in places]
    most = [sum(row[at].mean is not None for row in rows) / len(rows) for at in range(len(columns))]
    shown = [at for at, share in enumerate(most) if share > 0]
    common = [at for at, share in enumerate(most) if share > 0.7]  # the rest is shown, but in no average
    best = {at: max(row[at].mean or 0.0 for row in rows) for at in shown}
    heads = ["method", *(columns[at][1]["label"] for at in shown), "average", "paper"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for line, row in zip(found[0].lines, rows, strict=True):
        cells = [_number(row[at].mean, best[at]) for at in shown]
        cells.append(_average([row[at].mean for at in common]))
        compared = [at for at in common if row[at].paper is not None and row[at].mean is not None]
        paper, there = (_average([getattr(row[at], kind) for at in compared]) for kind in ("paper", "mean"))
        cells.append(f"{paper} (ours there {there})" if line.paper_row else "")
        lines.append(f"| {line.label} | {' | '.join(cells)} |")
    accuracy: dict[str, list[float]] = {}
    for model in result["models"]:
        accuracy.setdefault(model["plan"], []).append(100 * model["accuracy"])
    right = ", ".join(
        f"{plan} {min(values):.1f}{f'–{max(values):.1f}' if len(values) > 1 else ''} % ({len(values)})"
        for plan, values in accuracy.items()
    )
    left_out = ", ".join(columns[at][1]["label"] for at in shown if at not in common)
    return "\n".join(
        [
            f"AUROC in percent, mean over seeds, on one {result['machine']['name']} at the scale `{result['scale']}`: "
            f"{result['about']}; REGrad* with the paper's λ and σ. Test accuracy (networks): {right}. An empty cell "
            "was not run"
            + (f"; {left_out} is in no average" if left_out else "")
            + ". The paper's averages are over those of its pairs that were run here; for REGrad* it prints 94.56 and "
            "85.91 over all pairs (AUROC and AUPR together).",
            "",
            *lines,
        ]
    )


def _number(value: float | None, best: float) -> str:
    if value is None:
        return ""
    return f"**{value:.1f}**" if value > best - 0.05 else f"{value:.1f}"


def _average(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.1f}" if known and len(known) == len(values) else ""


def fill(text: str, marker: str, block: str) -> str:
    """The text with what stands between the marker's two comments replaced."""
    before, _, rest = text.partition(f"<!-- {marker}:begin -->")
    _, _, after = rest.partition(f"<!-- {marker}:end -->")
    return f"{before}<!-- {marker}:begin -->\n{block}\n<!-- {marker}:end -->{after}"


def render(text: str) -> str:
    """The README with its tables up to date."""
    blocks = {"methods": nescio.methods().to_markdown().strip(), "kinds": kinds(), "truth": truth(), "speed": speed()}
    for marker, block in blocks.items():
        text = fill(text, marker, block)
    return text


def _exact(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The exact norms among what `gpu.py` measured, in the form of `gradients.py`."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in result["parts"]["exact"]:
        found.setdefault((row["model"], row["batch"]), {})[row["way"]] = row
    return [{"model": model, "batch": batch, "ways": ways} for (model, batch), ways in found.items()]


def _row(result: dict[str, Any]) -> str:
    own = result["ways"]["nescio"]
    peers = [_ratio(result["ways"].get(way, {})) for way in ("vmap", "backpack")]
    cells = [
        NAMES[result["model"]], str(result["batch"]), f"{own['inputs_per_second']:,.0f}", f"**{own['ratio']:.1f}**",
        f"{own['forwards']:.1f}", f"{own['peak_gb']:.2f}", *peers,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _ratio(way: dict[str, Any]) -> str:
    return f"{way['ratio']:.1f}" if "ratio" in way else "fails"


def _device(machine: dict[str, Any]) -> str:
    threads = machine["threads"]
    return f"one {machine['device']}" if machine["tf32"] else f"{threads} cores ({machine['device']})"


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(render(readme.read_text()))
