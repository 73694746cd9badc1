"""What `nescio.explain` returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nescio import notebook
from nescio._common.images import data_uri, png

MAPS, PLACES = 6, 5
"""How many maps a notebook shows, and how many places of each that is no picture."""
ADDS, TAKES = np.array([0.902, 0.541, 0.0]), np.array([0.059, 0.545, 0.839])
"""Colours that are seen on white and on black."""


@dataclass(frozen=True)
class Attribution:
    """Hold a map over each input that says which part of it causes the uncertainty.

    Attributes:
        maps: float64 ``[N, H, W]`` for pictures, ``[N, T]`` for tokens, ``[N, F]`` for features; on the CPU.
        uncertainty: What was attributed, float64 ``[N]``.
        residual: Σ map − uncertainty of each input, 0 but for round-off where the method is complete.
        of: The kind of uncertainty.
        method: The name of the method.
        about: What was done, in words.
        parts: What each member gave, ``[S, N, ...]``, which adds up to the maps; None without ``parts=True``.
        drawn: With many classes, how many maps of logits were drawn for each input; 0 where all were taken.
        error: About what share of the doubt lies elsewhere than in the map of all logits, ½ Σ |map − exact| / U, told
            from the spread of those that were drawn, float64 ``[N]``; None where all were taken.

    Examples:
        >>> attribution = nescio.explain(torch.nn.Linear(4, 3), torch.rand(2, 4), of="total")
        >>> attribution.maps.shape, attribution.residual.abs().max() < 1e-6
        (torch.Size([2, 4]), tensor(True))
    """

    maps: Tensor
    uncertainty: Tensor
    residual: Tensor
    of: str
    method: str
    about: str
    parts: Tensor | None = None
    drawn: int = 0
    error: Tensor | None = None

    def _repr_html_(self) -> str:
        """The first maps, for a notebook; of features and tokens those with the largest parts."""
        captions = [f"input {i}: {notebook.short(float(u))} nats" for i, u in enumerate(self.uncertainty[:MAPS])]
        title = f"Where the {self.of} doubt comes from, by {self.method}"
        more = notebook.rest(len(self.maps), "input", MAPS)
        if self.maps.ndim == 3:
            uris = [data_uri(png(_colours(one))) for one in self.maps[:MAPS]]
            pictures = [notebook.Picture(uri, caption) for uri, caption in zip(uris, captions, strict=True)]
            line = "Orange adds doubt, blue takes it away; the strongest colour is the largest part of its map."
            return notebook.card(title, lines=[line], pictures=pictures, more=more)
        rows = []
        for caption, one in zip(captions, self.maps[:MAPS].flatten(1), strict=True):
            largest = one.abs().argsort(descending=True, stable=True)[:PLACES].tolist()
            rows.append([caption, ", ".join(f"{place}: {notebook.short(float(one[place]))}" for place in largest)])
        return notebook.card(title, columns=["", "the largest parts, as place: part"], rows=rows, more=more)


def _colours(one: Tensor) -> NDArray[np.float64]:
    """A map as colours that are clear at 0, ``[H, W, 4]``: so it suits a dark page and a light one."""
    level = one.numpy() / (float(one.abs().max()) or 1.0)
    colours = np.where((level > 0)[..., None], ADDS, TAKES)
    return np.concatenate([colours, np.sqrt(np.abs(level))[..., None]], axis=2)
