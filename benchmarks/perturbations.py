"""Scores from draws beside the forward passes that they cannot do without.

    python benchmarks/perturbations.py                  # this machine's CPU, 20 draws, batch 16 and 1
    python benchmarks/perturbations.py --device cuda --batch 256 16 1 --samples 100

``forwards`` is the time of as many plain passes ``model(x)`` without gradients as there are draws, at the batch as it
is; ``grouped`` that of the same rows put together in larger batches, up to the size that serves the model best, where
that is faster. Noisy inputs can be grouped so; noisy parameters cannot, every draw being another model. For inserted
dropout both are one pass and the last layer for every draw. ``ratio`` is the method's time over either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gradients import CLASSES, MODELS
from measure import arguments, device_in_tf32, machine, save, seconds
from torch import Tensor, nn

import nescio

METHODS = ("perturb_x", "perturb_theta", "mc_aa", "inserted_dropout")
SIZES = {"cpu": (16, 64), "cuda": (1024, 4096)}
"""Larger batches that a plain loop might take."""
BUDGET = 5.0
"""Seconds for the repeats of one measurement."""


def passes(model: nn.Module, x: Tensor, count: int) -> Callable[[], None]:
    """As many plain forward passes, and their logits on the CPU."""

    def run() -> None:
        with torch.no_grad():
            torch.stack([model(x) for _ in range(count)]).cpu()

    return run


def grouped_seconds(model: nn.Module, x: Tensor, samples: int, device: torch.device) -> float:
    """The least time for samples · len(x) rows in batches larger than x."""
    rows, times = samples * len(x), []
    for size in {min(size, rows) for size in SIZES[device.type]}:
        batch = torch.randn(size, *x.shape[1:], device=device)
        whole = max(1, rows // size)
        times.append(seconds(passes(model, batch, whole), device, budget=BUDGET) * rows / (whole * size))
    return min(times)


def dropout_seconds(model: nn.Module, x: Tensor, samples: int, device: torch.device) -> float:
    """One pass and the last layer for every draw, all of them at once."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    hidden = torch.randn(samples * len(x), last.in_features, device=device)

    def run() -> None:
        with torch.no_grad():
            model(x)
            last(hidden).cpu()

    return seconds(run, device, budget=BUDGET)


def measure(name: str, batch: int, samples: int, device: torch.device) -> dict[str, Any]:
    """All methods on one model and one batch."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval().to(device)
    x = torch.randn(batch, *shape, device=device)
    forwards = seconds(passes(model, x, samples), device, budget=BUDGET)
    grouped = min(forwards, grouped_seconds(model, x, samples, device))
    dropout = dropout_seconds(model, x, samples, device)
    rows = {}
    for method in METHODS:
        time = seconds(lambda method=method: nescio.score(model, x, method, samples=samples), device, budget=BUDGET)
        loop, best = (dropout, dropout) if method == "inserted_dropout" else (forwards, grouped)
        rows[method] = {
            "seconds": time, "forwards_seconds": loop, "grouped_seconds": best,
            "ratio_forwards": time / loop, "ratio_grouped": time / best,
        }  # fmt: skip
    return {"model": name, "batch": batch, "samples": samples, "methods": rows}


def table(results: list[dict[str, Any]], head: bool) -> str:
    """The results for people."""
    heads = ("ms", "forwards", "grouped", "x forwards", "x grouped")
    lines = [f"{'model':<10}{'batch':>6} {'method':<18}" + "".join(f"{h:>12}" for h in heads)] if head else []
    for r in results:
        for method, v in r["methods"].items():
            times = (1e3 * v[key] for key in ("seconds", "forwards_seconds", "grouped_seconds"))
            lines.append(
                f"{r['model']:<10}{r['batch']:>6} {method:<18}"
                + "".join(f"{t:>12.2f}" for t in times)
                + f"{v['ratio_forwards']:>12.2f}{v['ratio_grouped']:>12.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, "perturbations", list(MODELS))
    parser.add_argument("--samples", type=int, default=20)
    args = parser.parse_args()
    device = device_in_tf32(args.device)
    results: list[dict[str, Any]] = []
    result = {"machine": machine(device), "classes": CLASSES, "results": results}
    for model, batch in ((m, b) for m in args.models for b in args.batch):
        results.append(measure(model, batch, args.samples, device))
        path = save(args.name or f"perturbations-{device.type}", result)  # what is measured is kept, whatever comes
        print(table(results[-1:], head=len(results) == 1), flush=True)
    print("saved", path)


if __name__ == "__main__":
    main()
