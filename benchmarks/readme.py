"""The README's tables, made from what is committed: `python benchmarks/readme.py` writes them between their markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nescio

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


def fill(text: str, marker: str, block: str) -> str:
    """The text with what stands between the marker's two comments replaced."""
    before, _, rest = text.partition(f"<!-- {marker}:begin -->")
    _, _, after = rest.partition(f"<!-- {marker}:end -->")
    return f"{before}<!-- {marker}:begin -->\n{block}\n<!-- {marker}:end -->{after}"


def render(text: str) -> str:
    """The README with its tables up to date."""
    blocks = {"methods": nescio.methods().to_markdown().strip(), "kinds": kinds(), "speed": speed()}
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
