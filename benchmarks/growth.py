"""What grows with the rows of a run, and does it stay small: the manifest, the files, the join, the driver's memory?

    python benchmarks/growth.py                     # about half an hour on two cores; the last part needs Ray

*keeping*: rows that were made up are kept in parts of ten, as `nescio score` keeps its own, and joined into one Parquet
file, by a process of its own for each number of parts. Seconds are of a processor, so that other work on the machine
counts little. *first* and *last*: milliseconds for a part in the first and in the last tenth; *manifest*, *journal* and
*files*: bytes for a part (of the journal, the most there was at a time); *memory*: bytes for a part that the process
has more than before; *opening*: to find all parts again after a kill, hashes and all, for a part; *join_memory_mb*: the
peak while all are joined, beyond what the process had. *right*: the joined file has each row once, and in order.

*ray*: `nescio score --engine ray` with two workers over so many parts, by a small model. *driver*: milliseconds of a
processor for a part in the process that was started, *others* in all the others; *memory*: bytes for a part that it
has more when the last part comes than when the first was there, of its peak; *peaks_mb*: this peak after each tenth of
the parts; *driver_peak_mb*: the same at the end, when what is read to end has been loaded too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, machine, save
from plan import surroundings
from scaling import Watch, _read

SIZE = 10
MODEL = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Linear(4, 3)
"""


def kept(count: int, where: str) -> dict[str, Any]:
    """Keep so many parts, open them again, join them; what each of it took."""
    import pyarrow.parquet

    from nescio.data.parts import JOURNAL, MANIFEST, Parts

    folder, rows = Path(where, f"{count}"), count * SIZE
    values = np.random.default_rng(0).random(rows)
    found: dict[str, Any] = {"parts": count, "rows": rows}
    with Parts(folder, rows, SIZE, {"model": "none"}) as parts:
        todo = parts.missing
        parts.add(todo[0], _columns(values, todo[0]))  # what is loaded once is loaded
        tenth, journal, before = max(1, count // 10), 0, _memory("VmRSS")
        began = time.process_time()
        for number, part in enumerate(todo[1:], 1):
            parts.add(part, _columns(values, part))
            if number == tenth:
                first = time.process_time() - began
            if number == count - tenth:
                later = time.process_time()
            if number % tenth == 0:
                journal = max(journal, (folder / JOURNAL).stat().st_size if (folder / JOURNAL).exists() else 0)
        found |= {"first": first / tenth * 1e3, "last": (time.process_time() - later) / (tenth - 1 or 1) * 1e3}
        found |= {"memory": (_memory("VmRSS") - before) / count, "journal": journal / count}
        began = time.process_time()
        parts.flush()
        found |= {"flush_seconds": time.process_time() - began}
    sizes = [file.stat().st_size for file in folder.iterdir()]
    found |= {"files": sum(sizes) / count, "manifest": (folder / MANIFEST).stat().st_size / count}
    began = time.process_time()
    with Parts(folder, rows, SIZE, {"model": "none"}) as parts:
        found |= {"opening": (time.process_time() - began) / count * 1e3, "complete": not parts.missing}
        before, began = _memory("VmRSS"), time.process_time()
        _forget_peak()
        parts.join(f"{folder}.parquet")
        found |= {"join": (time.process_time() - began) / count * 1e3}
        found |= {"join_memory_mb": max(0.0, _memory("VmHWM") - before) / 1e6}
        parts.remove()
    table = pyarrow.parquet.read_table(f"{folder}.parquet")
    right = np.array_equal(table["index"], np.arange(rows)) and np.array_equal(table["score"], values)
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()} | {
        "right": bool(right) and found["complete"]
    }


def _columns(values: np.ndarray[Any, Any], part: range) -> dict[str, Any]:
    return {"index": np.arange(part.start, part.stop), "score": values[part.start : part.stop]}


def _memory(kind: str) -> float:
    """Bytes of this process: VmRSS now, VmHWM at its peak."""
    lines = _read(os.getpid(), "status").splitlines()
    return next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith(f"{kind}:".encode()))


def _forget_peak() -> None:
    """From now on VmHWM is the peak since now."""
    Path("/proc/self/clear_refs").write_text("5")


def on_ray(count: int, folder: Path) -> dict[str, Any]:
    """Score so many parts on Ray, and watch the process that was started."""
    rows, out = count * SIZE, folder / f"ray{count}"
    np.savez(folder / f"{rows}.npz", x=np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32))
    given = ["--model", "growing:small", "--data", f"{rows}.npz", "--method", "entropy", "--batch-size", str(SIZE)]
    given += ["--part-rows", str(SIZE), "--engine", "ray", "--workers", "2", "--fresh", "--out", f"{out}/"]
    run = subprocess.Popen(
        [sys.executable, "-m", "patient", "score", *given], cwd=folder, env=surroundings(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    watch, looks = Watch(run.pid), []
    while run.poll() is None:
        now = sum(name.startswith("part-") for name in os.listdir(out)) if out.is_dir() else 0
        peaks = watch.look()
        if run.poll() is None:
            looks.append((now, peaks["own"], watch.cpu()))
        time.sleep(0.5)
    there = [look for look in looks if 0 < look[0] < count]
    if run.returncode or len(there) < 2:
        raise RuntimeError(f"the command ended with {run.returncode}, or too soon to be watched")
    (begun, low, before), (done, high, after) = there[0], there[-1]
    tenths = [tenth for tenth in range(1, 11) if begun * 10 <= count * tenth]
    spent = {kind: (after[kind] - before[kind]) / (done - begun) * 1e3 for kind in after}
    return {
        "parts": count,
        "rows": rows,
        "driver": round(spent["own"], 3),
        "others": round(spent["worker"] + spent["other"], 3),
        "memory": round((high - low) * 2**20 / (done - begun), 1),
        "peaks_mb": [max(look[1] for look in there if look[0] * 10 <= count * tenth) for tenth in tenths],
        "driver_peak_mb": looks[-1][1],
        "right": _each_once(out, rows),
    }


def _each_once(out: Path, rows: int) -> bool:
    from nescio.data import read_table

    index = np.concatenate([read_table(file)["index"] for file in sorted(out.glob("part-*"))])
    return bool(np.array_equal(index, np.arange(rows)))


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Keep, join, run, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--ray", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="parts on Ray")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    keeping, ray = [], []
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        (Path(name) / "growing.py").write_text(MODEL)
        for count in options.parts:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
                keeping.append(fresh.submit(kept, count, name).result())
            print(keeping[-1], flush=True)
        for count in options.ray:
            from patient import tried  # it needs Ray

            ray.append(tried(lambda now=count: on_ray(now, Path(name))))
            print(ray[-1], flush=True)
    result = {"rows_in_a_part": SIZE, "load_after": round(os.getloadavg()[0], 1), "keeping": keeping, "ray": ray}
    file = options.folder / "growth.json"
    if file.exists():  # what was not asked for stays as it was
        before = json.loads(file.read_text())
        result |= {name: before[name] for name in ("keeping", "ray") if not result[name]}
    save("growth", {"machine": machine(torch.device("cpu")), **result}, options.folder)
    return result


if __name__ == "__main__":
    main()
