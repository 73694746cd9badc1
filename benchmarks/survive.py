"""Does `nescio score` survive being killed, and does its memory stay the same however long the data are?

    python benchmarks/survive.py                    # about three minutes on two cores

A small MLP scores rows of a .npz file into a Parquet file, in processes of its own. *kills*: the same command is killed
(SIGKILL) ten times, at moments drawn at random, and started again; *equal*: whether the file at the end has the bytes
of a run that was left alone. *peak*: the largest resident memory of an undisturbed process, for data of two lengths.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, machine, save

MODEL = """
import torch
from torch import nn

def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
"""
METHODS = ("exgrad", "perturb_x", "entropy")


class Run:
    """The command, at work in a process of its own."""

    def __init__(self, folder: Path, rows: int, out: str) -> None:
        chosen = [word for method in METHODS for word in ("--method", method)]
        given = ["--model", "survivors:mlp", "--data", f"{rows}.npz", "--set", "perturb_x.samples=5", *chosen]
        self.folder, self.out = folder, folder / out
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a process that starts often should compile once
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nescio", "score", *given, "--out", out],
            cwd=folder,
            env=environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def parts(self) -> int:
        """How many parts lie there."""
        kept = self.out.with_name(f"{self.out.name}.parts")
        return len(list(kept.glob("part-*"))) if kept.is_dir() else 0

    def end(self) -> dict[str, float]:
        """Wait for it; seconds and the peak of its memory."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise SystemExit(f"the command ended with {self.process.returncode}")
        return {"seconds": round(time.perf_counter() - self.began, 2), "peak_mb": round(used.ru_maxrss / 1024, 1)}

    def kill(self) -> None:
        """As `kill -9` does."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def killed(
    folder: Path, rows: int, kills: int, most: int, seed: int = 0
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What was there at each kill, and the last run, which is left alone.

    A moment is drawn anew each time: so many parts more than there were, and up to a fiftieth of a second.
    """
    draw, found = random.Random(seed), []
    while len(found) < kills:
        run = Run(folder, rows, "killed.parquet")
        before = run.parts()
        wanted = before + draw.randint(0, max(1, 2 * (most - before) // (kills - len(found) + 2)))
        while run.parts() < wanted and run.process.poll() is None:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.02))
        if run.process.poll() is not None:  # it was faster
            raise SystemExit("the work was done before the last kill; give more rows")
        run.kill()
        found.append({"parts_before": before, "parts": run.parts()})
    last = Run(folder, rows, "killed.parquet")
    return found, last.end()


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, kill, compare, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    lengths = [options.rows // 10, options.rows]
    with tempfile.TemporaryDirectory(prefix="survive-") as name:
        folder = Path(name)
        (folder / "survivors.py").write_text(MODEL)
        for rows in lengths:
            x = np.random.default_rng(0).normal(size=(rows, 16)).astype(np.float32)
            np.savez(folder / f"{rows}.npz", x=x)
        alone = []
        for rows in lengths:
            alone.append({"rows": rows, **Run(folder, rows, f"{rows}.parquet").end()})
            print(alone[-1], flush=True)
        from nescio.data.parts import part_rows

        size = part_rows(options.rows, 256)
        kills, last = killed(folder, options.rows, options.kills, -(-options.rows // size))
        files = [folder / "killed.parquet", folder / f"{options.rows}.parquet"]
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        left = [path.name for path in folder.iterdir() if "killed" in path.name]
    result = {
        "methods": list(METHODS),
        "part_rows": size,
        "undisturbed": alone,
        "kills": kills,
        "last": last,
        "sha256": digests[0],
        "equal": digests[0] == digests[1],
        "left_behind": [name for name in left if name != "killed.parquet"],
    }
    print({key: result[key] for key in ("kills", "last", "equal", "left_behind")})
    save("survive", {"machine": machine(torch.device("cpu")), **result}, options.folder)
    return result


if __name__ == "__main__":
    main()
