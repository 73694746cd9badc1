"""`load_set(name, split)`: the picture sets of the benchmarks under one name each, from files that are at hand.

Looked for in each folder of the root in turn: compact files (`nescio_papers.datasets.compact`), then torchvision's own
(`nescio_papers.datasets.torchvision_sets`). The root is the argument, else the environment variable NESCIO_DATA, else
~/.cache/nescio/data; it may be several folders with os.pathsep between them. Three small sets need no file at all.
Sets are never taken for one another: `scenes` is not LSUN, and what is not the official data says so in `about`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nescio._common.lazy_imports import need
from nescio.data.digits import digits
from nescio.data.not_digits import NOT_DIGITS, drawn_letters, photo_patches
from nescio.data.pictures import PictureSet
from nescio.types import InputError
from nescio_papers.datasets.compact import Read, read_compact
from nescio_papers.datasets.torchvision_sets import LAYOUTS, missing, read_torchvision

VARIABLE, FETCH = "NESCIO_DATA", "NESCIO_DOWNLOAD"
DEFAULT = "~/.cache/nescio/data"
COUNT = 500  # pictures in each bundled set that is drawn
LSUN_SIDE = 32
PICTURE_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
PICTURE_KINDS = ("PNG", "JPEG", "WEBP", "BMP")

_TEN = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Known(NamedTuple):
    """What a set is, how many pictures its official splits have (0: no fixed number), and the names of its classes."""

    about: str
    counts: Mapping[str, int]
    classes: tuple[str, ...] | None = None
    compact: str = ""
    """In what the compact files differ from the official ones."""


SETS: Mapping[str, Known] = {
    "mnist": Known("handwritten digits 28×28 (LeCun et al. 1998)", {"train": 60000, "test": 10000}, _TEN),
    "fashion": Known("Fashion-MNIST, clothes 28×28 (Xiao et al. 2017)", {"train": 60000, "test": 10000}, _CLOTHES),
    "omniglot": Known(
        "Omniglot, written characters (Lake et al. 2015), inverted to white on black, 105×105 to 28×28 by Lanczos; "
        "train: background alphabets, test: evaluation alphabets",
        {"train": 19280, "test": 13180},
    ),
    "cifar10": Known("CIFAR-10, things and animals 32×32 (Krizhevsky 2009)", {"train": 50000, "test": 10000}, _THINGS),
    "cifar100": Known(
        "CIFAR-100, fine labels, 32×32 (Krizhevsky 2009)",
        {"train": 50000, "test": 10000},
        compact="the pictures are in another order than the official one",
    ),
    "svhn": Known(
        "SVHN, cropped house numbers 32×32 (Netzer et al. 2011)",
        {"train": 73257, "test": 26032},
        _TEN,
        compact="the crops are reconstructed from the full-number pictures and their boxes, not the official "
        "crops: channel means and deviations agree, pixels may differ slightly",
    ),
    "lsun": Known("LSUN scenes (Yu et al. 2015), whole pictures resized to 32×32", {"test": 0}),
    "scenes": Known(
        "natural scenes (Intel, six kinds), 150×150 to 32×32 bicubic; a set of its own, not LSUN", {"test": 17016}
    ),
    "digits": Known(
        "handwritten digits 8×8 (UCI, the copy that scikit-learn carries); ink counts 0 … 16 became "
        "round(255 · count / 16)",
        {"train": 0, "validation": 0, "test": 0},
        _TEN,
    ),
    "photo_patches": Known(f"{NOT_DIGITS['photo patches'].about}; no labels: all are 0", {"test": 0}, ("patch",)),
    "drawn_letters": Known(f"{NOT_DIGITS['drawn letters'].about}; no labels: all are 0", {"test": 0}, ("letter",)),
}
BUNDLED = ("digits", "photo_patches", "drawn_letters")


def load_set(name: str, split: str = "test", *, root: str | Path | None = None, download: bool = False) -> PictureSet:
    """Read a picture set from files, or make a bundled one.

    Args:
        name: One of `SETS`.
        split: "train" or "test"; the bundled digits also have "validation".
        root: The folder, or several with os.pathsep between them; None takes NESCIO_DATA, else ~/.cache/nescio/data.
        download: Let torchvision fetch the set where no folder has it; NESCIO_DOWNLOAD=1 in the environment does the
            same. Checksums are compared before anything takes its place.

    Returns:
        Pictures uint8 [N, C, H, W], labels int64 [N], and in words how they differ from the official set.

    Raises:
        InputError: if the name or split is unknown, or the files are missing or damaged.

    >>> load_set("drawn_letters").x.shape
    torch.Size([500, 1, 8, 8])
    """
    if name not in SETS:
        raise InputError(f"name: expected one of {', '.join(SETS)}, but got {name!r}")
    known = SETS[name]
    if split not in known.counts:
        raise InputError(f"split: expected one of {', '.join(known.counts)} for {name}, but got {split!r}")
    if name in BUNDLED:
        x, y = _bundled(name, split)
        return PictureSet(x, y, name, split, known.classes or (), known.about)

    places = folders(root)
    for folder in places:
        if (read := read_compact(folder, name, split)) is not None:
            return _named(read, name, split, f"compact files in {folder}", known.compact)
        if (read := read_torchvision(folder, name, split)) is not None:
            return _named(read, name, split, f"torchvision's files in {folder}")
        if name == "lsun" and (read := _lsun(folder / "lsun")) is not None:
            return _named(read, name, split, f"pictures in {folder / 'lsun'}")
    if (download or os.environ.get(FETCH) == "1") and name in LAYOUTS:
        read = read_torchvision(_created(places[0]), name, split, download=True)
        assert read is not None  # it raises otherwise
        return _named(read, name, split, f"fetched by torchvision into {places[0]}")
    raise InputError(_not_found(name, split, places))


def folders(root: str | Path | None = None) -> tuple[Path, ...]:
    """Return the folders in which data is looked for, in order."""
    given = os.fspath(root) if root is not None else os.environ.get(VARIABLE) or DEFAULT
    places = tuple(Path(part).expanduser() for part in given.split(os.pathsep) if part)
    if not places:
        raise InputError(f"root: expected a folder, or several with {os.pathsep!r} between them, but got {given!r}")
    return places


def _named(read: Read, name: str, split: str, source: str, caveat: str = "") -> PictureSet:
    known = SETS[name]
    official = known.counts[split]
    part = f"{len(read.x)} of the {official} official pictures" if official and len(read.x) != official else ""
    classes = read.classes or known.classes or tuple(str(label) for label in range(int(read.y.max()) + 1))
    about = "; ".join(text for text in (known.about, part, caveat, f"read from {source}") if text)
    return PictureSet(read.x, read.y, name, split, classes, about)


def _bundled(name: str, split: str) -> tuple[Tensor, Tensor]:
    if name == "digits":
        parts = digits()
        part = {"train": parts.train, "validation": parts.validation, "test": parts.held_out}[split]
        x, y = part.x, part.y
    else:
        x = photo_patches(COUNT) if name == "photo_patches" else drawn_letters(COUNT)
        y = torch.zeros(len(x), dtype=torch.int64)
    return x.mul(255).round().to(torch.uint8), y


def _lsun(folder: Path) -> Read | None:
    """Read every picture below the folder, in the order of the paths; a subfolder is a class."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_ENDINGS)
    if not files:
        return None
    images = need("PIL.Image", "data")

    def small(path: Path) -> np.ndarray[Any, Any]:
        try:
            with images.open(path, formats=PICTURE_KINDS) as image:
                whole = image.convert("RGB")
                return np.asarray(whole.resize((LSUN_SIDE, LSUN_SIDE), images.Resampling.BICUBIC))
        except Exception as error:  # Pillow raises many kinds for a damaged picture
            raise InputError(f"cannot read the picture {path}: {error}; remove it or get it again") from error

    kinds = [path.relative_to(folder).parts[0] if path.parent != folder else "scene" for path in files]
    classes = tuple(sorted(set(kinds)))
    x = torch.from_numpy(np.stack([small(path) for path in files])).permute(0, 3, 1, 2).contiguous()
    return Read(x, torch.tensor([classes.index(kind) for kind in kinds]), classes)


def _created(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {folder} to download to: {error.strerror or error}") from error
    return folder


def _not_found(name: str, split: str, places: tuple[Path, ...]) -> str:
    looked = " or ".join(f"{place}" + ("" if place.is_dir() else " (no such folder)") for place in places)
    lines = [f"expected the pictures of {name} {split} in {looked}, but they are not there."]
    if name == "lsun":
        lines.append("Put pictures into a folder 'lsun' there, with a subfolder for each class if you like.")
        lines.append("LSUN cannot be downloaded here, and nothing else stands in for it ('scenes' is another set).")
    else:
        lines.append(f"Put there {name}_{split}_0.zip (colour) or {name}_{split}.npy.xz (grey) with labels.npz")
        if name in LAYOUTS:
            lines[-1] += f", or torchvision's files: {', '.join(LAYOUTS[name].files[split])};"
            lines.append(f"or let them be fetched, with download=True or {FETCH}=1 in the environment.")
        for place in places if name in LAYOUTS else ():
            absent = missing(place, name, split)
            if len(absent) < len(LAYOUTS[name].files[split]):
                lines.append(f"{place} has some of torchvision's files, but not {', '.join(absent)}.")
    lines.append(f"Another folder is named with root= or the environment variable {VARIABLE}.")
    return " ".join(lines)
