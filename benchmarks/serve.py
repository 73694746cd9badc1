"""Many clients at once against the real service: errors, waiting times, throughput, and whether results stay the same.

    python benchmarks/serve.py                     # two minutes, after the bundled digits were trained

`nescio serve` runs as a process of its own with the bundled digits. So many clients ask /score without a pause, each a
picture at random of 300 digits and 100 pictures that are none. *unchanged*: every score equals, to the last bit, what
`Engine.assess` gives for that picture alone in another process. *against nescio.score*: the largest relative difference
to scoring all pictures in one call, where sums are added in batches of another shape. *alone* is one client.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from measure import RESULTS, machine, save
from PIL import Image

import nescio
from nescio.serve import bundled
from nescio.serve.engine import Engine
from nescio_papers.datasets import load_set

METHODS = ("regrad", "entropy")


def pictures() -> list[bytes]:
    """Files of pictures."""
    sets = [load_set("digits", "test").x, load_set("photo_patches").x[:50], load_set("drawn_letters").x[:50]]
    files = []
    for x in torch.cat(sets):
        file = io.BytesIO()
        Image.fromarray(x[0].numpy()).save(file, "PNG")
        files.append(file.getvalue())
    return files


@contextmanager
def service(method: str, arguments: list[str]) -> Iterator[str]:
    """The address of a running service; at the end it is told to stop, and has to do so in peace."""
    command = [sys.executable, "-m", "nescio", "serve", "--port", "0", "--method", method, *arguments]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here: sums of several threads have other last digits
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=one)
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"Serving on (\S+)", line):
                yield found[1]
                break
        else:
            raise SystemExit("".join(lines))
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            raise SystemExit(f"the service ended with status {process.returncode}")
    finally:
        process.kill()
        process.stderr.close()


async def load(url: str, files: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """What so many clients see in so many seconds."""
    times: list[float] = []
    answers: dict[int, set[str]] = {}
    errors: Counter[str] = Counter()
    until = time.perf_counter() + seconds

    async def one(client: httpx.AsyncClient, seed: int) -> None:
        draw = random.Random(seed)
        while time.perf_counter() < until:
            place = draw.randrange(len(files))
            start = time.perf_counter()
            try:
                response = await client.post("/score", content=files[place], headers={"content-type": "image/png"})
            except httpx.HTTPError as error:
                errors[type(error).__name__] += 1
                continue
            times.append(time.perf_counter() - start)
            if response.status_code != 200:
                errors[str(response.status_code)] += 1
                continue
            answers.setdefault(place, set()).add(repr(response.json()["results"][0]["scores"]))

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        before = await _batches(client)
        begin = time.perf_counter()
        await asyncio.gather(*(one(client, seed) for seed in range(clients)))
        took = time.perf_counter() - begin
        inputs, batches = (now - then for now, then in zip(await _batches(client), before, strict=True))
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {
        "clients": clients,
        "seconds": took,
        "requests": len(times),
        "errors": dict(errors),
        "per_second": len(times) / took,
        "p50_ms": 1000 * cuts[49],
        "p99_ms": 1000 * cuts[98],
        "max_ms": 1000 * max(times),
        "inputs_in_a_batch": inputs / batches,
        "answers": answers,
    }


async def _batches(client: httpx.AsyncClient) -> list[float]:
    """Inputs and batches that the service has handled."""
    text = (await client.get("/metrics")).text
    return [float(found) for found in re.findall(r"^nescio_batch_inputs_(?:sum|count) (\S+)", text, re.M)][::-1]


def compared(found: dict[str, Any], engine: Engine, files: list[bytes], method: str) -> dict[str, Any]:
    """The numbers, with the answers set beside scoring offline."""
    answers = found.pop("answers")
    rows = [_row(engine, files[place]) for place in answers]
    alone = [engine.assess([row], [method])[0].scores for row in rows]
    same = all(seen == {repr(known)} for seen, known in zip(answers.values(), alone, strict=True))
    source = engine.network if method == "regrad" else engine.posterior
    together = nescio.score(source, torch.stack(rows), method, progress=False)
    served = torch.tensor([known[method] for known in alone], dtype=torch.float64)
    difference = float(((served - together).abs() / together.abs()).max())
    return {**found, "pictures": len(rows), "unchanged": same, "against_score": difference}


def _row(engine: Engine, file: bytes) -> Any:
    assert engine.source.preprocess is not None
    return engine.source.preprocess(Image.open(io.BytesIO(file)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder that gets serve.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    files, rows = pictures(), []
    for method in args.method or METHODS:
        engine = bundled.bundled([method])
        with service(method, ["--timeout", "60s"]) as url:
            alone = asyncio.run(load(url, files, 1, min(10.0, args.seconds)))
            busy = asyncio.run(load(url, files, args.clients, args.seconds))
        for found in (alone, busy):
            rows.append({"method": method, **compared(found, engine, files, method)})
            print(rows[-1], flush=True)
        busyness = f"load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
        note = f"server and clients run on one machine, which other work may share: {busyness} at the end"
        save("serve", {"machine": machine(torch.device("cpu")), "note": note, "rows": rows}, args.out)


if __name__ == "__main__":
    main()
