"""Does the promise still hold? A watch over the share of abstentions that may be looked at after every input.

Let x_i = 1 when the i-th input is not accepted, and ρ a bound on the rate of abstentions that the calibration data
allow. For each θ > ρ the likelihood ratio Π (θ/ρ)^{x_i} ((1−θ)/(1−ρ))^{1−x_i} is a supermartingale whenever the rate
stays ≤ ρ, and so is the mean M over several θ: 16 values of ρ + (1 − ρ) 2^{−i/2}, from small changes to large ones.

A change may come late, so M also starts anew after 64, 128, 256, … inputs; the weighted sum Σ_j w_j M_j, w_j =
1/((j+1)(j+2)), in which what has not started counts 1, is a supermartingale too. By Ville's inequality it ever
reaches 1/error with a probability of at most `error`. An alarm stays: the verdict does not depend on how the stream
is cut into updates.

The bound ρ is itself from n examples, and half of `false_alarm` is kept for its being wrong. A threshold was chosen
from the data, so ρ is abstained/n + √(log(1/error)/2n), which holds for all thresholds at once (Dvoretzky, Kiefer,
Wolfowitz, Massart). For `quantile` the k-th smallest score was fixed beforehand, and ρ is the exact bound of Clopper
and Pearson from n − k of n. So without drift the probability of ever an alarm is at most `false_alarm`, over
calibration data and stream. two_sided=True also watches for too few abstentions, by the same test with the roles
exchanged, and each side has half.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nescio._common.argument_checks import probability
from nescio._common.arrays import Values
from nescio._common.formatting import count, percent
from nescio.decide.binomial import upper_bound
from nescio.decide.checks import Floats
from nescio.decide.kept_state import KeptState
from nescio.decide.policy import Policy
from nescio.decide.thresholds import rank
from nescio.types import InputError

FORM = "nescio monitor"


@dataclass(frozen=True)
class Verdict:
    """Hold what a monitor knows of a stream up to now.

    Attributes:
        alarm: Whether the promise was broken. An alarm stays.
        n: How many inputs were seen.
        abstained: How many of them were not accepted.
        evidence: By what factor the stream speaks against the promise now.
        limit: The evidence at which the alarm is given.
        promised: The bound on the share of inputs that are not accepted.
        at: The input after which the alarm was given, from 1; None without an alarm.
        direction: "more" or "fewer", than promised, are not accepted; None without an alarm.

    Examples:
        >>> watch = nescio.decide.monitor(nescio.decide.quantile(torch.arange(1000.0), keep=0.95))
        >>> print(watch.update(torch.arange(100.0)))
        0 of 100 inputs were not accepted, which fits what was promised (at most ...%).
    """

    alarm: bool
    n: int
    abstained: int
    evidence: float
    limit: float
    promised: float
    at: int | None = None
    direction: str | None = None

    def __str__(self) -> str:
        seen = f"{self.abstained} of {self.n} inputs were not accepted"
        if self.n == 0:
            return "No input was seen yet."
        if not self.alarm:
            return f"{seen}, which fits what was promised ({self._bound('more')})."
        return (
            f"Alarm: {seen}; after input {self.at} it was clear that {self.direction} inputs are refused than promised "
            f"({self._bound(self.direction)}). The inputs have changed: calibrate anew."
        )

    def _bound(self, direction: str | None) -> str:
        return f"{'at least' if direction == 'fewer' else 'at most'} {percent(self.promised)}"


@dataclass(frozen=True)
class _State:
    """Counts: all inputs, abstentions, [inputs, abstentions] at each start, and the alarm if there was one."""

    n: int = 0
    abstained: int = 0
    starts: tuple[tuple[int, int], ...] = ((0, 0),)
    at: int | None = None
    direction: str | None = None


class Monitor:
    """Count the abstentions of a stream, and tell when there are more than the policy promised; `monitor` makes one.

    Args:
        policy: A rule of `threshold` or `quantile`.
        path: A file in which the counts are kept; None for none.
        false_alarm: The probability of ever an alarm, at most, as long as inputs are like the calibration data.
        two_sided: Whether too few abstentions are an alarm too.

    Examples:
        >>> watch = nescio.decide.monitor(nescio.decide.quantile(torch.arange(1000.0), keep=0.95))
        >>> watch.update(torch.full((100,), 1e6)).direction, watch.verdict().n
        ('more', 100)
    """

    def __init__(self, policy: Policy, path: str | Path | None, false_alarm: float, two_sided: bool) -> None:
        self.policy = policy
        error = probability("false_alarm", false_alarm) / (4 if two_sided else 2)
        self.limit = 1.0 / error
        most, fewest = _rates(policy, error)
        self._sides = {"more": most, "fewer": fewest} if two_sided else {"more": most}
        settings = {"policy": _fingerprint(policy, false_alarm, two_sided)}
        owner = "another policy or other settings of the monitor"
        self._kept = KeptState(path, FORM, settings, owner, _State(), self._parsed)

    def update(self, scores: Values) -> Verdict:
        """Take the next scores; with a path they count once this returns, whatever happens to the process then.

        Args:
            scores: Scores of the next inputs.

        Returns:
            What is known after them.
        """
        refused = ~self.policy.accept(scores).numpy()
        self._kept.check_alone()
        self._kept.keep(self._after(refused))
        return self.verdict()

    def verdict(self) -> Verdict:
        """Return what is known up to now."""
        s = self._kept.state
        empty = np.zeros(0, dtype=np.int64)
        side = s.direction or max(self._sides, key=lambda name: self._evidence(s, empty, name)[-1])
        promised = self._sides[side if s.direction else "more"]
        evidence = float(np.exp(min(700.0, self._evidence(s, empty, side)[-1])))
        return Verdict(s.at is not None, s.n, s.abstained, evidence, self.limit, promised, s.at, s.direction)

    def _after(self, refused: np.ndarray[Any, np.dtype[np.bool_]]) -> _State:
        """The state after more inputs, taken in parts that end where a new start is due."""
        state = self._kept.state
        while len(refused):
            room = next_start(state.n) - state.n
            state, refused = self._part(state, refused[:room].astype(np.int64)), refused[room:]
        return state

    def _part(self, state: _State, refused: np.ndarray[Any, np.dtype[np.int64]]) -> _State:
        at, direction = state.at, state.direction
        if at is None:
            crossed = {
                name: np.flatnonzero(self._evidence(state, refused, name) >= math.log(self.limit))
                for name in self._sides
            }
            first = {name: int(places[0]) for name, places in crossed.items() if places.size}
            if first:
                direction = min(first, key=lambda name: first[name])
                at = state.n + first[direction]
        n, abstained = state.n + len(refused), state.abstained + int(refused.sum())
        starts = (*state.starts, (n, abstained)) if n == next_start(state.n) else state.starts
        return _State(n, abstained, starts, at, direction)

    def _evidence(self, state: _State, refused: np.ndarray[Any, np.dtype[np.int64]], side: str) -> Floats:
        """Logarithm of the weighted sum now and after each of these inputs."""
        n = state.n + np.arange(len(refused) + 1)
        abstained = state.abstained + np.concatenate([[0], refused.cumsum()])
        rate, terms = self._sides[side], []
        for j, (begin, before) in enumerate(state.starts):
            m, a = n - begin, abstained - before
            events, bound = (a, rate) if side == "more" else (m - a, 1.0 - rate)
            terms.append(_log_mixture(events, m, bound) - math.log((j + 1) * (j + 2)))
        terms.append(np.full(len(n), -math.log(len(state.starts) + 1)))  # Σ of the weights of what has not started
        result: Floats = np.logaddexp.reduce(terms)
        return result

    def _parsed(self, record: dict[str, Any]) -> _State | None:
        """The state in a file's record; None where its counts do not fit together."""
        starts = tuple((int(n), int(a)) for n, a in record["starts"])
        state = _State(**{**{name: record[name] for name in asdict(_State())}, "starts": starts})
        counts = [*starts, (state.n, state.abstained)]
        sound = all(isinstance(v, int) for v in (state.n, state.abstained)) and starts[0] == (0, 0)
        steps = [(n - m, a - b) for (m, b), (n, a) in pairwise(counts)]
        sound = sound and all(0 <= a <= n for n, a in steps)
        alarmed = state.at is not None and 1 <= state.at <= state.n and state.direction in self._sides
        return state if sound and (alarmed or (state.at is None and state.direction is None)) else None


def monitor(
    policy: Policy, path: str | Path | None = None, false_alarm: float = 0.01, *, two_sided: bool = False
) -> Monitor:
    """Watch the share of inputs of a stream that a policy does not accept.

    Args:
        policy: A rule of `threshold` or `quantile`.
        path: A file in which the counts are kept, and from which the watch goes on after a crash; None for none.
        false_alarm: The probability of ever an alarm, at most, as long as inputs are like the calibration data.
        two_sided: Whether too few refused inputs are an alarm too.

    Returns:
        The watch. Its `update(scores)` gives a `Verdict`, and may be called at any time.

    Raises:
        InputError: If the policy promises nothing, or the file belongs to another watch.

    Examples:
        >>> policy = nescio.decide.quantile(torch.arange(1000.0), keep=0.95)
        >>> watch = nescio.decide.monitor(policy)
        >>> watch.update(torch.arange(100.0)).alarm, watch.update(torch.full((100,), 1e6)).alarm
        (False, True)
    """
    if not isinstance(policy, Policy):
        raise InputError(
            f"policy: expected one from decide.threshold or decide.quantile, but got {type(policy).__name__}"
        )
    if policy.threshold is None:
        raise InputError(
            "policy: expected one that accepts something, but this one promises nothing; calibrate it first"
        )
    return Monitor(policy, path, false_alarm, two_sided)


def _rates(policy: Policy, error: float) -> tuple[float, float]:
    """The largest and the smallest rate of abstention that the calibration data allow, each but for `error`."""
    n, refused = policy.n, 1.0 - policy.coverage
    slack = math.sqrt(math.log(1 / error) / (2 * n))
    most, fewest = refused + slack, refused - slack
    if policy.keep is not None:  # k was fixed beforehand, and equal scores can only add to what is accepted
        most = upper_bound(n - rank(n, policy.keep), n, error)
    if most >= 1.0:
        few = f"{count(n, 'example')} {'is' if n == 1 else 'are'} too few"
        raise InputError(f"policy: {few} to bound how much it abstains; calibrate with more")
    return most, max(0.0, fewest)


def _log_mixture(a: Any, m: Any, rate: float) -> Floats:
    """The logarithm of M, for a events in m inputs against a rate of at most `rate`."""
    if rate >= 1.0:
        return np.zeros(len(m))
    theta = rate + (1.0 - rate) * 2.0 ** (-np.arange(1, 17) / 2)
    gain, loss = np.log(theta / rate), np.log1p(-theta) - math.log1p(-rate)
    ratios = np.outer(a, gain) + np.outer(m - a, loss)
    result: Floats = np.logaddexp.reduce(ratios, axis=1) - math.log(len(theta))
    return result


def next_start(n: int) -> int:
    """The least power of two above n, and at least 64."""
    return max(64, 1 << n.bit_length())


def _fingerprint(policy: Policy, false_alarm: float, two_sided: bool) -> str:
    text = json.dumps([asdict(replace(policy, about=dict(policy.about))), false_alarm, two_sided], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
