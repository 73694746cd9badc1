"""Rays through a perceptron of 3 x 512 units on 784 inputs: the cost of a region, and of many rays at once.

    python benchmarks/limits.py                        # this machine's CPU, one thread

``forwards``: the time that one ray takes for each region that it crosses, over the time of a forward pass of one input
in float64, in which rays are walked, and in the model's own float32. ``ratio``: 1,000 rays one after another (timed on
a few of them) over 1,000 rays at once. Medians of several runs that alternate, as the machine's speed may drift.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from measure import machine, save
from torch import nn

from nescio import limits

PASSES = 500  # that are timed together, as long as a ray takes, so that both meet the same interruptions


def network() -> nn.Sequential:
    """The perceptron, as PyTorch initialises it."""
    torch.manual_seed(0)
    sizes = (784, 512, 512, 512, 10)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).eval()


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def measure(rays: int, alone: int, repeats: int) -> dict[str, Any]:
    """Both claims on one network."""
    model = network()
    wide = copy.deepcopy(model).double()
    x, d = torch.randn(rays, 784), torch.randn(rays, 784)
    one = x[:1].double()
    regions, forward, forward32 = [], [], []
    limits.ray(model, x[:1], d[:1])
    with torch.no_grad():
        for at in [i % alone for i in range(max(repeats, alone))]:
            forward.append(timed(lambda: [wide(one) for _ in range(PASSES)])[0] / PASSES)
            forward32.append(timed(lambda: [model(x[:1]) for _ in range(PASSES)])[0] / PASSES)
            seconds, found = timed(lambda at=at: limits.ray(model, x[at : at + 1], d[at : at + 1]))
            regions.append(seconds / (len(found.breakpoints[0]) + 1))
        together, found = timed(lambda: limits.ray(model, x, d))
    crossed = sum(len(b) + 1 for b in found.breakpoints)
    region = median(regions)
    return {
        "rays": rays,
        "regions_per_ray": crossed / rays,
        "forward_seconds": median(forward),
        "forward_float32_seconds": median(forward32),
        "region_seconds": region,
        "forwards": region / median(forward),
        "forwards_float32": region / median(forward32),
        "together_seconds": together,
        "one_by_one_seconds": region * crossed,
        "ratio": region * crossed / together,
    }


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rays", type=int, default=1000)
    parser.add_argument("--alone", type=int, default=5, help="rays that are walked one by one")
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(args.rays, args.alone, args.repeats)
    print("\n".join(f"{name:<26}{value:.4g}" for name, value in found.items()))
    print("saved", save("limits-cpu", {"machine": machine(torch.device("cpu")), "results": found}))


if __name__ == "__main__":
    main()
