"""Active learning: the inputs that a model doubts most are labelled, and it is trained again with them.

    L_0 = the first inputs,   model_t = train(L_t),   L_{t+1} = L_t ∪ choose(score(model_t, pool ∖ L_t))

`active_learning` runs the cycles; what a model is and how it is scored is the caller's: two functions of indices. The
choice is the m₂ highest scores (`top`), by chance (`random`), or of the highest scores those that lie far apart
(`diverse`). `by_index` and `balanced` make the split of the REGrad paper (supplement B.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nescio._common.argument_checks import integer
from nescio._common.arrays import Values
from nescio.evaluate.metric_inputs import scores as scores_of
from nescio.types import InputError

Indices = NDArray[np.int64]
Train = Callable[[Indices], tuple[Any, Mapping[str, float]]]
Score = Callable[[Any, Indices], Any]
Choice = Literal["top", "random", "diverse"]


@dataclass(frozen=True)
class ActiveLearning:
    """Hold what was measured in each of T cycles, and which inputs were chosen.

    Attributes:
        labelled: How many inputs had labels in each cycle, ``[T]``.
        measured: What `train` measured in each cycle, ``[T]``, by name.
        chosen: The indices that were added after each cycle but the last.

    Examples:
        >>> measured, chosen = {"accuracy": np.array([0.5, 1.0])}, (np.array([5, 4]),)
        >>> result = nescio.evaluate.ActiveLearning(np.array([2, 4]), measured, chosen)
        >>> result.mean("accuracy")
        0.75
    """

    labelled: Indices
    measured: dict[str, NDArray[np.float64]]
    chosen: tuple[Indices, ...]

    def mean(self, name: str) -> float:
        """Return the mean over the cycles, which is what the paper's table has.

        Args:
            name: The name of the metric.

        Returns:
            The mean.
        """
        return float(self.measured[name].mean())


class Split(NamedTuple):
    """Hold the indices of three parts of a set.

    Attributes:
        initial: The inputs that have labels at the beginning.
        validation: The inputs to choose a model by.
        pool: The inputs to choose from.

    Examples:
        >>> nescio.evaluate.active.by_index([0, 1, 0, 1, 0, 1], initial=2, first=2, second=4).pool
        array([4, 5])
    """

    initial: Indices
    validation: Indices
    pool: Indices


def active_learning(
    train: Train,
    score: Score,
    initial: Values,
    pool: Values,
    *,
    acquired: int,
    cycles: int = 10,
    choose: Choice = "top",
    features: Callable[[Any, Indices], Any] | None = None,
    seed: int = 0,
    on_cycle: Callable[[int, Mapping[str, float]], object] | None = None,
) -> ActiveLearning:
    """Run cycles of active learning: train, score what has no label, label the most doubtful, train again.

    Args:
        train: From the indices of labelled inputs to a model and what was measured of it, such as ``{"accuracy":
            0.9}``.
        score: From a model and indices to one number for each, higher means more uncertain. It is not called with
            ``choose="random"``.
        initial: Indices of the inputs that have labels at the beginning. Indices are of the caller's own data.
        pool: Indices of the inputs to choose from.
        acquired: How many inputs get labels between two cycles.
        cycles: How many cycles are run. Each trains once.
        choose: ``"top"`` takes the highest scores, ``"random"`` draws, ``"diverse"`` takes high scores that lie far
            apart.
        features: From a model and indices to features ``[n, D]``; for ``choose="diverse"`` alone.
        seed: The seed of draws, and of the order of equal scores.
        on_cycle: Called after each training with the number of the cycle, from 1, and what was measured.

    Returns:
        What was measured in each cycle, and which inputs were chosen.

    Examples:
        >>> train = lambda indices: (None, {"labelled": len(indices)})
        >>> score = lambda model, indices: indices  # the largest index is the most doubtful
        >>> result = nescio.evaluate.active_learning(train, score, [0, 1], [2, 3, 4, 5], acquired=2, cycles=2)
        >>> result.labelled, result.chosen
        (array([2, 4]), (array([5, 4]),))
    """
    labelled, left = _indices(initial, "initial"), _indices(pool, "pool")
    if np.intersect1d(labelled, left).size:
        raise InputError("pool: expected indices that are not in `initial`, but some are in both; take them out")
    cycles, acquired = integer("cycles", cycles, at_least=1), integer("acquired", acquired, at_least=1)
    seed = integer("seed", seed, at_least=0)
    if acquired * (cycles - 1) > left.size:
        raise InputError(
            f"expected a pool for all that is acquired, but got cycles={cycles}, acquired={acquired} and a pool of "
            f"{left.size}; ask for fewer"
        )
    if choose not in ("top", "random", "diverse"):
        raise InputError(f"choose: expected 'top', 'random' or 'diverse', but got {choose!r}")
    if (choose == "diverse") != (features is not None):
        raise InputError("features: expected them with choose='diverse', and only there")
    sizes: list[int] = []
    records: list[Mapping[str, float]] = []
    chosen: list[Indices] = []
    for cycle in range(cycles):
        model, record = train(labelled)
        sizes.append(labelled.size)
        records.append(dict(record))
        if on_cycle is not None:
            on_cycle(cycle + 1, record)
        if cycle + 1 == cycles:
            break
        draw = seed + cycle
        if choose == "random":
            places = random(left.size, acquired, draw)
        else:
            values = scores_of(score(model, left), "score")
            if values.size != left.size:
                raise InputError(f"score: expected {left.size} numbers, one for each index, but got {values.size}")
            if features is None:
                places = top(values, acquired, draw)
            else:
                places = diverse(values, features(model, left), acquired, seed=draw)
        chosen.append(left[places])
        labelled = np.concatenate([labelled, left[places]])
        left = np.delete(left, places)
    names = list(records[0])
    if any(list(record) != names for record in records):
        raise InputError("train: expected the same measures in every cycle, but they differ")
    measured = {name: np.array([record[name] for record in records], dtype=np.float64) for name in names}
    return ActiveLearning(np.array(sizes, dtype=np.int64), measured, tuple(chosen))


def top(scores: Values, count: int, seed: int = 0) -> Indices:
    """Return the places of the highest scores, the highest first; equal scores come in an order drawn at random.

    Args:
        scores: One number for each input, ``[N]``.
        count: How many places.
        seed: The seed of the order of equal scores.

    Returns:
        The places ``[count]``.

    Examples:
        >>> nescio.evaluate.active.top([0.1, 0.9, 0.5], 2)
        array([1, 2])
    """
    values = scores_of(scores, "scores")
    _enough(count, values.size)
    drawn = _generator(seed).permutation(values.size)
    return drawn[np.argsort(-values[drawn], kind="stable")[:count]]


def random(size: int, count: int, seed: int = 0) -> Indices:
    """Draw places at random, none twice.

    Args:
        size: How many places there are.
        count: How many are drawn.
        seed: The seed of the draw.

    Returns:
        The places ``[count]``.

    Examples:
        >>> sorted(nescio.evaluate.active.random(3, 3).tolist())
        [0, 1, 2]
    """
    _enough(count, size)
    return _generator(seed).permutation(size)[:count]


def diverse(scores: Values, features: Values, count: int, *, among: int = 10, seed: int = 0) -> Indices:
    """Return places of high scores that lie far apart, the highest score first.

    Many near copies of one doubtful input teach no more than one of them. So among the highest scores, the next place
    is always the one whose features are farthest from all that are taken (the farthest-first traversal).

    Args:
        scores: One number for each input, ``[N]``.
        features: The features of the inputs, ``[N, D]``.
        count: How many places.
        among: The places are chosen among the ``among`` · count highest scores.
        seed: The seed of the order of equal scores.

    Returns:
        The places ``[count]``.

    Examples:
        >>> nescio.evaluate.active.diverse([0.9, 0.8, 0.7], [[0.0], [0.1], [5.0]], 2)
        array([0, 2])
    """
    values = scores_of(scores, "scores")
    _enough(count, values.size)
    candidates = top(values, min(integer("among", among, at_least=1) * count, values.size), seed)
    points = _points(features, values.size)[candidates]
    taken, distance = [0], np.full(candidates.size, np.inf)
    while len(taken) < count:
        distance = np.minimum(distance, ((points - points[taken[-1]]) ** 2).sum(1))
        distance[taken] = -1.0
        taken.append(int(distance.argmax()))
    return candidates[taken]


def balanced(labels: Values, count: int, seed: int = 0, among: Values | None = None) -> Indices:
    """Draw indices at random, the same number of each class.

    Args:
        labels: The class of each input, ``[N]``.
        count: How many indices; a multiple of the number of classes.
        seed: The seed of the draw.
        among: The indices to draw from; None for all.

    Returns:
        The indices ``[count]``, rising.

    Raises:
        InputError: If a class has too few inputs, or the classes do not divide `count`.

    Examples:
        >>> labels = np.array([0, 0, 0, 1, 1, 1])
        >>> labels[nescio.evaluate.active.balanced(labels, 4)]
        array([0, 0, 1, 1])
    """
    y = np.asarray(labels)
    pool = np.arange(y.size) if among is None else _indices(among, "among")
    if pool.size and not 0 <= pool.min() <= pool.max() < y.size:
        raise InputError(
            f"among: expected indices from 0 to {y.size - 1}, as many as there are labels, but got {pool.min()} to "
            f"{pool.max()}"
        )
    classes = np.unique(y)
    if not classes.size or integer("count", count, at_least=1) % classes.size:
        raise InputError(f"count: expected a multiple of the {classes.size} classes, but got {count}")
    each, generator = count // classes.size, _generator(seed)
    parts = []
    for one in classes:
        own = pool[y[pool] == one]
        if own.size < each:
            raise InputError(f"expected at least {each} inputs of class {one}, but there are {own.size}; ask for fewer")
        parts.append(generator.permutation(own)[:each])
    return np.sort(np.concatenate(parts))


def by_index(labels: Values, initial: int, seed: int = 0, first: int = 10_000, second: int = 20_000) -> Split:
    """Split a set by index, as the paper does: the start is drawn from the first part, then come validation and pool.

    Args:
        labels: The class of each input, ``[N]``.
        initial: How many inputs have labels at the beginning, the same number of each class.
        seed: The seed of their draw.
        first: Where the validation part begins.
        second: Where the pool begins, which is the rest.

    Returns:
        The indices of the three parts.

    Examples:
        >>> nescio.evaluate.active.by_index([0, 1, 0, 1, 0, 1], initial=2, first=2, second=4)
        Split(initial=array([0, 1]), validation=array([2, 3]), pool=array([4, 5]))
    """
    size = np.asarray(labels).size
    if not 0 < first < second < size:
        raise InputError(f"expected more than {second} labels, and 0 < first < second, but got {size} labels")
    start = balanced(labels, initial, seed, np.arange(first))
    return Split(start, np.arange(first, second), np.arange(second, size))


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(integer("seed", seed, at_least=0))


def _enough(count: int, size: int) -> None:
    if not isinstance(count, int | np.integer) or not 1 <= count <= size:
        raise InputError(f"count: expected 1 to {size}, as many as there are, but got {count}")


def _indices(values: Values, name: str) -> Indices:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size or np.unique(array).size != array.size:
        raise InputError(f"{name}: expected a list of different whole numbers, at least one, but got {values!r:.80}")
    return array.astype(np.int64)


def _points(features: Values, size: int) -> NDArray[np.float64]:
    points = np.asarray(features.detach().cpu() if hasattr(features, "detach") else features, dtype=np.float64)
    if points.ndim != 2 or len(points) != size or not np.isfinite(points).all():
        raise InputError(f"features: expected finite numbers [{size}, D], but got shape {list(points.shape)}")
    return points
