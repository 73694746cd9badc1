"""Have the inputs changed? From conformal p-values: a watch that may be asked at any time, and a test of one batch.

A p-value says how foreign an input is: p = (1 + the number of n reference inputs that are at least as strange)/(n + 1).
For one input that is like the reference P(p ≤ u) ≤ u. But all p-values of a stream are made with *one* reference: when
its strangest inputs happen to be too tame, every p-value is too small, for ever, and a bet that p is uniform wins
without any drift. So a promise over all time needs a word on the reference.

**The watch.** Given the reference, p-values of inputs like it are independent, and P(p ≤ k/(n + 1)) = B_k, which over
references has the Beta(k, n + 1 − k) distribution. Let b_k be upper bounds that hold for all k at once with a
probability of at least 1 − δ. At values of k that grow by a fifth they are exact, with an equal share of δ each;
between these, the bound of the next one counts. With q = b_k in the place of p, then P(q ≤ u) ≤ u for every u, given
the reference. For each ε in (0, 1) the product of ε q^{ε − 1}/Z_ε is a supermartingale, where Z_ε ≤ 1 is the mean of ε
q^{ε − 1} when all bounds are met; so is M, the mean over ε = 0.1, …, 0.9. M also starts anew after 64, 128, 256, …
inputs with weights as in `nescio.decide.monitor`, for changes that come late. By Ville's inequality M ever reaches
1/error with a probability of at most `error`; δ and `error` are half of `false_alarm` each. So when reference and
stream are independent draws of one distribution, the probability of ever an alarm is at most `false_alarm`. Ties make p
larger, and only lessen it.

**The test of a batch.** Its statistic is −Σ log p (Fisher). What it is without drift is drawn: reference and batch in
random order, by the same formula. So the p-value of the batch is valid at every size, dependence and all, when
reference and batch are exchangeable; ties only make it larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio._common.argument_checks import integer, probability
from nescio._common.arrays import Values
from nescio._common.formatting import count
from nescio.decide.binomial import upper_bound
from nescio.decide.checks import Floats, scores_of
from nescio.decide.kept_state import KeptState
from nescio.decide.monitor import next_start
from nescio.types import InputError

FORM = "nescio drift"
BETS = np.arange(1, 10) / 10
GROWTH = 1.2


@dataclass(frozen=True)
class DriftVerdict:
    """Hold what is known of a stream up to now.

    Attributes:
        alarm: Whether it was clear at some time that inputs are not like the reference. An alarm stays.
        n: How many inputs were seen.
        evidence: By what factor the stream speaks against the reference now.
        limit: The evidence at which the alarm is given.
        at: The input after which the alarm was given, from 1; None without an alarm.

    Examples:
        >>> print(nescio.decide.drift(reference=500).verdict())
        No input was seen yet.
    """

    alarm: bool
    n: int
    evidence: float
    limit: float
    at: int | None = None

    def __str__(self) -> str:
        if self.n == 0:
            return "No input was seen yet."
        seen = count(self.n, "input")
        if not self.alarm:
            return f"{seen}, which may well be like the reference."
        return f"Alarm: after input {self.at} of {self.n} it was clear that inputs are not like the reference."


@dataclass(frozen=True)
class DriftTest:
    """Hold the test of a batch: how often a batch that is like the reference would look as foreign, by chance.

    Attributes:
        p_value: The share of such batches.
        n: How many inputs the batch has.
        mean: The mean of the p-values of the batch; about one half where it is like the reference.

    Examples:
        >>> print(nescio.decide.drift_test(np.full(10, 1 / 51), reference=50))
        10 inputs, with a mean p-value of 0.02: as foreign by chance in 0.1% of batches.
    """

    p_value: float
    n: int
    mean: float

    def __str__(self) -> str:
        drawn = count(self.n, "input")
        return (
            f"{drawn}, with a mean p-value of {self.mean:.2f}: as foreign by chance in {self.p_value:.1%} of batches."
        )


@dataclass(frozen=True)
class _State:
    """Inputs, Σ −log q, both at each start, and the alarm if there was one."""

    n: int = 0
    total: float = 0.0
    starts: tuple[tuple[int, float], ...] = ((0, 0.0),)
    at: int | None = None


def _parsed(record: dict[str, Any]) -> _State | None:
    """The state in a file's record; None where its counts do not fit together."""
    starts = tuple((int(n), float(total)) for n, total in record["starts"])
    state = _State(int(record["n"]), float(record["total"]), starts, record["at"])
    counts = [*starts, (state.n, state.total)]
    sound = starts[0] == (0, 0.0) and all(math.isfinite(total) for _, total in counts) and counts == sorted(counts)
    return state if sound and (state.at is None or 1 <= state.at <= state.n) else None


class DriftMonitor:
    """Watch the p-values of a stream; `drift` makes one.

    Args:
        reference: How many inputs the reference has that the p-values come from.
        path: A file in which the state is kept; None for none.
        false_alarm: The probability of ever an alarm, at most, without drift.

    Examples:
        >>> watch = nescio.decide.drift(reference=500)
        >>> watch.update(np.full(100, 0.5)).alarm, watch.verdict().n
        (False, 100)
    """

    def __init__(self, reference: int, path: str | Path | None, false_alarm: float) -> None:
        self.reference = integer("reference", reference, at_least=1, hint="give the number of its inputs")
        error = probability("false_alarm", false_alarm) / 2
        self.limit = 1.0 / error
        self._bounds = _bounds(self.reference, error)
        self._gains = np.log(BETS / _means(self._bounds))
        settings = {"made_for": [self.reference, float(false_alarm)]}
        owner = "a reference of another size, or to another rate of false alarms"
        self._kept = KeptState(path, FORM, settings, owner, _State(), _parsed)

    def update(self, p_values: Values) -> DriftVerdict:
        """Take the next p-values; with a path they count once this returns, whatever happens to the process then.

        Args:
            p_values: The p-values of the next inputs.

        Returns:
            What is known after them.
        """
        losses = -np.log(self._bounds[_ranks(p_values, self.reference, empty=True) - 1])
        self._kept.check_alone()
        state = self._kept.state
        while len(losses):
            room = next_start(state.n) - state.n
            state, losses = self._part(state, losses[:room]), losses[room:]
        self._kept.keep(state)
        return self.verdict()

    def verdict(self) -> DriftVerdict:
        """Return what is known up to now."""
        s = self._kept.state
        evidence = float(np.exp(min(700.0, self._evidence(s, np.array([s.total]))[-1])))
        return DriftVerdict(s.at is not None, s.n, evidence, self.limit, s.at)

    def _part(self, state: _State, losses: Floats) -> _State:
        """The state after inputs up to the next start at most."""
        totals = np.cumsum(np.concatenate([[state.total], losses]))  # the same sums however the stream is cut
        at = state.at
        if at is None:
            crossed = np.flatnonzero(self._evidence(state, totals) >= math.log(self.limit))
            at = state.n + int(crossed[0]) if crossed.size else None
        n, total = state.n + len(losses), float(totals[-1])
        starts = (*state.starts, (n, total)) if n == next_start(state.n) else state.starts
        return _State(n, total, starts, at)

    def _evidence(self, state: _State, totals: Floats) -> Floats:
        """Logarithm of the weighted sum, now and after each of the inputs that lead to these totals."""
        n, terms = state.n + np.arange(len(totals)), []
        for j, (begin, before) in enumerate(state.starts):
            bets = np.outer(n - begin, self._gains) + np.outer(totals - before, 1 - BETS)
            terms.append(np.logaddexp.reduce(bets, axis=1) - math.log(len(BETS) * (j + 1) * (j + 2)))
        terms.append(np.full(len(n), -math.log(len(state.starts) + 1)))  # Σ of the weights of what has not started
        evidence: Floats = np.logaddexp.reduce(terms)
        return evidence


def drift(reference: int, path: str | Path | None = None, false_alarm: float = 0.01) -> DriftMonitor:
    """Watch a stream for inputs that are not like the reference.

    Args:
        reference: How many inputs the reference has that the p-values come from. It must not have been chosen by
            looking at the stream. No p-value can be below 1/(n + 1).
        path: A file in which the state is kept, and from which the watch goes on after a crash; None for none.
        false_alarm: The probability of ever an alarm, at most, as long as reference and stream are independent draws of
            one distribution.

    Returns:
        The watch. Its `update(p_values)` gives a `DriftVerdict`, and may be called at any time.

    Examples:
        >>> watch = nescio.decide.drift(reference=500)
        >>> watch.update(np.full(100, 1 / 501)).alarm
        True
    """
    return DriftMonitor(reference, path, false_alarm)


def drift_test(p_values: Values, reference: int, *, draws: int = 999, seed: int = 0) -> DriftTest:
    """Test whether a batch is like the reference: one p-value for all of it, valid at every size.

    Args:
        p_values: The p-values of the batch, all from the same reference.
        reference: How many inputs the reference has.
        draws: How often chance is drawn. No p-value is below 1/(draws + 1).
        seed: The seed of these draws.

    Returns:
        The test with its p-value. It is at most α with a probability of at most α where batch and reference are
        exchangeable. For several batches with one reference this holds for each, but the tests are not independent:
        `drift` watches a stream.

    Examples:
        >>> nescio.decide.drift_test(np.full(100, 1 / 501), reference=500).p_value
        0.001
    """
    n = integer("reference", reference, at_least=1, hint="give the number of its inputs")
    ranks = _ranks(p_values, n)
    statistic, rng, more = -np.log(ranks / (n + 1)).sum(), np.random.default_rng(seed), 0
    for _ in range(draws):
        known = np.sort(rng.random(n))
        own = 1 + n - np.searchsorted(known, rng.random(len(ranks)))
        more += -np.log(own / (n + 1)).sum() >= statistic * (1 - 1e-12)  # equal sums in another order count as equal
    return DriftTest((1 + int(more)) / (1 + draws), len(ranks), float((ranks / (n + 1)).mean()))


def _ranks(p_values: Values, n: int, empty: bool = False) -> NDArray[np.int64]:
    """The least k with p ≤ k/(n + 1), from 1 to n + 1."""
    p = scores_of(p_values, "p_values", finite=True, empty=empty)
    if p.size and not (p.min() > 0 and p.max() <= 1):
        raise InputError(f"p_values: expected numbers above 0 and up to 1, but got {p.min():.3g} to {p.max():.3g}")
    ranks = np.ceil(p * (n + 1) - 1e-6)
    if p.size and p.min() * (n + 1) < 1 - 1e-6:
        raise InputError(
            f"p_values: expected at least 1/{n + 1}, as a reference of {n} inputs gives, but got {p.min():.3g}; "
            "name the size of the reference that they come from"
        )
    return ranks.clip(max=n + 1).astype(np.int64)


@lru_cache
def _bounds(n: int, error: float) -> Floats:
    """b_1, …, b_{n + 1}: upper bounds of P(p ≤ k/(n + 1)) given the reference, for all k at once but for `error`."""
    steps = [1]
    while steps[-1] < n:
        steps.append(min(n, max(steps[-1] + 1, int(steps[-1] * GROWTH))))
    exact = [upper_bound(k - 1, n, error / len(steps)) for k in steps]
    bounds: Floats = np.array([exact[i] for i in np.searchsorted(steps, np.arange(1, n + 1))] + [1.0])
    return bounds


def _means(bounds: Floats) -> Floats:
    """Z_ε: the mean of ε q^{ε − 1} when q is as small as the bounds allow."""
    weights = np.diff(np.concatenate([[0.0], bounds]))
    means: Floats = (BETS[:, None] * bounds ** (BETS[:, None] - 1) * weights).sum(1)
    return means
