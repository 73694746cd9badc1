"""Thresholds on a score that come with a promise.

**With labels** (`threshold`). Let (S, W) be score and wrongness of an input, R(t) = P(W | S ≤ t), and S_(1) ≤ … ≤
S_(n) the calibration scores. E_k is the number of wrong answers among the first k, and

    p_k = P(Bin(k, risk) ≤ E_k).

The promise: when calibration data and new inputs are drawn independently from one distribution, then with probability
≥ confidence over the calibration data, R(threshold) ≤ risk or threshold is None. No more is assumed of the score.

*Why the choice of the threshold is covered.* Order scores by (S, U) with U uniform, which breaks ties at random
(`seed`). Let c(t) = P(W, S ≤ t) − risk · P(S ≤ t), read along that order: it is continuous, begins at 0, and R(t) >
risk where c(t) > 0. Scores are floats, so c changes sign finitely often. Its zeros there cut the line into bad pieces
(c > 0) and gaps (c ≤ 0), and since c = 0 at both ends, each whole piece and each whole gap has an error rate of exactly
risk (a piece that reaches the upper end of the line: at least that). Now hold fixed how many examples fall in each
piece and gap; inside them they are independent draws. Say that k is bad when some t in [S_(k), S_(k+1)) is. This is
fixed now, and if k is bad, E_k is stochastically at least Bin(k, risk):

- the pieces and gaps that lie wholly among the first k give independent Bin(·, risk);
- if the piece that the k-th example is in goes on with the (k+1)-th, then, given S_(k+1) = s, the examples of this
  piece below s are independent draws from its part below s, of which the error rate exceeds risk, because c(s) > 0 =
  c(beginning).

So p_k ≤ a has probability ≤ a for each bad k, and any procedure that holds the family-wise error for fixed hypotheses
holds it here. Ours is the fallback procedure (fixed-sequence testing with several starts; Wiens 2003): k rises, a
start m adds its share of 1 − confidence to the level, p_k ≤ level rejects "k is bad", and a failure sets the level to
0 until the next start. Between two bad k the level holds only what was added between them, unless an error was made
before, so all errors together have probability ≤ 1 − confidence. The threshold is the score of the largest rejected k
that ends a group of equal scores.

Starts are where p_k can pass first, and n/2, n/8, n/32 … as far as these are at least 100 (and not before the first);
they have equal shares. With n too small for the share of the first, all of 1 − confidence goes to k = n, which passes
when there is no error at all. None of this depends on the labels, and a higher risk never gives less coverage.

**Without labels** (`quantile`). The k-th smallest of n scores, k = ⌈(n + 1) keep⌉: the rank of a new score among n +
1 is uniform (ties only help), so P(new score ≤ S_(k)) ≥ k/(n + 1) ≥ keep. With k > n there is no such score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from nescio._common.argument_checks import integer, probability
from nescio._common.arrays import Values
from nescio.decide.binomial import binomial_cdf, enough
from nescio.decide.checks import Floats, scores_of, truths
from nescio.decide.policy import Policy
from nescio.decide.saved_policy import about_of

LEAST = 100
"""Later starts have at least so many examples: with fewer, the first start serves as well."""


def threshold(
    scores: Values,
    correct: Values,
    risk: float = 0.05,
    confidence: float = 0.9,
    *,
    about: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Policy:
    """Find the largest share of inputs to accept such that at most `risk` of the accepted answers are wrong.

    The promise and its proof stand at the top of this file. The order of the examples never matters.

    Args:
        scores: Scores ``[N]`` of held-out examples; higher means more uncertain. Neither the model nor the score may
            have been fitted on them.
        correct: Whether each answer was right, ``[N]``.
        risk: The share of wrong answers among accepted inputs, at most.
        confidence: The probability, over the draw of the examples, with which the promise holds.
        about: What you want to note of how the scores were made, such as ``{"score": "regrad"}``.
        seed: Orders equal scores for the test. They are accepted together or not at all.

    Returns:
        The rule. Its threshold is None where the examples allow no such promise.

    Raises:
        InputError: If the scores are not finite, or the lengths differ.

    Examples:
        >>> policy = nescio.decide.threshold(torch.arange(100.0), torch.arange(100) < 80, risk=0.1)
        >>> policy.threshold, policy.accept([5.0, 95.0])
        (83.0, tensor([ True, False]))
    """
    values = scores_of(scores, finite=True)
    right = truths(correct, "correct", values.size)
    risk, error, n = probability("risk", risk), 1.0 - probability("confidence", confidence), values.size
    ordered, wrong = _in_order(values, ~right, integer("seed", seed, at_least=0))
    errors = np.cumsum(wrong, dtype=np.int64)
    passed = _fallback(errors, risk, error)
    ends = np.append(ordered[1:] != ordered[:-1], True)
    last = np.flatnonzero(passed & ends)
    k = int(last[-1]) + 1 if last.size else 0
    return Policy(
        kind="threshold",
        threshold=float(ordered[k - 1]) if k else None,
        n=n,
        accepted=k,
        needed=enough(risk, error),
        risk=risk,
        confidence=float(confidence),
        errors=int(errors[k - 1]) if k else 0,
        about=about_of(about),
    )


def quantile(scores_id: Values, keep: float = 0.95, *, about: Mapping[str, str] | None = None) -> Policy:
    """Accept a share of the inputs that are like the examples, whether answers are right or not.

    Args:
        scores_id: Scores ``[N]`` of known inputs; higher means more uncertain. No labels are needed.
        keep: The share of new inputs like these that is accepted, at least.
        about: What you want to note of how the scores were made.

    Returns:
        The rule. Its threshold is None where there are too few examples.

    Examples:
        >>> nescio.decide.quantile(torch.arange(100.0), keep=0.95).threshold
        95.0
    """
    values = np.sort(scores_of(scores_id, "scores_id", finite=True))
    keep = probability("keep", keep)
    k = rank(values.size, keep)
    bound = float(values[k - 1]) if k <= values.size else None
    exact = _decimal(keep)
    needed = max(1, math.ceil(exact / (1 - exact)))  # the smallest n with (n + 1) keep ≤ n
    accepted = 0 if bound is None else int((values <= bound).sum())
    return Policy("quantile", bound, values.size, accepted, needed, keep=keep, about=about_of(about))


def rank(n: int, keep: float) -> int:
    """⌈(n + 1) keep⌉, with `keep` as the decimal number that was written: 0.9 of 10 is 9."""
    return math.ceil((n + 1) * _decimal(keep))


def _decimal(value: float) -> Fraction:
    """The decimal number that was written, and not the float nearest to it."""
    return Fraction(repr(value))


def _in_order(scores: Floats, wrong: NDArray[np.bool_], seed: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Rising scores, equal ones in an order drawn at random, whatever the order that they came in."""
    first = np.lexsort((wrong, scores))
    scores, wrong = scores[first], wrong[first]
    drawn = np.lexsort((np.random.default_rng(seed).random(scores.size), scores))
    return scores, wrong[drawn]


def _starts(n: int) -> list[int]:
    """Later starts n/2, n/8, … in rising order."""
    return sorted(m for m in (n // (2 * 4**j) for j in range(32)) if m >= LEAST)


def _fallback(errors: NDArray[np.int64], risk: float, error: float) -> NDArray[np.bool_]:
    """Which k = 1 … n are rejected as bad, from the counts of errors."""
    n = errors.size
    later = _starts(n)
    part = error / (1 + len(later))
    passed = np.zeros(n, dtype=np.bool_)
    first = enough(risk, part)
    if first > n:
        passed[-1] = errors[-1] == 0 and n >= enough(risk, error)
        return passed
    p = binomial_cdf(errors, np.arange(1, n + 1), risk)
    level, starts = 0.0, [first, *(max(first, m) for m in later)]
    for start, stop in zip(starts, [*starts[1:], n + 1], strict=True):
        level += part
        failed = np.flatnonzero(p[start - 1 : stop - 1] > level)
        end = start + int(failed[0]) if failed.size else stop
        passed[start - 1 : end - 1] = True
        if failed.size:
            level = 0.0
    return passed
