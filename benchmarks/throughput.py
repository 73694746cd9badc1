"""Is a GPU kept busy from a folder of JPEGs: how fast `nescio score` is, beside reading alone and computing alone.

    python benchmarks/throughput.py --device cuda            # about a minute on an H200 and 16 cores

A folder of made-up pictures of 500 × 375 (of each there are some copies) goes through networks of torchvision with
random weights, 1,000 classes, at 224 × 224, in the loop of `nescio score` (parts as CSV). All rates are pictures in a
second. *read*: the files read, decoded, resized, put together by all processes and copied, and nothing else; *compute*:
batches that are on the device already; *rate*: all of it at a time; *ratio*: rate / min(read, compute), which is 1
where reading, copying and computing overlap as they should. *busy*: the share of the time in which the model had work,
as the program reports it; *driver*: the share in which a kernel was running, as the driver of the GPU sees it
(nvidia-smi); *work*: how long that work took, against computing alone: what reading beside it costs. *off*: by how
much, relatively, a score differs at most from that of the same batch when it is read, copied and scored step by step.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, save, synchronize

from nescio import scores
from nescio.batch.jobs import Job, Ready, batches
from nescio.batch.streaming import scored, stream
from nescio.data import prefetch, read_table
from nescio.data.parts import Parts
from nescio.data.prefetch import Read, read_ahead
from nescio.inputs import to
from nescio.specs import DataSpec, ModelSpec

CASES = ("resnet18:entropy:256", "resnet50:entropy:256", "resnet18:gradnorm:256", "resnet18:regrad:32")
DIFFERENT = 1024
"""Pictures that are not copies of others."""


def made(folder: Path, count: int) -> int:
    """Write the pictures: smooth colours with a little noise; gives the bytes of one."""
    from PIL import Image

    def write(number: int) -> int:
        draw = torch.Generator().manual_seed(number)
        coarse = torch.randn(1, 3, 24, 32, generator=draw)
        smooth = torch.nn.functional.interpolate(coarse, (375, 500), mode="bicubic")[0]
        noisy = 128 + 50 * smooth + 6 * torch.randn(3, 375, 500, generator=draw)
        file = folder / f"{number:06d}.jpg"
        Image.fromarray(noisy.clamp(0, 255).byte().permute(1, 2, 0).numpy()).save(file, quality=90)
        return file.stat().st_size

    with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        sizes = list(pool.map(write, range(min(count, DIFFERENT))))
    for number in range(DIFFERENT, count):
        os.link(folder / f"{number % DIFFERENT:06d}.jpg", folder / f"{number:06d}.jpg")
    return sum(sizes) // len(sizes)


def reading(ready: Ready, workers: int, count: int) -> float:
    """Pictures in a second that so many processes, or threads, read and bring to the device."""
    ranges = batches(range(min(count, len(ready.rows))), 128)
    began = time.perf_counter()
    done = sum(len(read.places) for read in read_ahead(ready.rows, ranges, workers=workers, device=ready.device))
    return round(done / (time.perf_counter() - began), 1)


def readings(ready: Ready, cores: int, pictures: int) -> dict[str, Any]:
    """Reading alone: with fewer processes, with threads, and as it is done."""
    by = {
        str(count): reading(ready, count, pictures * count // (2 * cores))
        for count in sorted({max(1, cores // 4), max(1, cores // 2)})
    }
    kept, prefetch.PROCESSES = prefetch.PROCESSES, False
    try:
        threads = reading(ready, cores, pictures // 8)
    finally:
        prefetch.PROCESSES = kept
    return {"read_by_processes": by, "read_by_threads": threads, "read": reading(ready, cores, pictures)}


def computing(ready: Ready, reads: list[Read], seconds: float = 0.0) -> float:
    """Pictures in a second that are scored, of batches that are on the device."""
    device, rounds = ready.device or torch.device("cpu"), 0
    synchronize(device)
    began = time.perf_counter()
    while not rounds or time.perf_counter() - began < seconds:
        scored(ready, reads)
        rounds += 1
    synchronize(device)
    return rounds * sum(len(read.places) for read in reads) / (time.perf_counter() - began)


def _moved(read: Read, device: torch.device | None) -> Read:
    if read.batch is None:
        return read
    return read._replace(batch=read.batch._replace(inputs=to(read.batch.inputs, device)))


class Driver:
    """What the GPU's driver says of its use meanwhile, ten times in a second; None where it cannot be asked."""

    def __init__(self, device: torch.device | None) -> None:
        self.watch: subprocess.Popen[str] | None = None
        if device is not None and device.type == "cuda" and shutil.which("nvidia-smi"):
            asked = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
            command = ["nvidia-smi", "-i", str(device.index or 0), *asked]
            self.watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def mean(self) -> float | None:
        """The mean share of time with a kernel running, less the first and last half second."""
        if self.watch is None:
            return None
        self.watch.terminate()
        told = [float(line) / 100 for line in self.watch.communicate()[0].split() if line.isdecimal()][5:-5]
        return round(sum(told) / len(told), 3) if told else None


def opened(spec: str, data: Path, options: argparse.Namespace) -> Ready:
    """A case, which is named NETWORK:METHOD:BATCH."""
    model, method, batch = spec.split(":")
    torch.manual_seed(0)
    where = ModelSpec(f"torchvision:{model}", device=options.device)
    return Job(where, DataSpec(str(data)), (scores.get(method),), batch=int(batch), workers=options.workers).open()


def case(ready: Ready, read: float, seconds: float) -> dict[str, Any]:
    """One network with one method; read: the rate of reading alone."""
    job = ready.job
    few = batches(range(min(len(ready.rows), 2 * job.batch)), job.batch)
    plain = list(read_ahead(ready.rows, few, workers=job.workers))
    held = [_moved(read, ready.device) for read in plain]
    for _ in range(3):  # the engine looks at the model, and a pass is recorded when it comes again
        computing(ready, held[:1])
    compute = computing(ready, held, seconds)
    count = min(len(ready.rows), max(2, round(seconds * min(read, compute) / job.batch)) * job.batch)
    with tempfile.TemporaryDirectory() as place:
        folder, file = Path(place, "parts"), Path(place, "scores.csv")
        driver = Driver(ready.device)
        try:
            with Parts(folder, count, 4 * job.batch, {}, ending=".csv") as parts:
                usage = stream(ready, parts, progress=False)
                parts.join(file)
        finally:
            driven = driver.mean()
        method = job.methods[0].name
        truth = scored(ready, plain).columns[method]
        found = read_table(file)[method][: len(truth)]
    return {
        "model": job.model.name,
        "method": method,
        "batch": job.batch,
        "pictures": count,
        "read": round(read, 1),
        "compute": round(compute, 1),
        "rate": round(usage.rate, 1),
        "ratio": round(usage.rate / min(read, compute), 3),
        "bound_by": "compute" if compute < read else "read",
        "busy": round(usage.busy, 3),
        "work": round(usage.working * compute / count, 3),
        "driver": driven,
        "seconds": round(usage.seconds, 2),
        "words": str(usage),
        "off": float(np.max(np.abs(found - truth) / np.abs(truth))),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Make the pictures, run, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pictures", type=int, default=6144, help="files in the folder")
    parser.add_argument("--seconds", type=float, default=4.0, help="about so long for each measurement")
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="NETWORK:METHOD:BATCH")
    parser.add_argument("--workers", type=int, help="processes that read (default: as nescio score has it)")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    device, cores = torch.device(options.device), len(os.sched_getaffinity(0))
    result: dict[str, Any] = {"machine": machine(device), "cores": cores, "pictures": options.pictures}
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        result["bytes_of_a_picture"] = made(Path(name), options.pictures)
        for spec in options.cases:
            ready = opened(spec, Path(name), options)
            if "read" not in result:
                result |= readings(ready, options.workers or cores, options.pictures)
                print(result, flush=True)
            result.setdefault("runs", []).append(case(ready, result["read"], options.seconds))
            print(result["runs"][-1], flush=True)
            save(f"throughput-{device.type}", result, options.folder)
    return result


if __name__ == "__main__":
    main()
