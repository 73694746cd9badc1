"""Every linear region of a ReLU network that meets a window of the plane, as a polygon.

The region around a point is the set A z + b ≥ 0 (`nescio.limits.region`); cut with the window it is a convex polygon.
Behind the middle of each of its edges lies another region, or the end of the window. The walk from region to region
over all edges ends when none is new, and it has found all: regions of a convex window hang together by their edges.
Their areas then add up to that of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nescio import limits

Floats = NDArray[np.float64]
Window = tuple[tuple[float, float], tuple[float, float]]
STEP = 1e-7  # behind an edge, relative to the window
AT_ONCE = 512


@dataclass(frozen=True)
class Polygons:
    """R regions: their corners [K, 2] in order, and their maps f(z) = V z + a."""

    corners: list[Floats]
    V: Floats
    """[R, C, 2]."""
    a: Floats
    """[R, C]."""

    @property
    def areas(self) -> Floats:
        """The area of each polygon."""
        return np.array([_area(corners) for corners in self.corners])

    def state(self) -> dict[str, torch.Tensor]:
        """Return the regions as tensors, to be kept."""
        sizes = [len(corners) for corners in self.corners]
        arrays = {"corners": np.concatenate(self.corners), "sizes": np.array(sizes), "V": self.V, "a": self.a}
        return {name: torch.from_numpy(value) for name, value in arrays.items()}

    @classmethod
    def of_state(cls, state: dict[str, torch.Tensor]) -> Polygons:
        """Return what `state` gave."""
        corners = state["corners"].split(state["sizes"].tolist())
        return cls([one.numpy() for one in corners], state["V"].numpy(), state["a"].numpy())

    def slopes(self) -> Floats:
        """Return the gradient of the logit of class 1 less that of class 0, [R, 2]."""
        return self.V[:, 1] - self.V[:, 0]

    def boundary(self) -> list[Floats]:
        """Return the pieces of the line on which classes 0 and 1 are equally likely: two ends each, [2, 2]."""
        pieces = []
        for corners, normal, offset in zip(self.corners, self.slopes(), self.a[:, 1] - self.a[:, 0], strict=True):
            ends = _crossing(corners, corners @ normal + offset)
            if ends is not None:
                pieces.append(ends)
        return pieces


def polygons(model: Any, window: Window, check: Callable[[], None] = lambda: None, start: int = 12) -> Polygons:
    """Return all regions of a classifier of points [N, 2] in the window; the walk begins on a grid of start² points."""
    (left, right), (bottom, top) = window
    box = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    u, v = (np.linspace(low, high, start + 2)[1:-1] for low, high in window)
    waiting = np.stack(np.meshgrid(u, v), -1).reshape(-1, 2)
    step = STEP * max(right - left, top - bottom)
    seen: set[bytes] = set()
    corners: list[Floats] = []
    maps: list[tuple[Floats, Floats]] = []
    while len(waiting):
        check()
        points, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        region = limits.region(model, torch.from_numpy(points))
        normals, offsets = (part.numpy() for part in region.halfspaces())
        signs = torch.cat([site.sign.flatten(1) for site in region.sites], 1) > 0  # type: ignore[attr-defined]
        ahead = []
        for at, sign in enumerate(signs.numpy()):
            if (key := sign.tobytes()) in seen:
                continue
            seen.add(key)
            polygon = _cut(box, normals[at], offsets[at])
            if len(polygon) < 3:
                continue
            corners.append(polygon)
            maps.append((region.V[at].numpy(), region.a[at].numpy()))
            ahead.append(_behind(polygon, step))
        if ahead:
            points_ahead = np.concatenate(ahead)
            inside = ((points_ahead > box[0]) & (points_ahead < box[2])).all(1)
            waiting = np.concatenate([waiting, points_ahead[inside]])
    return Polygons(corners, np.stack([V for V, _ in maps]), np.stack([a for _, a in maps]))


def _behind(polygon: Floats, step: float) -> Floats:
    """Return a point behind the middle of each edge; corners run against the clock."""
    ends = np.roll(polygon, -1, 0)
    along = ends - polygon
    outward = np.stack([along[:, 1], -along[:, 0]], 1)
    length = np.linalg.norm(outward, axis=1, keepdims=True)
    keep = length[:, 0] > 2 * step  # shorter edges are corners but for round-off
    return ((polygon + ends) / 2 + step * outward / np.maximum(length, 1e-300))[keep]


def _cut(polygon: Floats, normals: Floats, offsets: Floats) -> Floats:
    """Return the part of a convex polygon in which all normals · z + offsets ≥ 0; the deepest cut comes first."""
    lengths = np.linalg.norm(normals, axis=1)
    normals, offsets = normals[lengths > 0], offsets[lengths > 0]
    lengths = lengths[lengths > 0]
    normals, offsets = normals / lengths[:, None], offsets / lengths
    waiting = np.ones(len(offsets), dtype=bool)
    while waiting.any():
        sides = polygon @ normals.T + offsets
        depth = np.where(waiting, sides.min(0), 0.0)
        at = int(depth.argmin())
        if depth[at] >= 0:
            break
        waiting[at] = False
        side, corners, pieces = sides[:, at].tolist(), polygon.tolist(), []
        for number, ((x, y), s) in enumerate(zip(corners, side, strict=True)):
            (x_, y_), t = corners[number - len(corners) + 1], side[number - len(corners) + 1]
            if s >= 0:
                pieces.append((x, y))
            if (s > 0 > t) or (s < 0 < t):
                share = s / (s - t)
                pieces.append((x + (x_ - x) * share, y + (y_ - y) * share))
        if len(pieces) < 3:
            return np.empty((0, 2))
        polygon = np.array(pieces)
    return polygon


def _crossing(corners: Floats, side: Floats) -> Floats | None:
    """Return where the line side = 0 enters and leaves a polygon."""
    ends = []
    for here, there, s, t in zip(corners, np.roll(corners, -1, 0), side, np.roll(side, -1), strict=True):
        if (s > 0) != (t > 0):
            ends.append(here + (there - here) * (s / (s - t)))
    return np.stack(ends[:2]) if len(ends) >= 2 else None


def _area(corners: Floats) -> float:
    x, y = corners.T
    return float(np.abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)
