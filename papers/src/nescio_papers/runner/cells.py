"""Finished work in a folder: what a run that was cut off goes on from.

A cell is one method on one set with one model: an `.npz` file with the scores (float64) of the first pictures of the
set in its fixed order, and the JSON text of what they are. It grows as more pictures are scored, and is always there as
a whole or not at all. Its name holds digests of the model's weights, of the pictures and of the settings, so that no
cell is taken for another one. `kept_json` and `kept_tensors` do the same for other numbers and for networks.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nescio.data import replacing

Floats = NDArray[np.float64]
State = dict[str, torch.Tensor]
SECONDS = "seconds of training"


@dataclass(frozen=True)
class Cell:
    """Scores of the first pictures of a set, the seconds they took, and with how many methods those were shared."""

    scores: Floats
    seconds: float = 0.0
    shared: int = 1

    def extended(self, scores: Floats, seconds: float, shared: int) -> Cell:
        """Return the cell with more pictures; time that methods shared stays marked as shared."""
        return Cell(np.concatenate([self.scores, scores]), self.seconds + seconds, max(self.shared, shared))


EMPTY = Cell(np.empty(0))


class Cells:
    """The cells of a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, model: str, pictures: str, method: Mapping[str, Any]) -> Path:
        """Return where a cell lies."""
        name = f"{method['method']}-{digest(json.dumps(method, sort_keys=True))}.npz"
        return self.folder / _safe(model) / _safe(pictures) / name

    def read(self, path: Path) -> Cell:
        """Return the cell; an empty one where nothing was finished, or the file cannot be read."""
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                return Cell(file["scores"].astype(np.float64), float(about["seconds"]), int(about["shared"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return EMPTY

    def write(self, path: Path, cell: Cell, method: Mapping[str, Any]) -> None:
        """Write the cell."""
        path.parent.mkdir(parents=True, exist_ok=True)
        about = json.dumps({**method, "seconds": cell.seconds, "shared": cell.shared})
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, scores=cell.scores, about=np.array(about))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None where it is missing or cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_text(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def kept_json(path: Path, make: Callable[[], Any]) -> Any:
    """Return the content of a JSON file; where it is missing or unreadable, make it and write it there."""
    value = read_json(path)
    if value is None:
        value = make()
        write_json(path, value)
    return value


def kept_tensors(path: Path, make: Callable[[], State], check: Callable[[], None]) -> tuple[State, float]:
    """Return the tensors in a file and the seconds that they took; where it is missing, make them and write them.

    `check` is called before they are made, and raises when the time of the run is over.
    """
    try:
        state: State = torch.load(path, weights_only=True)
    except Exception:  # missing, or cut off: unpickling has many ways to fail
        check()
        began = time.perf_counter()
        state = {name: value.detach().cpu() for name, value in make().items()}
        state[SECONDS] = torch.tensor(time.perf_counter() - began)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            torch.save(state, part)
    return state, float(state.pop(SECONDS, 0.0))


def digest(*parts: str | bytes) -> str:
    """Return a short digest of all parts."""
    digester = hashlib.sha256()
    for part in parts:
        digester.update(part.encode() if isinstance(part, str) else part)
    return digester.hexdigest()[:12]


def fingerprint(model: nn.Module) -> str:
    """Return a digest of the model's weights and buffers."""
    return digest(*(bytes(_raw(value)) for value in model.state_dict().values()))


def _raw(value: torch.Tensor) -> memoryview:
    return value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
