"""The page over any model: what its doubts are measured by, which methods it can do, what is known.

With training data a Laplace posterior around the network tells the kinds of doubt apart. Without, a single network has
its total doubt alone: nothing that is put around it could tell what it does not know from what nobody can know.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nescio import scores
from nescio.app import doubt_scale, examples
from nescio.app.backend import Backend
from nescio.app.doubt_scale import LEAST, Scale
from nescio.app.opinion import AnyPolicy
from nescio.attribution.sampled_members import distribution
from nescio.data.sources import Rows
from nescio.data.sources.rows import Problem
from nescio.data.sources.table_rows import TableRows
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.scores import Method
from nescio.scores.base import must_be_fitted
from nescio.scoring import fit
from nescio.serve.engine import Engine
from nescio.specs import AnyGuard
from nescio.types import InputError, ModelError

Pairs = Sequence[tuple[Inputs, Tensor]]
"""Labelled batches."""
METHODS = ("energy", "entropy", "max_probability", "mutual_information")
"""What is shown beside the first, and quick with a thousand classes too; dearer ones are there when asked for."""
AT_ONCE = 16
"""Known inputs of a pass; what people give comes alone."""


def opened(
    source: Source,
    rows: Rows | None = None,
    known: Rows | None = None,
    training: Pairs | None = None,
    methods: list[str] | None = None,
    policy: tuple[str, AnyPolicy] | None = None,
    guard: AnyGuard | None = None,
    *,
    most: int = 100,
    progress: bool | None = None,
) -> Backend:
    """Return what the page of a model stands on.

    Args:
        source: The model.
        rows: Examples to click on.
        known: Inputs of the guard's reference; they say what scores are usual.
        training: Labelled batches, for a Laplace posterior and for methods that need them.
        methods: The scores to compare; None takes the usual ones that the model can do.
        policy: Which answers to accept, and what that policy is called.
        guard: Which inputs are foreign.
        most: How many of the known inputs are measured.
        progress: Whether bars are shown; None shows them in a terminal.

    Returns:
        The backend, for `run` or `application`.

    Raises:
        InputError: If a method needs training data and there are none.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer", ("a", "b", "c"))
        >>> backend = nescio.app.opened(source, methods=["entropy"])
        >>> len(next(backend.of_text("9, 0, 0, 0")).answers)
        3
    """
    kind = source.kind or (rows.preprocess.kind if rows is not None else "pictures")
    some = () if rows is None else tuple(examples.of_data(rows))
    note, engine = _engine(source, training, methods, policy, guard)
    scale = None
    if known is not None:
        inputs, labels = _drawn_inputs(known, most)
        if len(inputs) >= LEAST:
            scale = _scale(engine, inputs, labels, progress)
    nameless = "" if source.classes is not None else "The classes have no names here; --class-names FILE gives them."
    notes = tuple(one for one in (note, nameless) if one)
    return Backend(engine, kind, scale, policy, some, _names(rows), notes)


def _engine(
    source: Source,
    training: Pairs | None,
    methods: list[str] | None,
    policy: tuple[str, AnyPolicy] | None,
    guard: AnyGuard | None,
) -> tuple[str, Engine]:
    """What tells the kinds of doubt apart, in words, and the engine."""
    posterior, words, alone = None, "", isinstance(source.model, Classifier)
    if isinstance(source.model, Classifier) and training is not None:
        try:
            posterior, how = distribution(source.model, training, None)
            words, alone = f"Kinds of doubt by {how}.", False
        except (InputError, ModelError) as error:
            words = f"Doubt is of one kind alone, since none can be told apart in this model: {error}"
    chosen, rule = _possible(methods, source, training, alone), None if policy is None else policy[1]
    return words, Engine(source, chosen, posterior=posterior, policy=rule, guard=guard, rows=1)


def _possible(methods: list[str] | None, source: Source, training: Pairs | None, alone: bool) -> list[Method]:
    """The methods that were asked for, or those of the usual ones that can be done, fitted."""
    single = isinstance(source.model, Classifier) or len(getattr(source.model, "classifiers", ())) == 1
    if methods is None:
        beside = METHODS if single else ("mutual_information", "entropy", "max_probability")
        usual = (scores.default_method().name, *beside)
        methods = [name for name in usual if not (alone and name == "mutual_information")]
    chosen = [scores.get(name) for name in methods]
    learning = [method for method in chosen if must_be_fitted(method)]
    if not learning:
        return chosen
    if training is None:
        raise InputError(f"expected training data for '{learning[0].name}', got none; name them with --fit")
    fitted = {method.name: method for method in fit(source.model, learning, training, progress=False)}
    return [fitted.get(method.name, method) for method in chosen]


def _drawn_inputs(known: Rows, most: int) -> tuple[list[Inputs], Tensor | None]:
    """Known inputs, drawn by a seed, and their labels where all have one."""
    inputs, places = [], []
    for place in examples.random_places(len(known), most):
        row = known.attempt(place)
        if not isinstance(row, Problem):
            inputs.append(row)
            places.append(place)
    labels = known.labels
    return inputs, None if labels is None or not places else labels[places]


def _scale(engine: Engine, inputs: list[Inputs], labels: Tensor | None, progress: bool | None) -> Scale:
    alone, engine.rows = engine.rows, AT_ONCE
    try:
        return doubt_scale.measured(engine, inputs, labels=labels, progress=progress)
    finally:
        engine.rows = alone


def _names(rows: Rows | None) -> tuple[str, ...] | None:
    """What the data call their features."""
    columns = rows.store._x if rows is not None and isinstance(rows.store, TableRows) else []
    return tuple(columns) if len(columns) > 1 else None
