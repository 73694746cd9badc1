"""Shared by the benchmarks: time, peak memory, the machine, and results as JSON that is written whole or not at all."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def synchronize(device: torch.device) -> None:
    """Wait for what the device still has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Time that passes, or CPU time of this process, for a machine that others use too."""


def seconds(
    run: Callable[[], Any], device: torch.device, repeats: int = 3, budget: float = 20.0, clock: str = "wall"
) -> float:
    """The median time of a few runs after one to warm up; fewer when they are slow.

    On a GPU two warm up: the first may compile kernels, and the second records what the third one replays.
    """
    now = CLOCKS[clock]
    synchronize(device)
    for _ in range(2 if device.type == "cuda" else 1):
        start = now()
        run()
        synchronize(device)
        last = now() - start
    times = []
    for _ in range(max(1, min(repeats, int(budget / max(last, 1e-9))))):
        start = now()
        run()
        synchronize(device)
        times.append(now() - start)
    return sorted(times)[len(times) // 2]


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """Memory that a run takes at its peak beyond what was there before (on a CPU: resident memory, sampled)."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    page, done, peak = os.sysconf("SC_PAGE_SIZE"), threading.Event(), [0]
    statm = Path("/proc/self/statm")
    before = int(statm.read_text().split()[1])

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], int(statm.read_text().split()[1]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        done.set()
        watcher.join()
    return max(0, peak[0] - before) * page


def arguments(description: str, name: str, models: Sequence[str]) -> argparse.ArgumentParser:
    """The options of a benchmark that measures models on a device, in batches."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=list(models), choices=list(models))
    parser.add_argument("--batch", nargs="+", type=int, default=[16, 1])
    parser.add_argument("--name", help=f"name of the result file; default: {name}-DEVICE")
    return parser


def device_in_tf32(name: str) -> torch.device:
    """The device; on a GPU products are in TF32 from now on."""
    device = torch.device(name)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return device


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on."""
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "tf32": device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32,
        "commit": _commit(),
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }


def read(name: str) -> dict[str, Any]:
    """A result that was saved before; empty where there is none."""
    path = _folder() / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def save(name: str, result: dict[str, Any], folder: Path | None = None) -> Path:
    """Write the result beside the others (or to $OUT), atomically."""
    folder = folder or _folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(path)
    return path


def _folder() -> Path:
    return Path(os.environ.get("OUT") or RESULTS)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _commit() -> str:
    if told := os.environ.get("NESCIO_COMMIT"):  # of a copy without its history
        return told
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
