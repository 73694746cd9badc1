"""Does a guard judge a folder of JPEGs at the rate at which they can be decoded?

    python benchmarks/folder.py --device cuda                              # results/folder-cuda.json
    python benchmarks/folder.py --device cpu --networks squeezenet1_1      # results/folder-cpu.json

A folder of made-up pictures of 500 × 375 (1,024 different ones and links to them, so they come from memory and not from
a disk; `throughput.py` makes them), networks of torchvision with random weights, 1,000 classes, at 224 × 224. All rates
are pictures in a second, each the median of the rounds. *decode*: Pillow decodes files (at most 6,144) in as many
processes as there are cores, which have begun, and nothing else; *ready*: the same, and the processes make the pictures
ready for the network (resize, crop, floats), and throw them away: what the cores can do where nothing is left to the
GPU; *read*: the rows as a model takes them (decoded, resized, joined, on the device), and nothing else, with the start
and the end of the processes; *steady*: the same from the first batch on; *begin*: the seconds until that is there;
*compute*: `Guard.check` of batches that are on the device already; *check*: `Guard.check` of the folder; *command*:
`nescio check` from its start to the joined table, with everything that it imports; *share*: check / decode. On a GPU
check can be the smaller of read and compute; on a CPU the network needs the cores that decode, so it can be
1 / (1/read + 1/compute). *possible* is that number. Starting weighs more the fewer pictures there are (`--pictures`).
*off*: by how much the score of a row differs at most from that of its batch read step by step; *same*: whether the
pixels are the same bit for bit.

*parent*: microseconds that a picture costs the process that asked (*parts*: step by step, by the clock / of the CPU),
*children*: CPU microseconds of those that decode, *system*: those of them that the kernel took; *finish*: microseconds
of a GPU for what is left to it. *start*: seconds of `nescio check` for eight pictures; *rate_of_command*: pictures in a
second of the command beyond that; *command_steps*: seconds of the command, step by step, in a run of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from measure import machine, save, synchronize
from throughput import made
from torch import Tensor

import nescio
from nescio.batch.jobs import Job, batches
from nescio.data import prefetch
from nescio.data.decoders import Decoders, can_decode
from nescio.data.pixel_steps import finished, floats, unfinished
from nescio.data.prefetch import read_ahead
from nescio.data.sources import Rows
from nescio.data.sources.decode import decode
from nescio.inputs import to
from nescio.models.sources import Pictures
from nescio.specs import DataSpec, ModelSpec
from nescio.types import MissingExtra

NETWORKS = ("resnet18", "resnet50")
READY = Pictures(resize=256, crop=(224, 224))
REFERENCE = 300
PARTS = (
    (prefetch, "_processes"),
    (prefetch._Lane, "stage"),
    (Decoders, "read"),
    (Decoders, "slots"),
    (Decoders, "pixels"),
    (prefetch, "unfinished"),
    (Rows, "assemble"),
    (prefetch._Stage, "hold"),
    (prefetch._Stage, "reserve"),
    (prefetch._Lane, "send"),
    (prefetch._Lane, "receive"),
    (Decoders, "close"),
)
"""Steps of the process that asks: start, wait for memory, ask, wait for pictures, join, pin memory, copy, end."""
MOST_DECODED = 6144
"""Files by which the rate of decoding is measured."""


def decoded(files: Sequence[str]) -> int:
    """Decode some files."""
    return sum(decode(file).size[0] > 0 for file in files)


def made_ready(files: Sequence[str]) -> int:
    """Decode some files, and make the pictures ready."""
    return sum(READY(decode(file)).numel() > 0 for file in files)


def decoding(work: Callable[[Sequence[str]], int], files: Sequence[str], cores: int) -> float:
    """Pictures in a second with which all cores do that work."""
    parts = [files[start : start + 16] for start in range(0, min(len(files), MOST_DECODED), 16)]
    with ProcessPoolExecutor(cores, get_context("fork"), torch.set_num_threads, (1,)) as pool:
        list(pool.map(work, parts[:cores]))  # the processes have begun
        began = time.perf_counter()
        done = sum(pool.map(work, parts))
        return done / (time.perf_counter() - began)


def rate(work: Callable[[], int], rounds: int, device: torch.device) -> float:
    """Pictures in a second, the median of the rounds after one to warm up; `work` says how many it did."""
    rates = []
    for _ in range(rounds + 1):
        synchronize(device)
        began = time.perf_counter()
        done = work()
        synchronize(device)
        rates.append(done / (time.perf_counter() - began))
    return statistics.median(rates[1:])


def case(name: str, folder: Path, options: argparse.Namespace, decode_rates: dict[str, float]) -> dict[str, Any]:
    """One network."""
    torch.manual_seed(0)
    device, where = torch.device(options.device), ModelSpec(f"torchvision:{name}", device=options.device)
    ready = Job(where, DataSpec(str(folder)), (nescio.scores.get("gen"),), batch=64).open()
    few = batches(range(min(len(ready.rows), 4 * 256)), 256)
    known = torch.cat([read.batch.inputs for read in read_ahead(ready.rows, few) if read.batch is not None])
    guard = nescio.Guard(ready.source.model).fit(known[:REFERENCE], nuisances=None, progress=False)
    held = [to(part, device) for part in known.split(256)]
    ranges = list(batches(range(len(ready.rows)), 256))

    def compute() -> int:
        return sum(len(guard.check(part, progress=False).p_value) for part in held)

    scores = []

    def check() -> int:
        scores[:] = [guard.check(ready.rows, progress=False).score]
        return len(scores[0])

    reads = sorted(
        [reading(ready.rows, ranges, device) for _ in range(options.rounds + 1)][1:], key=lambda one: one["read"]
    )
    rates = {what: rate(work, options.rounds, device) for what, work in {"compute": compute, "check": check}.items()}
    parts = reads[len(reads) // 2] | {"read": statistics.median(one["read"] for one in reads)}
    parts["finish"] = finishing(ready.rows, ranges[0], device) if device.type == "cuda" else None
    verdict = scores[0][: len(known)]
    truth = torch.cat([guard.check(part, progress=False).score for part in held])
    shared = 1 / (1 / parts["read"] + 1 / rates["compute"])
    possible = min(parts["read"], rates["compute"]) if device.type == "cuda" else shared
    result = {
        "network": name, "pictures": len(ready.rows), "reference": min(REFERENCE, len(known)),
        **decode_rates, **rates, **parts,
        "possible": possible, "of_possible": rates["check"] / possible,
        "share": rates["check"] / decode_rates["decode"],
        "off": float((verdict - truth).abs().max() / truth.abs().max()), "same": same(ready.rows, known, device),
    }  # fmt: skip
    return result | command(guard, name, folder, options)


def same(rows: Rows, known: Tensor, device: torch.device) -> bool:
    """Whether the pixels that came to the device are those of the rows, read one by one."""
    ranges = batches(range(len(known)), max(1, len(known) // 8))  # enough of them for processes
    found = torch.cat([one.batch.inputs.cpu() for one in read_ahead(rows, ranges, device=device) if one.batch])
    return torch.equal(found, known)


def reading(rows: Rows, ranges: Sequence[range], device: torch.device) -> dict[str, Any]:
    """How quickly rows are read, and where the time goes."""
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        for owner, name in PARTS:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), name, spent)))
        own, children = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
        system, began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime, time.perf_counter()
        reads = read_ahead(rows, ranges, device=device)
        first = len(next(reads).places)
        begin = time.perf_counter() - began
        count = sum(len(one.places) for one in reads)
        synchronize(device)
    system = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime - system
    seconds, each = time.perf_counter() - began, 1e6 / (first + count)
    parts = {name: f"{each * wall:.0f} / {each * busy:.0f}" for name, (wall, busy) in spent.items()}
    return {
        "read": (first + count) / seconds,
        "begin": begin,
        "steady": count / (seconds - begin) if count else None,
        "parent": each * (cpu(resource.RUSAGE_SELF) - own),
        "children": each * (cpu(resource.RUSAGE_CHILDREN) - children),
        "system": each * system,
        "parts": parts,
    }


def timed(work: Callable[..., Any], name: str, spent: dict[str, list[float]]) -> Callable[..., Any]:
    """The same, with its seconds by the clock and of this thread's CPU added up."""

    def done(*given: Any, **named: Any) -> Any:
        wall, busy = time.perf_counter(), time.thread_time()
        try:
            return work(*given, **named)
        finally:
            total = spent.setdefault(name, [0.0, 0.0])
            total[0] += time.perf_counter() - wall
            total[1] += time.thread_time() - busy

    return done


def finishing(rows: Rows, places: range, device: torch.device) -> float | None:
    """Microseconds of a GPU for what is left to it of a picture: resize, crop, floats."""
    if not can_decode(rows):
        return None
    decoders = Decoders(rows, len(os.sched_getaffinity(0)), len(places), 1)
    try:
        decoders.read(0, places)
        slots = decoders.slots(0, len(places))
        assert slots is not None
        pixels = decoders.pixels(0, range(len(places)), slots, partial(torch.empty, dtype=torch.uint8))
        x = to(unfinished(pixels, slots, decoders.steps, rows._form[0]), device)
    finally:
        decoders.close()
    table = floats().to(device)
    finished(x, table)
    synchronize(device)
    began = time.perf_counter()
    for _ in range(5):
        finished(x, table)
    synchronize(device)
    return (time.perf_counter() - began) / 5 / len(places) * 1e6


def cpu(whose: int) -> float:
    """Seconds of the CPU so far."""
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def command(guard: nescio.Guard, name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The command as a user starts it, with a few pictures and with all."""
    with tempfile.TemporaryDirectory() as place:
        weights, few = Path(place, "weights.pth"), Path(place, "few")
        assert guard.classifier.module is not None
        torch.save({key: value.cpu() for key, value in guard.classifier.module.state_dict().items()}, weights)
        try:
            guard.save(Path(place, "guard"))
        except MissingExtra as missing:
            return {"command": f"left out: {missing}"}
        few.mkdir()
        files = sorted(folder.iterdir())
        for file in files[:8]:
            (few / file.name).symlink_to(file)
        took, steps = [], {}
        for data, watched in ((few, False), (folder, False), (folder, True)):
            words = ["check", "--guard", Path(place, "guard"), "--model", f"torchvision:{name}", "--weights", weights]
            words += ["--data", data, "--device", options.device, "--out", Path(place, f"{data.name}-{watched}.csv")]
            began = time.perf_counter()
            given = [sys.executable, *(["-c", WATCHED] if watched else ["-m", "nescio"]), *map(str, words)]
            done = subprocess.run(given, capture_output=True, text=True)
            took.append(time.perf_counter() - began)
            if done.returncode:
                return {"command": f"failed: {done.stderr.strip().splitlines()[-1:]}"}
            steps = json.loads(done.stdout.strip().splitlines()[-1]) if watched else {}
        start, whole, _ = took
        beyond = {"rate_of_command": (len(files) - 8) / (whole - start) if whole > start else None}
        return {
            "command": len(files) / whole,
            "command_seconds": whole,
            "start": start,
            **beyond,
            "command_steps": steps,
        }


WATCHED = """
import json, sys, time
began, spent = time.perf_counter(), {}
def mark(word, since):
    spent[word] = round(spent.get(word, 0.0) + time.perf_counter() - since, 3)
import torch
mark("import torch", began)
since = time.perf_counter()
import nescio.batch.jobs as jobs, nescio.batch.run_job as run_job, nescio.cli
mark("import nescio", since)
def watched(module, name):
    work = getattr(module, name)
    def done(*given, **named):
        since = time.perf_counter()
        try:
            return work(*given, **named)
        finally:
            mark(name, since)
    setattr(module, name, done)
for module, name in [(jobs, "open_source"), (jobs, "open_rows"), (jobs, "open_guard"), (run_job, "_paced"),
                     (run_job, "identity"), (run_job, "_work")]:
    watched(module, name)
status = nescio.cli.main(sys.argv[1:])
spent["compiler"] = "torch._dynamo" in sys.modules
print(json.dumps(spent))
sys.exit(status)
"""
"""Where the command's time goes: what it does, with the time of each step as the last line."""


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Make the pictures, run, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--pictures", type=int, default=16384, help="files in the folder (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the result goes")
    options = parser.parse_args(arguments)
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise SystemExit("expected Pillow, which decodes the pictures; it cannot be imported here") from None
    device, cores = torch.device(options.device), len(os.sched_getaffinity(0))
    result: dict[str, Any] = {"machine": machine(device), "cores": cores, "rows": []}
    with tempfile.TemporaryDirectory(prefix="folder-") as name:
        result["bytes_of_a_picture"] = made(Path(name), options.pictures)
        files = [str(file) for file in sorted(Path(name).iterdir())]
        rates = {
            word: statistics.median(decoding(work, files, cores) for _ in range(options.rounds))
            for word, work in {"decode": decoded, "ready": made_ready}.items()
        }
        for network in options.networks:
            result["rows"].append(case(network, Path(name), options, rates))
            print(result["rows"][-1], flush=True)
            save(f"folder-{device.type}", result, options.folder)
    return result


if __name__ == "__main__":
    main()
