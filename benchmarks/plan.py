"""Does `nescio plan` foretell how long `nescio score` takes: by one process, and by one, two and four workers of Ray?

    python benchmarks/plan.py                       # about 25 minutes on two cores; needs Ray

Rows of numbers are scored into a folder of parts, by a model that sleeps for each row, as a process does that waits for
a GPU: so it shows how work is divided, whatever the number of cores. 10,000 rows take 10 ms each, 100,000 rows 1 ms
each. Ray is told that it has a core for each worker.

*planned*: seconds of the plan, from 512 rows measured in the same minutes; *seconds*: of the run, by the clock.
Other work may share the cores, and a plan is for a machine without: so *quiet* is how long the run would have taken
alone. Linux counts for each thread how long it ran, and how long it waited for a core. Twice a second:

- while parts come, the time that the threads which run the model waited for a core, on average, is taken away;
- before and after, where all processes are at work on the start or the end, c seconds ran and w waited over all threads
  in an interval of t, so that p = (c + w)/t threads wanted a core. Alone they would have had up to as many as there
  are: (1 − min(p, 1))·t + c/min(max(p, 1), cores).

Both are t itself where nothing else runs. *ratio* is planned ÷ quiet. *start*: of quiet, what is before the first part,
less the seconds that the plan has for a part; *cpu*: seconds of a processor; the plan's are beside them. *measured*:
what the plans were made from, each time, so that a later arithmetic can be compared with the same runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
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
from scaling import _below, _read

MODELS = """
import time
import torch
from torch import nn

class Sleeping(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.layers = nn.Sequential(nn.Linear(16, 10))

    def forward(self, x):
        time.sleep(self.seconds * len(x))
        return self.layers(x)

def sleeping(seconds=0.001):
    torch.manual_seed(0)
    return Sleeping(seconds)

def slowly():
    return sleeping(0.01)
"""
FEW = 10_000
"""Rows, up to which the model sleeps longer: there are fewer."""
CORES = len(os.sched_getaffinity(0))


class Alone:
    """How long a run would have taken without the other work on the machine, interval by interval."""

    def __init__(self, process: int) -> None:
        self.process, self.at, self.known = process, time.perf_counter(), {}
        self.seconds = self.cpu = 0.0

    def look(self, *, working: bool = False) -> None:
        """End an interval; working: whether parts come."""
        ran, waited, known, held = 0.0, 0.0, {}, []
        processes = [self.process, *_below(self.process)]
        workers = [one for one in processes if b"ray::Worker" in _read(one, "cmdline")] or [self.process]
        for process in processes:
            for thread in _threads(process):
                known[thread] = now = _scheduled(process, thread)
                before = self.known.get(thread, (0.0, 0.0))
                ran, waited = ran + max(0.0, now[0] - before[0]), waited + max(0.0, now[1] - before[1])
                if thread == process and process in workers:
                    held.append(max(0.0, now[1] - before[1]))
        self.known, now = self.known | known, time.perf_counter()
        passed, self.at = now - self.at, now
        self.cpu += ran
        if working and held:
            self.seconds += max(0.0, passed - statistics.mean(held))
        else:
            wanted = (ran + waited) / passed
            self.seconds += (1 - min(wanted, 1)) * passed + ran / min(max(wanted, 1), CORES)


def surroundings() -> dict[str, str]:
    """One thread for each process, and programs of this folder to be found."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def asked(rows: int) -> list[str]:
    """What is to be scored."""
    factory = "slowly" if rows <= FEW else "sleeping"
    return ["--model", f"plan_models:{factory}", "--method", "entropy", "--data", f"{rows}.npz"]


def ran(folder: Path, rows: int, workers: int | None, parts: int) -> dict[str, Any]:
    """Run the command, and watch it."""
    engine = [] if workers is None else ["--engine", "ray", "--workers", str(workers)]
    start = ["-m", "nescio"] if workers is None else ["-m", "patient"]
    shutil.rmtree(folder / "out", ignore_errors=True)
    load, began = os.getloadavg()[0], time.perf_counter()
    with (folder / "said").open("w") as said:
        run = subprocess.Popen(
            [sys.executable, *start, "score", *asked(rows), *engine, "--out", "out/"],
            cwd=folder, env=surroundings(), stdout=said, stderr=said,
        )  # fmt: skip
        alone, first = Alone(run.pid), 0.0
        while run.poll() is None:
            time.sleep(0.5)
            there = len(list((folder / "out").glob("part-*")))
            alone.look(working=0 < there < parts)
            if there and not first:
                first = alone.seconds
    if run.returncode:
        raise RuntimeError(f"the command ended with {run.returncode}: {(folder / 'said').read_text()[-2000:]}")
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "quiet": round(alone.seconds, 2),
        "cpu": round(alone.cpu, 2),
        "first": round(first, 2),
        "load_before": round(load, 1),
    }


def measured(folder: Path, rows: int) -> dict[str, Any]:
    """What `nescio plan` measures of the model."""
    done = subprocess.run(
        [sys.executable, "-m", "nescio", "plan", *asked(rows), "--json"],
        cwd=folder, capture_output=True, text=True, env=surroundings(),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the plan ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)["measured"]
    return found


def planned(known: dict[str, Any], rows: int, workers: int | None) -> Any:
    """The plan that `nescio plan` makes from these measurements."""
    from nescio.batch.job_plan import Cost, Costs, Crew, make_plan
    from nescio.data.parts import part_rows

    stages = {name: Cost(**known[name]) for name in ("decode", "transfer", "compute", "store")}
    costs = Costs(**{**known, **stages})
    crew = Crew("local", 1, CORES) if workers is None else Crew("ray", workers, CORES)
    return make_plan(costs, crew, rows, part_rows(rows, costs.batch, None, costs.compute.seconds))


def foretold(plan: Any) -> dict[str, Any]:
    """What is compared with the run."""
    return {
        "planned": plan.seconds,
        "planned_start": plan.start,
        "planned_cpu": plan.cpu_seconds,
        "bottleneck": plan.bottleneck,
    }


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of repeated runs, and how far the plan is from them."""
    values = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0] if key != "bottleneck"}
    return {
        **values,
        "ratio": round(values["planned"] / values["quiet"], 3),
        "cpu_ratio": round(values["planned_cpu"] / values["cpu"], 3),
        "bottleneck": runs[0]["bottleneck"],
        "repeats": len(runs),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Plan, run, compare, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    from patient import tried  # it needs Ray

    found: dict[tuple[int, int | None], list[dict[str, Any]]] = {}
    costs: dict[int, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="plan-") as name:
        folder = Path(name)
        (folder / "plan_models.py").write_text(MODELS)
        for rows in options.rows:
            x = np.random.default_rng(0).normal(size=(rows, 16)).astype(np.float32)
            np.savez(folder / f"{rows}.npz", x=x)
        for _ in range(options.repeats):
            for rows in options.rows:
                known = measured(folder, rows)
                costs.setdefault(rows, []).append(known)
                for workers in (None, *options.workers):
                    plan = planned(known, rows, workers)
                    run = tried(lambda now=(folder, rows, workers, plan.parts): ran(*now)) | foretold(plan)
                    run["start"] = round(max(0.0, run.pop("first") - plan.part_seconds), 2)
                    found.setdefault((rows, workers), []).append(run)
                    print(rows, workers, run, flush=True)
                    _save(found, costs, options)
    return _save(found, costs, options)


def _save(
    found: dict[tuple[int, int | None], list[dict[str, Any]]],
    costs: dict[int, list[dict[str, Any]]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    runs = [
        {"rows": rows, "engine": "local" if workers is None else "ray", "workers": workers or 1} | middle(repeats)
        for (rows, workers), repeats in found.items()
    ]
    off = max(abs(run["ratio"] - 1) for run in runs)
    result = {"cores": CORES, "furthest_off": round(off, 3), "measured": costs, "runs": runs}
    save("plan", {"machine": machine(torch.device("cpu")), **result}, options.folder)
    return result


def _threads(process: int) -> list[int]:
    try:
        return [int(one) for one in os.listdir(f"/proc/{process}/task")]
    except OSError:
        return []


def _scheduled(process: int, thread: int) -> tuple[float, float]:
    """Seconds that a thread ran, and that it waited for a core."""
    found = _read(process, f"task/{thread}/schedstat").split()
    return (int(found[0]) / 1e9, int(found[1]) / 1e9) if len(found) > 1 else (0.0, 0.0)


if __name__ == "__main__":
    main()
