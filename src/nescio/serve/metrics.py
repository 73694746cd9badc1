"""What Prometheus reads: counts, times, errors by kind, decisions, the policy's monitor and the guard's watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nescio._common.lazy_imports import need
from nescio.decide import ConformalPolicy, Monitor, Policy, Verdict, monitor
from nescio.serve.watch import Watch
from nescio.types import InputError

TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Drift:
    """The monitor over the policy's scores, for requests that end at the same time; or why there is none."""

    def __init__(self, policy: Policy | ConformalPolicy | None, path: str | Path | None = None) -> None:
        self._lock, self._monitor, self.why = threading.Lock(), None, "no policy was given"
        if isinstance(policy, Policy):
            try:
                self._monitor = monitor(policy, path)
            except InputError as error:
                if path is not None:
                    raise
                self.why = str(error)
        elif policy is not None:
            self.why = "a policy of answer sets has no rate of abstention to watch"

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, where there is one."""
        return self._monitor

    def update(self, scores: Sequence[float]) -> None:
        """Take the scores of the inputs of a request."""
        if self._monitor is not None:
            with self._lock:
                self._monitor.update(list(scores))

    def verdict(self) -> Verdict | None:
        """What is known up to now."""
        if self._monitor is None:
            return None
        with self._lock:
            return self._monitor.verdict()

    def __str__(self) -> str:
        verdict = self.verdict()
        return f"Not watched: {self.why}." if verdict is None else str(verdict)


class Metrics:
    """The numbers of one service, in a registry of their own."""

    def __init__(self, drift: Drift, watch: Watch, waiting: Callable[[], float]) -> None:
        prometheus = need("prometheus_client", "serve")
        self._text = prometheus.generate_latest
        self.content_type: str = prometheus.CONTENT_TYPE_LATEST
        self.registry = prometheus.CollectorRegistry()
        own = {"registry": self.registry}
        self.requests = prometheus.Counter("nescio_requests", "Requests", ["endpoint", "status"], **own)
        self.errors = prometheus.Counter("nescio_errors", "Requests that were refused or failed", ["kind"], **own)
        self.seconds = prometheus.Histogram(
            "nescio_request_seconds", "From a request to its answer", ["endpoint"], buckets=TIMES, **own
        )
        self.inputs = prometheus.Counter("nescio_inputs", "Inputs that were answered", ["endpoint"], **own)
        self.decisions = prometheus.Counter("nescio_decisions", "What the policy said", ["advice"], **own)
        self.batches = prometheus.Histogram(
            "nescio_batch_inputs", "Inputs that were handled together", buckets=SIZES, **own
        )
        self.batch_requests = prometheus.Histogram(
            "nescio_batch_requests", "Requests that were handled together", buckets=SIZES, **own
        )
        self.batch_seconds = prometheus.Histogram(
            "nescio_batch_seconds", "The model's time for a batch", buckets=TIMES, **own
        )
        prometheus.Gauge("nescio_waiting_inputs", "Inputs that wait or are worked on", **own).set_function(waiting)
        core = need("prometheus_client.core", "serve")
        self.registry.register(_DriftCollector(drift, core))
        self.registry.register(_WatchCollector(watch, core))

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """A request has ended."""
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def batch(self, jobs: int, rows: int, seconds: float) -> None:
        """A batch was done."""
        self.batches.observe(rows)
        self.batch_requests.observe(jobs)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """What Prometheus reads."""
        text: bytes = self._text(self.registry)
        return text


class _WatchCollector:
    """The guard's watch at the moment it is asked for."""

    def __init__(self, watch: Watch, core: Any) -> None:
        self._watch, self._core = watch, core

    def collect(self) -> Iterator[Any]:
        """Its numbers."""
        return self._watch.collect(self._core)


class _DriftCollector:
    """The verdict at the moment it is asked for."""

    def __init__(self, drift: Drift, core: Any) -> None:
        self._drift, self._core = drift, core

    def collect(self) -> Iterator[Any]:
        """The verdict's numbers; none where nothing is watched."""
        verdict = self._drift.verdict()
        watched = self._core.GaugeMetricFamily("nescio_drift_watched", "1 where a policy's promise is watched")
        watched.add_metric([], float(verdict is not None))
        yield watched
        if verdict is None:
            return
        for name, words, value in (
            ("alarm", "1 once the inputs left what the policy promised", float(verdict.alarm)),
            ("evidence", "By what factor the inputs speak against the promise now", verdict.evidence),
            ("evidence_limit", "The evidence at which the alarm is given", verdict.limit),
            ("promised_rate", "The largest rate of abstention that the calibration data allow", verdict.promised),
        ):
            gauge = self._core.GaugeMetricFamily(f"nescio_drift_{name}", words)
            gauge.add_metric([], value)
            yield gauge
        for name, words, value in (
            ("inputs", "Inputs that the monitor has seen", verdict.n),
            ("abstained", "Those of them that were not accepted", verdict.abstained),
        ):
            counter = self._core.CounterMetricFamily(f"nescio_drift_{name}", words)
            counter.add_metric([], value)
            yield counter
