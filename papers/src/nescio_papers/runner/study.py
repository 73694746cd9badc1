"""What a study is: tables of methods (rows) on data sets (columns), and the paper's numbers beside them.

A study is declared, not programmed: a package for each paper has one short file for each of its tables, and for each
question beyond them. The runner reads the declaration, and so does the page. Where more than scores of pictures is
wanted, the declaration has a program of its own (`nescio_papers.runner.program`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nescio.types import InputError

Number = tuple[float, float | None]
"""A mean, and its standard deviation where the paper has one."""
Paper = Mapping[str, Mapping[str, tuple[Number, ...]]]
"""The paper's numbers by row and column, one for each metric of the part; the column "avg" has its printed averages."""
Task = Literal["ood", "calibration", "active", "runtime", "program"]

NAMES: Mapping[str, str] = {
    "mnist": "MNIST",
    "fashion": "FMNIST",
    "omniglot": "Omniglot",
    "cifar10": "C10",
    "cifar100": "C100",
    "svhn": "SVHN",
    "lsun": "LSUN",
}
"""In the heads of tables."""
FULL_NAMES: Mapping[str, str] = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""In figures and in prose."""


@dataclass(frozen=True)
class Metric:
    """How a number is shown: its name, how many of them make one (100: percent), digits, and which way is better."""

    label: str
    scale: float = 100.0
    digits: int = 2
    higher: bool = True
    averaged: bool = True


METRICS: Mapping[str, Metric] = {
    "auroc": Metric("AUROC"),
    "aupr": Metric("AUPR"),
    "fpr95": Metric("FPR95", higher=False),
    "raulc": Metric("rAULC", 1.0, 3),
    "acc": Metric("ACC"),
    "nll": Metric("NLL", 1.0, 3, higher=False),
    "twice": Metric("NLL of softmax outputs", 1.0, 3, higher=False),
    "tempered": Metric("NLL, scaled", 1.0, 3, higher=False),
    "factor": Metric("factor", 1.0, 3, averaged=False),
    "gain": Metric("gain, points"),
    "rho": Metric("rank correlation", 1.0, 4),
    "seconds": Metric("seconds", 1.0, 3, higher=False),
    "share": Metric("share, %", 100.0, 1, higher=False),
    "found": Metric("found, %", 100.0, 1),
    "ratio": Metric("ratio", 1.0, 4),
    "reverse": Metric("ratio, reversed", 1.0, 4),
    "looseness": Metric("bound over divergence", 1.0, 1, higher=False),
    "left": Metric("left over", 1.0, 6, higher=False),
    "predicted": Metric("predicted class", 1.0, 4, higher=False),
    "others": Metric("other classes", 1.0, 2, higher=False),
    "iou": Metric("IoU", 1.0, 3),
    "murr2": Metric("MURR 2 %", 1.0, 3),
    "murr5": Metric("MURR 5 %", 1.0, 3),
    "urr2": Metric("AUC-URR 2 %", 1.0, 3, higher=False),
    "urr5": Metric("AUC-URR 5 %", 1.0, 3, higher=False),
    "lead": Metric("lead of UA", 1.0, 3),
    "lead_low": Metric("from", 1.0, 3, averaged=False),
    "lead_high": Metric("to", 1.0, 3, averaged=False),
}


@dataclass(frozen=True)
class Column:
    """A data set that the model knows and, for detection, one that is foreign to it.

    model is the training plan (as a rule that of the data set); `foreign` is a data set or, with a colon, a shift of
    the known one ("shift:rotated"). split="validation" takes pictures that no test number rests on.
    """

    known: str
    foreign: str | None = None
    model: str = ""
    split: Literal["test", "validation"] = "test"

    @property
    def plan(self) -> str:
        """The name of the training plan."""
        return self.model or self.known

    @property
    def key(self) -> str:
        """`known→foreign`, or `known`."""
        return self.known if self.foreign is None else f"{self.known}→{self.foreign.removeprefix('shift:')}"

    @property
    def label(self) -> str:
        """The key with names as the paper has them."""
        return "→".join(NAMES.get(name, name) for name in self.key.split("→"))


def pairs(text: str, model: str = "", split: Literal["test", "validation"] = "test") -> tuple[Column, ...]:
    """Return columns from words such as `mnist→omniglot cifar10→svhn`; `model` stands before the known set's name."""
    columns = []
    for word in text.split():
        known, _, foreign = word.partition("→")
        columns.append(Column(known, foreign or None, f"{model}{known}" if model else "", split))
    return tuple(columns)


@dataclass(frozen=True)
class Row:
    """A method with its settings.

    by_set has further settings for a known data set. paper names the paper's row; of rows with the same `choice` the
    best one stands for that row, which is how the paper chose; `ranked` says whether the row takes part in
    the ranking of the paper's methods.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_set: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: str | None = None
    choice: str = ""
    ranked: bool = True
    note: str = ""

    def settings_for(self, known: str) -> dict[str, Any]:
        """Return all settings for a known data set."""
        return {**self.settings, **self.by_set.get(known, {})}


@dataclass(frozen=True)
class Part:
    """One table: a task, columns, rows, metrics and the paper's numbers.

    averages: "joint" is one mean over all metrics and columns, "each" one for each metric, None none. alone=True times
    every method by itself. reference is the label of the row that `rho` compares with. line draws a curve: the setting
    on the x axis, or "seconds". most bounds the pictures of a set at every scale (0: no bound).
    """

    title: str
    task: Task
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    paper: Paper = field(default_factory=dict)
    averages: Literal["joint", "each"] | None = None
    alone: bool = False
    reference: str = ""
    line: str = ""
    most: int = 0


@dataclass(frozen=True)
class Study:
    """A table of a paper, or a question; with a program, that fills the parts in and draws figures."""

    name: str
    title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    program: Callable[[Any], Any] | None = None
    """From a `nescio_papers.runner.program.Job` to what was `Made`."""


def paper_table(text: str) -> Paper:
    """Return the paper's numbers from a text: a line of columns, then a line for each row, cells between bars.

    method | mnist→omniglot | avg
    REGrad* | 98.19±0.02 97.95±0.06 | 94.56
    """
    head, *lines = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines() if line.strip()]
    rows: dict[str, dict[str, tuple[Number, ...]]] = {}
    for label, *cells in lines:
        if len(cells) != len(head) - 1:
            raise InputError(f"expected {len(head) - 1} cells in the paper's row '{label}', got {len(cells)}")
        rows[label] = {key: tuple(map(_number, cell.split())) for key, cell in zip(head[1:], cells, strict=True)}
    return rows


def _number(word: str) -> Number:
    match = re.fullmatch(r"(-?\d+\.?\d*)(?:±(\d*\.?\d+))?s?", word)
    if match is None:
        raise InputError(f"expected a number such as 98.19±0.02, got '{word}'")
    return float(match[1]), None if match[2] is None else float(match[2])
