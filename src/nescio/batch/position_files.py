"""`PositionFiles`: the maps of a model that answers at every position, one picture and one file of arrays an input.

    NAME-INDEX.maps.png     the input and the map of the first method over it, with a colour bar (pictures alone)
    NAME-INDEX.maps.npz     the map of each method, and the class that was predicted at every position

Of a guard the map is that of foreignness, −log₁₀ p of each region; the arrays are p_value, score and foreign.

Each file is there as a whole or not at all, and has the same name in every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nescio import inputs, plots
from nescio.batch.map_files import MAPS, PICTURE, plain_name
from nescio.data import replacing
from nescio.data.sources.rows import Batch
from nescio.dense import RegionVerdict
from nescio.inputs import Inputs

PREDICTED = "predicted"


class PositionFiles:
    """Write the maps of inputs to a folder.

    Args:
        folder: Where the files go; it is made with the first.

    Examples:
        >>> import tempfile
        >>> files = PositionFiles(tempfile.mkdtemp())
        >>> pictures = Batch(torch.tensor([0]), ["cat.jpg"], torch.zeros(1, 3, 4, 4), None)
        >>> files.write(pictures, {"predicted": torch.zeros(1, 4, 4), "entropy": torch.rand(1, 4, 4)}, ["entropy"])
        >>> sorted(file.name for file in files.folder.iterdir())
        ['cat-0.maps.npz', 'cat-0.maps.png']
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def write(self, batch: Batch, maps: Mapping[str, Tensor], methods: Sequence[str]) -> None:
        """Write the files of a batch.

        Args:
            batch: The inputs, with their names and places.
            maps: ``[N, *positions]`` by name; "predicted" is the class at every position.
            methods: Which of them are scores; the first is drawn.
        """
        for at, stem in self._stems(batch):
            own = {key: maps[key][at].numpy() for key in methods}
            predicted = maps[PREDICTED][at].numpy().astype(np.int64)
            self._save(stem, {PREDICTED: predicted, **own})
            if predicted.ndim == 2:
                self._draw(stem, methods[0], own[methods[0]], "more uncertain", _picture(batch.inputs, at))

    def write_foreign(self, batch: Batch, verdict: RegionVerdict, level: float) -> None:
        """Write what a guard says of the regions of each picture.

        Args:
            batch: The pictures, with their names and places.
            verdict: The verdict on them.
            level: The share of the regions of known pictures that may be flagged by mistake.
        """
        foreign = verdict.p_value <= level
        for at, stem in self._stems(batch):
            own = {"p_value": verdict.p_value[at], "score": verdict.score[at], "foreign": foreign[at]}
            self._save(stem, {key: one.numpy() for key, one in own.items()})
            picture = _picture(batch.inputs, at)
            size = verdict.score.shape[1:] if picture is None else picture.shape[-2:]
            drawn = verdict.foreignness((size[0], size[1]))[at].numpy()
            self._draw(stem, "foreignness (−log₁₀ p)", drawn, "more foreign", picture)

    def _stems(self, batch: Batch) -> Iterator[tuple[int, str]]:
        """The place of each input in a batch, and how its files begin."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for at, (name, place) in enumerate(zip(batch.names, batch.indices.tolist(), strict=True)):
            yield at, f"{plain_name(name)}-{place}"

    def _save(self, stem: str, arrays: Mapping[str, Any]) -> None:
        with replacing(self.folder / (stem + MAPS)) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    def _draw(self, stem: str, what: str, one: Any, higher: str, picture: Any) -> None:
        """A map over its picture, with a colour bar."""
        if picture is not None and picture.shape[-2:] != one.shape:
            small = torch.from_numpy(picture)[None]
            picture = F.interpolate(small, tuple(one.shape), mode="area")[0].numpy()
        figure = plots.maps({what: one}, picture, unit=f"higher = {higher}", side=3.2)
        with replacing(self.folder / (stem + PICTURE)) as part:
            figure.savefig(part, format="png", dpi=110)


def _picture(x: Inputs, at: int) -> Any:
    """The picture behind a map, ``[channels, H, W]``; None where there is none."""
    pictures = [value for value in inputs.tensors(x) if value.ndim == 4 and value.is_floating_point()]
    return pictures[0][at].detach().cpu().float().numpy() if pictures else None
