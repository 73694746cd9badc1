"""`audit`: along which directions is a model certain far away from everything it has seen?

For every direction and score: what the score is at the data, what it tends to, after how many multiples of the data's
spread it has come there, and whether it still rises. For the probabilities of piecewise-linear networks this is proven:
the limits are those of `ray`, and a limit does not rise. Everything else (other models, other posteriors, scores that
are not made of probabilities) is measured: the score at α = 0, 1, 2, 4, … up to a radius, where its last value stands
for the limit. Each row is a mean over a few inputs from which the direction starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio import inputs
from nescio.limits.directions import KINDS
from nescio.limits.directions import directions as ways_from
from nescio.limits.rays import Ray, ray
from nescio.limits.settling import SCORES
from nescio.posteriors import DeepEnsemble
from nescio.posteriors.base import number, whole_number
from nescio.scores.decomposition import decompose
from nescio.study.scoring import score as measure
from nescio.types import InputError, ModelError, Posterior

CERTAIN = 0.99
"""A limit confidence above this is called certain."""


@dataclass(frozen=True)
class AuditRow:
    """One score along one direction, the mean over the starts."""

    direction: str
    score: str
    start: float
    """The score at the data."""
    limit: float
    """What it tends to; where it is measured, what it is at the radius."""
    reached: float
    """The multiple of the data's spread behind which it stays near that: the largest over the starts."""
    rises: bool
    """Whether it still rises at the end."""
    confidence: float
    """The largest predicted probability in the limit."""
    certain: float
    """The share of the starts whose confidence tends to more than 0.99."""
    proven: bool
    """True: follows from the network's pieces; False: measured up to the radius."""


@dataclass(frozen=True)
class Audit:
    """A table, one row for each direction and score. `columns()` is for `nescio.data.write_table`; prints as text."""

    rows: tuple[AuditRow, ...]
    radius: float
    starts: int
    reason: str
    """Why the probabilities were measured; empty where they are proven."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """The table column by column."""
        return {f.name: np.array([getattr(row, f.name) for row in self.rows]) for f in fields(AuditRow)}

    def text(self) -> str:
        """The table in plain words."""
        by_direction = {row.direction: row for row in self.rows}
        sure = [row for row in by_direction.values() if row.certain >= 0.5]
        lines = [
            f"Far away from the data the model is certain along {len(sure)} of {len(by_direction)} directions "
            f"(its confidence tends to more than {CERTAIN:.0%} from at least half of {self.starts} starting points).",
            *(["The probabilities were measured, not proven: " + self.reason] if self.reason else []),
        ]
        for name in dict.fromkeys(row.score for row in self.rows):
            own = [row for row in self.rows if row.score == name]
            rising, fallen = sum(row.rises for row in own), sum(row.limit < row.start for row in own)
            how = "proven" if all(row.proven for row in own) else f"measured up to {self.radius:g} times the spread"
            lines.append(
                f"{name} ({how}): ends lower than at the data along {fallen} of {len(own)} directions, "
                f"still rises along {rising}."
            )
        width = max(len(row.direction) for row in self.rows)
        for row in self.rows:
            reached = "never" if math.isinf(row.reached) else f"{row.reached:.3g}"
            end = "still rises" if row.rises else f"settled after {reached} x the spread"
            lines.append(
                f"{row.direction:<{width}}  confidence -> {row.confidence:.3f}  "
                f"{row.score}: {row.start:.3g} -> {row.limit:.3g}, {end}{'' if row.proven else ' (measured)'}"
            )
        return "\n".join(lines)

    __str__ = text


def audit(
    model: Any,
    x: Any,
    directions: Sequence[str] | Mapping[str, Any] = KINDS,
    scores: Sequence[str] | None = None,
    *,
    starts: int = 8,
    count: int = 8,
    features: int = 32,
    names: Sequence[str] | None = None,
    within: float = 0.01,
    radius: float = 1024.0,
    exact: bool | None = None,
    seed: int = 0,
    output: Any = None,
) -> Audit:
    """The table of a model, a list of models or a posterior, from data ``[N, ...]``.

    directions: kinds of them ("features", "random", "data", "mean"), or a mapping of names to directions, in whose
    units α then counts. scores: any of `nescio.methods()` that the model can be given, "variance" and "aleatoric";
    None takes what its probabilities give. starts: inputs from which each direction starts; count: random directions,
    and inputs to go towards; features: at most so many, those that vary most; names: what they are called. within: how
    near to its limit a score is settled (relative to the largest value that was met, for a score that is measured and
    not made of probabilities). exact: True refuses what is not piecewise linear, False measures all, None measures what
    cannot be proven.
    """
    data = inputs.as_inputs(x)
    if not isinstance(data, Tensor) or data.ndim < 2 or len(data) < 2 or not data.is_floating_point():
        raise InputError(f"expected at least two inputs [N, ...] of real numbers, got {inputs.describe(x)}")
    if not bool(data.isfinite().all()):
        raise InputError("expected finite inputs, got NaN or infinite ones; leave those out")
    number("radius", radius, above=2.0)
    number("within", within, above=0.0, below=1.0)
    for name, value in (("starts", starts), ("count", count), ("features", features)):
        whole_number(name, value, 1)
    data = data.detach().to("cpu", torch.float64)
    begin = data[torch.linspace(0, len(data) - 1, min(starts, len(data))).long().unique()]
    ways = ways_from(data, begin, directions, names, features, count, seed)
    source = DeepEnsemble(model, output=output) if isinstance(model, list | tuple) and len(model) > 1 else model
    source = source[0] if isinstance(source, list | tuple) and source else source
    single = not isinstance(source, Posterior) or callable(source)
    chosen = tuple(scores) if scores is not None else _usual(single)
    rays, reason = None, "it was asked for"
    if exact is not False:
        try:
            rays, reason = ray(model, _all(begin, len(ways)), torch.cat(list(ways.values())), output=output), ""
        except ModelError as error:
            if exact:
                raise
            reason = str(error)
    plain = output if single else None
    rest = [name for name in chosen if rays is None or name not in SCORES]
    measured = _measured(source, begin, ways, rest, radius, plain, single) if rest else {}
    if rays is not None:
        confidence = rays.probabilities.amax(1).view(len(ways), -1)
    else:
        ends = measured.get("max_probability")
        if ends is None:
            ends = _measured(source, begin, ways, ["max_probability"], radius, plain, single)["max_probability"]
        confidence = 1 - ends[-1]
    rows = []
    for at, way in enumerate(ways):
        for name in chosen:
            found = (
                _proven(rays, name, at, len(begin), within)
                if name not in rest
                else _read(measured[name][:, at], name, within, radius)
            )
            sure = float((confidence[at] > CERTAIN).double().mean())
            rows.append(AuditRow(way, name, *found, float(confidence[at].mean()), sure, name not in rest))
    return Audit(tuple(rows), float(radius), len(begin), reason)


def _usual(single: bool) -> tuple[str, ...]:
    return (
        ("max_probability", "entropy") if single else ("max_probability", "entropy", "mutual_information", "variance")
    )


def _all(begin: Tensor, ways: int) -> Tensor:
    return begin.repeat(ways, *[1] * (begin.ndim - 1))


def _proven(rays: Ray | None, name: str, at: int, starts: int, within: float) -> tuple[float, float, float, bool]:
    """Start, limit and where it is reached, of the direction's rays."""
    assert rays is not None
    part = slice(at * starts, (at + 1) * starts)
    own = Ray(
        rays.x[part],
        rays.direction[part],
        tuple(p[part] for p in rays.paths),
        rays.samples[:, part],
        rays.tied[:, part],
    )
    begin = getattr(decompose(own.logits([0.0])[:, :, 0].softmax(-1)), SCORES[name])
    limit = getattr(own.limits, SCORES[name])
    return float(begin.mean()), float(limit.mean()), float(own.settles(name, within).max()), False


def _measured(
    source: Any, begin: Tensor, ways: dict[str, Tensor], names: Sequence[str], radius: float, output: Any, single: bool
) -> dict[str, Tensor]:
    """The scores at α = 0, 1, 2, 4 … radius: ``[A, ways, starts]`` by name."""
    steps = [0.0, *(2.0**k for k in range(math.ceil(math.log2(radius)))), radius]
    d = torch.stack(list(ways.values()))
    points = torch.stack([begin + alpha * d for alpha in steps])
    shape = points.shape[:3]
    flat = points.flatten(0, 2).to(torch.float32 if single else torch.float64)
    known = [name for name in names if name in SCORES and (name not in ("max_probability", "entropy") or not single)]
    found: dict[str, Tensor] = {}
    if known and single:
        raise InputError(f"expected several models or a posterior for {', '.join(known)}, got one model")
    if known:
        kinds = decompose(source.predict(flat, progress=False))
        found |= {name: getattr(kinds, SCORES[name]).view(shape) for name in known}
    other = [name for name in names if name not in known]
    if other:
        values = measure(source, flat, other, output=output, progress=False)
        found |= {name: values[name].view(shape) for name in other}
    return found


def _read(values: Tensor, name: str, within: float, radius: float) -> tuple[float, float, float, bool]:
    """Start, end and where the end is reached, of values ``[A, starts]``."""
    end = values[-1]
    near = within * (1.0 if name in SCORES else float(values.abs().amax()) or 1.0)
    steps = torch.tensor([0.0, *(2.0**k for k in range(len(values) - 2)), radius])
    off = ((values - end).abs() > near).any(1).nonzero().flatten()
    reached = float(steps[int(off[-1]) + 1]) if len(off) else 0.0
    rises = bool((end - values[-2]).mean() > near)
    return float(values[0].mean()), float(end.mean()), math.inf if rises else reached, rises
