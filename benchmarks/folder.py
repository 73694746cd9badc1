"""Does a guard judge a folder of JPEGs at the rate at which they can be decoded?

    python benchmarks/folder.py --device cuda                              # results/folder-cuda.json
    python benchmarks/folder.py --device cpu --networks squeezenet1_1      # results/folder-cpu.json

A folder of made-up pictures of 500 × 375 (of each there are some copies; `throughput.py` makes them), networks of
torchvision with random weights, 1,000 classes, at 224 × 224. All rates are pictures in a second, each the median of the
rounds. *decode*: Pillow decodes the files in as many processes as there are cores, and nothing else; *read*: the rows
as a model takes them (decoded, resized, normalised, joined, on the device), and nothing else; *compute*: `Guard.check`
of batches that are on the device already; *check*: `Guard.check` of the folder; *command*: `nescio check` from its
start to the joined table, with everything that it imports; *share*: check / decode. On a GPU check can be the smaller
of read and compute; on a CPU the network needs the cores that decode, so it can be 1 / (1/read + 1/compute).
*possible* is that number. *off*: by how much the score of a row differs at most from that of its batch read step by
step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from measure import machine, save, synchronize
from throughput import made

import nescio
from nescio.batch.jobs import Job, batches
from nescio.data.prefetch import read_ahead
from nescio.data.sources.decode import decode
from nescio.inputs import to
from nescio.specs import DataSpec, ModelSpec
from nescio.types import MissingExtra

NETWORKS = ("resnet18", "resnet50")
REFERENCE = 300


def decoded(files: Sequence[str]) -> int:
    """Decode some files."""
    return sum(decode(file).size[0] > 0 for file in files)


def decoding(files: Sequence[str], cores: int) -> float:
    """Pictures in a second that all cores decode."""
    parts = [files[start : start + 32] for start in range(0, len(files), 32)]
    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        list(pool.map(decoded, parts[:cores]))  # the processes have begun
        began = time.perf_counter()
        done = sum(pool.map(decoded, parts))
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


def case(name: str, folder: Path, options: argparse.Namespace, decode_rate: float) -> dict[str, Any]:
    """One network."""
    torch.manual_seed(0)
    device, where = torch.device(options.device), ModelSpec(f"torchvision:{name}", device=options.device)
    ready = Job(where, DataSpec(str(folder)), (nescio.scores.get("gen"),), batch=64).open()
    few = batches(range(min(len(ready.rows), 4 * 256)), 256)
    known = torch.cat([read.batch.inputs for read in read_ahead(ready.rows, few) if read.batch is not None])
    guard = nescio.Guard(ready.source.model).fit(known[:REFERENCE], nuisances=None, progress=False)
    held = [to(part, device) for part in known.split(256)]
    ranges = list(batches(range(len(ready.rows)), 256))

    def read() -> int:
        return sum(len(one.places) for one in read_ahead(ready.rows, ranges, device=device))

    def compute() -> int:
        return sum(len(guard.check(part, progress=False).p_value) for part in held)

    def check() -> int:
        return len(guard.check(ready.rows, progress=False).p_value)

    rates = {
        what: rate(work, options.rounds, device)
        for what, work in {"read": read, "compute": compute, "check": check}.items()
    }
    verdict = guard.check(ready.rows, progress=False).score[: len(known)]
    truth = torch.cat([guard.check(part, progress=False).score for part in held])
    shared = 1 / (1 / rates["read"] + 1 / rates["compute"])
    possible = min(rates["read"], rates["compute"]) if device.type == "cuda" else shared
    result = {
        "network": name, "pictures": len(ready.rows), "reference": min(REFERENCE, len(known)),
        "decode": decode_rate, **rates,
        "possible": possible, "share": rates["check"] / decode_rate, "of_possible": rates["check"] / possible,
        "off": float((verdict - truth).abs().max() / truth.abs().max()),
    }  # fmt: skip
    return result | command(guard, name, folder, options)


def command(guard: nescio.Guard, name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The command as a user starts it."""
    with tempfile.TemporaryDirectory() as place:
        weights, out = Path(place, "weights.pth"), Path(place, "verdicts.csv")
        assert guard.classifier.module is not None
        torch.save({key: value.cpu() for key, value in guard.classifier.module.state_dict().items()}, weights)
        try:
            guard.save(Path(place, "guard"))
        except MissingExtra as missing:
            return {"command": f"left out: {missing}"}
        words = ["check", "--guard", Path(place, "guard"), "--model", f"torchvision:{name}", "--weights", weights]
        words += ["--data", folder, "--device", options.device, "--out", out]
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "nescio", *map(str, words)], capture_output=True, text=True)
        spent = time.perf_counter() - began
        if done.returncode:
            return {"command": f"failed: {done.stderr.strip().splitlines()[-1:]}"}
        return {"command": len(list(folder.iterdir())) / spent, "command_seconds": spent}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Make the pictures, run, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--pictures", type=int, default=6144, help="files in the folder (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
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
        decode_rate = statistics.median(decoding(files, cores) for _ in range(options.rounds))
        for network in options.networks:
            result["rows"].append(case(network, Path(name), options, decode_rate))
            print(result["rows"][-1], flush=True)
            save(f"folder-{device.type}", result, options.folder)
    return result


if __name__ == "__main__":
    main()
