"""From the answers of a forward pass to a verdict: the first half where the model is, the second one on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nescio import scores
from nescio.guard import fitting
from nescio.guard.fitted_witnesses import FittedWitnesses, Opinions
from nescio.guard.fitting import Fitted
from nescio.guard.promise import at_least
from nescio.guard.verdict import Verdict
from nescio.quantities import Logits, Request


class Measured:
    """What is measured of N inputs, as columns of one table, so that one copy brings it to the host.

    Of each fold there is what its witnesses measure; and of the model's answer the doubt, the class, and whether all
    logits are finite.
    """

    def __init__(self, fitted: Fitted, folds: Sequence[FittedWitnesses], answers: Mapping[Request, Any]) -> None:
        self.fitted, logits = fitted, answers[Logits()]
        rows = fitting.rows_of(fitted.witnesses, fitted.anatomy, answers)
        columns = [
            *(one.measures(w, rows[w.name]) for one in folds for w in fitted.witnesses),
            scores.get("max_probability")(logits)[:, None],
            logits.argmax(1)[:, None],
            logits.isfinite().all(1)[:, None],
        ]
        table = torch.cat([column.to(logits.device, torch.float64) for column in columns], dim=1)
        self._widths = [column.shape[1] for column in columns]
        self._copy = table.to("cpu", non_blocking=True)
        there = table.is_cuda and torch.cuda.is_initialized()
        self._copied = torch.cuda.current_stream(table.device).record_event() if there else None

    def verdict(self) -> Verdict:
        """Wait for the table, and return the verdict."""
        if self._copied is not None:
            self._copied.synchronize()
        fitted = self.fitted
        *measures, doubt, predicted, self._finite = self._copy.split(self._widths, dim=1)
        names = fitted.names
        at_least_as_foreign = copies_as_foreign = torch.zeros(len(doubt), dtype=torch.long)
        z, votes, beyond = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for number, fold in enumerate(fitted.folds):
            own = dict(zip(names, measures[number * len(names) :], strict=False))
            opinions = fold.witnesses.opinions(fitted.witnesses, own)
            at_least_as_foreign = at_least_as_foreign + at_least(fold.ranks, opinions.score)
            copies_as_foreign = copies_as_foreign + at_least(fold.copies, opinions.score)
            for name in names:
                z[name] = z.get(name, 0.0) + opinions.z[name] / len(fitted.folds)
                votes[name] = votes.get(name, 0.0) + opinions.votes[name] / len(fitted.folds)
                beyond[name] = beyond.get(name, 0) + len(fold.ranks) - at_least(fold.z[name], opinions.z[name])
        p = (1.0 + at_least_as_foreign.double()) / (1.0 + fitted.ranks)
        if copies := sum(len(fold.copies) for fold in fitted.folds):  # the promise holds for changed inputs too
            p = torch.maximum(p, (1.0 + copies_as_foreign.double()) / (1.0 + copies))
        return Verdict(
            p_value=p,
            score=Opinions(z, votes).score,
            witnesses=z,
            votes=votes,
            beyond=beyond,
            ranks=fitted.ranks,
            predicted=predicted[:, 0].long(),
            confidence=1.0 - doubt[:, 0],
            wrong=None if fitted.mistakes is None else fitted.mistakes(doubt[:, 0]),
            reasons={witness.name: witness.words(fitted.anatomy.kind) for witness in fitted.witnesses},
        )

    def finite(self, verdict: Verdict) -> bool:
        """Whether the scores of the verdict and all logits are finite."""
        return bool(self._finite.all()) and bool(verdict.score.isfinite().all())
