"""Do the promises of nescio.decide, and of the guard, hold? Simulated repetitions with a known truth.

    python benchmarks/promises.py                     # 500 repetitions of each case: a minute or two on one core
    python benchmarks/promises.py --repetitions 20    # does it run at all?
    python benchmarks/promises.py --part guard --repetitions 200    # that part alone; what others found stays

*threshold*: scores uniform on [0, 1] (or on eight values), and an error rate η(s) of which R(t) = P(wrong | score ≤
t) is known exactly; a repetition holds when R(threshold) ≤ risk, or when nothing is promised. η is a multiple of the
risk asked for: sharp and weak scores, a useless one just above the risk, one that is turned round, one whose R
crosses the risk many times. *quantile* and *conformal*: the probability of acceptance, and of the true class in
the set, on average over repetitions. *risk control*: one minus the expected loss of a new picture. *monitor*: the share
of streams that ever raise an alarm, without drift; and inputs until the alarm after a change. *guard*: the share of
known inputs that is not flagged (`guard_promise.py`).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from guard_promise import rows as guard_rows
from measure import RESULTS, machine, save
from numpy.typing import NDArray

from nescio import decide
from nescio.plots import style

Floats = NDArray[np.float64]
Row = dict[str, Any]

SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "sharp": lambda s: 8 * s**4,
    "weak": lambda s: 0.5 + 2 * s,
    "useless": lambda s: np.full_like(s, 1.02),
    "turned round": lambda s: 2.05 * (1 - s),
    "waves": lambda s: 1 + 0.95 * np.cos(10 * math.pi * s),
}
"""η(s) over the risk asked for."""
LEVELS = 8


def threshold_case(shape: str, tied: bool, n: int, risk: float, confidence: float, repetitions: int) -> Row:
    rng = np.random.default_rng([len(shape), tied, n, round(1000 * risk)])
    points = (np.arange(LEVELS) if tied else np.arange(100_000)) + 0.5
    points /= len(points)
    rates = risk * SHAPES[shape](points)
    truth = np.cumsum(rates) / np.arange(1, len(points) + 1)  # R at the upper end of each of these cells
    held = promised = 0
    coverage = []
    for repetition in range(repetitions):
        cell = rng.integers(0, len(points), n)
        correct = rng.random(n) >= rates[cell]
        policy = decide.threshold(points[cell], correct, risk, confidence, seed=repetition)
        at = -1 if policy.threshold is None else int(np.searchsorted(points, policy.threshold))
        held += at < 0 or truth[at] <= risk
        promised += at >= 0
        coverage.append((at + 1) / len(points))
    good = np.flatnonzero(truth <= risk)
    return {
        "part": "threshold",
        "case": shape + (", tied" if tied else ""),
        "n": n,
        "risk": risk,
        "promised": confidence,
        "held": held / repetitions,
        "answered": promised / repetitions,
        "coverage": float(np.mean(coverage)),
        "possible": float((good[-1] + 1) / len(points)) if good.size else 0.0,
        "repetitions": repetitions,
    }


def quantile_case(tied: bool, n: int, keep: float, repetitions: int) -> Row:
    rng = np.random.default_rng([1, tied, n, round(1000 * keep)])
    accepted = []
    for _ in range(repetitions):
        scores = rng.exponential(size=n)
        policy = decide.quantile(np.ceil(4 * scores) if tied else scores, keep)
        t = math.inf if policy.threshold is None else policy.threshold / (4 if tied else 1)
        accepted.append(1 - math.exp(-t))
    return _mean_row({"part": "quantile", "case": "tied" if tied else "continuous", "n": n, "promised": keep}, accepted)


def conformal_case(kind: Any, n: int, coverage: float, repetitions: int, new: int = 500) -> Row:
    rng = np.random.default_rng([2, len(kind), n])
    hits, sizes = [], []
    for _ in range(repetitions):
        logits = 2 * rng.normal(size=(n + new, 10))
        true = _softmax(0.7 * logits)  # the model is too sure of itself
        labels = (true.cumsum(1) < rng.random((n + new, 1))).sum(1).clip(max=9)
        p = _softmax(logits)
        sets = decide.conformal(p[:n], labels[:n], coverage, kind).sets(p[n:]).numpy()
        hits.append(float((true[n:] * sets).sum(1).mean()))  # the probability of the true class, not a draw of it
        sizes.append(float(sets.sum(1).mean()))
    row = _mean_row({"part": "conformal", "case": kind, "n": n, "promised": coverage}, hits)
    return {**row, "size": float(np.mean(sizes))}


def risk_case(kind: Any, n: int, risk: float, repetitions: int, new: int = 20, size: int = 60) -> Row:
    """Pictures of so many positions, whose errors come together: each has a difficulty of its own."""
    rng = np.random.default_rng([6, len(kind), n, round(1000 * risk)])
    losses, sizes = [], []
    for _ in range(repetitions):
        hard = rng.exponential(size=(n + new, 1, 1))
        logits = 2 * rng.normal(size=(n + new, size, 4))
        true = _softmax((logits / (0.5 + 2 * hard)).reshape(-1, 4)).reshape(logits.shape)  # too sure where it is hard
        labels = (true.cumsum(2) < rng.random((n + new, size, 1))).sum(2).clip(max=3)
        p = _softmax(logits.reshape(-1, 4)).reshape(logits.shape)
        more = {"sought": 0} if kind == "misses" else {}
        policy = decide.risk_control(p[:n], labels[:n], risk, kind, **more)
        if kind == "misses":
            there, found = labels[n:] == 0, policy.found(p[n:]).numpy()
            losses.append(float(((there & ~found).sum(1) / there.sum(1).clip(min=1)).mean()))
        else:
            held = np.take_along_axis(policy.sets(p[n:]).numpy(), labels[n:, :, None], 2)
            losses.append(float(1 - held.mean()))
        sizes.append(policy.size)
    row = _mean_row({"part": "risk control", "case": kind, "n": n, "promised": 1 - risk}, [1 - v for v in losses])
    return {**row, "size": float(np.mean(sizes))}


def monitor_case(kind: str, n: int, factor: float, repetitions: int, error: float = 0.05, length: int = 1000) -> Row:
    """`factor` multiplies the odds of high scores after half of the stream; 1 is no drift."""
    rng = np.random.default_rng([3, len(kind), n, round(10 * factor)])
    alarms, delays = 0, []
    for _ in range(repetitions):
        scores = rng.random(n)
        policy = decide.quantile(scores, 0.9)
        if kind == "threshold":
            policy = decide.threshold(scores, rng.random(n) >= 0.4 * scores**4, 0.05)
        stream = rng.random(length)
        late = stream[length // 2 :]
        stream[length // 2 :] = factor * late / (1 - late + factor * late)
        verdict = decide.monitor(policy, false_alarm=error).update(stream)
        alarms += verdict.alarm
        if verdict.at is not None:
            delays.append(verdict.at - length // 2)
    row = {"part": "monitor", "case": kind, "n": n, "drift": factor, "repetitions": repetitions}
    if factor == 1:
        return {**row, "promised": 1 - error, "held": 1 - alarms / repetitions}
    return {**row, "detected": alarms / repetitions, "delay": float(np.median(delays)) if delays else None}


def drift_case(n: int, shift: float, repetitions: int, error: float = 0.05, length: int = 4000) -> Row:
    """p-values of one reference of n; strangeness moves by `shift` standard deviations after half of the stream."""
    rng = np.random.default_rng([4, n, round(10 * shift)])
    alarms, delays = 0, []
    for _ in range(repetitions):
        known, stream = np.sort(rng.normal(size=n)), rng.normal(size=length)
        stream[length // 2 :] += shift
        p = (1 + n - np.searchsorted(known, stream)) / (n + 1)
        verdict = decide.drift(n, false_alarm=error).update(p)
        alarms += verdict.alarm
        if verdict.at is not None:
            delays.append(verdict.at - length // 2)
    row = {"part": "drift", "case": "one reference", "n": n, "drift": shift, "repetitions": repetitions}
    if shift == 0:
        return {**row, "promised": 1 - error, "held": 1 - alarms / repetitions}
    return {**row, "detected": alarms / repetitions, "delay": float(np.median(delays)) if delays else None}


def batch_case(n: int, m: int, tied: bool, shift: float, repetitions: int, level: float = 0.05) -> Row:
    """The test of a batch of m against a reference of n, at this level."""
    rng = np.random.default_rng([5, n, m, tied, round(10 * shift)])
    found = 0
    for repetition in range(repetitions):
        values = rng.normal(size=n + m)
        values[n:] += shift
        values = np.round(values, 1) if tied else values
        p = (1 + n - np.searchsorted(np.sort(values[:n]), values[n:])) / (n + 1)
        found += decide.drift_test(p, n, draws=99, seed=repetition).p_value <= level
    case = f"batch of {m}" + (", tied" if tied else "")
    row = {"part": "drift test", "case": case, "n": n, "drift": shift, "repetitions": repetitions}
    if shift == 0:
        return {**row, "promised": 1 - level, "held": 1 - found / repetitions}
    return {**row, "detected": found / repetitions}


def rows(repetitions: int) -> Iterator[Row]:
    """Every case, one after another."""
    for n, risk in ((100, 0.1), (500, 0.05), (2000, 0.02), (2000, 0.1)):
        for shape in SHAPES:
            for tied in (False, True):
                yield threshold_case(shape, tied, n, risk, 0.9, repetitions)
    for n, keep in ((19, 0.95), (100, 0.95), (1000, 0.95), (1000, 0.99)):
        for tied in (False, True):
            yield quantile_case(tied, n, keep, repetitions)
    for n in (9, 50, 500):
        for kind in ("split", "adaptive"):
            yield conformal_case(kind, n, 0.9, repetitions)
    for kind in ("quantile", "threshold"):
        for factor in (1.0, 2.0, 4.0):
            yield monitor_case(kind, 1000, factor, repetitions)
    for n in (50, 500, 2000):
        for shift in (0.0, 0.5, 1.0, 2.0):
            yield drift_case(n, shift, repetitions)
    for n, m in ((50, 20), (500, 100)):
        for tied in (False, True):
            yield batch_case(n, m, tied, 0.0, repetitions)
        yield batch_case(n, m, False, 0.5, repetitions)


def risk_rows(repetitions: int) -> Iterator[Row]:
    """The cases of risk control."""
    for n, risk in ((9, 0.1), (50, 0.1), (50, 0.05), (200, 0.02)):
        for kind in ("miscoverage", "misses"):
            yield risk_case(kind, n, risk, repetitions)


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "decide": lambda count: rows(count),
    "risk control": risk_rows,
    "guard": guard_rows,
}
"""What can be run alone; rows say which part of nescio.decide they are from."""


def broken(row: Row) -> bool:
    """Whether a promise was not held, beyond three standard errors of the simulation."""
    if "held" not in row:
        return False
    spread = row.get("error", math.sqrt(row["promised"] * (1 - row["promised"]) / row["repetitions"]))
    return bool(row["held"] < row["promised"] - 3 * spread)


def table(result: list[Row]) -> str:
    names = ["part", "case", "n", "risk", "drift", "promised", "held", "answered", "coverage", "possible", "size"]
    names += ["detected", "delay"]
    lines = [names, *([_cell(row.get(name)) for name in names] for row in result)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def draw(result: list[Row]) -> Any:
    """What was held against what was promised: a line for each kind of score, a dot for each n and risk."""
    groups: dict[str, list[Row]] = {}
    for row in (row for row in result if "held" in row):
        groups.setdefault(f"{row['part']}: {row['case']}", []).append(row)
    figure, ax = style.axes(7.5, 0.27 * len(groups) + 1.0)
    parts = list(dict.fromkeys(row["part"] for row in result))
    for y, rows in enumerate(reversed(groups.values())):
        for row in rows:
            ax.plot([row["promised"]] * 2, [y - 0.35, y + 0.35], color=style.INK, linewidth=1.6, zorder=1)
            colour, size = style.COLOURS[parts.index(row["part"]) % len(style.COLOURS)], 3 + 1.2 * math.log10(row["n"])
            ax.plot(row["held"], y, "o", color=colour, markersize=size, alpha=0.7, markeredgewidth=0, zorder=3)
    ax.set_yticks(range(len(groups)), list(reversed(groups)), fontsize=8)
    ax.set(xlim=(0.88, 1.003), ylim=(-0.7, len(groups) - 0.3))
    ax.set_xlabel("promised (bar) and held (dot, larger for more examples)")
    return figure


def _name(row: Row) -> str:
    risk = f", risk {row['risk']:g}" if "risk" in row else ""
    return f"{row['part']}: {row['case']}{risk}, n = {row['n']:,}"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _mean_row(row: Row, values: list[float]) -> Row:
    error = float(np.std(values, ddof=1) / math.sqrt(len(values)))
    return {**row, "held": float(np.mean(values)), "error": error, "repetitions": len(values)}


def _softmax(z: Floats) -> Floats:
    e: Floats = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description="Do the promises of nescio.decide and of the guard hold?")
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--part", choices=tuple(PARTS), help="run this part alone, and keep what the others found")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    file = options.folder / "promises.json"
    found = json.loads(file.read_text()) if file.exists() else {"machines": {}, "rows": []}
    for part in PARTS if options.part is None else (options.part,):
        groups: dict[str, list[Row]] = {name: [] for name in PARTS}
        for row in found["rows"]:
            groups[row["part"] if row["part"] in PARTS else "decide"].append(row)
        groups[part] = list(PARTS[part](options.repetitions))
        found["rows"] = [row for group in groups.values() for row in group]
        found["machines"][part] = machine(torch.device("cpu"))
    result = found["rows"]
    print(table(result))
    failed = [_name(row) for row in result if broken(row)]
    print(f"\nBroken: {'; '.join(failed)}" if failed else "\nEvery promise held.")
    save("promises", found, options.folder)
    draw(result).savefig(options.folder / "promises.png", dpi=120)
    return result


if __name__ == "__main__":
    main()
