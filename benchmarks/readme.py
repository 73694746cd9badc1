"""The README's tables, made from what is committed: `python benchmarks/readme.py` writes them between their markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nescio
from nescio import reproduce
from nescio.reproduce.compare import table

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
    result = reproduce.load(RESULTS / "reproduce" / "table1-quick-1.json")
    found = [table(part, result["scale"]) for part in result["parts"]]
    pairs = [(part, column) for part in found for column in part.columns if _was_run(part, column["key"])]
    best = [max(_auroc(line, column["key"]) for line in part.lines) for part, column in pairs]
    heads = ["method", *(column["label"] for _, column in pairs), "average", "paper"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for place, line in enumerate(found[0].lines):
        own = [_auroc(part.lines[place], column["key"]) for part, column in pairs]
        both = [part.lines[place].values[column["key"], "auroc"] for part, column in pairs]
        known = [value.paper for value in both]
        printed = [value for value in known if value is not None]
        cells = [
            f"**{value:.1f}**" if value > top - 0.05 else f"{value:.1f}" for value, top in zip(own, best, strict=True)
        ]
        paper = f"{sum(printed) / len(printed):.1f}" if line.paper_row and printed else ""
        shared = [value for value, one in zip(own, known, strict=True) if one is not None or not line.paper_row]
        cells += [f"{sum(own) / len(own):.1f}", paper and f"{paper} (ours there {sum(shared) / len(shared):.1f})"]
        lines.append(f"| {line.label} | {' | '.join(cells)} |")
    accuracy: dict[str, list[float]] = {}
    for model in result["models"]:
        accuracy.setdefault(model["plan"], []).append(100 * model["accuracy"])
    right = ", ".join(f"{plan} {min(values):.1f}–{max(values):.1f} %" for plan, values in accuracy.items())
    return "\n".join(
        [
            "AUROC in percent, mean of three seeds on one NVIDIA H200 at the scale `quick` (fast schedules, 2,000 "
            f"pictures a set, eight noisy copies); test accuracy: {right}. Averages of the paper are over pairs that "
            "were run here. "
            "Its printed averages of REGrad* over all pairs are 94.56 and 85.91 (AUROC and AUPR together).",
            "",
            *lines,
        ]
    )


def _was_run(part: Any, column: str) -> bool:
    return any(line.values[column, "auroc"].mean is not None for line in part.lines)


def _auroc(line: Any, column: str) -> float:
    return line.values[column, "auroc"].mean or 0.0


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
