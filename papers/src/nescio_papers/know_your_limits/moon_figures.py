"""The pictures of the half-moons study, from its models and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import nescio.limits
from nescio.posteriors import DeepEnsemble, PosteriorBase
from nescio.scoring import score
from nescio_papers.know_your_limits import drawing as draw
from nescio_papers.know_your_limits.doubts import METRICS, Doubt, doubt, reader, single
from nescio_papers.know_your_limits.half_moons import WINDOW, Moons, between
from nescio_papers.runner.cells import State, kept_tensors
from nescio_papers.runner.drawing import curves, svg
from nescio_papers.runner.program import Figure

NAMES = {
    "max_probability": "1 − max. probability",
    "entropy": "entropy (bits)",
    "variance": "variance",
    "mutual_information": "mutual information (bits)",
}
LIMITS = {"1 − max. probability": (0.0, 0.5), "entropy (bits)": (0.0, 1.0), "variance": (0.0, 0.25)}
LIMITS |= {"mutual information (bits)": (0.0, 1.0)}
PUBLISHED = "in the public code"
SLOPES = (1e-6, 1.0)
RADII = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
SURE = 0.99


class Kept:
    """Surfaces of an n × n grid, worked out once and kept in a folder."""

    def __init__(self, folder: Path, mark: str, n: int, check: Callable[[], None]) -> None:
        self.folder, self.mark, self.n, self.check = folder, mark, n, check

    def of(self, name: str, score: Doubt) -> tuple[Tensor, Tensor]:
        """Return values and gradients [n, n] of a score."""

        def made() -> State:
            surface = nescio.limits.surface(score, *WINDOW, self.n, batch=2048)
            return {"values": surface.values, "gradient": surface.gradient}

        state, _ = kept_tensors(self.folder / f"{name}-{self.n}-{self.mark}.pt", made, self.check)
        return state["values"], state["gradient"]


class Scores:
    """Registered scores of one network, all worked out in one pass; the last inputs are remembered."""

    def __init__(self, network: Any, methods: Mapping[str, Any], fit: Any) -> None:
        self.network, self.methods, self.fit = network, methods, fit
        self._found: dict[bytes, dict[str, Tensor]] = {}

    def all(self, x: Tensor) -> dict[str, Tensor]:
        """Return every score of each input, by label."""
        key = x.detach().numpy().tobytes()
        if key not in self._found:
            made = score(
                self.network, x.detach(), list(self.methods.values()), fit=self.fit, chunk=1024, progress=False
            )
            self._found[key] = dict(zip(self.methods, made.values(), strict=True))
        return self._found[key]

    def one(self, name: str) -> Doubt:
        """Return one score as a function."""
        return lambda x: self.all(x)[name]


def models_by_metric(posteriors: Mapping[str, PosteriorBase], keep: Kept, data: Moons, prefix: str = "") -> list[Any]:
    """Return the surfaces of every model and metric, and their gradients, each as rows of panels."""
    values: dict[str, dict[str, Any]] = {}
    slopes: dict[str, dict[str, Any]] = {}
    for name, posterior in posteriors.items():
        values[name], slopes[name] = {}, {}
        for metric in METRICS:
            if single(posterior) and metric in ("variance", "mutual_information"):
                values[name][NAMES[metric]] = slopes[name][NAMES[metric]] = "one prediction:\n0 everywhere"
                continue
            surface = keep.of(f"{prefix}{name}-{metric}".replace(" ", "-"), doubt(posterior, metric))
            values[name][NAMES[metric]], slopes[name][NAMES[metric]] = surface
    return [values, slopes]


def grid(rows: Any, data: Moons, title: str, text: str, alt: str, name: str, **more: Any) -> Figure:
    """Draw panels as a figure of the page."""
    limits = more.pop("limits", LIMITS)
    figure = draw.surfaces(rows, *WINDOW, limits, points=data.x, classes=data.y, **more)
    return Figure(title, text, alt, svg(figure, alt, name))


def slope_limits(columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the ends of the colours of gradients, by column."""
    return dict.fromkeys(columns, SLOPES)


def published(posteriors: Mapping[str, PosteriorBase], off: DeepEnsemble, keep: Kept, data: Moons) -> Figure:
    """Draw mutual information and dropout beside what the public code computes."""
    rows: dict[str, dict[str, Any]] = {}
    for name, posterior in (
        ("MC dropout", posteriors["MC dropout"]),
        ("dropout left off", off),
        ("ensemble", posteriors["ensemble"]),
        ("anchored ensemble", posteriors["anchored ensemble"]),
    ):
        rows[name] = {}
        for metric in ("variance", "mutual_information"):
            rows[name][NAMES[metric]] = keep.of(f"{name}-{metric}".replace(" ", "-"), doubt(posterior, metric))[0]
        shown = keep.of(f"{name}-published".replace(" ", "-"), doubt(posterior, "published"))[0]
        samples = getattr(posterior, "samples", len(posterior.classifiers))
        rows[name][PUBLISHED] = shown + (10 - samples) / 2  # 5 less the mean entropy, as for ten samples
    return grid(
        rows,
        data,
        "What the paper's public code computes, beside what it means to",
        "Left and middle: variance and mutual information as they are defined. Right: what the public code gives as "
        "mutual information, on the paper's own range from 4 to 5. It averages the predictions over the classes and "
        "takes the entropy over the samples; the mean over two classes is ½ whatever is predicted, so for ten samples "
        "the result is 5 bits less the mean entropy of the samples: a picture of the aleatoric part turned upside "
        "down. Hence the paper's tube of low epistemic uncertainty along the decision boundary, also where there are "
        "no data. In mutual information itself the boundary is low only among the data, and away from them it is where "
        "the most is found. Second row: the public code predicts "
        "with the network in eval mode, in which dropout is off; all predictions are then the same, and variance and "
        "mutual information are 0 everywhere.",
        "Surfaces of variance, mutual information and the public code's mutual information for four models",
        "kyl-published",
        limits={**LIMITS, PUBLISHED: (4.0, 5.0)},
    )


def by_score(scores: Mapping[str, Scores], shown: Sequence[str], keep: Kept, data: Moons) -> list[Figure]:
    """Draw gradient scores of single networks, a row for each network."""
    values: dict[str, dict[str, Any]] = {name: {} for name in scores}
    slopes: dict[str, dict[str, Any]] = {name: {} for name in scores}
    limits = {}
    for label in shown:
        for name, own in scores.items():
            surface = keep.of(f"score-{name}-{label}".replace(" ", "-").replace("×", "x"), own.one(label))
            values[name][label], slopes[name][label] = surface
        every = np.concatenate([np.asarray(values[name][label]).ravel() for name in scores])
        low, high = (float(v) for v in np.percentile(every, (1, 99)))
        limits[label] = (low, high if high > low else low + 1.0)
    more: Any = {"side": 1.5}
    return [
        grid(
            values, data, "Gradient scores of single networks",
            "Scores made of the gradients of log p by the weights, in the same window: no samples, no training data. "
            "Colours of a column reach from the 1st to the 99th percentile of its two rows. Along the boundary REGrad "
            "and ExGrad grow with the distance, as the features do, and with them the gradients; beside it they fall "
            "to 0 as entropy does. GradNorm (negated, as it is used) and UNGrad know of the distance, GradNorm with "
            "the wrong sign: it calls what is far away certain.",
            "Surfaces of gradient scores", "kyl-scores", limits=limits, **more,
        ),
        grid(
            slopes, data, "Gradient scores: how much they still change with the input",
            "The size of the gradient by the input, by central differences, on a logarithmic scale from 10⁻⁶ to 10³.",
            "Gradient magnitudes of gradient scores", "kyl-score-slopes",
            limits=dict.fromkeys(shown, (1e-6, 1e3)), log=True, colours=draw.SLOPE, **more,
        ),
    ]  # fmt: skip


def measured(posteriors: Mapping[str, PosteriorBase], data: Moons, count: int) -> dict[str, dict[str, Any]]:
    """Return by model the mean and largest value of each metric by place, and the share of each place that is sure."""
    places = {"between": between(), **{f"{radius:g}": data.ring(radius, count) for radius in RADII}}
    sizes = [len(x) for x in places.values()]
    by_model: dict[str, dict[str, Any]] = {}
    for name, posterior in posteriors.items():
        every = reader(posterior)(torch.cat(list(places.values())))
        own = {m: dict(zip(places, every[m].detach().split(sizes), strict=True)) for m in METRICS}
        by_model[name] = {
            m: {place: (float(v.mean()), float(v.max())) for place, v in at.items()} for m, at in own.items()
        }
        sure = {place: float((v < 1 - SURE).double().mean()) for place, v in own["max_probability"].items()}
        by_model[name] |= {"sure": sure, "single": single(posterior)}
    return by_model


def numbers(by_model: Mapping[str, Mapping[str, Any]], data_text: str) -> Figure:
    """Draw the means and largest values as a table."""
    columns, highest, rows = [], [], []
    for metric in METRICS:
        word = {"max_probability": "1 − p max", "mutual_information": "MI", "variance": "var."}.get(metric, metric)
        columns += [f"{word}\nbetween", f"{word}\nfar", f"{word}\nfar, max"]
        highest += [LIMITS[NAMES[metric]][1]] * 3
    for own in by_model.values():
        line = [v for metric in METRICS for v in (own[metric]["between"][0], *own[metric]["10"])]
        if own["single"]:
            line[6:] = [math.nan] * 6
        rows.append([*line, own["sure"]["10"]])
    figure = draw.numbers(np.array(rows), list(by_model), [*columns, "sure\nfar"], [*highest, 1.0])
    sure = ", ".join(f"{name} {100 * own['sure']['10']:.0f} %" for name, own in by_model.items())
    alt = "Table of mean doubts between the moons and far away, by model and metric"
    return Figure(
        "In numbers: between the moons, and ten times as far away as the data reach",
        f"Means between the moons, means and largest values on a ring of ten times the data's radius, and the share of "
        f"that ring on which the model is surer than {SURE:g}. {data_text} That share by model: {sure}.",
        alt,
        svg(figure, alt, "kyl-numbers"),
    )


def distances(by_model: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw each metric's mean over rings by their radius."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for metric in METRICS:
        panels[NAMES[metric]] = {
            name: [(radius, own[metric][f"{radius:g}"][0]) for radius in RADII]
            for name, own in by_model.items()
            if not own["single"] or metric in METRICS[:2]
        }
    panels[f"share surer than {SURE:g}"] = {
        name: [(radius, own["sure"][f"{radius:g}"]) for radius in RADII] for name, own in by_model.items()
    }
    alt = "Mean doubt on rings around the data, by the radius of the ring"
    figure = curves(panels, "radius of the ring (data = 1)")
    return Figure(
        "Doubt by distance",
        "The mean of each metric over a ring around the data. One network's doubt falls towards 0, and so does that of "
        "evidence. For models of several networks all metrics tend to a fixed number: the share of directions in which "
        "the last regions of their networks lead to different classes. They near it within some ten times the data's "
        "radius, and from there on say nothing of how far away an input is. Everywhere else the model is sure.",
        alt,
        svg(figure, alt, "kyl-distances"),
    )
