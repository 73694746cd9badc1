"""How large a study is run.

`smoke` is a test of the machinery, `small` what one processor core does in an hour or two, `quick` half an hour of a
large GPU, and `paper` is as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from nescio.types import InputError


@dataclass(frozen=True)
class Scale:
    """The sizes of a run.

    pictures: of each set (None: all, and at most 10,000 a set for detection); copies and draws are what samples="N" and
    samples="draws" of a row stand for, and `most` bounds every number of samples (0: no bound). exact=True estimates no
    layer and no class. training: pictures that methods are fitted to (None: all). seeds by training plan, "" for the
    rest. skipped: reasons not to run a row, by (plan, norm). cycles, epochs, pool: of active learning, which is run
    with the first active_seeds seeds on the sets in `active`. epochs_trained: other than the plan's, where given.
    classes: of more classes so many rows are paid for (None: as the methods have it). fewer: pictures by training plan.
    networks: the data sets whose networks are trained (empty: all).
    """

    name: str
    about: str
    pictures: int | None
    copies: int | Literal["auto"]
    draws: int
    seeds: Mapping[str, tuple[int, ...]]
    most: int = 0
    exact: bool = False
    training: int | None = None
    fast: bool = False
    bundled: bool = False
    skipped: Mapping[tuple[str, int], str] = field(default_factory=dict)
    cycles: int = 10
    epochs: int = 200
    pool: int | None = None
    epochs_trained: int | None = None
    active_seeds: int = 3
    active: tuple[str, ...] = ("mnist", "cifar10", "svhn", "cifar100")
    classes: int | None = None
    fewer: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[str, ...] = ()

    def seeds_of(self, plan: str, given: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the seeds of a training plan, or those that were given."""
        return self.seeds.get(plan, self.seeds[""]) if given is None else given

    def pictures_of(self, plan: str) -> int | None:
        """Return how many pictures of each set are used (None: all)."""
        return self.fewer.get(plan, self.pictures)

    def samples(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with numbers in the place of "N" and "draws", none above `most`."""
        numbers: dict[Any, Any] = {"N": self.copies, "draws": self.draws}
        filled = dict(settings)
        for name in {"samples", "copies"} & settings.keys():
            value = numbers.get(settings[name], settings[name])
            filled[name] = min(value, self.most) if self.most and isinstance(value, int) else value
        return filled


_LARGE = ("cifar100", "vit-cifar10", "vit-cifar100")
_L1 = "not run: the L1 norm writes every gradient down, which takes too long at this scale"

SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        "smoke",
        "a test of the machinery: bundled 8×8 digits and things that are no digits stand in for every data set, with "
        "small networks and few samples; the numbers say nothing about the methods",
        pictures=60, copies=4, draws=10, most=10, training=200, seeds={"": (0, 1)}, bundled=True, epochs_trained=8,
        cycles=2, epochs=3, pool=100, active_seeds=1,
    ),
    "small": Scale(
        "small",
        "what one processor core does in an hour or two: the small CNNs of MNIST and SVHN alone, three epochs of their "
        "fast schedules, 1,000 pictures of each set",
        pictures=1000, copies="auto", draws=100, training=10_000, fast=True, seeds={"": (0,)}, epochs_trained=3,
        cycles=5, epochs=200, pool=5000, active_seeds=2, active=("mnist",), networks=("mnist", "svhn"),
    ),
    "quick": Scale(
        "quick",
        "fast training schedules, 2,000 pictures of each set (1,000 for CIFAR-100 and ViTs), eight paired noisy "
        "copies with layers of little weight estimated to 2 %; of 100 classes 16 are computed",
        pictures=2000, copies="auto", draws=100, classes=16, training=20_000, fast=True,
        seeds={"": (0, 1, 2), "cifar100": (0,), "vit-cifar10": (0,), "vit-cifar100": (0,)},
        skipped={(plan, 1): _L1 for plan in _LARGE}, fewer=dict.fromkeys(_LARGE, 1000),
        epochs=50, pool=5000, active_seeds=1, active=("mnist", "cifar10"),
    ),
    "paper": Scale(
        "paper",
        "the paper's training schedules, whole test sets (at most 10,000 pictures each for detection), 100 noisy "
        "copies, nothing estimated",
        pictures=None, copies=100, draws=100, seeds={"": (0, 1, 2)}, exact=True,
    ),
}  # fmt: skip


Size = TypeVar("Size")


def size_of(sizes: Mapping[str, Size], scale: Scale) -> Size:
    """Return what a study has for this scale; where it has nothing of its own for it, that of quick."""
    return sizes[scale.name if scale.name in sizes else "quick"]


def get(name: str) -> Scale:
    """Return the scale of that name."""
    if name not in SCALES:
        raise InputError(f"expected a scale of {', '.join(SCALES)}, got '{name}'")
    return SCALES[name]
