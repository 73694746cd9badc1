"""`audit`: along which directions is a model certain far away from everything it has seen?

For every direction and score the audit says what the score is at the data, what it tends to, after how many spreads of
the data it gets there, and whether it still rises. For the probabilities of piecewise-linear networks this is proven:
the limits are those of `ray`, and a limit does not rise. Everything else (other models, other posteriors, scores that
are not made of probabilities) is measured: the score at α = 0, 1, 2, 4, … up to a radius, where its last value stands
for the limit. Each row is a mean over a few inputs from which the direction starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.argument_checks import integer, number
from nescio.inputs import Data
from nescio.limits import words
from nescio.limits.audit_table import Audit, AuditRow
from nescio.limits.directions import KINDS
from nescio.limits.directions import directions as ways_from
from nescio.limits.members import Models, check_work, members
from nescio.limits.moves import changes_by_direction, ranges
from nescio.limits.rays import Ray, ray
from nescio.limits.settling import SCORES
from nescio.models import ModelOrPosterior
from nescio.posteriors import DeepEnsemble
from nescio.progress import growing
from nescio.quantities.beside import Beside
from nescio.scores import get as method
from nescio.scores.decomposition import decompose
from nescio.scoring import Output
from nescio.scoring import score as measure
from nescio.types import InputError, ModelError, Posterior, refuse_estimator


@dataclass(frozen=True)
class _Curves:
    """One score along W directions from K starts."""

    values: Tensor
    """``[A, W, K]``, at each distance."""
    limit: Tensor
    """``[W, K]``."""
    reached: Tensor
    """``[W]``."""
    rises: Tensor
    """``[W]``."""


def audit(
    model: Models,
    x: Data,
    directions: str | Sequence[str] | Mapping[str, Any] = KINDS,
    scores: str | Sequence[str] | None = None,
    *,
    starts: int = 8,
    count: int = 8,
    features: int = 32,
    names: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    within: float = 0.01,
    radius: float = 1024.0,
    exact: bool | None = None,
    fit: Data | None = None,
    seed: int = 0,
    batch: int = 1024,
    output: Output | None = None,
    progress: bool | None = None,
) -> Audit:
    """Find along which directions a model becomes certain far away from the data.

    Args:
        model: A model, a list of models, or a posterior.
        x: Data ``[N, ...]``.
        directions: Kinds of directions ("features", "random", "towards" other inputs, "away" from the mean), or a
            mapping of names to directions; α then counts in their lengths.
        scores: Names of `nescio.methods()` that suit the model, "variance" and "aleatoric"; None takes the scores that
            need probabilities alone.
        starts: From how many inputs each direction starts.
        count: How many random directions, and how many inputs to go towards.
        features: At most so many, those that vary most.
        names: What the features are called; None takes the columns of a DataFrame, or numbers them.
        classes: What the classes are called; None numbers them.
        within: How near to its limit a score is settled (relative to the largest value that was met, for a score that
            is measured and not made of probabilities).
        radius: How far away is measured, in multiples of the spread of the data.
        exact: True refuses what is not piecewise linear, False measures all, and None measures what cannot be proven,
            or not within minutes.
        fit: Labelled training data, for scores that need them.
        seed: Of the random directions.
        batch: Inputs that are measured at a time.
        output: What the model returns, as in `nescio.score`.
        progress: True shows bars, False none, None those that take long.

    Returns:
        The table, which prints as text.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> table = nescio.limits.audit(model, torch.rand(5, 2), "features", starts=2, progress=False)
        >>> len(table.sentences())
        4
    """
    data, names = _checked_data(x), inputs.columns(x) if names is None else names
    number("radius", radius, above=2.0)
    number("within", within, above=0.0, below=1.0)
    for name, value in (("starts", starts), ("count", count), ("features", features), ("batch", batch)):
        integer(name, value, at_least=1)
    begin = data[torch.linspace(0, len(data) - 1, min(starts, len(data))).long().unique()]
    ways = ways_from(data, begin, directions, names, features, count, seed)
    source = _joined(model, output)
    refuse_estimator(source)
    single = not isinstance(source, Posterior) or callable(source)
    chosen = _score_names(scores, single)
    distances = (0.0, *(2.0**k for k in range(math.ceil(math.log2(radius)))), float(radius))
    every, d = begin.repeat(len(ways), *[1] * (begin.ndim - 1)), torch.cat(list(ways.values()))
    rays, reason = _rays(model, every, d, exact, output, progress)
    rest = [name for name in chosen if rays is None or name not in SCORES]
    measured: dict[str, Tensor] = {}
    if rest:
        points = torch.stack([every + alpha * d for alpha in distances]).flatten(0, 1)
        points = points.to(torch.float32 if single else torch.float64)
        batches = [points[some.start : some.stop] for some in growing(len(points), batch)]
        by_score = _measured(source, batches, rest, fit, output, single, rays is None, progress)
        measured = {name: values.view(len(distances), len(ways), -1) for name, values in by_score.items()}
    curves = {
        name: _read(measured[name], name, within, distances)
        if rays is None or name in rest
        else _proven(rays, name, len(ways), within, distances, progress)
        for name in chosen
    }
    rows = _rows(list(ways), curves, rest, *_certainty(rays, measured, len(ways), distances, progress))
    return Audit(
        rows, distances, len(begin), reason, tuple(classes or ()), changes_by_direction(data, begin, ways, names),
        ranges(data, names), len(data),
    )  # fmt: skip


def _checked_data(x: Data) -> Tensor:
    """The data in float64 on the CPU, if they are at least two finite inputs."""
    data = inputs.as_inputs(x)
    if not isinstance(data, Tensor) or data.ndim < 2 or len(data) < 2 or not data.is_floating_point():
        raise InputError(
            f"expected at least two inputs [N, ...] of real numbers, got {inputs.describe(x)}; whole numbers "
            "become real ones with x.float()"
        )
    if not bool(data.isfinite().all()):
        raise InputError("expected finite inputs, got NaN or infinite ones; leave those out")
    return data.detach().to("cpu", torch.float64)


def _joined(model: Models, output: Output | None) -> ModelOrPosterior:
    """One thing to ask: several models are an ensemble."""
    if not isinstance(model, Sequence):
        return model
    if not model:
        raise InputError("expected at least one model, got an empty list")
    return model[0] if len(model) == 1 else DeepEnsemble(list(model), output=output)


def _score_names(scores: str | Sequence[str] | None, single: bool) -> tuple[str, ...]:
    """The names of the scores, each once."""
    if scores is None:
        usual = ("max_probability", "entropy")
        return usual if single else (*usual, "mutual_information", "variance")
    chosen = tuple(dict.fromkeys((scores,) if isinstance(scores, str) else scores))
    for name in chosen:
        if name not in SCORES:
            method(name)  # a name that is not known is told before any work
    if not chosen:
        raise InputError("expected at least one score, got none; scores=None takes the usual ones")
    return chosen


def _rays(
    model: Models, x: Tensor, directions: Tensor, exact: bool | None, output: Output | None, progress: bool | None
) -> tuple[Ray | None, str]:
    """The rays where the limits can be proven, else why they are measured."""
    if exact is False:
        return None, "it was asked for"
    try:
        if exact is None:
            check_work(members(model, output), x, directions)
        return ray(model, x, directions, output=output, progress=progress), ""
    except ModelError as error:
        if exact:
            raise
        return None, str(error).split("; measure it numerically")[0]


def _rows(
    ways: Sequence[str],
    curves: Mapping[str, _Curves],
    measured: Sequence[str],
    sure: Tensor,
    answers: Sequence[int],
    sure_from: Sequence[float],
) -> tuple[AuditRow, ...]:
    """The means over the starts, direction by direction and score by score."""
    return tuple(
        AuditRow(
            direction=way,
            score=name,
            start=float(curve.values[0, at].mean()),
            limit=float(curve.limit[at].mean()),
            reached=float(curve.reached[at]),
            rises=bool(curve.rises[at]),
            proven=name not in measured,
            confidence=float(sure[at].mean()),
            certain=float((sure[at] > words.CERTAIN).double().mean()),
            answer=answers[at],
            sure_from=sure_from[at],
            values=tuple(curve.values[:, at].mean(1).tolist()),
        )
        for at, way in enumerate(ways)
        for name, curve in curves.items()
    )


def _proven(
    rays: Ray, name: str, ways: int, within: float, distances: Sequence[float], progress: bool | None
) -> _Curves:
    p = rays.logits(distances).softmax(-1)
    values: Tensor = getattr(decompose(p.flatten(1, 2)), SCORES[name])
    limit: Tensor = getattr(rays.limits, SCORES[name])
    reached = rays.settles(name, within, progress=progress).view(ways, -1).amax(1)
    by_distance = values.view(ways, -1, len(distances)).permute(2, 0, 1)
    return _Curves(by_distance, limit.view(ways, -1), reached, torch.zeros(ways, dtype=torch.bool))


def _measured(
    source: ModelOrPosterior,
    batches: list[Tensor],
    names: Sequence[str],
    fit: Data | None,
    output: Output | None,
    single: bool,
    probabilities: bool,
    progress: bool | None,
) -> dict[str, Tensor]:
    """The scores of all points by name; with the confidence and the class, if probabilities are to be measured."""
    made = [name for name in names if name in SCORES and (name not in ("max_probability", "entropy") or not single)]
    if made and single:
        raise InputError(f"expected several models or a posterior for {', '.join(made)}, got one model")
    if single:  # its probabilities come from the forward pass of the scores
        beside = Beside()
        values = measure(source, batches, [*names, beside], fit=fit, output=output, progress=progress)
        del values[beside.name]
        p = beside.logits.softmax(-1)[None] if probabilities else None
    else:
        assert isinstance(source, Posterior)
        p = source.predict(batches, progress=progress) if made or probabilities else None
        other = [name for name in names if name not in made]
        values = measure(source, batches, other, fit=fit, progress=progress) if other else {}
    if p is not None:
        values["confidence"], values["class"] = p.mean(0).max(-1)
        kinds = decompose(p) if made else None
        values |= {name: getattr(kinds, SCORES[name]) for name in made}
    return values


def _certainty(
    rays: Ray | None, measured: dict[str, Tensor], ways: int, distances: Sequence[float], progress: bool | None
) -> tuple[Tensor, list[int], list[float]]:
    """Direction by direction: the limit confidences, the class, and from where on it is certain."""
    if rays is not None:
        limit, answer = (v.view(ways, -1) for v in rays.probabilities.max(1))
        since = rays.settles("max_probability", round(1 - words.CERTAIN, 9), progress=progress).view(ways, -1)
    else:
        seen = measured["confidence"]
        limit, answer = seen[-1], measured["class"][-1]
        since = _since(seen <= words.CERTAIN, distances)
    answers, from_ = [], []
    for confidences, classes, alphas in zip(limit, answer, since, strict=True):
        certain = confidences > words.CERTAIN
        kinds = classes[certain].unique().tolist()
        answers.append(kinds[0] if len(kinds) == 1 else -1)
        from_.append(float(alphas[certain].max()) if len(kinds) else math.inf)
    return limit, answers, from_


def _read(values: Tensor, name: str, within: float, distances: Sequence[float]) -> _Curves:
    """Where values ``[A, W, K]`` come to an end, and whether they do."""
    end = values[-1]
    scale = torch.ones(values.shape[1]) if name in SCORES else values.abs().amax((0, 2))
    near = within * torch.where(scale > 0, scale, 1.0).to(values)
    reached = _since(((values - end).abs() > near[:, None]), distances).amax(1)
    rises = (end - values[-2]).mean(1) > near
    return _Curves(values, end, reached, rises)


def _since(off: Tensor, distances: Sequence[float]) -> Tensor:
    """The distance from which on something holds that is `off` at some, ``[A, ...]``; infinite: at the radius only."""
    ranks = torch.arange(1, len(distances) + 1).view(-1, *[1] * (off.ndim - 1))
    last = torch.where(off, ranks, 0).amax(0)  # the place after the last that is off
    known = torch.tensor([*distances[:-1], math.inf, math.inf], dtype=torch.float64)
    return known[last]
