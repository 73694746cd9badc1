"""What a map of the doubt costs at 1,000 classes, in forward passes (F) of a picture, and how far it is off.

    python benchmarks/maps.py                                        # two cores: results/maps-cpu.json
    python benchmarks/maps.py --device cuda --exact 1                # results/maps-cuda.json
    python benchmarks/maps.py --lite WEIGHTS.pth --pictures CROPS.npz

`nescio.explain` as it comes, around a single network: UA-Backprop over FullGrad of ten samples with inserted dropout.
Of their 10,000 logits 16 are drawn for each picture, and the map tells its error: the share of the doubt that lies
elsewhere than in the map of all logits. ``--exact`` computes that one too, for a few pictures, and compares. Both times
are CPU time of this process, or on a GPU time by the clock. The fastest of a few runs counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from affordable import inputs, networks_of, parser_of
from measure import device_in_tf32, machine, save, synchronize

import nescio

NETWORKS = ("efficientnet-lite0", "efficientnet_b0", "resnet50")


def fastest(run: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Seconds of the fastest run, after one that counts where there is no other."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    found = []
    for _ in range(1 + repeats):
        synchronize(device)
        start = clock()
        run()
        synchronize(device)
        found.append(clock() - start)
    return min(found[1:] or found)


def row(name: str, model: torch.nn.Module, x: torch.Tensor, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one network."""
    device = x.device

    def forward() -> None:
        with torch.no_grad():
            model(x)

    results: list[Any] = []

    def explained() -> None:
        results[:] = [nescio.explain(model, x, progress=False)]

    forward()
    one = fastest(forward, device, 3) / len(x)
    first = fastest(explained, device, 0) / len(x)
    each = fastest(explained, device, args.repeats) / len(x) if args.repeats else first
    found = results[0]
    numbers = {
        "network": name, "pictures": len(x), "forward_ms": 1e3 * one, "map_ms": 1e3 * each,
        "forwards": each / one, "forwards_of_the_first_call": first / one, "drawn": found.drawn,
        "median_told_error": float(found.error.median()), "largest_told_error": float(found.error.max()),
        "largest_residual": float((found.residual / found.uncertainty).abs().max()),
    }  # fmt: skip
    if args.exact:
        exact = nescio.explain(model, x[: args.exact], classes="exact", progress=False)
        apart = (found.maps[: args.exact] - exact.maps).abs().flatten(1).sum(1) / 2 / exact.uncertainty
        numbers |= {"exact": args.exact, "errors": apart.tolist(), "told_errors": found.error[: args.exact].tolist()}
    return numbers


def main() -> None:
    parser = parser_of(__doc__, NETWORKS, "pictures (default: 16 on a GPU, 4 on a CPU)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--exact", type=int, default=0, help="pictures whose map of all logits is computed too")
    args = parser.parse_args()
    device = device_in_tf32(args.device)
    rows: list[dict[str, Any]] = []
    for name, model in networks_of(args):
        x = inputs(args.pictures, args.batch or (16 if device.type == "cuda" else 4)).to(device)
        rows.append(row(name, model.to(device), x, args))
        print({key: round(v, 4) if isinstance(v, float) else v for key, v in rows[-1].items()}, flush=True)
        save(f"maps-{device.type}", {"machine": machine(device), "rows": rows})


if __name__ == "__main__":
    main()
