"""One pass over a sample of rows: scores, predictions and the kinds of doubt of each, with nothing else held.

Inputs are read, used and let go batch by batch, so that memory is that of one batch and of a few numbers for each row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio.attribution.sampled_members import distribution
from nescio.data.prefetch import read_ahead
from nescio.data.sources import Batch, Problem, Rows
from nescio.dense import RegionGuard, RegionVerdict
from nescio.dense.averages import averaged, mean
from nescio.guard import Guard, Verdict
from nescio.guard.split import digests
from nescio.guard.verdict import joined as verdicts
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelOrPosterior
from nescio.models.positions import recall
from nescio.posteriors import Deterministic
from nescio.progress import bar, growing
from nescio.quantities.beside import Beside
from nescio.scores import Method
from nescio.scores.decomposition import decompose
from nescio.scoring import score
from nescio.types import Decomposition, InputError, NescioError


@dataclass(frozen=True)
class Subject:
    """A model or posterior, and the distribution by which its doubt is parted."""

    model: Any
    """What is scored, and whose answers count."""
    posterior: Any
    """Whose members give the kinds of doubt."""
    words: str
    """What that distribution is."""
    guard: Guard | RegionGuard | None = None
    """Who judges each input, where there was a reference."""
    level: float = 0.05
    """At which it flags, for words on a part of a picture."""

    @property
    def parted(self) -> bool:
        """Whether its members tell doubt of the model from doubt of the data: they must be fitted or trained."""
        return bool(getattr(self.posterior, "learnt", True))

    @property
    def answers(self) -> Any:
        """The distribution whose mean is the answer."""
        return Deterministic(self.model) if isinstance(self.model, Classifier) else self.model


@dataclass(frozen=True)
class Measured:
    """What is known of n rows; all arrays are float64 or int64 on the CPU."""

    index: NDArray[np.int64]
    names: list[str]
    labels: NDArray[np.int64] | None
    scores: dict[str, NDArray[np.float64]]
    p: Tensor
    """The answer, ``[n, C]``."""
    kinds: Decomposition
    members: int
    """So many tell the kinds of doubt apart; 1 where nothing does."""
    digests: list[bytes]
    """Equal inputs have equal ones."""
    verdict: Verdict | None
    problems: list[Problem]
    seconds: float
    everywhere: bool = False
    """Whether the model answers at every position, and numbers are means over these."""

    def __len__(self) -> int:
        return len(self.index)

    def copies(self) -> dict[int, int]:
        """The places of different inputs, the first of each, and how often it is there."""
        first: dict[bytes, int] = {}
        counts: dict[int, int] = {}
        for place, digest in enumerate(self.digests):
            at = first.setdefault(digest, place)
            counts[at] = counts.get(at, 0) + 1
        return counts


def sample(count: int, most: int, seed: int) -> list[int]:
    """Return at most so many of `count` places, drawn with this seed, in rising order."""
    if count <= most:
        return list(range(count))
    drawn = np.random.default_rng(seed).choice(count, most, replace=False)
    return [int(place) for place in np.sort(drawn)]


def subject(
    model: ModelOrPosterior,
    training: Data | None,
    first: Inputs,
    guard: Guard | RegionGuard | None = None,
    level: float = 0.05,
) -> Subject:
    """The model, and the distribution that tells its kinds of doubt apart: its own, or a Laplace posterior of a single
    network where there are training data. A single network without them has one kind of doubt, and the words say so.
    """
    why = "the network alone, whose doubt is of one kind: --fit or --posterior tells the model's from the data's"
    if training is not None or not isinstance(model, Classifier):
        try:
            posterior, words = distribution(model, training, None)
            posterior.predict(first, progress=False)
        except NescioError as error:
            if not isinstance(model, Classifier):
                raise
            why = f"the network alone, which has no epistemic part ({str(error).split(';')[0]})"
        else:
            return Subject(model, posterior, words, guard, level)
    return Subject(model, Deterministic(model), why, guard, level)


def measure(
    about: Subject,
    rows: Rows,
    places: Sequence[int],
    methods: Sequence[Method],
    *,
    batch: int,
    labels: Tensor | None,
    what: str,
    progress: bool | None,
) -> Measured:
    """Read the rows at these places and measure what can be read; labels: by place, where not the rows' own."""
    parts: list[_Part] = []
    problems: list[Problem] = []
    members, since = 1, time.perf_counter()
    ranges: Any = [places[some.start : some.stop] for some in growing(len(places), batch)]
    with (
        bar(len(places), show=progress, description=what) as shown,
        closing(read_ahead(rows, ranges)) as reads,
    ):
        for read in reads:
            problems += read.problems
            if read.batch is not None:
                parts.append(_measured(about, read.batch, methods))
                members = parts[-1].members
            shown.update(len(read.places))
    if not parts:
        first = f"; the first: {problems[0]}" if problems else ""
        raise InputError(f"expected at least one row that can be used, but got none of {rows.about}{first}")
    index = torch.cat([part.places for part in parts])
    own = [part.labels for part in parts if part.labels is not None]
    known = labels[index] if labels is not None else torch.cat(own) if own else None
    return Measured(
        index=index.numpy(),
        names=[name for part in parts for name in part.names],
        labels=None if known is None else known.numpy(),
        scores={key: torch.cat([part.scores[key] for part in parts]).numpy() for key in parts[0].scores},
        p=torch.cat([part.p for part in parts]),
        kinds=joined([part.kinds for part in parts]),
        members=members,
        digests=[digest for part in parts for digest in part.digests],
        verdict=None if about.guard is None else verdicts([part.verdict for part in parts if part.verdict is not None]),
        problems=problems,
        seconds=time.perf_counter() - since,
        everywhere=parts[0].everywhere,
    )


class _Part(NamedTuple):
    """A batch without its inputs."""

    places: Tensor
    names: list[str]
    labels: Tensor | None
    scores: dict[str, Tensor]
    p: Tensor
    kinds: Decomposition
    members: int
    digests: list[bytes]
    verdict: Verdict | None
    everywhere: bool = False


def _measured(about: Subject, batch: Batch, methods: Sequence[Method]) -> _Part:
    x, guard = batch.inputs, about.guard
    shares = isinstance(about.model, Classifier) and not (about.model.dense or recall(about.model))
    judge = guard if shares and isinstance(guard, Guard) and guard.classifier is about.model else None
    if judge is not None:
        judge.refuse_another_form(x)
    beside = Beside(() if judge is None else judge.needs)  # answers and verdicts come from the pass of the scores
    scores = score(about.model, x, [*methods, beside] if shares else list(methods), progress=False)
    scores.pop(beside.name, None)
    if judge is not None:
        verdict: Any = verdicts([judge.judge(part) for part in beside.parts])
    else:
        verdict = None if guard is None else guard.check(x, progress=False)
    if isinstance(verdict, RegionVerdict):
        verdict = verdict.overall(about.level)
    if next(iter(scores.values())).ndim > 1:
        p, kinds, members = averaged(about.posterior, x)
        own = {key: mean(maps, x) for key, maps in scores.items()}
        members = members if about.parted else 1
        return _Part(batch.indices, batch.names, None, own, p, kinds, members, digests(x, 0), verdict, True)
    single = isinstance(about.posterior, Deterministic)
    if single and shares:
        drawn = answer = beside.logits.softmax(-1)[None]
    else:
        drawn = about.posterior.predict(x, progress=False)
        same = single or about.posterior is about.model
        answer = drawn if same else about.answers.predict(x, progress=False)
    return _Part(
        batch.indices,
        batch.names,
        batch.labels,
        scores,
        answer.mean(0),
        decompose(drawn),
        len(drawn) if about.parted else 1,
        digests(x, 0),
        verdict,
    )


def joined(parts: Sequence[Decomposition]) -> Decomposition:
    """Join decompositions one after the other."""
    return Decomposition(*(torch.cat(field) for field in zip(*(_fields(one) for one in parts), strict=True)))


def _fields(kinds: Decomposition) -> tuple[Tensor, ...]:
    return kinds.total, kinds.aleatoric, kinds.epistemic, kinds.variance, kinds.max_probability, kinds.bregman
