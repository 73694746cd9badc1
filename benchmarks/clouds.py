"""The cloud segmentation networks inside the package ukis-csmask: opened, scored, and looked at by a RegionGuard.

    python benchmarks/clouds.py                  # the network of four bands; results/clouds.json
    python benchmarks/clouds.py 4b_l1c 6b_l2a    # these

U-Nets over EfficientNet-B4 in ONNX: which pixels of a satellite picture are cloud, shadow, or neither? The package is
fetched by name as in `packages.py`. There are no satellite pictures here: crops of photographs stand in for them, red,
green and blue as they are and every further band a copy of red. So nothing is said of clouds, only whether the network
opens, whether its maps are those of onnxruntime's logits, and whether the guard finds a patch of noise.

The networks were trained on 256 × 256 pixels, the one size that onnxruntime takes; modules take others. Crops for the
maps and the guard are smaller, and lie in memory with their channels last, which makes a forward pass of these networks
a third as long on a CPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, machine, save
from packaged.base import PACKAGES, found
from packaged.photographs import photograph
from torch import Tensor

import nescio

TRAINED, SIDE, KNOWN, NEW = 256, 128, 24, 4
TIGHT = torch.channels_last
NAMES = ("4b_l1c", "4b_l2a", "6b_l1c", "6b_l2a")
METHODS = ("entropy", "energy", "exgrad")


def crops(facts: dict[str, Any], count: int, seed: int, side: int = SIDE) -> Tensor:
    """Crops of photographs as the network takes them: bands blue, green, red, and copies of red, normalised."""
    mean, std = (torch.tensor(row)[:, None, None] for row in facts["data"]["dataset_statistics"]["img"])
    draw, names = np.random.default_rng(seed), ("china.jpg", "flower.jpg", "coffee.png", "astronaut.png")
    made = []
    for i in range(count):
        picture = photograph(names[i % len(names)])
        assert picture is not None
        left, top = (int(draw.integers(0, length - side + 1)) for length in picture.size)
        pixels = np.asarray(picture.crop((left, top, left + side, top + side)), np.float32) / 255
        bands = torch.from_numpy(pixels[:, :, [2, 1, 0] + [0] * (len(mean) - 3)]).permute(2, 0, 1)
        made.append((bands - mean) / std)
    return torch.stack(made).contiguous(memory_format=TIGHT)


def difference(file: Path, model: nescio.Classifier, x: Tensor) -> dict[str, float]:
    """How far the module's logits are from onnxruntime's, and how far those are from themselves without rewrites."""
    import onnxruntime

    given = {}
    for name in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        given[name] = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    with torch.no_grad():
        ours = model.model(x).numpy()
    whole, plain = given.values()
    return {
        "largest logit": float(np.abs(whole).max()),
        "of a logit": float(np.abs(ours - whole).max()),
        "of onnxruntime without rewrites": float(np.abs(plain - whole).max()),
        "pixels with another class": float((ours.argmax(1) != whole.argmax(1)).mean()),
    }


def judge(name: str, told: Callable[[dict[str, Any]], None]) -> None:
    """Open a network and look at it; `told` gets what is known after each step."""
    file = found("ukis-csmask", f"model_{name}.onnx")
    facts = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    row: dict[str, Any] = {"side": SIDE, "what": "clouds and shadows, U-Net over EfficientNet-B4, ONNX", "classes": 3}
    x = crops(facts, NEW, 1)
    strange = x.clone()
    noise = torch.randn(NEW, *x.shape[1:], generator=torch.Generator().manual_seed(0))
    strange[:, :, SIDE // 2 :, SIDE // 2 :] = noise[:, :, SIDE // 2 :, SIDE // 2 :]
    since = time.process_time()

    def step(key: str, value: Any) -> None:
        nonlocal since
        row[key] = value
        row.setdefault("cpu seconds", {})[key] = round(time.process_time() - since, 1)
        told(row)
        since = time.process_time()

    try:
        opened = nescio.models.from_onnx(file)
    except nescio.types.NescioError as error:
        step("failed", f"{type(error).__name__}: {error}".replace(str(file), file.name))
        return
    opened.model.to(memory_format=TIGHT)
    step("parameters", sum(p.numel() for p in opened.model.parameters()))
    step("difference from onnxruntime", difference(file, opened, crops(facts, 1, 1, TRAINED)))
    try:
        maps = nescio.score(opened, x, list(METHODS), progress=False)
        step("scores", {key: {"shape": list(one.shape), "mean": float(one.mean())} for key, one in maps.items()})
    except nescio.types.NescioError as error:
        step("scores", {"failed": f"{type(error).__name__}: {error}"})
    try:
        guard = nescio.dense.RegionGuard(opened, grid=16).fit(crops(facts, KNOWN, 0), progress=False)
        clean, patched = guard.check(x), guard.check(strange)
        patch = torch.zeros(patched.score.shape[1:], dtype=torch.bool)
        patch[patched.score.shape[1] // 2 :, patched.score.shape[2] // 2 :] = True
        step("guard", {
            "reference": KNOWN,
            "regions": list(patched.score.shape[1:]),
            "median p inside the patch": float(patched.p_value[:, patch].median()),
            "median p of the same place without it": float(clean.p_value[:, patch].median()),
            "median p elsewhere": float(patched.p_value[:, ~patch].median()),
        })  # fmt: skip
    except nescio.types.NescioError as error:
        step("guard", {"failed": f"{type(error).__name__}: {error}"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which networks of {', '.join(NAMES)}")
    args = parser.parse_args()
    if strange := set(args.names) - set(NAMES):
        parser.error(f"expected some of {', '.join(NAMES)}, got {', '.join(sorted(strange))}")
    path = RESULTS / "clouds.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["networks"] if path.exists() else {}
    for name in args.names or ["4b_l1c"]:

        def told(row: dict[str, Any], name: str = name) -> None:
            rows[name] = row
            kept = {key: PACKAGES[key] for key in ("ukis-csmask",)}
            save("clouds", {"machine": machine(torch.device("cpu")), "packages": kept, "networks": rows})

        judge(name, told)
        print(name, json.dumps(rows[name], indent=1), flush=True)


if __name__ == "__main__":
    main()
