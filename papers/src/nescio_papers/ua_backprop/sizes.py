"""How large the studies of maps are at each scale. Where a number is missing the method's own default holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nescio_papers.runner.scale import Scale, size_of


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run.

    members: of the ensemble. pool: pictures among which the most doubtful are looked for (None: all); pictures: how
    many of those the blurring test takes; patched: pictures of the anomaly test; drawn: pictures of a figure. settings
    by method. vae: pictures and epochs that the auto-encoder is trained on and for. Of the retraining: few, pictures
    by data set ("" for the rest); runs, epochs; tested, test pictures; attended, those of them that also get maps. Of
    the sweep: held, pictures; trained, members by data set, and for how many epochs (None: the plan's); taus, τ₁ and τ₂
    of the grid; alphas, and so many runs of each.
    """

    members: int
    pool: int | None
    pictures: int
    patched: int
    drawn: int
    vae: tuple[int | None, int]
    few: Mapping[str, int]
    runs: int
    epochs: int
    tested: int | None
    attended: int
    held: int
    trained: Mapping[str, tuple[int, int | None]]
    taus: tuple[tuple[float, ...], tuple[float, ...]]
    alphas: tuple[float, ...]
    alpha_runs: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


FEW = {"mnist": 500, "cifar10": 1000, "svhn": 2000, "cifar100": 4000}
"""Training pictures of the paper's section 5.2.2."""
TAU1 = (0.01, 0.05, 0.1, 0.3, 1.0, 3.0)
TAU2 = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
ALPHAS = (0.0, 2.0, 4.0, 8.0, 16.0)

SIZES: Mapping[str, Sizes] = {
    "smoke": Sizes(
        members=2, pool=60, pictures=8, patched=6, drawn=2, vae=(100, 1),
        few={"": 60}, runs=2, epochs=2, tested=40, attended=8,
        held=6, trained={"": (3, 2)}, taus=((0.1, 1.0), (0.1, 1.0)), alphas=(0.0, 4.0), alpha_runs=1,
        settings={
            "smoothgrad": {"copies": 2}, "integrated_gradients": {"steps": 2}, "blur_ig": {"steps": 2},
            "clue": {"steps": 2}, "delta_clue": {"steps": 2, "starts": 1},
        },
    ),
    "quick": Sizes(
        members=5, pool=None, pictures=200, patched=100, drawn=5, vae=(20_000, 15),
        few=FEW, runs=3, epochs=30, tested=10_000, attended=200,
        held=80, trained={"mnist": (10, 8), "svhn": (5, 10), "cifar10": (5, 8), "": (5, 10)},
        taus=(TAU1, TAU2), alphas=ALPHAS, alpha_runs=2,
        settings={
            "smoothgrad": {"copies": 10}, "integrated_gradients": {"steps": 20}, "blur_ig": {"steps": 20},
            "clue": {"steps": 30}, "delta_clue": {"steps": 20, "starts": 2},
        },
    ),
    "paper": Sizes(
        members=5, pool=None, pictures=1000, patched=500, drawn=8, vae=(None, 30),
        few=FEW, runs=5, epochs=30, tested=None, attended=2000,
        held=500, trained={"": (10, None)}, taus=(TAU1, TAU2), alphas=ALPHAS, alpha_runs=5,
    ),
}  # fmt: skip
SIZES = {**SIZES, "small": replace(SIZES["quick"], vae=(10_000, 6), few={"mnist": 500}, runs=5)}


def sizes_of(scale: Scale) -> Sizes:
    """Return the sizes that belong to a scale."""
    return size_of(SIZES, scale)


def words(scale: Scale) -> str:
    """Return how maps are made at a scale, for a note."""
    sizes = sizes_of(scale)
    own = [f"{method} {_listed(settings)}" for method, settings in sizes.settings.items()]
    count, epochs = sizes.vae
    return (
        f"At the scale {scale.name} ensembles have {sizes.members} members; by method, where it is not the default of "
        f"nescio.explain: {'; '.join(own) or 'nothing'}. The auto-encoder of CLUE is trained on "
        f"{'all' if count is None else f'{count:,}'} training pictures for {epochs} epochs."
    )


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())
