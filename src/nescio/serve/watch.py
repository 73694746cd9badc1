"""The guard's p-values as they come: how many inputs are foreign, whether the stream has changed, and the latest ones.

Two tests of `nescio.decide`: a watch over all time, whose alarm is false with a promised probability, and a test of the
latest inputs, which forgets what was before.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nescio import decide
from nescio.decide import DriftMonitor, DriftTest, DriftVerdict
from nescio.specs import AnyGuard
from nescio.types import InputError

LATEST, LEAST = 200, 20
"""Inputs that the test of the latest takes, and below which it is not made."""
DRAWS = 199


class Watch:
    """What a guard said of the inputs of a service; for requests that end at the same time."""

    def __init__(self, guard: AnyGuard | None, path: str | Path | None = None) -> None:
        if guard is None and path is not None:
            raise InputError("watch: expected a guard whose p-values are watched, got none; give one")
        self._lock = threading.Lock()
        self._ranks = 0 if guard is None else guard.fitted.ranks
        self._monitor: DriftMonitor | None = None if guard is None else decide.drift(self._ranks, path)
        self._latest: deque[float] = deque(maxlen=LATEST)
        self._states: Counter[str] = Counter()
        self._tested: tuple[int, DriftTest] | None = None

    def update(self, p_values: Sequence[float], states: Sequence[str]) -> None:
        """Take the verdicts on the inputs of a request."""
        if self._monitor is not None:
            with self._lock:
                self._monitor.update(list(p_values))
                self._latest.extend(p_values)
                self._states.update(states)

    def verdict(self) -> DriftVerdict | None:
        """What is known of the whole stream; None without a guard."""
        if self._monitor is None:
            return None
        with self._lock:
            return self._monitor.verdict()

    def latest(self) -> DriftTest | None:
        """The test of the latest inputs; None where there are too few."""
        with self._lock:
            seen, values = sum(self._states.values()), list(self._latest)
            if self._tested is not None and self._tested[0] == seen:
                return self._tested[1]
        if len(values) < LEAST:
            return None
        drift = decide.drift_test(values, self._ranks, draws=DRAWS)
        self._tested = (seen, drift)
        return drift

    def __str__(self) -> str:
        drift = self.verdict()
        return "Not watched: no guard was given." if drift is None else str(drift)

    def collect(self, core: Any) -> Iterator[Any]:
        """What Prometheus reads; core: `prometheus_client.core`."""
        drift, latest = self.verdict(), None
        gauges = {"guard_watched": ("1 where a guard judges inputs", float(drift is not None))}
        if drift is not None:
            latest = self.latest()
            with self._lock:
                states = dict(self._states)
            verdicts = core.CounterMetricFamily("nescio_verdicts", "Inputs by what the guard said", labels=["state"])
            for state in ("foreign", "unsure", "fine"):
                verdicts.add_metric([state], states.get(state, 0))
            yield verdicts
            seen = sum(states.values())
            gauges |= {
                "guard_drift_alarm": ("1 once it was clear that inputs are not like the reference", float(drift.alarm)),
                "guard_drift_evidence": ("By what factor all inputs speak against the reference now", drift.evidence),
                "guard_drift_evidence_limit": ("The evidence at which the alarm is given", drift.limit),
                "guard_drift_inputs": ("Inputs that the watch has seen, those of earlier runs too", float(drift.n)),
            }
            if seen:
                share = states.get("foreign", 0) / seen
                gauges["guard_foreign_share"] = ("The share of inputs that were called foreign", share)
        if latest is not None:
            gauges |= {
                "guard_latest_p_value": (
                    "How often as many inputs like the reference look as foreign as the latest, by chance",
                    latest.p_value,
                ),
                "guard_latest_inputs": ("How many the latest are", float(latest.n)),
            }
        for name, (words, value) in gauges.items():
            gauge = core.GaugeMetricFamily(f"nescio_{name}", words)
            gauge.add_metric([], value)
            yield gauge
