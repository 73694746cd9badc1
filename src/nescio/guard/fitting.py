"""Fitting a guard: what is kept of the reference, the witnesses fitted to some of it, ranks from the others."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio import quantities, scores
from nescio.guard import split
from nescio.guard.changes import Changes
from nescio.guard.fitted_witnesses import Bench, take
from nescio.guard.input_blocks import form
from nescio.guard.witnesses import Anatomy, Witness
from nescio.guard.wrong import Mistakes
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.posteriors.saving import fingerprint
from nescio.quantities import Logits, Request
from nescio.types import InputError, ModelError

LEAST = 20  # distinct inputs of a reference
FEWEST_GROUPS = 5
STEADY = 300  # below that a word of warning is due


@dataclass(frozen=True)
class Jury:
    """The witnesses of one fold, and what they say of the inputs that give ranks; all sorted.

    ranks, copies: the guard's scores of those inputs and of their changed copies; z: of the inputs, by witness.
    """

    bench: Bench
    ranks: Tensor
    copies: Tensor
    z: Mapping[str, Tensor]


@dataclass(frozen=True)
class Fitted:
    """All that a fit finds: what `nescio.guard.saving` keeps."""

    anatomy: Anatomy
    witnesses: tuple[Witness, ...]
    juries: tuple[Jury, ...]
    mistakes: Mistakes | None
    form: tuple[int, ...] | None
    """The shape of one input where it is a tensor of floating-point numbers or bytes."""
    count: int
    """Distinct inputs of the reference."""
    copies: int
    """Changed copies that the model answers as it answers the input."""
    weights: str | None
    """The fingerprint of the model."""
    classes: int
    """How many classes the model has."""

    @property
    def ranks(self) -> int:
        """Inputs that a new one is compared with."""
        return sum(len(jury.ranks) for jury in self.juries)


class Heard:
    """What is kept of the reference, block by block; of changed copies too, where the answer stays."""

    def __init__(self) -> None:
        self.anatomy: Anatomy | None = None
        self.witnesses: tuple[Witness, ...] = ()
        self.form: tuple[int, ...] | None = None
        self.digests: list[bytes] = []
        self.labels: list[Tensor | None] = []
        self.logits: list[Tensor] = []
        self.plain: list[dict[str, Any]] = []
        self.changed: list[dict[str, Any]] = []
        self.originals: list[Tensor] = []  # of each changed copy

    def start(self, anatomy: Anatomy, witnesses: Iterable[Witness], form: tuple[int, ...] | None) -> None:
        self.anatomy, self.form = anatomy, form
        self.witnesses = tuple(witness for witness in witnesses if witness.needs(anatomy))
        if not self.witnesses:
            raise ModelError(
                "expected a model in which at least one witness finds what it looks at (features of a linear layer, or "
                "activations of modules), got one without; take witnesses=('doubt',)"
            )

    def hear(
        self,
        classifier: Classifier,
        x: Inputs,
        labels: Tensor | None,
        digests: list[bytes],
        changes: Changes,
        chunk: int | None,
    ) -> None:
        assert self.anatomy is not None
        if self.form is not None and form(x) != self.form:
            raise InputError(
                f"expected inputs of one shape, {list(self.form)} as the first of the reference, got {describe(x)}; "
                "bring them to one size"
            )
        needs = [request for witness in self.witnesses for request in witness.needs(self.anatomy)]
        requests = tuple(dict.fromkeys([*needs, Logits()]))
        answers = quantities.compute(classifier, x, requests, chunk)
        first = len(self.digests)
        self.digests += digests
        self.labels.append(labels)
        self.logits.append(answers[Logits()])
        self.plain.append(kept(self.witnesses, self.anatomy, answers))
        seeds = [int.from_bytes(one[:7], "little") for one in digests]
        copies = changes(x, seeds)
        if copies is None:
            return
        again = quantities.compute(classifier, copies, requests, chunk)
        stays = (again[Logits()].argmax(1) == answers[Logits()].argmax(1)).nonzero().flatten()
        self.changed.append(take(kept(self.witnesses, self.anatomy, again), stays))
        self.originals.append(first + stays)


def fit(classifier: Classifier, heard: Heard, groups: Sequence[Hashable] | None = None) -> Fitted:
    """The witnesses fitted, and the ranks; groups: which inputs belong together, in the order of the reference."""
    if heard.anatomy is None:
        raise InputError("expected a reference of at least 20 inputs, got none; give some hundred")
    order = split.distinct(heard.digests)
    if len(order) < LEAST:
        raise InputError(
            f"expected a reference of at least {LEAST} different inputs, got {len(order)} (of {len(heard.digests)}); "
            "give some hundred of the kind that the model is meant for"
        )
    if len(order) < len(heard.digests):
        warnings.warn(
            f"{len(heard.digests) - len(order)} of {len(heard.digests)} inputs of the reference are copies of others "
            f"and count once: {len(order)} are left",
            UserWarning,
            stacklevel=4,
        )
    if len(order) < STEADY:
        warnings.warn(
            f"the reference has {len(order)} different inputs; below {STEADY} a guard sees less, and the share of "
            "false alarms wavers around the promised one. Give more if you can",
            UserWarning,
            stacklevel=4,
        )
    plain = _joined(heard.plain)
    copies = _joined(heard.changed) if heard.changed else None
    originals = torch.cat(heard.originals) if heard.originals else torch.zeros(0, dtype=torch.long)
    originals_kept = torch.isin(originals, order)
    belongs = _belonging(heard, order, groups)
    juries = tuple(
        _jury(heard.witnesses, fold, belongs, plain, copies, originals.where(originals_kept, torch.tensor(-1)))
        for fold in split.folds(order, belongs)
    )
    return Fitted(
        anatomy=heard.anatomy,
        witnesses=heard.witnesses,
        juries=juries,
        mistakes=_mistakes(heard, order),
        form=heard.form,
        count=len(order),
        copies=int(originals_kept.sum()),
        weights=fingerprint(classifier),
        classes=heard.logits[0].shape[1],
    )


def _belonging(heard: Heard, order: Tensor, groups: Sequence[Hashable] | None) -> Tensor:
    """The number of each input's group, by their hashes and not by their order in the reference; checked."""
    count = len(heard.digests)
    if groups is not None and len(groups) != count:
        raise InputError(f"expected a group for each of {count} inputs of the reference, got {len(groups)} groups")
    belongs = split.belonging(order, count, groups)
    found = int(belongs.max()) + 1
    if found < FEWEST_GROUPS:
        raise InputError(
            f"expected inputs of at least {FEWEST_GROUPS} groups, got {found}; so few cannot say what is usual"
        )
    if groups is not None and found < LEAST:
        warnings.warn(
            f"the reference has inputs of {found} groups; what is promised for further groups rests on these few",
            UserWarning,
            stacklevel=5,
        )
    return belongs


def _jury(
    witnesses: Sequence[Witness],
    fold: split.Fold,
    belongs: Tensor,
    plain: Mapping[str, Any],
    copies: Mapping[str, Any] | None,
    originals: Tensor,
) -> Jury:
    """Witnesses fitted to the inputs of a fold that fit, and to their copies; ranks of the others, and of theirs."""
    fit, groups = take(plain, fold.fit), belongs[fold.fit]
    changed: dict[str, Any] | None = None
    if copies is not None:
        with_fit = torch.isin(originals, fold.fit)
        more = take(copies, with_fit.nonzero().flatten())
        fit = {name: tuple(map(torch.cat, zip(fit[name], more[name], strict=True))) for name in fit}
        groups = torch.cat([groups, belongs[originals[with_fit]]])
        changed = take(copies, torch.isin(originals, fold.rank).nonzero().flatten())
    bench = Bench.of(witnesses, fit, groups)
    heard = bench.heard(witnesses, take(plain, fold.rank))
    of_copies = torch.zeros(0, dtype=torch.float64)
    if changed is not None and len(next(iter(changed.values()))[0]):
        of_copies = bench.heard(witnesses, changed).score.sort().values
    return Jury(bench, heard.score.sort().values, of_copies, {name: z.sort().values for name, z in heard.z.items()})


def _mistakes(heard: Heard, order: Tensor) -> Mistakes | None:
    """What labels say about wrong answers; None where some are missing."""
    if any(labels is None for labels in heard.labels):
        return None
    labels = torch.cat([labels for labels in heard.labels if labels is not None])[order]
    logits = torch.cat(heard.logits)[order]
    if int(labels.max()) >= logits.shape[1]:
        raise InputError(
            f"expected class indices from 0 to {logits.shape[1] - 1}, as the model has {logits.shape[1]} classes, got "
            f"{int(labels.max())} among the labels of the reference"
        )
    return Mistakes.of(scores.get("max_probability")(logits), logits.argmax(1) != labels)


def kept(witnesses: Iterable[Witness], anatomy: Anatomy, answers: Mapping[Request, Any]) -> dict[str, Any]:
    """What each witness keeps of the inputs of a batch."""
    return {w.name: w.rows(*(answers[request] for request in w.needs(anatomy))) for w in witnesses}


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: tuple(map(torch.cat, zip(*(part[name] for part in parts), strict=True))) for name in parts[0]}
