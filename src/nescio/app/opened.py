"""The page over any model: what its doubts are measured by, which methods it can do, what is known.

Around a single network copies of it with dropout before the last layer, or with training data a Laplace posterior, tell
the kinds of doubt apart, as `nescio explain` has it. A network that takes neither has its total doubt alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nescio import scores
from nescio.app import examples, reference
from nescio.app.desk import Desk
from nescio.app.opinion import AnyPolicy
from nescio.app.reference import LEAST, Scale
from nescio.attribution.members import distribution
from nescio.data.sources import Rows
from nescio.data.sources.rows import Problem
from nescio.data.sources.tables import TableRows
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.serve.engine import Engine
from nescio.study.scoring import fit
from nescio.types import InputError, ModelError

METHODS = ("energy", "entropy", "max_probability", "mutual_information")
"""What is shown beside the first, and quick with a thousand classes too; dearer ones are there when asked for."""
AT_ONCE = 16
"""Known inputs of a pass; what people give comes alone."""


def opened(
    source: Source,
    rows: Rows | None = None,
    known: Rows | None = None,
    training: Any = None,
    methods: list[str] | None = None,
    policy: tuple[str, AnyPolicy] | None = None,
    *,
    most: int = 100,
    progress: bool | None = None,
) -> Desk:
    """The desk of a model; rows: examples to click, known: inputs to compare with, of which at most `most` are taken.

    training: labelled pairs, for a Laplace posterior and for methods that need them.
    """
    notes = []
    kind = source.kind or (rows.preprocess.kind if rows is not None else "pictures")
    some = () if rows is None else tuple(examples.of_data(rows))
    measured_by, engine = _engine(source, training, methods, policy, some[0].row if some else None)
    notes.append(measured_by)
    scale = None
    if known is not None:
        shown = examples.MOST if known is rows and len(known) >= examples.MOST + LEAST else 0
        inputs, labels = _taken(known, most, shown)
        if len(inputs) < LEAST:
            notes.append(f"There are {len(inputs)} known inputs; with at least {LEAST} a new one can be compared.")
        else:
            scale = _scale(engine, inputs, labels, progress)
            if labels is not None and int(labels.max()) >= scale.probabilities.shape[1]:
                scale = replace(scale, labels=None)
                notes.append("The labels of known inputs are not those of the model's classes, and are left aside.")
    return Desk(engine, kind, scale, policy, some, _names(rows), tuple(note for note in notes if note))


def _engine(
    source: Source, training: Any, methods: list[str] | None, policy: tuple[str, AnyPolicy] | None, row: Inputs | None
) -> tuple[str, Engine]:
    """What tells the kinds of doubt apart, in words, and the engine."""
    rule = None if policy is None else policy[1]
    if not isinstance(source.model, Classifier):
        engine = Engine(source, _possible(methods, source, training), policy=rule, rows=1)
        return "", engine
    posterior, words = distribution(source.model, training, None)
    engine = Engine(source, _possible(methods, source, training), posterior=posterior, policy=rule, rows=1)
    if row is not None:
        try:
            engine.assess([row])
        except (InputError, ModelError) as error:
            chosen = _possible(methods, source, training, alone=True)
            why = f"Doubt is of one kind alone, since none can be told apart in this model: {error}"
            return why, Engine(source, chosen, policy=rule, rows=1)
    return f"Kinds of doubt by {words}.", engine


def _possible(methods: list[str] | None, source: Source, training: Any, alone: bool = False) -> list[Any]:
    """The methods that were asked for, or those of the usual ones that can be done, fitted."""
    single = isinstance(source.model, Classifier) or len(getattr(source.model, "classifiers", ())) == 1
    if methods is None:
        beside = METHODS if single else ("mutual_information", "entropy", "max_probability")
        usual = (scores.default_method().name, *beside)
        methods = [name for name in usual if not (alone and name == "mutual_information")]
    chosen: list[Any] = [scores.get(name) for name in methods]
    learning = [method for method in chosen if method.needs_training_data]
    if not learning:
        return chosen
    if training is None:
        raise InputError(f"expected training data for '{learning[0].name}', got none; name them with --fit")
    found = {method.name: method for method in fit(source.model, learning, training, progress=False)}
    return [found.get(method.name, method) for method in chosen]


def _taken(known: Rows, most: int, shown: int) -> tuple[list[Inputs], Any]:
    """Known inputs, drawn by a seed after those that are shown as examples, and their labels where all have one."""
    inputs, places = [], []
    for place in examples.chosen(len(known), most, start=shown):
        row = known.attempt(place)
        if not isinstance(row, Problem):
            inputs.append(row)
            places.append(place)
    labels = known.labels
    return inputs, None if labels is None or not places else labels[places]


def _scale(engine: Engine, inputs: list[Inputs], labels: Any, progress: bool | None) -> Scale:
    alone, engine.rows = engine.rows, AT_ONCE
    try:
        return reference.measured(engine, inputs, labels=labels, progress=progress)
    finally:
        engine.rows = alone


def _names(rows: Rows | None) -> tuple[str, ...] | None:
    """What the data call their features."""
    columns = rows.store._x if rows is not None and isinstance(rows.store, TableRows) else []
    return tuple(columns) if len(columns) > 1 else None
