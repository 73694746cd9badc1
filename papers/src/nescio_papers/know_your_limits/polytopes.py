"""The linear regions of ReLU networks on the plane, exactly: by depth and width, before and after training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from nescio import limits, training
from nescio._common.formatting import count
from nescio_papers.know_your_limits import drawing as draw
from nescio_papers.know_your_limits.half_moons import WINDOW, Moons, half_moons
from nescio_papers.know_your_limits.models import Net, Plan, Trainer, mlp
from nescio_papers.know_your_limits.polygons import Floats, Polygons, Window, polygons
from nescio_papers.runner.cells import kept_tensors
from nescio_papers.runner.drawing import curves, svg
from nescio_papers.runner.program import Figure, Job, Made
from nescio_papers.runner.scale import size_of
from nescio_papers.runner.study import Study

STATES = ("before training", "after training")
RAYS = 7
DRAWN = ((8,), (25,), (25, 25), (25, 25, 25))


@dataclass(frozen=True)
class Size:
    """Networks that are drawn, depths and widths that are counted, windows, epochs, and seeds of the counts."""

    drawn: tuple[tuple[int, ...], ...]
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    zooms: tuple[float, ...]
    training: int
    epochs: int
    seeds: tuple[int, ...]


SIZES = {
    "smoke": Size(((3,), (4, 4)), (1, 2), (3, 4), (1.0, 4.0), 60, 2, (0,)),
    "quick": Size(DRAWN, (1, 2, 3), (4, 8, 16, 25), (1.0, 4.0, 20.0), 500, 40, (0, 1)),
    "paper": Size(DRAWN, (1, 2, 3, 4), (4, 8, 16, 25, 40), (1.0, 4.0, 20.0), 500, 40, (0, 1, 2, 3, 4)),
}


class Networks:
    """Networks and their regions, each made once and kept."""

    def __init__(self, job: Job, size: Size, seed: int) -> None:
        self.job, self.seed = job, seed
        self.folder = job.work / "limits" / "polytopes"
        self.data = half_moons(seed, size.training, size.training // 2)
        self.size = size

    def network(self, hidden: tuple[int, ...], state: str) -> tuple[nn.Sequential, str]:
        """Return the network in a state, and a name that no other one has."""
        net = Net(hidden, 0.0, 0.005)
        data, held = (self.data.x, self.data.y), (self.data.held_x, self.data.held_y)
        trainer = Trainer(
            data, held, Plan(net, net, self.size.epochs, patience=None), self.seed, self.folder, self.job.check
        )
        if state == STATES[1]:
            return trainer.one, f"after-{trainer.mark}"
        with training.seeded(self.seed):
            return mlp(2, 2, net)().eval(), f"before-{trainer.mark}"

    def regions(self, hidden: tuple[int, ...], state: str, window: Window, name: str) -> Polygons:
        """Return all regions of the network in the window."""
        network, mark = self.network(hidden, state)
        made, _ = kept_tensors(
            self.folder / f"regions-{name}-{mark}.pt",
            lambda: polygons(network, window, self.job.check).state(),
            self.job.check,
        )
        return Polygons.of_state(made)

    def panel(
        self, hidden: tuple[int, ...], state: str, window: Window, name: str, rays: bool
    ) -> tuple[draw.Regions, int]:
        """Return a panel of a picture, and the number of its regions."""
        regions = self.regions(hidden, state, window, name)
        network, _ = self.network(hidden, state)
        count = len(regions.corners)
        paths = _rays(network, self.data, window) if rays else []
        after = state == STATES[1]
        return (
            draw.Regions(
                regions.corners,
                regions.slopes(),
                regions.boundary(),
                paths,
                self.data.x.numpy() if after else None,
                self.data.y.numpy(),
                f"{' · '.join(map(str, hidden))}, {state.split()[0]}: {count:,} regions",
            ),
            count,
        )


def _rays(network: nn.Sequential, data: Moons, window: Window) -> list[Floats]:
    """Return paths from the middle of the data through every breakpoint to the edge of the window."""
    middle = data.x.mean(0)
    angle = 0.3 + torch.arange(RAYS, dtype=torch.float64) * (2 * math.pi / RAYS)
    directions = torch.stack([angle.cos(), angle.sin()], 1)
    rays = limits.ray(network, middle.expand(RAYS, 2), directions)
    low, high = (torch.tensor([bounds[side] for bounds in window], dtype=torch.float64) for side in (0, 1))
    paths = []
    for d, breaks in zip(directions, rays.breakpoints, strict=True):
        end = float(torch.where(d > 0, (high - middle) / d, (low - middle) / d).min())
        alphas = torch.cat([breaks.new_zeros(1), breaks[breaks < end], breaks.new_tensor([end])])
        paths.append((middle + alphas[:, None] * d).numpy())
    return paths


def zoomed(factor: float) -> Window:
    """Return the window, so many times as wide and high around the same middle."""
    (left, right), (bottom, top) = WINDOW
    x, y, w, h = (left + right) / 2, (bottom + top) / 2, factor * (right - left) / 2, factor * (top - bottom) / 2
    return (x - w, x + w), (y - h, y + h)


def program(job: Job) -> Made:
    """Train, walk from region to region, draw."""
    size = size_of(SIZES, job.parts.scale)
    seeds = job.seeds or size.seeds
    first = Networks(job, size, seeds[0])
    rows: list[list[draw.Regions]] = [[], []]
    for hidden in size.drawn:
        for row, state in zip(rows, STATES, strict=True):
            row.append(first.panel(hidden, state, WINDOW, "1", rays=hidden == size.drawn[-1])[0])
        job.say(f"regions of {hidden}: {len(rows[0][-1].polygons)} before, {len(rows[1][-1].polygons)} after training")
    deep = size.drawn[-1]
    windows = [zoomed(factor) for factor in size.zooms]
    far, counts = [], []
    for factor, window in zip(size.zooms, windows, strict=True):
        panel, count = first.panel(deep, STATES[1], window, f"{factor:g}", rays=True)
        far.append(draw.Regions(**{**vars(panel), "title": f"window × {factor:g}: {count:,} regions"}))
        counts.append(count)
    lines, table = _counts(job, size, seeds)
    figures = [
        _drawn(
            rows, [WINDOW] * len(size.drawn), "kyl-regions", "Linear regions before and after training",
            "Each polygon is a region on which the network is one affine map; its colour is the direction in which the "
            "difference of the two logits rises, pale where it hardly does. Thick: the decision boundary, exact in "
            "every region. On the deepest network rays leave the middle of the data, with a mark at every breakpoint. "
            "The numbers are the regions in the window, all of them: their areas add up to its own. Trained on "
            "half-moons (orange and blue).",
        ),
        _drawn(
            [far], windows, "kyl-far", "Further and further away",
            f"The network {' · '.join(map(str, deep))} after training in windows of growing size: "
            f"{', '.join(f'{count:,}' for count in counts)} regions. Almost all of them lie near the data; seen from "
            "afar there are some unbounded regions, cones, in each of which the map, and with it the direction in "
            "which the logits part, is fixed. A ray crosses its last breakpoint and stays in one of them for ever: "
            "there the softmax tends to one-hot, and its uncertainty to 0 (Propositions 1 and 2).",
        ),
        Figure(
            "How many regions",
            f"Regions in the first window by units in a layer, for networks of one, two and three layers; means over "
            f"{len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}. {table}",
            "Number of linear regions by width and depth",
            svg(curves(lines, "units in a layer", width=4.4, columns=2),
                      "Number of linear regions by width and depth, before and after training", "kyl-counts"),
        ),
    ]  # fmt: skip
    about = f"{size.training} points, noise 0.125"
    settings: dict[str, Any] = {"seeds": {"moons": list(seeds)}}
    return Made([], figures, settings, (), [{"name": "half-moons", "about": about, "pictures": size.training}])


def _drawn(rows: list[list[draw.Regions]], windows: list[Window], name: str, title: str, text: str) -> Figure:
    figure = draw.regions(rows, windows)
    return Figure(title, text, title, svg(figure, title, name))


def _counts(job: Job, size: Size, seeds: tuple[int, ...]) -> tuple[Any, str]:
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {state: {} for state in STATES}
    words = []
    for depth in size.depths:
        for width in size.widths:
            hidden = (width,) * depth
            for state in STATES:
                counts = [len(Networks(job, size, seed).regions(hidden, state, WINDOW, "1").corners) for seed in seeds]
                name = count(depth, "layer")
                lines[state].setdefault(name, []).append((float(width), fmean(counts)))
        ends = [np.round(lines[state][name][-1][1]) for state in STATES]
        words.append(f"{name} of {size.widths[-1]}: {ends[0]:.0f} before, {ends[1]:.0f} after")
    return lines, f"{'; '.join(words)}."


STUDY = Study(
    "kyl-polytopes",
    "The linear regions of ReLU networks on the plane",
    (),
    (
        "Ulmer and Cinà, “Know your limits” (2021), supplement A.2 and A.3, after Hein et al. (2019). Regions are "
        "found from their half-spaces, with no grid: from each region over every edge to the next.",
        "Networks are of ReLU units, trained at a rate of 0.005 for 40 epochs on 500 points (smoke: less).",
    ),
    program,
)
