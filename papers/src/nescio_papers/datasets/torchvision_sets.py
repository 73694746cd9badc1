"""Picture sets in the files that torchvision keeps, read by its own classes, which check them and can fetch them.

Omniglot is brought to the form of MNIST: ink white on black (255 − x), then 105×105 to 28×28 by Lanczos, which
averages over what it leaves out (no aliasing). Its labels are characters, counted over the alphabets in order.

What is fetched is made ready in a folder beside, checked and read there, and only then moved to its place: an
interrupt, a broken connection or a wrong checksum leaves nothing behind that could be taken for the data.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nescio._common.lazy_imports import need
from nescio.types import InputError
from nescio_papers.datasets.compact import Read

SIDE = 28

_IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_CIFAR10 = ("batches.meta", *(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


class Layout(NamedTuple):
    """A class of torchvision.datasets, the files below its root that it reads, by split, and those that it fetches."""

    dataset: str
    files: Mapping[str, tuple[str, ...]]
    packed: tuple[str, ...]


def _both(dataset: str, folder: str, names: tuple[str, ...], packed: str | None = None) -> Layout:
    """Return the files of one folder: torchvision wants those of both splits, whichever is read."""
    files = tuple(f"{folder}/{name}" for name in names)
    return Layout(dataset, {"train": files, "test": files}, (packed,) if packed else tuple(f"{f}.gz" for f in files))


LAYOUTS: Mapping[str, Layout] = {
    "mnist": _both("MNIST", "MNIST/raw", _IDX),
    "fashion": _both("FashionMNIST", "FashionMNIST/raw", _IDX),
    "cifar10": _both("CIFAR10", "cifar-10-batches-py", _CIFAR10, "cifar-10-python.tar.gz"),
    "cifar100": _both("CIFAR100", "cifar-100-python", ("meta", "train", "test"), "cifar-100-python.tar.gz"),
    "svhn": Layout(
        "SVHN",
        {split: (f"{split}_32x32.mat",) for split in ("train", "test")},
        tuple(f"{split}_32x32.mat" for split in ("train", "test")),
    ),
    "omniglot": Layout(
        "Omniglot",
        {
            split: (f"omniglot-py/images_{part}.zip", f"omniglot-py/images_{part}")
            for split, part in (("train", "background"), ("test", "evaluation"))
        },
        tuple(f"omniglot-py/images_{part}.zip" for part in ("background", "evaluation")),
    ),
}


def missing(folder: Path, name: str, split: str) -> tuple[str, ...]:
    """Return the files of the set that are not in the folder."""
    return tuple(file for file in LAYOUTS[name].files[split] if not (folder / file).exists())


def read_torchvision(folder: Path, name: str, split: str, *, download: bool = False) -> Read | None:
    """Read the set from torchvision's files in this folder; None where some are missing and may not be fetched."""
    if name not in LAYOUTS or (missing(folder, name, split) and not download):
        return None
    layout = LAYOUTS[name]
    make = getattr(need("torchvision.datasets", "data"), layout.dataset)
    if name == "svhn":
        need("scipy.io", "data")
    which: dict[str, Any] = {"train": split == "train"}
    if name in ("svhn", "omniglot"):
        which = {"split": split} if name == "svhn" else {"background": split == "train"}
    try:
        if not download:
            return _READERS.get(name, _arrays)(make(folder, **which))
        with _fetching(folder, layout.packed) as beside:
            return _READERS.get(name, _arrays)(make(beside, **which, download=True))
    except Exception as error:  # network, file system, pickle, scipy and Pillow each raise their own
        done = "fetch" if download else "read"
        raise InputError(
            f"torchvision could not {done} {name} {split}: {_line(error)}. Expected in {folder}: "
            f"{', '.join(layout.files[split])}; remove what is damaged, and put the files there yourself"
            + (", with a network or by hand" if download else " or fetch them with download=True")
        ) from error


@contextmanager
def _fetching(folder: Path, packed: tuple[str, ...]) -> Iterator[Path]:
    """Give a folder to fetch to; when the block ends well, what is in it moves to its place.

    Packed files that are there already are copied to it: torchvision looks at their checksums and unpacks them.
    """
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as name:
        beside = Path(name)
        for file in packed:
            if (folder / file).is_file():
                (beside / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / file, beside / file)
        yield beside
        _move(beside, folder)


def _move(made: Path, place: Path) -> None:
    """A folder that is not there yet comes as a whole, in one step."""
    for entry in sorted(made.iterdir()):
        target = place / entry.name
        if entry.is_dir() and target.is_dir():
            _move(entry, target)
        else:
            os.replace(entry, target)


def _arrays(dataset: Any) -> Read:
    """Read what MNIST and Fashion-MNIST hold as tensors [N, H, W] and the CIFAR sets as arrays [N, H, W, 3]."""
    x = torch.as_tensor(dataset.data)
    x = x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2)
    classes = None if type(dataset).__name__ == "MNIST" else tuple(dataset.classes)  # not "0 - zero"
    return Read(x.contiguous(), torch.as_tensor(dataset.targets, dtype=torch.int64), classes)


def _svhn(dataset: Any) -> Read:
    x = torch.from_numpy(np.ascontiguousarray(dataset.data))  # [N, 3, H, W]
    return Read(x, torch.from_numpy(dataset.labels.reshape(-1)), None)


def _omniglot(dataset: Any) -> Read:
    """Read in the order of the names: torchvision's own order, and so its labels, is that of the file system."""
    images = need("PIL.Image", "data")
    files = sorted(Path(dataset.target_folder).glob("*/*/*.png"))
    names = [f"{file.parts[-3]}/{file.parts[-2]}" for file in files]
    classes = {name: label for label, name in enumerate(sorted(set(names)))}

    def small(file: Path) -> np.ndarray[Any, Any]:
        with images.open(file, formats=("PNG",)) as image:
            white = image.convert("L").point(lambda value: 255 - value)
            return np.asarray(white.resize((SIDE, SIDE), images.Resampling.LANCZOS))

    x = torch.from_numpy(np.stack([small(file) for file in files])).unsqueeze(1)
    return Read(x, torch.tensor([classes[name] for name in names]), tuple(classes))


_READERS = {"svhn": _svhn, "omniglot": _omniglot}


def _line(error: BaseException) -> str:
    """Return an error on one line; those of torchvision name every address that was tried."""
    text = " ".join(str(error).split()) or "no reason given"
    return f"{type(error).__name__}: {text[:300]}".rstrip(".")
