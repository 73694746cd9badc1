"""How long the first call of `nescio.score` takes in a fresh process, beyond loading and the forward pass.

    python benchmarks/first_call.py                         # two cores: results/first-call-cpu.json
    python benchmarks/first_call.py --device cuda           # results/first-call-cuda.json

For each network a process with an empty cache of kernels (cold), and then another one with what that left on disk
(warm). In each: load torch, nescio and the network, two forward passes, and then two calls of the score as it comes on
one batch, at 1,000 classes. The first call looks at the model, compiles or loads kernels, and lets libraries set
themselves up for its shapes; ``beyond`` is what it takes more than the second. ``look`` is the part that goes into
looking at the model. Random weights: the time does not depend on them. ``--side-by-side`` starts the processes of all
networks at once, where there are cores enough. The very first process on a machine also reads the libraries from
disk: ``read_mb`` says how much a call read, where the system tells it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from affordable import inputs, network
from measure import machine, save, synchronize

NETWORKS = ("efficientnet_b0", "resnet50", "convnext_tiny", "resnet18")


def once(run: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Seconds by the clock, and of this process's CPU time."""
    synchronize(device)
    start, own, read = time.perf_counter(), time.process_time(), blocks_read()
    run()
    synchronize(device)
    spent = {"s": time.perf_counter() - start, "cpu_s": time.process_time() - own}
    return spent | {"read_mb": (blocks_read() - read) * 512 / 1e6}


def blocks_read() -> int:
    """Blocks of 512 bytes that this process has read from a disk so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock


def child(name: str, lite: str, device: torch.device, batch: int) -> dict[str, Any]:
    """Measure one network in this process."""
    from nescio import score
    from nescio.trace.estimate import table

    built = network(name, lite)
    if built is None:
        raise SystemExit(f"{name}: its package or its weights (--lite) are not there")
    model, x = built.to(device), inputs("", batch).to(device)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    looks: list[float] = []
    begin = table.begin

    def watched(*args: Any) -> Any:
        found: list[Any] = []
        looks.append(once(lambda: found.append(begin(*args)), device)["s"])
        return found[0]

    table.begin = watched
    times = {
        "first_forward": once(forward, device), "forward": once(forward, device),
        "first_call": once(lambda: score(model, x, "regrad", progress=False), device),
        "second_call": once(lambda: score(model, x, "regrad", progress=False), device),
    }  # fmt: skip
    row = {f"{what}_{unit}": value for what, found in times.items() for unit, value in found.items()}
    return row | {"beyond_s": row["first_call_s"] - row["second_call_s"], "look_s": looks[0]}


def started(name: str, args: argparse.Namespace, cache: Path) -> subprocess.Popen[str]:
    """A fresh process for one network, with this cache of kernels."""
    command = [sys.executable, __file__, "--child", name, "--device", args.device, "--batch", str(args.batch)]
    command += ["--lite", args.lite]
    env = os.environ | {"TRITON_CACHE_DIR": str(cache)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], name: str, cache: Path, warm: bool) -> dict[str, Any]:
    """What the process found, and how many kernels are in its cache."""
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the process for {name} ended with {process.returncode}")
    row = {"network": name, "cache": "warm" if warm else "cold", **json.loads(out.splitlines()[-1])}
    return row | {"kernels_on_disk": len(list(cache.rglob("*.cubin")))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--batch", type=int, help="inputs (default: 32 on a GPU, 4 on a CPU)")
    parser.add_argument("--lite", default="", help="weights of EfficientNet-Lite0, for the network efficientnet-lite0")
    parser.add_argument("--side-by-side", action="store_true", help="the processes of all networks at once")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    device = torch.device(args.device)
    args.batch = args.batch or (32 if device.type == "cuda" else 4)
    if args.child:
        print(json.dumps(child(args.child, args.lite, device, args.batch)))
        return
    rows: list[dict[str, Any]] = []
    result = {"machine": machine(device), "batch": args.batch, "side_by_side": args.side_by_side, "rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        groups = [args.networks] if args.side_by_side else [[name] for name in args.networks]
        for group in groups:
            for warm in (False, True):
                caches = {name: Path(folder, name) for name in group}
                running = {name: started(name, args, cache) for name, cache in caches.items()}
                rows += [ended(process, name, caches[name], warm) for name, process in running.items()]
                for row in rows[-len(group) :]:
                    print(f"{row['network']:16} {row['cache']}  first call {row['first_call_s']:6.2f} s", end="  ")
                    print(f"look {row['look_s']:6.2f} s  second {row['second_call_s']:6.3f} s", flush=True)
                save(f"first-call-{device.type}", result)


if __name__ == "__main__":
    main()
