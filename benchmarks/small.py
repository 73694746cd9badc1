"""Small work against the plain loop: networks that nobody here wrote, three inputs of three classes, on a CPU.

    uv pip install timm torchvision transformers
    python benchmarks/small.py                       # half an hour on one core; results/small-cpu.json
    python benchmarks/small.py timm/levit hf/bert    # these alone, again

The networks are those of `strangers.py`, in float32. The loop is what one would write: for each input one forward pass,
for each class one backward pass, the norm of each parameter's gradient, Σ_c √p_c Σ_l a_l ‖g_c,l‖². Beside it stands
`nescio.score(model, x, "regrad")` as it comes: the first call for a model, and later ones; and five scores in one call
beside the dearest of them alone. All of it is CPU time, as a ratio to the loop's, the least of a few runs; the loop has
run before the first call, so that both find the libraries loaded. What is done stays done.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import torch
from measure import machine, read, save
from strangers import lively, made, networks
from torch import Tensor, nn

import nescio

FIVE = ["regrad", "evengrad", "entropy", "energy", "gen"]
REPEATS = 3
LARGEST = 30_000_000
"""Parameters: work on more of them is not small."""
DECAY = 0.3


def loop(model: nn.Module, x: Any) -> list[float]:
    """The score by the plain loop, layers in the model's own order."""
    layers: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        layers.setdefault(name.rpartition(".")[0], []).append(parameter)
    parameters = [parameter for layer in layers.values() for parameter in layer]
    steps = torch.arange(1 - len(layers), 1, dtype=torch.float64)
    weights = (DECAY * steps).exp().repeat_interleave(torch.tensor([len(layer) for layer in layers.values()]))
    scores = []
    for one in alone(x):
        out = model(**one) if isinstance(one, dict) else model(one)
        out = getattr(out, "logits", out)
        log_p = (out[0] if isinstance(out, tuple) else out).log_softmax(1)[0]
        total = 0.0
        for of_class in log_p:
            gradients = torch.autograd.grad(of_class, parameters, retain_graph=True, allow_unused=True)
            norms = torch.stack([torch.zeros(()) if g is None else torch.linalg.vector_norm(g) for g in gradients])
            total += float(of_class.detach().exp().sqrt() * (weights * norms.double().square()).sum())
        scores.append(total)
    return scores


def alone(x: Any) -> Iterable[Any]:
    """The inputs one by one."""
    if isinstance(x, dict):
        count = len(next(iter(x.values())))
        return [{name: value[i : i + 1] for name, value in x.items()} for i in range(count)]
    return x.split(1)


def three(x: Any) -> Any:
    """Three inputs in float32 from two."""
    if isinstance(x, dict):
        return {name: three(value) for name, value in x.items()}
    if x.is_floating_point():
        return torch.cat([x, x[:1].flip(-1)]).float()
    return torch.cat([x, x[:1]])


def cpu_seconds(run: Callable[[], Any]) -> float:
    """The CPU time of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def measured(model: nn.Module, x: Any) -> dict[str, float]:
    """The loop's CPU time, and what the calls take relative to it."""
    model.eval()
    loop(model, x)
    gc.collect()  # not in the first call: what it looks through are the libraries
    first = cpu_seconds(lambda: nescio.score(model, x, "regrad", progress=False))
    runs: dict[str, Callable[[], Any]] = {
        "loop": lambda: loop(model, x),
        "second": lambda: nescio.score(model, x, "regrad", progress=False),
        "five": lambda: nescio.score(model, x, FIVE, progress=False),
    }
    times = {name: min(seconds) for name, seconds in _taken(runs).items()}
    return {
        "loop_ms": round(1e3 * times["loop"], 2),
        "first": round(first / times["loop"], 3),
        "second": round(times["second"] / times["loop"], 3),
        "five_to_one": round(times["five"] / times["second"], 3),
    }


def _taken(runs: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """CPU times of a few runs, taken in turns so that a busy machine is as bad for all."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            times[name].append(cpu_seconds(run))
    return times


def row(name: str) -> dict[str, Any]:
    """One network, or why it is left out."""
    torch.manual_seed(0)
    try:
        own, model, tries = made(name)
    except Exception as error:
        return {"left_out": f"does not build: {type(error).__name__}"}
    size = sum(p.numel() for p in model.parameters())
    if size > LARGEST:
        return {"left_out": f"{size:,} parameters"}
    model = lively(model).float()
    for x in map(three, tries):
        try:
            with torch.no_grad():
                model(**x) if isinstance(x, dict) else model(x)
            loop(model, x)
        except Exception:
            continue
        try:
            return {"network": own, "parameters": size, **measured(model, x)}
        except nescio.types.NescioError as error:
            return {"left_out": f"refused: {error}"[:200]}
    return {"left_out": "does not run, or not by the loop"}


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Medians and the worst of each ratio."""
    there = [one for one in rows.values() if "second" in one]
    found: dict[str, Any] = {"networks": len(there), "left_out": len(rows) - len(there)}
    for name in ("first", "second", "five_to_one") if there else ():
        ratios = [one[name] for one in there]
        found[name] = {"median": round(median(ratios), 3), "worst": max(ratios)}
    return found


def main() -> None:
    """Measure, and write what was found after each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="networks to measure again; none: all that are not done")
    parser.add_argument("--every", type=int, default=1, help="of those that are not done, one in so many")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    nescio.score(nn.Linear(4, 3), torch.rand(3, 4), progress=False)  # what is imported with the first call of all
    rows: dict[str, dict[str, Any]] = read("small-cpu").get("rows", {})
    every = networks()
    for name in args.names or [name for name in every if name not in rows][:: args.every]:
        rows[name] = row(name)
        print(name, rows[name], flush=True)
        rows = {n: rows[n] for n in every if n in rows}
        save("small-cpu", {"machine": machine(torch.device("cpu")), "summary": summary(rows), "rows": rows})
    print(summary(rows))


if __name__ == "__main__":
    main()
