"""Pictures in compact files without loss, for a set NAME and its part SPLIT in one folder:

- grey: `NAME_SPLIT.npy.xz`, an array uint8 [N, H, W] packed with xz;
- colour: `NAME_SPLIT_0.zip`, `NAME_SPLIT_1.zip` …, each holding lossless WebP columns of square pictures one below
  the other (in the order of their names);
- labels: the array `NAME_SPLIT` in any `labels*.npz`; names of classes: the list under NAME in `classes.json`.

Nothing is unpickled: a data file can never run code.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio._common.lazy_imports import need
from nescio.types import InputError

AGAIN = "it is damaged or was cut short; get it again"


class Read(NamedTuple):
    """What was read from files: pictures, labels, and names of the classes where the files have some."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...] | None


def read_compact(folder: Path, name: str, split: str) -> Read | None:
    """Return the set in the compact files of this folder; None where there is none."""
    key = f"{name}_{split}"
    grey = folder / f"{key}.npy.xz"
    if grey.is_file():
        x = torch.from_numpy(_grey(grey)).unsqueeze(1)
    else:
        parts = _parts(folder, key)
        if not parts:
            return None
        x = torch.from_numpy(_colour(parts))
    y = _labels(folder, key)
    if len(y) != len(x):
        raise InputError(
            f"expected one label for each picture of {key} in {folder}, but there are {len(x)} pictures and {len(y)} "
            "labels; a file is missing or of another version"
        )
    return Read(x, y, _classes(folder / "classes.json", name))


def _grey(path: Path) -> NDArray[np.uint8]:
    try:
        with lzma.open(path) as packed:
            array = np.load(io.BytesIO(packed.read()), allow_pickle=False)
    except Exception as error:  # lzma, numpy and ast each raise their own
        raise InputError(f"cannot read pictures from {path}: {error}; {AGAIN}") from error
    if array.dtype != np.uint8 or array.ndim != 3:
        raise InputError(f"expected uint8 pictures [N, H, W] in {path}, but got {array.dtype} {list(array.shape)}")
    return np.ascontiguousarray(array)


def _parts(folder: Path, key: str) -> list[Path]:
    """Return the zip files of a set in the order of their numbers, without a gap."""
    numbered = re.compile(re.escape(key) + r"_(\d+)\.zip")
    path_by_number = {
        int(match[1]): path for path in folder.glob(f"{key}_*.zip") if (match := numbered.fullmatch(path.name))
    }
    for number in range(max(path_by_number, default=-1)):
        if number not in path_by_number:
            raise InputError(f"expected {key}_{number}.zip in {folder} beside the later parts, but it is missing")
    return [path_by_number[number] for number in sorted(path_by_number)]


def _colour(parts: list[Path]) -> NDArray[np.uint8]:
    columns: list[tuple[Path, str, bytes]] = []
    for path in parts:
        try:
            with zipfile.ZipFile(path) as archive:
                columns += [(path, entry, archive.read(entry)) for entry in sorted(archive.namelist())]
        except Exception as error:  # zipfile, zlib and struct each raise their own
            raise InputError(f"cannot read {path}: {error}; {AGAIN}") from error
    if not columns:
        raise InputError(f"expected pictures in {parts[0]}, but it holds none")
    need("PIL.Image", "data")  # said once, and not from a thread
    with ThreadPoolExecutor() as pool:  # Pillow decodes without holding the interpreter's lock
        pictures = list(pool.map(lambda column: _column(*column), columns))
    sides = {block.shape[-1] for block in pictures}
    if len(sides) > 1:
        raise InputError(f"expected pictures of one size in {parts[0].name} and its other parts, but got {sides}")
    return np.concatenate(pictures)


def _column(path: Path, entry: str, blob: bytes) -> NDArray[np.uint8]:
    """Return pictures [K, 3, S, S] of one column: S wide, K·S high."""
    try:
        with need("PIL.Image", "data").open(io.BytesIO(blob), formats=("WEBP",)) as image:
            array = np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow raises many kinds for a damaged picture
        raise InputError(f"cannot read the picture {entry} in {path}: {error}; {AGAIN}") from error
    height, side = array.shape[:2]
    if height % side:
        raise InputError(f"expected a column of square pictures in {entry} of {path}, but it is {side} by {height}")
    return np.ascontiguousarray(array.reshape(-1, side, side, 3).transpose(0, 3, 1, 2))


def _labels(folder: Path, key: str) -> Tensor:
    for path in sorted(folder.glob("labels*.npz")):
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                if key not in archive.files:
                    continue
                labels = archive[key]
        except Exception as error:  # zipfile, zlib and numpy each raise their own
            raise InputError(f"cannot read labels from {path}: {error}; {AGAIN}") from error
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise InputError(f"expected whole numbers [N] as {key} in {path}, but got {labels.dtype} {labels.shape}")
        return torch.from_numpy(labels.astype(np.int64))
    raise InputError(f"expected the labels of {key} in a file labels*.npz in {folder}, but none has an array {key!r}")


def _classes(path: Path, name: str) -> tuple[str, ...] | None:
    if not path.is_file():
        return None
    try:
        listed: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read names of classes from {path}: {error}; {AGAIN}") from error
    names = listed.get(name) if isinstance(listed, dict) else ()
    if names is not None and not (isinstance(names, list) and names and all(isinstance(one, str) for one in names)):
        raise InputError(f"expected a list of names under {name!r} in {path}, but got {str(names)[:80]}")
    return None if names is None else tuple(names)
