"""What does Ray cost, and what does it bring: `nescio score` with both engines, and with more workers.

    python benchmarks/scaling.py                    # about two minutes on two cores that are free

A small MLP scores rows of a Parquet file into a folder of Parquet parts, in a process of its own, with one thread in
each process; on Ray the file is read by tasks, and parts are written by workers. *first*: seconds until the first part
is there, which is what a start takes; *rate*: rows in a second from then on; *cpu*: seconds of a processor for 1,000
rows from then on, by the process that was started (own), the workers and the rest of Ray (other). Where other work
shares the cores, rates say how much of that there was; seconds of a processor can be compared. *peaks*: the largest
resident memory until then of one process of each kind, whenever another tenth of the parts was there: it must not grow
with the data. *equal*: whether all parts have the local engine's bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
from measure import RESULTS, machine, save
from survive import MODEL

METHODS = ("exgrad", "entropy")
KINDS = ("own", "worker", "other")


class Watch:
    """A process, the workers below it and what else is there: their peaks of memory, in MB, and seconds of a CPU."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.peaks = dict.fromkeys(KINDS, 0.0)
        self.spent: dict[int, tuple[str, float]] = {}

    def look(self) -> dict[str, float]:
        """Look now; gives the peaks until now."""
        for process in [self.process, *_below(self.process)]:
            worker = b"ray::Worker" in _read(process, "cmdline")
            kind = "own" if process == self.process else "worker" if worker else "other"
            self.peaks[kind] = max(self.peaks[kind], _high(process))
            self.spent[process] = (kind, max(_cpu(process), self.spent.get(process, ("", 0.0))[1]))
        return {kind: round(peak, 1) for kind, peak in self.peaks.items()}

    def cpu(self) -> dict[str, float]:
        """Seconds of a CPU until the last look."""
        return {kind: sum(spent for of, spent in self.spent.values() if of == kind) for kind in KINDS}


def scored(folder: Path, rows: int, out: str, *engine: str) -> dict[str, Any]:
    """Run the command, and watch it."""
    chosen = [word for method in METHODS for word in ("--method", method)]
    given = ["--model", "scaling_models:mlp", "--data", "x.parquet", *chosen, "--out", f"{out}/", *engine]
    began = time.perf_counter()
    run = subprocess.Popen(
        [sys.executable, "-m", "nescio", "score", *given],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    watch, first, load = Watch(run.pid), None, os.getloadavg()[0]
    found: list[dict[str, float]] = []
    while run.poll() is None:
        parts = len(list((folder / out).glob("part-*")))
        now = watch.look()
        first = first or ((time.perf_counter() - began, parts, watch.cpu()) if parts else None)
        while parts * _size(rows) * 10 >= rows * (len(found) + 1):
            found.append(now)
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    if run.returncode or first is None or len(found) < 10:
        raise SystemExit(f"the command ended with {run.returncode}, or too soon to be watched")
    usage = json.loads((folder / out / "_runs.jsonl").read_text().splitlines()[-1])
    ready = rows - first[1] * _size(rows)
    cpu = {kind: round((spent - first[2][kind]) / ready * 1000, 3) for kind, spent in watch.cpu().items()}
    return {
        "engine": engine[1] if engine else "local",
        "workers": int(usage.get("workers", 1)),
        "rows": rows,
        "seconds": round(seconds, 2),
        "first": round(first[0], 2),
        "rate": round(ready / (seconds - first[0]), 1),
        "cpu_seconds_for_1000_rows": cpu,
        "busy": usage["busy"],
        "load_before": round(load, 1),
        "peaks_mb": {kind: [peak[kind] for peak in found] for kind in KINDS},
    }


def digests(folder: Path) -> list[str]:
    """The sha256 of each part."""
    return [part["sha256"] for part in json.loads((folder / "_manifest.json").read_text())["parts"]]


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, compare, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        (folder / "scaling_models.py").write_text(MODEL)
        x = np.random.default_rng(0).normal(size=(options.rows, 16)).astype(np.float32)
        lists = pyarrow.FixedSizeListArray.from_arrays(x.ravel(), x.shape[1])
        pyarrow.parquet.write_table(pyarrow.table({"x": lists}), folder / "x.parquet", row_group_size=10_000)
        runs = [scored(folder, options.rows, "local")]
        print(runs[-1], flush=True)
        for workers in options.workers:
            runs.append(scored(folder, options.rows, f"ray{workers}", "--engine", "ray", "--workers", str(workers)))
            print(runs[-1], flush=True)
        truth = digests(folder / "local")
        equal = all(digests(folder / f"ray{workers}") == truth for workers in options.workers)
    local, one = runs[0], runs[1]
    result = {
        "methods": list(METHODS),
        "cores": len(os.sched_getaffinity(0)),
        "load_after": round(os.getloadavg()[0], 1),
        "note": "the cores were shared with other work that came and went, as the load says: seconds and rates of "
        "two runs cannot be compared, seconds of a CPU can, roughly",
        "runs": runs,
        "start_of_ray_seconds": round(one["first"] - local["first"], 2),
        "cpu_against_local": {str(run["workers"]): round(_whole(run) / _whole(local), 3) for run in runs[1:]},
        "equal": equal,
    }
    print({key: result[key] for key in ("start_of_ray_seconds", "cpu_against_local", "equal")})
    save("scaling", {"machine": machine(torch.device("cpu")), **result}, options.folder)
    return result


def _whole(run: dict[str, Any]) -> float:
    return sum(run["cpu_seconds_for_1000_rows"].values())


def _size(rows: int) -> int:
    from nescio.data.parts import part_rows

    return part_rows(rows, 256)


def _below(process: int) -> Iterator[int]:
    """The processes that a process has started, and those that these have."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and (stat := _read(int(place.name), "stat")):
            parents.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(int(place.name))
    todo = [process]
    while todo:
        found = parents.get(todo.pop(), [])
        todo += found
        yield from found


def _high(process: int) -> float:
    """The peak of resident memory of a process, in MB."""
    for line in _read(process, "status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _cpu(process: int) -> float:
    """Seconds of a CPU that a process has used."""
    after = _read(process, "stat").rpartition(b")")[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK") if after else 0.0


def _read(process: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{what}").read_bytes()
    except OSError:  # it has ended
        return b""


if __name__ == "__main__":
    main()
