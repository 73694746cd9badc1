"""`PositionFiles`: the maps of a model that answers at every position, one picture and one file of arrays an input.

    NAME-INDEX.maps.png     the input and the map of the first method over it, with a colour bar (pictures alone)
    NAME-INDEX.maps.npz     the map of each method, and the class that was predicted at every position

Each file is there as a whole or not at all, and has the same name in every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from nescio import inputs, plots
from nescio.batch.map_files import MAPS, PICTURE, plain_name
from nescio.data import replacing
from nescio.data.sources.rows import Batch
from nescio.dense import DenseScores
from nescio.inputs import Inputs

PREDICTED = "predicted"


def counted(maps: Tensor, x: Inputs) -> DenseScores:
    """Return maps in which padding does not count: where an attention mask of their shape is 0.

    Args:
        maps: ``[N, *positions]``.
        x: The batch that they are of.

    Examples:
        >>> x = {"input_ids": torch.ones(1, 3), "attention_mask": torch.tensor([[1, 1, 0]])}
        >>> counted(torch.tensor([[1.0, 3.0, 9.0]]), x).summary()
        tensor([2.], dtype=torch.float64)
    """
    mask = x.get("attention_mask") if isinstance(x, Mapping) else None
    return DenseScores(maps, mask if isinstance(mask, Tensor) and mask.shape == maps.shape else None)


class PositionFiles:
    """Write the maps of inputs to a folder.

    Args:
        folder: Where the files go; it is made with the first.
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
        self.folder.mkdir(parents=True, exist_ok=True)
        for at, (name, place) in enumerate(zip(batch.names, batch.indices.tolist(), strict=True)):
            stem = f"{plain_name(name)}-{place}"
            own = {key: maps[key][at].numpy() for key in methods}
            predicted = maps[PREDICTED][at].numpy().astype(np.int64)
            with replacing(self.folder / (stem + MAPS)) as part, part.open("wb") as file:
                np.savez(file, **{PREDICTED: predicted, **own})  # type: ignore[arg-type]
            if predicted.ndim == 2:
                figure = self._drawn(methods[0], own[methods[0]], _picture(batch.inputs, at, predicted.shape))
                with replacing(self.folder / (stem + PICTURE)) as part:
                    figure.savefig(part, format="png", dpi=110)

    @staticmethod
    def _drawn(method: str, one: Any, picture: Any) -> Any:
        values = {method: float(one.mean())}
        return plots.maps({method: one}, picture, values=values, unit=f"{method}, higher = more uncertain", side=3.2)


def _picture(x: Inputs, at: int, shape: tuple[int, ...]) -> Any:
    """The picture behind a map, resized to it; None where there is none."""
    pictures = [value for value in inputs.tensors(x) if value.ndim == 4 and value.is_floating_point()]
    if not pictures:
        return None
    one = pictures[0][at : at + 1].detach().cpu().float()
    if tuple(one.shape[2:]) != shape:
        one = F.interpolate(one, shape, mode="area")
    return one[0].numpy()
