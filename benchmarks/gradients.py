"""Norms of ∂ log p_c/∂θ_l for all layers and classes, exact: nescio beside the papers' loop, plain vmap and BackPACK.

    python benchmarks/gradients.py                      # this machine's CPU, batch 16 and 1
    python benchmarks/gradients.py --device cuda --batch 256 16 1

Every number of a row was measured in one run on one model and one batch. ``ratio`` is against the loop (the loop is
timed on a few inputs of the batch, its time an input does not depend on the batch), ``floor`` is time over (1 + C)
forward passes of the same batch.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from functools import cache, partial
from time import perf_counter
from typing import Any

import torch
from measure import arguments, device_in_tf32, machine, peak_bytes, save, seconds
from torch import Tensor, nn

from nescio import trace
from nescio_papers import zoo

CLASSES = 10
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (lambda: zoo.small_cnn(1, 28, CLASSES), (1, 28, 28)),
    "resnet18": (lambda: zoo.resnet18_cifar(CLASSES), (3, 32, 32)),
    "vit": (lambda: zoo.small_vit(classes=CLASSES), (3, 32, 32)),
}


def loop(model: nn.Module, x: Tensor) -> Tensor:
    """The papers' way."""
    return trace.reference.class_gradients(model, x, layers="tensor").norms


def engine(model: nn.Module, x: Tensor) -> Tensor:
    """Ours."""
    return trace.class_gradients(model, x, layers="tensor").norms


def vmap(model: nn.Module, x: Tensor, chunk: int | None = None) -> Tensor:
    """Per-sample gradients with `torch.func`, all classes at once, written down and normed."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def one(xi: Tensor) -> dict[str, Tensor]:
        def log_p(theta: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(model, theta, (xi[None],))[0].log_softmax(0)

        return {name: g.flatten(1).norm(dim=1) for name, g in torch.func.jacrev(log_p)(parameters).items()}

    norms = torch.func.vmap(one, chunk_size=chunk)(x)
    return torch.stack(list(norms.values()), 2)


def extended_for_backpack(model: nn.Module) -> nn.Module:
    """A copy that BackPACK watches; its hooks do not go with in-place activations."""
    from backpack import extend

    copied = copy.deepcopy(model)
    for module in copied.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
    return extend(copied)


def backpack(extended: nn.Module, x: Tensor) -> Tensor:
    """BackPACK's `BatchL2Grad`, one class after another (its extensions need a backward pass each)."""
    from backpack import backpack as active
    from backpack.extensions import BatchL2Grad

    rows = []
    for c in range(CLASSES):
        with active(BatchL2Grad()):
            extended(x).log_softmax(1)[:, c].sum().backward()
        rows.append(torch.stack([p.batch_l2.sqrt() for p in extended.parameters()], 1))
        extended.zero_grad(set_to_none=True)
    return torch.stack(rows, 1)


def measure(name: str, batch: int, device: torch.device, peers: list[str]) -> dict[str, Any]:
    """All ways on one model and one batch."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval().to(device)
    x = torch.randn(batch, *shape, device=device)
    with torch.no_grad():
        forward = seconds(lambda: model(x), device, repeats=10)
    few = x[: min(batch, 2 if device.type == "cpu" else 4)]
    base = seconds(lambda: loop(model, few), device) / len(few)
    names = [n for n, _ in model.named_parameters()]
    order = trace.class_gradients(model, few, layers="tensor").layers
    expected = loop(model.double(), few.double())
    model.float()
    rows: dict[str, Any] = {
        "loop": {
            "inputs_per_second": 1 / base, "ratio": 1.0, "floor": base * batch / (forward * (1 + CLASSES)),
            "forwards": base * batch / forward, "peak_gb": peak_bytes(lambda: loop(model, few), device) / 1e9,
        }
    }  # fmt: skip
    watched = cache(partial(extended_for_backpack, model))
    ways = {
        "nescio": lambda: engine(model, x),
        "vmap": lambda: vmap(model, x, _vmap_chunk(model, device)),
        "backpack": lambda: backpack(watched(), x),
    }
    for way, run in ways.items():
        if way != "nescio" and way not in peers:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trace.replay.clear()  # a recording holds its memory: count it as taken
                kept: list[Tensor] = []
                start = perf_counter()
                peak = peak_bytes(lambda run=run, kept=kept: kept.append(run()), device)
                first = perf_counter() - start
                time = first if first > 10 else seconds(run, device)  # once is enough for what is slow
                norms = kept[0].double().cpu()[: len(few)]
        except Exception as error:
            rows[way] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            continue
        if way != "nescio":
            norms = norms[:, :, [names.index(n) for n in order]]
        error = ((norms - expected).abs().amax() / expected.abs().amax()).item()
        rows[way] = {
            "inputs_per_second": batch / time, "ratio": base * batch / time, "floor": time / (forward * (1 + CLASSES)),
            "forwards": time / forward, "peak_gb": peak / 1e9, "error": error,
        }  # fmt: skip
    return {"model": name, "batch": batch, "forward_seconds": forward, "ways": rows}


def _vmap_chunk(model: nn.Module, device: torch.device) -> int:
    """Inputs at a time for which vmap's written-down gradients fit."""
    each = CLASSES * sum(p.numel() for p in model.parameters()) * 4 * 3
    return max(1, int((3e9 if device.type == "cpu" else 3e10) / each))


def table(results: list[dict[str, Any]]) -> str:
    """The results for people."""
    heads = ("inputs/s", "x loop", "x floor", "forwards", "peak GB", "error")
    lines = [f"{'model':<10}{'batch':>6} {'way':<10}" + "".join(f"{h:>10}" for h in heads)]
    for r in results:
        for way, v in r["ways"].items():
            if "ratio" not in v:
                lines.append(f"{r['model']:<10}{r['batch']:>6} {way:<10} {v['error'][:90]}")
                continue
            lines.append(
                f"{r['model']:<10}{r['batch']:>6} {way:<10}"
                f"{v['inputs_per_second']:>10.1f}{v['ratio']:>10.2f}{v['floor']:>10.2f}"
                f"{v.get('forwards', math.nan):>10.1f}{v.get('peak_gb', math.nan):>10.2f}"
                f"{v.get('error', math.nan):>10.0e}"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, "gradients", list(MODELS))
    parser.add_argument("--peers", nargs="*", default=["vmap", "backpack"])
    args = parser.parse_args()
    device = device_in_tf32(args.device)
    results: list[dict[str, Any]] = []
    result = {"machine": machine(device), "classes": CLASSES, "results": results}
    for model, batch in ((m, b) for m in args.models for b in args.batch):
        results.append(measure(model, batch, device, args.peers))
        path = save(args.name or f"gradients-{device.type}", result)  # what is measured is kept, whatever comes
        print(table(results[-1:]), flush=True)
    print("saved", path)


if __name__ == "__main__":
    main()
