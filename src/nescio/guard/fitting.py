"""Fitting a guard: what is kept of the reference, the witnesses fitted to some of it, ranks from the rest."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio import inputs, quantities, scores
from nescio.data.sources import Rows as DataRows
from nescio.guard import split
from nescio.guard.anatomy import anatomy_of
from nescio.guard.changes import Changes
from nescio.guard.fitted_witnesses import FittedWitnesses, RowsByWitness, take
from nescio.guard.input_blocks import block_size, blocks, count, form
from nescio.guard.witnesses import Anatomy, Rows, Witness
from nescio.guard.wrong import Mistakes
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.posteriors.saving import fingerprint
from nescio.progress import bar, growing
from nescio.quantities import Logits, Request
from nescio.types import InputError, ModelError

LEAST = 20  # different inputs of a reference
FEWEST_GROUPS = 5
STEADY = 300  # inputs below which a guard warns


@dataclass(frozen=True)
class FoldFit:
    """The witnesses fitted to one part of the reference, and what they say of the part that gives ranks; all sorted.

    ranks: the guard's scores of the inputs that give ranks; copies: of their changed copies; z: of these inputs, by
    witness.
    """

    witnesses: FittedWitnesses
    ranks: Tensor
    copies: Tensor
    z: Mapping[str, Tensor]


@dataclass(frozen=True)
class Fitted:
    """All that a guard learns in a fit, and all that `nescio.guard.guard_saving` keeps."""

    anatomy: Anatomy
    witnesses: tuple[Witness, ...]
    folds: tuple[FoldFit, ...]
    mistakes: Mistakes | None
    form: tuple[int, ...] | None
    """The shape of one input, where inputs are one tensor of floating-point numbers or bytes."""
    count: int
    """How many different inputs the reference has."""
    copies: int
    """How many changed copies get the same answer as their input."""
    weights: str | None
    """The fingerprint of the model."""
    classes: int
    """How many classes the model has."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the witnesses are called."""
        return tuple(witness.name for witness in self.witnesses)

    @property
    def ranks(self) -> int:
        """How many inputs a new one is compared with."""
        return sum(len(fold.ranks) for fold in self.folds)


class ReferenceRecord:
    """What is kept of the reference, block by block, and of its changed copies where the answer stays the same."""

    def __init__(self) -> None:
        self.anatomy: Anatomy | None = None
        self.witnesses: tuple[Witness, ...] = ()
        self.form: tuple[int, ...] | None = None
        self.digests: list[bytes] = []
        self.labels: list[Tensor | None] = []
        self.logits: list[Tensor] = []
        self.plain: list[dict[str, Rows]] = []
        self.changed: list[dict[str, Rows]] = []
        self.originals: list[Tensor] = []  # the position of the input that each changed copy was made from

    def start(self, anatomy: Anatomy, witnesses: Iterable[Witness], form: tuple[int, ...] | None) -> None:
        """Set what does not change between blocks; a ModelError where no witness can work with the model."""
        self.anatomy, self.form = anatomy, form
        self.witnesses = tuple(witness for witness in witnesses if witness.needs(anatomy))
        if not self.witnesses:
            raise ModelError(
                "expected a model in which at least one witness can work (with the features of a linear layer, or the "
                "activations of modules), got one without these; use witnesses=('doubt',)"
            )

    def add(
        self,
        classifier: Classifier,
        x: Inputs,
        labels: Tensor | None,
        digests: list[bytes],
        changes: Changes,
        chunk: int | None,
    ) -> None:
        """Record a block of inputs, and their changed copies."""
        assert self.anatomy is not None
        if self.form is not None and form(x) != self.form:
            raise InputError(
                f"expected inputs of one shape, {list(self.form)} as the first of the reference, got {describe(x)}; "
                "bring them to one size"
            )
        requests = requests_of(self.witnesses, self.anatomy)
        answers = quantities.compute(classifier, x, requests, chunk)
        first = len(self.digests)
        self.digests += digests
        self.labels.append(labels)
        self.logits.append(answers[Logits()])
        self.plain.append(rows_of(self.witnesses, self.anatomy, answers))
        copies = changes(x, [int.from_bytes(digest[:7], "little") for digest in digests])
        if copies is None:
            return
        of_copies = quantities.compute(classifier, copies, requests, chunk)
        same_answer = (of_copies[Logits()].argmax(1) == answers[Logits()].argmax(1)).nonzero().flatten()
        self.changed.append(take(rows_of(self.witnesses, self.anatomy, of_copies), same_answer))
        self.originals.append(first + same_answer)


def read(
    classifier: Classifier,
    witnesses: tuple[Witness, ...],
    reference: Data | DataRows,
    changes: Changes,
    seed: int,
    progress: bool | None,
    chunk: int | None,
) -> ReferenceRecord:
    """Read the reference, and keep of each input what the witnesses look at."""
    record = ReferenceRecord()
    with preserved(classifier), bar(count(reference), show=progress, description="fitting the guard") as shown:
        for block, labels in blocks(reference, chunk or block_size(classifier)):
            size = inputs.size(block)
            pieces: Iterable[range] = [range(size)]
            if record.anatomy is None:
                record.start(anatomy_of(classifier, block), witnesses, form(block))
                classifier.prepare(block)  # an input that cannot be used is named by its place in the block
                pieces = growing(size, size)  # the first rows tell how long all will take
            for some in pieces:
                at = slice(some.start, some.stop)
                x, y = inputs.take(block, at), None if labels is None else labels[at]
                record.add(classifier, x, y, split.digests(x, seed), changes, chunk)
                shown.update(len(some))
    return record


def requests_of(witnesses: Iterable[Witness], anatomy: Anatomy) -> tuple[Request, ...]:
    """Return the quantities of a batch that the witnesses need, each once, and the logits."""
    return tuple(dict.fromkeys([*(request for w in witnesses for request in w.needs(anatomy)), Logits()]))


def rows_of(witnesses: Iterable[Witness], anatomy: Anatomy, answers: Mapping[Request, Any]) -> dict[str, Rows]:
    """Return what each witness keeps of the inputs of a batch."""
    return {w.name: w.rows(*(answers[request] for request in w.needs(anatomy))) for w in witnesses}


def fit(classifier: Classifier, record: ReferenceRecord, groups: Sequence[Hashable] | None = None) -> Fitted:
    """Fit the witnesses and compute the ranks.

    Args:
        classifier: The model.
        record: What is kept of the reference.
        groups: The group of each input, in the order of the reference; None: each is a group of its own.

    Returns:
        All that the guard needs to judge inputs.
    """
    if record.anatomy is None:
        raise InputError("expected a reference of at least 20 inputs, got none; give some hundred")
    order = split.distinct(record.digests)
    _check_size(len(order), len(record.digests))
    plain = _joined(record.plain)
    copies = _joined(record.changed) if record.changed else None
    originals = torch.cat(record.originals) if record.originals else torch.zeros(0, dtype=torch.long)
    counted = torch.isin(originals, order)
    originals = originals.where(counted, torch.tensor(-1))
    group_of = _groups(record, order, groups)
    folds = [_fold_fit(record.witnesses, f, group_of, plain, copies, originals) for f in split.folds(order, group_of)]
    return Fitted(
        anatomy=record.anatomy,
        witnesses=record.witnesses,
        folds=tuple(folds),
        mistakes=_mistakes(record, order),
        form=record.form,
        count=len(order),
        copies=int(counted.sum()),
        weights=fingerprint(classifier),
        classes=record.logits[0].shape[1],
    )


def _check_size(different: int, count: int) -> None:
    """Raise an InputError for too few different inputs; warn where some are equal, or where there are not many."""
    if different < LEAST:
        raise InputError(
            f"expected a reference of at least {LEAST} different inputs, got {different} (of {count}); give some "
            "hundred of the kind that the model is meant for"
        )
    if different < count:
        _warn(
            f"{count - different} of {count} inputs of the reference are copies of others and count once: "
            f"{different} are left"
        )
    if different < STEADY:
        _warn(
            f"the reference has {different} different inputs; below {STEADY} a guard finds fewer foreign inputs, and "
            "its share of false alarms can be further from the promised one. Give more if you can"
        )


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=5)  # the caller of `Guard.fit`


def _groups(record: ReferenceRecord, order: Tensor, groups: Sequence[Hashable] | None) -> Tensor:
    """The number of each input's group, which does not depend on the order of the reference; checked."""
    count = len(record.digests)
    if groups is not None and len(groups) != count:
        raise InputError(f"expected a group for each of {count} inputs of the reference, got {len(groups)} groups")
    group_of = split.group_numbers(order, count, groups)
    different = int(group_of.max()) + 1
    if different < FEWEST_GROUPS:
        raise InputError(
            f"expected inputs of at least {FEWEST_GROUPS} groups, got {different}; so few do not show what is usual"
        )
    if groups is not None and different < LEAST:
        _warn(f"the reference has inputs of {different} groups; what is promised for other groups rests on these few")
    return group_of


def _fold_fit(
    witnesses: Sequence[Witness],
    fold: split.Fold,
    group_of: Tensor,
    plain: RowsByWitness,
    copies: RowsByWitness | None,
    originals: Tensor,
) -> FoldFit:
    """The witnesses fitted to the inputs that fit and to their copies, and the ranks of the others and of theirs."""
    rows, groups = take(plain, fold.fit), group_of[fold.fit]
    ranked_copies: dict[str, Rows] | None = None
    if copies is not None:
        fits = torch.isin(originals, fold.fit)
        more = take(copies, fits.nonzero().flatten())
        rows = {name: tuple(map(torch.cat, zip(rows[name], more[name], strict=True))) for name in rows}
        groups = torch.cat([groups, group_of[originals[fits]]])
        ranked_copies = take(copies, torch.isin(originals, fold.rank).nonzero().flatten())
    fitted = FittedWitnesses.of(witnesses, rows, groups)
    opinions = fitted.opinions_from_rows(witnesses, take(plain, fold.rank))
    of_copies = torch.zeros(0, dtype=torch.float64)
    if ranked_copies is not None and len(next(iter(ranked_copies.values()))[0]):
        of_copies = fitted.opinions_from_rows(witnesses, ranked_copies).score.sort().values
    z = {name: values.sort().values for name, values in opinions.z.items()}
    return FoldFit(fitted, opinions.score.sort().values, of_copies, z)


def _mistakes(record: ReferenceRecord, order: Tensor) -> Mistakes | None:
    """What labels say about wrong answers; None where some labels are missing."""
    if any(labels is None for labels in record.labels):
        return None
    labels = torch.cat([labels for labels in record.labels if labels is not None])[order]
    logits = torch.cat(record.logits)[order]
    if int(labels.max()) >= logits.shape[1]:
        raise InputError(
            f"expected class indices from 0 to {logits.shape[1] - 1}, as the model has {logits.shape[1]} classes, got "
            f"{int(labels.max())} among the labels of the reference"
        )
    return Mistakes.of(scores.get("max_probability")(logits), logits.argmax(1) != labels)


def _joined(parts: Sequence[RowsByWitness]) -> dict[str, Rows]:
    """The rows of several blocks, one after another."""
    return {name: tuple(map(torch.cat, zip(*(part[name] for part in parts), strict=True))) for name in parts[0]}
