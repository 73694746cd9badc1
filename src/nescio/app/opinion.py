"""One input in, everything that the page shows out, as plain data.

opinion(engine, row, scale)    the guard's verdict, the answer, the kinds of doubt and every score beside known ones
mapped(engine, row)            which part of the input each kind of doubt comes from
ruling(opinion, policy)        whether the answer may be used, under a policy
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nescio._common.formatting import class_name
from nescio.app.doubt_scale import KINDS, Scale
from nescio.attribution import Attribution, explain
from nescio.attribution.source import Source
from nescio.attribution.uncertainty import Of
from nescio.decide import ConformalPolicy, Policy
from nescio.dense import RegionGuard
from nescio.guard import Verdict
from nescio.inputs import Inputs
from nescio.serve import everywhere
from nescio.serve.drawing import token_names
from nescio.serve.engine import Engine
from nescio.serve.row_batches import stacked
from nescio.types import InputError, NescioError

ABOUT = {
    "total": "how uncertain the answer is, for whatever reason",
    "aleatoric": "of the data: more than one answer fits",
    "epistemic": "of the model: it has seen little like this",
}
AnyPolicy = Policy | ConformalPolicy | None


@dataclass(frozen=True)
class Answer:
    """A class with its probability."""

    index: int
    name: str
    probability: float


@dataclass(frozen=True)
class Reading:
    """A number, and where it lies on the scale; place, words and flagged say nothing where there is no scale."""

    name: str
    about: str
    value: float
    place: float | None = None
    words: str = ""
    flagged: bool = False


@dataclass(frozen=True)
class Maps:
    """Hold where the doubt comes from.

    Attributes:
        parts: By kind, ``[H, W]`` of a picture, ``[T]`` of a text, ``[F]`` of numbers.
        uncertainty: What each adds up to, in nats.
        names: Tokens or features.
        about: How they were made.
        missing: Why there are none.
        everywhere: Whether the model answers at every position: then `parts` are the doubt at each, and `uncertainty`
            is its mean.
        foreign: How foreign each part of a picture is, −log₁₀ p.
    """

    parts: Mapping[str, NDArray[np.float64]]
    uncertainty: Mapping[str, float]
    names: tuple[str, ...] | None
    about: str
    missing: str = ""
    everywhere: bool = False
    foreign: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Opinion:
    """Hold what the model makes of one input.

    Attributes:
        answers: All classes, the likeliest first.
        doubts: The kinds of doubt.
        methods: The scores.
        most: The largest total doubt that is possible, in nats.
        samples: How many predictions the doubt comes from; 1 for a single network, whose doubt is of one kind.
        seconds: How long it took.
        picture: ``[channels, H, W]``, as the model sees it.
        maps: Where the doubt comes from; None until they are made.
        verdict: The guard's, on this one input; None without a guard.

    Examples:
        >>> sure = nescio.app.Opinion((), (), (), most=1.1, samples=1, seconds=0.0)
        >>> sure.maps is None
        True
    """

    answers: tuple[Answer, ...]
    doubts: tuple[Reading, ...]
    methods: tuple[Reading, ...]
    most: float
    samples: int
    seconds: float
    picture: NDArray[np.float32] | None = None
    maps: Maps | None = None
    verdict: Verdict | None = None

    def value(self, name: str) -> float:
        """Return a doubt or a score by its name.

        Args:
            name: A kind of doubt or a method.

        Returns:
            The number.
        """
        return next(one.value for one in (*self.doubts, *self.methods) if one.name == name)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Return the probabilities by the index of the class, ``[C]``."""
        p = np.empty(len(self.answers))
        p[[one.index for one in self.answers]] = [one.probability for one in self.answers]
        return p


@dataclass(frozen=True)
class Ruling:
    """Hold what a policy says of an answer.

    Attributes:
        text: The ruling, in a sentence.
        accepted: Whether the answer may be used.
        rule: The policy, in a sentence.
        answers: The set that a policy of sets gives.

    Examples:
        >>> nescio.app.Ruling("Use it.", True, "Accept an input when …").accepted
        True
    """

    text: str
    accepted: bool
    rule: str
    answers: tuple[Answer, ...] = ()


def opinion(engine: Engine, row: Inputs, scale: Scale | None = None) -> Opinion:
    """Find what the model makes of a row, without maps.

    Args:
        engine: The model.
        row: The input, without a batch dimension.
        scale: Known inputs to compare it with.

    Raises:
        InputError: The model cannot take the row.

    Returns:
        The opinion, without maps.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer", ("a", "b", "c"))
        >>> engine = nescio.serve.Engine(source, ["entropy"])
        >>> found = nescio.app.opinion(engine, torch.tensor([9.0, 0.0, 0.0, 0.0]))
        >>> len(found.answers), found.maps
        (3, None)
    """
    start = time.perf_counter()
    _check_form(row, form(engine, scale))
    assessed = engine.assess([row], list(engine.methods))[0]
    order = assessed.probabilities.argsort(descending=True, stable=True).tolist()
    kinds = KINDS if assessed.samples > 1 else KINDS[:1]
    return Opinion(
        answers=tuple(_answer(engine, at, float(assessed.probabilities[at])) for at in order),
        doubts=tuple(_reading(kind, ABOUT[kind], getattr(assessed, kind), scale) for kind in kinds),
        methods=tuple(
            _reading(name, str(getattr(method, "summary", "")), assessed.scores[name], scale)
            for name, method in engine.methods.items()
        ),
        most=math.log(len(order)),
        samples=assessed.samples,
        seconds=time.perf_counter() - start,
        picture=_picture(row),
        verdict=assessed.verdict,
    )


def mapped(engine: Engine, row: Inputs, samples: int, names: Sequence[str] | None = None) -> Maps:
    """Find where each kind of doubt comes from.

    Args:
        engine: The model.
        row: The input.
        samples: How many predictions tell the kinds of doubt apart.
        names: The names of features.

    Returns:
        The maps, or why there are none.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer", ("a", "b", "c"))
        >>> maps = nescio.app.mapped(nescio.serve.Engine(source, ["entropy"]), torch.tensor([2.0, 0.0, 0.0, 0.0]), 1)
        >>> maps.names
        ('feature 0', 'feature 1', 'feature 2', 'feature 3')
    """
    kinds = KINDS if samples > 1 else KINDS[:1]
    if engine.everywhere(row):
        return _everywhere(engine, row, kinds)
    try:
        attributions = explain(engine.predicts, stacked([row], 1), of=kinds, progress=False)
    except (NescioError, RuntimeError) as error:  # a model without gradients still has an answer
        return Maps({}, {}, None, "", f"No map: {' '.join(str(error).split())[:300]}")
    parts, values = _numbers(attributions)
    about = attributions["total"].about.partition(" of " if samples > 1 else ", by ")[2]
    return Maps(
        parts, values, _called(parts["total"].shape, token_names(engine.source, row) or names, "feature"), about
    )


def _everywhere(engine: Engine, row: Inputs, kinds: Sequence[Of]) -> Maps:
    """The doubt at every position, and which part of a picture is foreign."""
    maps = everywhere.doubts(engine, row, kinds)
    parts, values = _numbers(maps)
    names = _called(parts["total"].shape, token_names(engine.source, row), "position")
    foreign = None
    if isinstance(engine.guard, RegionGuard) and parts["total"].ndim == 2:
        verdict = engine.guard.check(stacked([row], 1))
        size = parts["total"].shape
        foreign = everywhere.foreignness(verdict.p_value[0], (size[0], size[1])).numpy()
    return Maps(parts, values, names, maps["total"].about, everywhere=True, foreign=foreign)


def _numbers(
    attributions: Mapping[Any, Attribution],
) -> tuple[dict[str, NDArray[np.float64]], dict[str, float]]:
    """The maps, and what they are about, by kind."""
    maps: dict[str, NDArray[np.float64]] = {kind: one.maps[0].numpy() for kind, one in attributions.items()}
    return maps, {kind: float(one.uncertainty[0]) for kind, one in attributions.items()}


def _called(size: tuple[int, ...], names: Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    """What the places of a list are called; None of a picture."""
    if len(size) != 1:
        return None
    return (
        tuple(names) if names is not None and len(names) == size[0] else tuple(f"{what} {at}" for at in range(size[0]))
    )


def ruling(opinion: Opinion, policy: AnyPolicy, by: str | None, foreign: bool = False) -> Ruling | None:
    """Say whether the answer may be used under a policy.

    Args:
        opinion: What the model makes of the input.
        policy: The policy; None gives None.
        by: The method whose score it judges.
        foreign: Whether the input is foreign: the promise is for inputs like the known ones.

    Returns:
        The ruling; None without a policy.

    Examples:
        >>> nescio.app.ruling(nescio.app.Opinion((), (), (), 1.1, 1, 0.0), None, None) is None
        True
    """
    if policy is None:
        return None
    answers: tuple[Answer, ...] = ()
    if isinstance(policy, ConformalPolicy):
        members = policy.sets(opinion.probabilities[None])[0].tolist()
        answers = tuple(one for one in opinion.answers if members[one.index])
        accepted = len(answers) == 1
        text = "It alone is in the set of answers." if accepted else f"The set of answers has {len(answers)}."
    else:
        accepted = bool(policy.accept([opinion.value(str(by))])[0])
        text = f"Its doubt is {'within' if accepted else 'beyond'} the limit."
    if foreign:
        return Ruling(f"{text} But the promise is for known inputs, and this is foreign.", False, str(policy), answers)
    end = "The answer may be used." if accepted else "A person should look at it."
    return Ruling(f"{text} {end}", accepted, str(policy), answers)


def form(engine: Engine, scale: Scale | None) -> tuple[int, ...] | None:
    """Return the shape that all known inputs have, where they have one."""
    if engine.guard is not None:
        return engine.guard.fitted.form
    return None if scale is None else scale.form


def _check_form(row: Inputs, known: tuple[int, ...] | None) -> None:
    if known is None or not isinstance(row, Tensor) or tuple(row.shape) == known:
        return
    wanted, came = list(known), list(row.shape)
    remedy = "bring it to that size, or let the model's pre-processing do so (--size)"
    if len(wanted) == len(came) == 3 and wanted[0] != came[0]:
        names = {1: "1 channel (grey)", 3: "3 channels (colour)"}
        wants, got = (names.get(n, f"{n} channels") for n in (wanted[0], came[0]))
        raise InputError(
            f"expected a picture with {wants}, as known inputs have, got one with {got}; give such a picture, or let "
            "the model's own transform make one of it"
        )
    raise InputError(f"expected an input of shape {wanted}, as known inputs have, got {came}; {remedy}")


def _answer(engine: Engine, place: int, probability: float) -> Answer:
    return Answer(place, class_name(place, engine.source.classes), probability)


def _reading(name: str, about: str, value: float, scale: Scale | None) -> Reading:
    if scale is None or name not in scale.values:
        return Reading(name, about, value)
    return Reading(name, about, value, scale.place(name, value), scale.words(name, value), scale.flagged(name, value))


def _picture(row: Inputs) -> NDArray[np.float32] | None:
    """The row as a picture, where it is one."""
    batch = stacked([row], 1)
    try:
        x = Source.of(batch, "auto").tensor(batch)[0]
    except InputError:
        return None
    return x.float().cpu().numpy() if x.ndim == 3 and x.is_floating_point() else None
