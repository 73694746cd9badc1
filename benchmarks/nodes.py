"""Machines of a cluster of Ray go away while `nescio score` is at work: is a row lost, or there twice?

    python benchmarks/nodes.py                      # about four minutes on two cores; needs Ray

The cluster is simulated, with Ray's own utility for that (`ray.cluster_utils.Cluster`): each machine is a raylet of its
own on this one, with a core and a store. A small model, slow enough that a run can be watched, scores rows by one
worker on each machine, and some machines are killed (SIGKILL), one after another, each when another share of the parts
is there. *replaced*: another machine comes for each that goes; *fewer*: none comes, and the rest do the work. *equal*:
whether the file at the end has the bytes that one process makes; *rows* and *doubled* are counted in it; *told*: what
the command said of lost workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, machine, save
from plan import surroundings

MODEL = """
import time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x):
        time.sleep(SECONDS * len(x))
        return self.layers(x)

def slow():
    torch.manual_seed(0)
    return Slow()
"""
PART = 32


def command(rows: int, out: str, *more: str) -> list[str]:
    """The command."""
    given = ["--model", "losing:slow", "--data", f"{rows}.npz", "--method", "exgrad", "--batch-size", str(PART)]
    return [sys.executable, "-m", "nescio", "score", *given, "--part-rows", str(PART), "--out", out, *more]


def disturbed(folder: Path, rows: int, nodes: int, kills: int, *, replaced: bool) -> dict[str, Any]:
    """Score on so many machines, of which some are killed meanwhile."""
    from patient import patience, tried
    from ray.cluster_utils import Cluster

    from nescio.data import read_table

    name = "replaced" if replaced else "fewer"
    parts, out = -(-rows // PART), folder / f"{name}.parquet"

    def started(work: Callable[[], Any]) -> Any:
        with patience():
            return tried(work)

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        there = [started(lambda: cluster.add_node(num_cpus=1)) for _ in range(nodes)]
        engine = ["--engine", "ray", "--workers", str(nodes), "--address", cluster.address]
        said, began, lost = (folder / f"{name}.said").open("w"), time.perf_counter(), []
        asked = command(rows, out.name, *engine)
        run = subprocess.Popen(asked, cwd=folder, stderr=said, stdout=said, env=surroundings())
        while run.poll() is None:
            kept = len(list(folder.glob(f"{out.name}.parts/part-*")))
            if len(lost) < kills and kept >= parts * (len(lost) + 1) / (kills + 2):
                cluster.remove_node(there.pop(0), allow_graceful=False)
                lost.append({"parts_before": kept, "machines_left": len(there)})
                if replaced:
                    there.append(started(lambda: cluster.add_node(num_cpus=1)))
            time.sleep(0.05)
        said.close()
    finally:
        cluster.shutdown()
    told = (folder / f"{name}.said").read_text().splitlines()
    if run.returncode:
        raise SystemExit(f"the command ended with {run.returncode}: {told[-3:]}")
    index = read_table(out)["index"]
    return {
        "case": name,
        "machines": nodes,
        "lost": lost,
        "parts": parts,
        "given_rows": rows,
        "rows": len(np.unique(index)),
        "doubled": len(index) - len(np.unique(index)),
        "equal": out.read_bytes() == (folder / "alone.parquet").read_bytes(),
        "left_behind": sorted(path.name for path in folder.iterdir() if path.name.startswith(f"{out.name}.")),
        "seconds": round(time.perf_counter() - began, 1),
        "told": [line for line in told if "lost at the rows" in line],
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run alone, run while machines go, compare, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=0.005, help="how long the model takes for a row")
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=["replaced", "fewer"], choices=["replaced", "fewer"])
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    cases = []
    with tempfile.TemporaryDirectory(prefix="nodes-") as name:
        folder = Path(name)
        (folder / "losing.py").write_text(MODEL.replace("SECONDS", str(options.seconds)))
        x = np.random.default_rng(0).normal(size=(options.rows, 8)).astype(np.float32)
        np.savez(folder / f"{options.rows}.npz", x=x)
        alone = command(options.rows, "alone.parquet")
        subprocess.run(alone, cwd=folder, env=surroundings(), check=True, capture_output=True)
        for case in options.cases:
            replaced = case == "replaced"
            cases.append(disturbed(folder, options.rows, options.machines, options.kills, replaced=replaced))
            print(json.dumps(cases[-1]), flush=True)
    result = {"cases": cases, "load_after": round(os.getloadavg()[0], 1)}
    save("nodes", {"machine": machine(torch.device("cpu")), **result}, options.folder)
    return result


if __name__ == "__main__":
    main()
